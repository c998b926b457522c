"""A sum of which only the largest entry's place is opened: the sibling of `Summation`.

Nobody ever holds the sum. A leader and a helper, two organisations that do not collude, hold a
share of it each, and open the winner together (`urna.protocols.winner`). Clients add no noise: it
is drawn where the winner is found, from both parties' coins.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from urna.errors import ParameterError, ProtocolError, RoundUnfinished
from urna.noise import IntVector
from urna.privacy import (
    Adjacency,
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    SelectionRelease,
    Sensitivity,
)
from urna.protocols.secagg import Plan, Stage
from urna.protocols.secagg import plan as plan_round
from urna.protocols.secagg import run as run_round
from urna.protocols.secagg.masks import centred, wrapped
from urna.protocols.winner import Circuit, CircuitOutcome
from urna.protocols.winner import run as run_hidden
from urna.randomness import SEED_BYTES, SecretSource, expand_words
from urna.tally.contribution import SumRange
from urna.tally.plan import TallyPlan
from urna.tally.secure import SERVERS
from urna.tally.slot import Slot
from urna.tally.summation import ClientId, Contributions
from urna.tally.terms import Terms

ACCOUNTANT = "selection (tails of geometric noise)"

Started = Callable[[], None]
"""Notes that the circuit starts: from then on the selection counts, and is not held again."""


def unnoted() -> None:
    """Note nothing, where there is no ledger."""


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Everything public about a sum of which only the winner is opened.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        release: What is opened, and under which noise.
        levels: The most one contribution gives an entry.
        head_start: What each entry is given in advance, in steps of the noise's grid.
        order: The places of all entries in the order that decides between equals.

    Raises:
        ParameterError: The parts do not fit each other.
    """

    terms: Terms
    release: SelectionRelease
    levels: int
    head_start: tuple[int, ...]
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        count = self.release.candidates
        if len(self.head_start) != count or min(self.head_start) < 0:
            raise ParameterError(f"a head start is {count} whole numbers, none negative")
        if sorted(self.order) != list(range(count)):
            raise ParameterError(f"an order names each of {count} entries once")

    @property
    def dimension(self) -> int:
        """Entries of the sum."""
        return self.release.candidates

    @property
    def most(self) -> int:
        """The most an entry of the sum can be."""
        return self.terms.clients * self.terms.shards * self.levels

    @property
    def ring_bits(self) -> int:
        """Shares are modulo 2^16, 2^32 or 2^64: at least what the circuit adds up modulo."""
        needed = self.circuit.share_width - self.release.fineness
        return next(bits for bits in (16, 32, 64) if needed <= bits)

    @property
    def circuit(self) -> Circuit:
        """What leader and helper compute."""
        most = (self.most << self.release.fineness) + max(self.head_start)
        return Circuit(self.release, most.bit_length())

    @property
    def helper(self) -> ClientId:
        """The helper's number among the parties of the sum: the one after all clients."""
        return self.terms.clients

    @property
    def round_plan(self) -> Plan:
        """The plan of the secure sum that makes the shares: no noise, and one party more."""
        return self.sum_against(self.terms.colluders)

    def sum_against(self, colluders: int) -> Plan:
        """Return the plan of the secure sum that holds against so many colluding clients."""
        terms = self.terms
        return plan_round(
            clients=terms.clients + 1,
            dimension=self.dimension,
            ring_bits=self.ring_bits,
            colluders=colluders,
            dropouts=terms.dropouts,
            server=terms.server,
            required=frozenset({self.helper}),
        )

    @property
    def digest(self) -> bytes:
        """What all parties must agree on."""
        parts = [self.terms.as_mapping(), self.levels, self.head_start, self.order]
        text = repr(parts).encode() + self.circuit.digest + self.round_plan.digest
        return hashlib.sha256(b"urna selection plan 1\0" + text).digest()

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        return {
            **self.terms.as_mapping(),
            "opens": "winner",
            "accountant": ACCOUNTANT,
            "selection": self.release.as_mapping(),
            "noise_std": self.release.noise_std,
            "levels": self.levels,
            "dimension": self.dimension,
            "ring_bits": self.ring_bits,
        }


@dataclass(frozen=True, slots=True)
class LevelSums:
    """What goes into the secure sum that makes shares: levels of clients, and a helper's mask."""

    dimension: int
    levels: int
    """Of all of a client's contributions together."""
    ring_bits: int

    @property
    def reach(self) -> int:
        """The top level."""
        return self.levels

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one unit moves the sum, in L2. No noise is made for it."""
        del adjacency
        return Sensitivity(self.dimension * self.levels**2, self.dimension)

    def whole_client(self) -> Sensitivity | None:
        """Return nothing: a selection is priced by differences of two entries."""
        return None

    def range_of(self, clients: int) -> SumRange:
        """Return where the opened sum lies: anywhere in the ring, because of the mask."""
        del clients
        half = 1 << (self.ring_bits - 1)
        return SumRange(-half, half, -half * self.dimension, half * self.dimension)

    def check(self, vector: IntVector) -> None:
        """Raise ParameterError unless a client can have put this in."""
        if int(vector.min()) < 0 or int(vector.max()) > self.levels:
            raise ParameterError(f"ballots of levels give a candidate 0 to {self.levels}")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "levels", "levels": self.levels, "dimension": self.dimension}


@dataclass(frozen=True, slots=True)
class SharedPlan(TallyPlan):
    """The plan of the secure sum whose opened total is a leader's share, as any sum's.

    Its terms count the helper among the clients.
    """

    selection: SelectionPlan | None = None

    @classmethod
    def of(cls, terms: Terms, selection: SelectionPlan) -> "SharedPlan":
        """Return the plan of the sum that makes the shares of a selection."""
        levels = selection.levels * terms.shards
        sums = LevelSums(selection.dimension, levels, selection.ring_bits)
        return cls(terms, sums, None, selection.ring_bits, selection=selection)

    @property
    def event(self) -> Release | None:
        """What one round is in a ledger: the selection."""
        return None if self.selection is None else self.selection.release

    @property
    def round_plan(self) -> Plan:
        """The protocol's plan: without noise, and never opened without the helper.

        It holds against as many colluders as these terms name, which count the helper in.
        """
        if self.selection is None:
            raise ParameterError("a shared sum is one of a selection")
        return self.selection.sum_against(self.terms.colluders)


@dataclass(frozen=True, slots=True)
class Selected:
    """The winner of a hidden sum, and what became of each client."""

    winner: int
    """The entry that won."""
    gap: float | None
    """Fewest votes it would have to lose to be overtaken, noise included; None if not told."""
    accepted: frozenset[ClientId]
    lost: Mapping[ClientId, str]
    release: Release
    faults: Mapping[ClientId, str] = field(default_factory=dict)
    traffic: int = 0
    """Bytes between them."""
    verified: bool = False
    """Whether every ballot counted was checked."""


class Selection(Protocol):
    """A way to add up contributions so that only the winner is learnt."""

    @property
    def helper(self) -> str:
        """Who holds the other share, for every output."""
        ...

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who was trusted with what, for every output."""
        ...

    def select(
        self,
        contributions: Contributions,
        plan: SelectionPlan,
        secrets: SecretSource,
        started: Started = unnoted,
    ) -> Selected:
        """Return the winner.

        Args:
            contributions: Every client's levels.
            plan: What is opened.
            secrets: Where everybody's keys and coins come from.
            started: Called once, before the circuit starts. If it raises, nothing is revealed.

        Raises:
            RoundAborted: Too few clients or the helper were lost before the circuit started.
                Nothing was opened, and nothing counts.
            RoundUnfinished: The circuit started and opened no winner. It counts, whoever ended it.
        """
        ...


@dataclass(frozen=True, slots=True)
class HelperSelection:
    """Shares by SecAgg+ with the helper as one more client, all parties played in this process.

    The helper's vector is a uniform mask. What the leader opens is the sum and that mask, so it
    says nothing; the helper knows the mask and nothing else.

    Guarantee:
        As long as leader and helper do not collude, nobody learns more than the winner, and
        the gap where it is opened: a curious leader with all clients but two, and a curious
        helper with all clients but one, included (docs/decisions/0027-winner-only.md).

    Args:
        helper: Who helps, for every output.
        dropouts: Clients that vanish, and the stage from which on they are silent.
    """

    helper: str
    dropouts: Mapping[ClientId, Stage] = field(default_factory=dict)

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who was trusted with what."""
        return f"{rests_on('the leader', self.helper, terms)}. {PLAYED}"

    def select(
        self,
        contributions: Contributions,
        plan: SelectionPlan,
        secrets: SecretSource,
        started: Started = unnoted,
    ) -> Selected:
        """Return the winner."""
        if len(contributions) != plan.terms.clients:
            raise ParameterError(
                f"the plan is for {plan.terms.clients} clients, got {len(contributions)}"
            )
        mask = mask_of(secrets.take(SEED_BYTES), plan)
        outcome = run_round(
            {**contributions, plan.helper: mask}, plan.round_plan, secrets, dropouts=self.dropouts
        )
        lost = {c: str(loss) for c, loss in sorted(outcome.lost.items())}
        started()
        with circuit_started(lost):
            found = run_hidden(
                plan.circuit,
                leader_shares(outcome.total, plan),
                helper_shares(mask, plan),
                context=secrets.take(SEED_BYTES),
                leader_source=secrets,
                helper_source=secrets,
            )
        survivors = outcome.survivors - {plan.helper}
        kept = {client: why for client, why in lost.items() if client not in outcome.survivors}
        return selected(found, plan, survivors, kept, outcome.faults)


@contextmanager
def circuit_started(
    lost: Mapping[ClientId, str], faults: Mapping[ClientId, str] | None = None
) -> Iterator[None]:
    """Let a selection whose circuit has started count, however it ends.

    From the leader's transfers on, a message depends on the sum. A party that cheats could learn
    something from one and then look lost: no failure from here on takes the charge back.

    Args:
        lost: Clients that are lost, and why.
        faults: Clients that broke the protocol, and how.

    Raises:
        RoundUnfinished: The circuit opened no winner. It counts.
    """
    try:
        yield
    except ProtocolError as error:
        reason = f"no winner was opened, and the vote counts: {error}"
        raise RoundUnfinished(reason, lost, faults) from error


def rests_on(leader: str, helper: str, terms: Terms, *, verified: bool = False) -> str:
    """Say whom a winner rests on, what the two could read together, and what each of them saw."""
    both = f"It rests on {leader} and {helper} not colluding: together they could read"
    if verified:
        return (
            f"{both} every ballot. Each alone, curious and following the protocol, saw the winner, "
            "random shares and who was refused; every ballot counted was verified, and no tally "
            "was opened"
        )
    return (
        f"{both} the exact sum of all ballots. Each alone, curious and following the protocol (the "
        f"server's part of SecAgg+ {SERVERS[terms.server]}), saw the winner and random shares; no "
        "tally was opened"
    )


PLAYED = "All parties were played in one process"


def mask_of(seed: bytes, plan: SelectionPlan) -> IntVector:
    """Return the helper's vector: uniform over the ring, from a fresh secret seed."""
    return centred(expand_words(seed, plan.dimension, plan.ring_bits))


def leader_shares(total: IntVector, plan: SelectionPlan) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the leader's shares, in the public order: what the secure sum opened."""
    return _shares(wrapped(total, plan.ring_bits).astype(np.uint64), plan)


def helper_shares(mask: IntVector, plan: SelectionPlan) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the helper's shares, in the public order: less its mask, and the head start."""
    words = wrapped(-mask, plan.ring_bits).astype(np.uint64)
    start = np.array(plan.head_start, dtype=np.uint64)[list(plan.order)]
    modulus = np.uint64((1 << plan.circuit.share_width) - 1)
    return (_shares(words, plan) + start) & modulus


def _shares(
    words: np.ndarray[Any, np.dtype[np.uint64]], plan: SelectionPlan
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    ordered = words[list(plan.order)] << np.uint64(plan.release.fineness)
    return np.asarray(ordered & np.uint64((1 << plan.circuit.share_width) - 1))


def selected(
    found: CircuitOutcome,
    plan: SelectionPlan,
    accepted: frozenset[ClientId],
    lost: Mapping[ClientId, str],
    faults: Mapping[ClientId, str],
    *,
    verified: bool = False,
) -> Selected:
    """Return what an opened circuit says about the entries of the sum."""
    gap = found.opened.gap
    return Selected(
        winner=plan.order[found.opened.place],
        gap=None if gap is None else gap / 2**plan.release.fineness,
        accepted=accepted,
        lost=lost,
        release=plan.release,
        faults=faults,
        traffic=sum(found.traffic.values()),
        verified=verified,
    )


def public_order(label: bytes, count: int) -> tuple[int, ...]:
    """Return an order that everybody can compute and that favours no corner of a grid."""
    lots = expand_words(hashlib.sha256(b"urna order\0" + label).digest(), count, 64)
    return tuple(np.argsort(lots, kind="stable").tolist())


def open_selection(
    plan: SelectionPlan,
    select: Callable[[Started], Selected],
    *,
    label: str,
    described: str,
    ledger: Ledger | None = None,
    private: bool = True,
    id: str | None = None,  # noqa: A002
    keep: Callable[[Selected, PrivacyStatement, str | None], None] | None = None,
) -> tuple[Selected, PrivacyStatement, str | None]:
    """Count a selection, hold it, and say what it cost.

    Guarantee:
        That of `Slot`. It is withdrawn only if it ends before leader and helper start the
        circuit. That the circuit starts is noted before it does: from then on nothing is
        opened under the id again, however it ends, a kill included.

    Raises:
        BudgetExceeded, LedgerError: As `Slot`. Nothing was opened.
        RoundAborted: It ended before the circuit started, and nothing counts.
        RoundUnfinished: It ended after that, and counts.
    """
    event: Release = plan.release if private else NonPrivateRelease("scripted secrets")
    slot = Slot(event, label, plan.terms.adjacency, ledger=ledger, id=id)
    statement = statement_of(plan, described, private)

    def take(found: Selected) -> None:
        if keep is not None:
            keep(found, statement, slot.entry)

    found = slot.release(lambda: select(slot.started), _digest, take)
    return found, statement, slot.entry


def _digest(found: Selected) -> str:
    """Return a digest of what was opened, and of who had a part in it."""
    said = (found.winner, found.gap, sorted(found.accepted))
    return hashlib.sha256(repr(said).encode()).hexdigest()


def statement_of(plan: SelectionPlan, described: str, private: bool) -> PrivacyStatement:
    """Return what a selection promises, and on what it rests."""
    release = plan.release
    why: Sequence[str] = () if private else ("The randomness was scripted: nothing is private",)
    told = "the winner and its gap" if release.gap else "the winner"
    return PrivacyStatement(
        epsilon=release.epsilon if private else math.inf,
        delta=(1 + math.exp(release.epsilon)) * release.slip,
        adjacency=plan.terms.adjacency,
        accountant=ACCOUNTANT if private else "none",
        caveats=(*why, f"Opened were {told}, nothing else", described),
    )

"""The ways to find only the largest entry's place of a sum: the siblings of `Summation`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from urna.errors import ParameterError, ProtocolError, RoundUnfinished
from urna.protocols.ballots import play
from urna.protocols.secagg import Stage
from urna.protocols.secagg import run as run_round
from urna.protocols.winner import CircuitOutcome
from urna.protocols.winner import run as run_hidden
from urna.randomness import SEED_BYTES, SecretSource
from urna.tally.selection_plan import (
    SelectionPlan,
    circuit_modulo,
    count_of,
    helper_shares,
    leader_shares,
    mask_of,
    residues,
)
from urna.tally.summation import SERVERS, ClientId, Contributions
from urna.tally.terms import Terms

Started = Callable[[], None]
"""Notes that the circuit starts: from then on the selection counts, and is not held again."""

PLAYED = "All parties were played in one process"


def unnoted() -> None:
    """Note nothing, where there is no ledger."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The winner of a sum that nobody saw, and what became of each client."""

    winner: int
    """The entry that won."""
    gap: float | None
    """Fewest votes it would have to lose to be overtaken, noise included; None if not told."""
    accepted: frozenset[ClientId]
    lost: Mapping[ClientId, str]
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
        _check_clients(contributions, plan)
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


@dataclass(frozen=True, slots=True)
class VerifiedSelection:
    """Only the winner is opened, and every ballot is verified; all parties in this process.

    Guarantee:
        As `HelperSelection`, and no ballot that is not valid is counted: an invalid one passes
        with a probability below 2⁻⁷⁸, for each ballot that is tried.

    Args:
        helper: Who helps, for every output.
    """

    helper: str

    def describe(self, terms: Terms) -> str:
        """Say in one sentence who was trusted with what."""
        return f"{rests_on('the leader', self.helper, terms, verified=True)}. {PLAYED}"

    def select(
        self,
        contributions: Contributions,
        plan: SelectionPlan,
        secrets: SecretSource,
        started: Started = unnoted,
    ) -> Selected:
        """Return the winner.

        Raises:
            RoundAborted: Too few ballots are valid. Nothing was opened, and nothing counts.
            RoundUnfinished: The circuit started and opened no winner. It counts, whoever ended it.
        """
        _check_clients(contributions, plan)
        count = count_of(plan)
        circuit = circuit_modulo(plan, count.codec.modulus)  # what does not fit is said first
        made = {c: each() if callable(each) else each for c, each in sorted(contributions.items())}
        played = play(made, count, secrets)
        ours, theirs, modulus = played.shares()
        refused = dict(played.refused)
        lost = {**played.lost, **refused}
        started()
        with circuit_started(lost, refused):
            found = run_hidden(
                circuit,
                residues(ours, plan, modulus),
                residues(theirs, plan, modulus, started=True),
                context=played.statement.digest,
                leader_source=secrets,
                helper_source=secrets,
            )
        return selected(found, plan, played.accepted, lost, refused, verified=True)


def _check_clients(contributions: Contributions, plan: SelectionPlan) -> None:
    if len(contributions) != plan.terms.clients:
        raise ParameterError(
            f"the plan is for {plan.terms.clients} clients, got {len(contributions)} contributions"
        )


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
        faults=faults,
        traffic=sum(found.traffic.values()),
        verified=verified,
    )

"""What is decided about a selection before anybody contributes, and what shares of its sum are.

Nobody ever has the sum. A leader and a helper, two organisations that do not collude, have a
share of it each, and find the winner together (`urna.protocols.winner`). Clients add no noise: it
is drawn where the winner is found, from both parties' coins.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Release, SelectionRelease, Sensitivity
from urna.protocols.ballots import BallotLayout, CountPlan
from urna.protocols.secagg import Plan
from urna.protocols.secagg import plan as plan_round
from urna.protocols.secagg.masks import centred
from urna.protocols.winner import Circuit
from urna.randomness import expand_words
from urna.tally.contribution import SumRange
from urna.tally.plan import TallyPlan
from urna.tally.summation import ClientId
from urna.tally.terms import Terms

ACCOUNTANT = "selection (tails of geometric noise)"

Shares = npt.NDArray[np.uint64]


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
        """Return that plan, so that it holds against so many colluding clients."""
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


def public_order(label: bytes, count: int) -> tuple[int, ...]:
    """Return an order that everybody can compute and that favours no corner of a grid."""
    lots = expand_words(hashlib.sha256(b"urna order\0" + label).digest(), count, 64)
    return tuple(np.argsort(lots, kind="stable").tolist())


def mask_of(seed: bytes, plan: SelectionPlan) -> IntVector:
    """Return the helper's vector: uniform over the ring, from a fresh secret seed."""
    return centred(expand_words(seed, plan.dimension, plan.ring_bits))


def leader_shares(total: IntVector, plan: SelectionPlan) -> Shares:
    """Return the leader's shares: what the secure sum revealed."""
    return residues(total.tolist(), plan, 1 << plan.circuit.share_width)


def helper_shares(mask: IntVector, plan: SelectionPlan) -> Shares:
    """Return the helper's shares: less its mask, and the head start."""
    modulus = 1 << plan.circuit.share_width
    return residues((-mask).tolist(), plan, modulus, started=True)


def residues(
    share: Sequence[int], plan: SelectionPlan, modulus: int, *, started: bool = False
) -> Shares:
    """Return a share of the sum on the noise's grid, in the public order.

    Args:
        share: Of each entry.
        plan: What is selected.
        modulus: What shares add up modulo.
        started: Whether to add what each entry is given in advance: one party does.
    """
    start = plan.head_start if started else (0,) * plan.dimension
    fineness = plan.release.fineness
    scaled = [((share[place] << fineness) + start[place]) % modulus for place in plan.order]
    return np.array(scaled, dtype=np.uint64)


def count_of(plan: SelectionPlan) -> CountPlan:
    """Return the count of verified ballots that leaves leader and helper with the shares."""
    terms = plan.terms
    layout = BallotLayout(plan.dimension, plan.levels * terms.shards)
    return CountPlan(layout, terms.clients, terms.fewest)


def circuit_modulo(plan: SelectionPlan, modulus: int) -> Circuit:
    """Return the circuit of a selection for shares modulo a prime."""
    return Circuit(plan.release, plan.circuit.width, modulus)

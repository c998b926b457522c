"""What one private sum will do, decided before anybody contributes."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from urna.errors import ParameterError, UnknownName
from urna.noise import FAMILIES, Noise
from urna.privacy import (
    Adjacency,
    Ballot,
    Budget,
    Calibration,
    Unit,
    calibrate_ballots,
    check_shards,
    honest_survivors,
    whole_client_epsilon,
)
from urna.privacy.budget import rounded_up
from urna.privacy.distributions import SKELLAM

__all__ = ["MOST_PRECISE", "RING_BITS", "TallyPlan", "plan_tally"]

RING_BITS = (16, 32, 64)
"""Sums run modulo 2^16, 2^32 or 2^64."""

MOST_PRECISE = 8
"""Tolerated dropouts up to which excess noise is removed precisely, one component for each."""

_HEADROOM = 12  # standard deviations of noise that must fit beside the true sum


@dataclass(frozen=True, slots=True)
class TallyPlan:
    """Everything public about one sum: what is valid, how much noise, which ring.

    Raises:
        ParameterError: A true sum and 12 standard deviations of noise could wrap around, or
            clients would add up several ballots under noise that protects whole clients.
    """

    clients: int
    shape: Ballot
    calibration: Calibration
    adjacency: Adjacency
    budget: Budget
    dropout: Fraction
    colluding: Fraction
    ring_bits: int
    removes_excess: bool = True
    """Whether noise for dropouts that did not happen will be removed from the sum."""
    shards: int = 1
    """Ballots that each client adds up before it takes part, one for each shard of its records."""

    def __post_init__(self) -> None:
        check_shards(self.adjacency, self.shards)
        if self.ring_bits not in RING_BITS:
            raise ParameterError(f"a ring has 16, 32 or 64 bits, got {self.ring_bits}")
        if self.needed > 1 << (self.ring_bits - 1):
            raise ParameterError(
                f"the sum and 12 standard deviations of its noise reach {self.needed:,} grid "
                f"steps; a ring of {self.ring_bits} bits holds {1 << (self.ring_bits - 1):,}. "
                "Use a wider ring."
            )

    @property
    def scale(self) -> int:
        """Grid steps per unit of a ballot's weights."""
        return self.calibration.scale

    @property
    def vote(self) -> float:
        """Grid steps per vote."""
        return self.shape.vote * self.scale

    @property
    def noise_std(self) -> float:
        """Standard deviation, in votes, that the fewest honest survivors leave in the sum."""
        return math.sqrt(self.calibration.release.variance) / self.vote

    @property
    def share(self) -> Fraction:
        """Variance of the noise one client adds, in grid steps squared."""
        return self.calibration.release.share

    @property
    def noise(self) -> Noise:
        """The family the noise comes from."""
        return FAMILIES[self.calibration.release.family]

    @property
    def dimension(self) -> int:
        """Entries of the summed vector: one for each candidate."""
        return self.shape.candidates

    @property
    def fewest(self) -> int:
        """Fewest clients with which a sum may be opened; with fewer the round aborts."""
        return self.clients - math.floor(self.clients * self.dropout)

    @property
    def fewest_ballots(self) -> int:
        """Fewest ballots in a sum that is opened."""
        return self.fewest * self.shards

    @property
    def whole_client_epsilon(self) -> float:
        """What is proven for all data of one client, at the budget's delta.

        Of a record-level plan; where the unit is the client it is the plan's own epsilon.
        """
        if self.shards == 1:  # one ballot is all a client can move, whatever changes in its data
            return self.calibration.epsilon
        release = self.calibration.release
        return whole_client_epsilon(
            release, self.shards, self.budget.delta, candidates=self.dimension
        )

    @property
    def unit_caveats(self) -> tuple[str, ...]:
        """What a reader must know of the protected unit, in whole sentences."""
        if self.adjacency.unit is not Unit.RECORD:
            return ()
        if self.shards == 1:
            return ("Each client had one ballot, so the same epsilon holds for a whole client",)
        proven = self.whole_client_epsilon
        client = f"only epsilon {rounded_up(proven)}" if math.isfinite(proven) else "nothing"
        return (
            "A whole client is NOT protected at this epsilon: each client added up "
            f"{self.shards} ballots of disjoint shards of its records, one record moves one of "
            f"them, and for all data of one client {client} is proven at the same delta",
        )

    @property
    def most_noise(self) -> Fraction:
        """Largest variance the opened sum can have, in grid steps squared.

        Where excess is removed, survivors leave the target and what those counted out add to
        it; the most when all tolerated dropouts happen. Approximate removal leaves up to one
        share too much. Without removal everybody's whole share stays.
        """
        release = self.calibration.release
        if not (self.removes_excess and self.noise.distribution.closed_under_addition):
            return self.share * self.clients
        precise = self.clients - self.fewest <= MOST_PRECISE
        rest = Fraction(0) if precise else Fraction(1, release.shares)
        return release.variance * Fraction(self.fewest, release.shares) * (1 + rest)

    @property
    def most_noise_std(self) -> float:
        """Largest standard deviation the opened sum can have, in votes."""
        return math.sqrt(self.most_noise) / self.vote

    @property
    def needed(self) -> int:
        """Largest magnitude, in grid steps, that the ring must hold."""
        # Before any removal, every client's whole share is in the ring.
        votes = self.clients * self.shards * self.shape.most * self.scale
        return votes + math.ceil(_HEADROOM * math.sqrt(self.share * self.clients))


def plan_tally(
    *,
    clients: int,
    shape: Ballot,
    budget: Budget,
    dropout: Fraction = Fraction(0),
    colluding: Fraction = Fraction(0),
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    family: str = SKELLAM.name,
    ring_bits: int | None = None,
    removes_excess: bool = True,
    shards: int = 1,
) -> TallyPlan:
    """Size the noise and the ring of one sum of ballots.

    Args:
        clients: How many clients are invited.
        shape: What a valid ballot is.
        budget: What the sum may cost.
        dropout: Largest fraction of clients that may drop out.
        colluding: Largest fraction of clients that may tell the server their noise.
        adjacency: Between which electorates the guarantee holds.
        family: Name of the noise's family.
        ring_bits: 16, 32 or 64; by default the narrowest that cannot wrap.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
        shards: Ballots that each client adds up; more than one protects records, not clients.
            The noise is the same, because one record moves one ballot.
    """
    check_shards(adjacency, shards)
    if clients < 2:
        raise ParameterError(f"a sum hides its parts among at least two clients, got {clients}")
    if family not in FAMILIES:
        raise UnknownName("noise family", family, FAMILIES)
    calibration = calibrate_ballots(
        budget,
        shape,
        shares=honest_survivors(clients, dropout=dropout, colluding=colluding),
        adjacency=adjacency,
        family=FAMILIES[family].distribution,
    )
    widest = TallyPlan(
        clients,
        shape,
        calibration,
        adjacency,
        budget,
        dropout,
        colluding,
        RING_BITS[-1] if ring_bits is None else ring_bits,
        removes_excess,
        shards,
    )
    if ring_bits is not None:
        return widest
    narrowest = next(bits for bits in RING_BITS if widest.needed <= 1 << (bits - 1))
    return replace(widest, ring_bits=narrowest)

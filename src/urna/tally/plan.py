"""What one private sum will do, decided before anybody contributes."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from urna.errors import ParameterError
from urna.noise import Noise
from urna.privacy import (
    Adjacency,
    Calibration,
    Release,
    Repeated,
    Sampled,
    SumRelease,
    Unit,
    calibrate,
)
from urna.privacy.budget import rounded_up
from urna.privacy.calibration import sampled_delta
from urna.protocols.secagg import Plan
from urna.protocols.secagg import plan as plan_round
from urna.tally.contribution import Contribution
from urna.tally.terms import Terms

RING_BITS = (16, 32, 64)
"""Sums run modulo 2^16, 2^32 or 2^64."""

_HEADROOM = 12  # standard deviations of noise that must fit beside the true sum


@dataclass(frozen=True, slots=True)
class TallyPlan:
    """Everything public about one sum: what is valid, how much noise, which ring.

    Raises:
        ParameterError: A true sum and 12 standard deviations of noise could wrap around.
    """

    terms: Terms
    contribution: Contribution
    calibration: Calibration | None
    """The noise; None for a sum that is meant to be exact, and promises nothing."""
    ring_bits: int
    removes_excess: bool = True
    """Whether noise for dropouts that did not happen will be removed from the sum."""
    rate: Fraction | None = None
    """Probability with which each protected unit (a client, or a record of one) is in a round's
    secret Poisson sample; None where all are. What is not drawn sends nothing but noise."""

    def __post_init__(self) -> None:
        if self.ring_bits not in RING_BITS:
            raise ParameterError(f"a ring has 16, 32 or 64 bits, got {self.ring_bits}")
        if self.needed > 1 << (self.ring_bits - 1):
            raise ParameterError(
                f"the sum and 12 standard deviations of its noise reach {self.needed:,} grid "
                f"steps; a ring of {self.ring_bits} bits holds {1 << (self.ring_bits - 1):,}. "
                "Use a wider ring, or coarser contributions."
            )

    @property
    def clients(self) -> int:
        """How many clients are invited."""
        return self.terms.clients

    @property
    def dimension(self) -> int:
        """Entries of the summed vector."""
        return self.contribution.dimension

    @property
    def scale(self) -> int:
        """Grid steps per unit of the contributions."""
        return 1 if self.calibration is None else self.calibration.scale

    @property
    def release(self) -> SumRelease | None:
        """What opening the sum is, at the least noise that may be left; None if exact."""
        return None if self.calibration is None else self.calibration.release

    @property
    def event(self) -> Release | None:
        """What one round is in a ledger; None if exact."""
        release = self.release
        if release is None or self.rate is None:
            return release
        replaced = self.terms.adjacency.replaces
        return Sampled(release, self.rate, sampled_delta(self.terms.budget), replaced)

    def other_relation(self, rounds: int) -> dict[Adjacency, float]:
        """Return what so many rounds cost under the other relation about records, if known."""
        event, relations = self.event, {*Adjacency} - {self.terms.adjacency}
        other = next(r for r in relations if r.unit is Unit.RECORD)
        if event is None or self.terms.adjacency.unit is not Unit.RECORD:
            return {}
        if isinstance(event, Sampled):
            event = replace(event, replaced=other.replaces)
        elif isinstance(event, SumRelease):
            try:
                moved = self.contribution.sensitivity(other).scaled(self.scale)
            except ParameterError:
                return {}
            event = replace(event, sensitivity=moved)
        return {other: Repeated(event, rounds).cost().at(self.terms.budget.delta)}

    @property
    def whole_epsilon(self) -> float:
        """What the sum costs, or all sums of a series; infinite where it is exact."""
        return math.inf if self.calibration is None else self.calibration.epsilon

    @property
    def accountant(self) -> str:
        """What computed that epsilon."""
        return "none" if self.calibration is None else self.calibration.accountant

    @property
    def share(self) -> Fraction:
        """Variance of the noise one client adds, in grid steps squared."""
        return Fraction(0) if self.release is None else self.release.share

    @property
    def noise(self) -> Noise:
        """The family the noise comes from."""
        return self.terms.noise

    @property
    def noise_std(self) -> float:
        """Standard deviation, in units, that the fewest honest survivors leave in the sum."""
        return 0.0 if self.calibration is None else self.calibration.noise_std

    @property
    def most_noise(self) -> Fraction:
        """Largest variance the opened sum can have, in grid steps squared.

        Where excess is removed, survivors leave the target and what those counted out add to
        it; the most when all tolerated dropouts happen. Approximate removal leaves up to one
        share too much. Without removal everybody's whole share stays.
        """
        release, terms = self.release, self.terms
        if release is None:
            return Fraction(0)
        if not (self.removes_excess and self.noise.distribution.closed_under_addition):
            return self.share * self.clients
        rest = Fraction(1, release.shares) if terms.removal == "approximate" else Fraction(0)
        return release.variance * Fraction(terms.fewest, release.shares) * (1 + rest)

    @property
    def most_noise_std(self) -> float:
        """Largest standard deviation the opened sum can have, in units."""
        return math.sqrt(self.most_noise) / self.scale

    @property
    def needed(self) -> int:
        """Largest magnitude, in grid steps, that the ring must hold."""
        # Before any removal, every client's whole share is in the ring.
        exact = self.clients * self.contribution.reach * self.scale
        return exact + math.ceil(_HEADROOM * math.sqrt(self.share * self.clients))

    def whole_client_over(self, rounds: int) -> float:
        """Return what is proven for all data of one client over so many sums of a series."""
        moved, release = self.contribution.whole_client(), self.release
        if release is None or moved is None:
            return math.inf
        grouped = replace(release, sensitivity=moved.scaled(self.scale))
        return Repeated(grouped, rounds).cost().at(self.terms.budget.delta)

    def caveats_over(self, rounds: int) -> tuple[str, ...]:
        """Return what a reader of so many sums must know of the protected unit."""
        adjacency = self.terms.adjacency
        sampled: tuple[str, ...] = ()
        if self.release is not None and self.rate is not None:
            sampled = (
                f"Epsilon counts on sampling: in every round each {adjacency.unit} was drawn with "
                f"a probability of {float(self.rate):g} only, in secret. It does not hold towards "
                "anybody who learns what was drawn",
            )
        if self.release is None or adjacency.unit is not Unit.RECORD:
            return sampled
        other = tuple(
            f"Under {relation} ({relation.described}) the same rounds are ({rounded_up(epsilon)}, "
            f"{rounded_up(self.terms.budget.delta)})-DP"
            for relation, epsilon in self.other_relation(rounds).items()
        )
        return (*sampled, *other, *self._of_whole_clients(rounds))

    def _of_whole_clients(self, rounds: int) -> tuple[str, ...]:
        """Return what is promised for all data of one client where records are protected."""
        adjacency, moved = self.terms.adjacency, self.contribution.whole_client()
        if (
            self.rate is None
            and moved is not None
            and moved.l2_squared <= self.contribution.sensitivity(adjacency).l2_squared
        ):
            return (
                "One record can move the sum as far as a whole client can, so the same epsilon "
                "holds for a whole client",
            )
        proven = self.whole_client_over(rounds)
        client = f"only epsilon {rounded_up(proven)}" if math.isfinite(proven) else "nothing"
        shards = (
            f"each client added up {self.terms.shards} contributions of disjoint shards of its "
            "records, one record moves one of them, and "
            if self.terms.shards > 1
            else ""
        )
        return (
            f"A whole client is NOT protected at this epsilon: {shards}for all data of one client "
            f"{client} is proven at the same delta",
        )

    @property
    def round_plan(self) -> Plan:
        """The protocol's plan for this sum: graph, threshold, noise components."""
        terms = self.terms
        return plan_round(
            clients=terms.clients,
            dimension=self.dimension,
            ring_bits=self.ring_bits,
            colluders=terms.colluders,
            dropouts=terms.dropouts,
            noise_variance=self._target,
            xnoise=terms.removal,
            server=terms.server,
            family=self.noise,
        )

    @property
    def bytes_per_client(self) -> int | None:
        """Most bytes a client sends and receives under masks; None where masks cannot do it."""
        try:
            return self.round_plan.bytes_per_client
        except ParameterError:  # other summations may hold sums that masks cannot
            return None

    @property
    def _target(self) -> Fraction | None:
        """The variance the protocol aims at.

        It counts c colluders out; the terms count out r ≥ c readers, one even if nobody
        colludes. With f the fewest survivors, aiming at v·(f − c)/(f − r) makes each of s ≥ f
        survivors leave v·(f − c)/((f − r)(s − c)), so s − r of them leave at least v, the
        calibrated variance, because (s − r)/(s − c) grows with s.
        """
        if self.release is None:
            return None
        rest = self.terms.fewest - self.terms.colluders
        return self.release.variance * Fraction(rest, self.release.shares)

    def under(self, terms: Terms) -> "TallyPlan":
        """Return the plan of the same sum under other terms."""
        return plan_tally(terms, self.contribution, removes_excess=self.removes_excess)

    def as_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        terms, release = self.terms, self.release
        record = {}
        if terms.adjacency.unit is Unit.RECORD:
            whole = self.whole_client_over(1)
            record = {"whole_client_epsilon": whole if math.isfinite(whole) else None}
        return {
            **terms.as_mapping(),
            **record,
            "budget": terms.budget.epsilon,
            "epsilon": None if self.calibration is None else self.whole_epsilon,
            "accountant": self.accountant,
            "unit": str(terms.adjacency.unit),
            "dropouts": terms.dropouts,
            "colluders": terms.colluders,
            "honest_survivors": terms.honest,
            "contribution": self.contribution.as_mapping(),
            "dimension": self.dimension,
            "noise_variance_per_client": None if release is None else str(release.share),
            "scale": self.scale,
            "ring_bits": self.ring_bits,
        }


def plan_tally(
    terms: Terms,
    contribution: Contribution,
    *,
    rounds: int = 1,
    removes_excess: bool = True,
    finest: int | None = None,
    rate: Fraction | None = None,
) -> TallyPlan:
    """Size the noise of one sum, or of each sum of a series, in the narrowest ring that fits.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        contribution: What a valid vector is.
        rounds: How many such sums the budget is for.
        removes_excess: Whether the summation removes noise that turns out not to be needed.
        finest: Largest scale; see `calibrate`.
        rate: Probability with which each protected unit is in a round's secret Poisson sample.
            Less noise is then enough, towards everybody who does not know the samples.

    Raises:
        ParameterError: No noise or no ring will do, or nothing is known of how far one unit
            moves the sum.
    """
    adjacency = terms.adjacency if rate is None else terms.adjacency.left_out
    calibration = calibrate(
        terms.budget,
        contribution.sensitivity(adjacency),
        shares=terms.honest,
        family=terms.noise.distribution,
        finest=finest,
        rounds=rounds,
        rate=rate,
        replaced=terms.adjacency.replaces,
    )
    widest = TallyPlan(terms, contribution, calibration, RING_BITS[-1], removes_excess, rate)
    narrowest = next(bits for bits in RING_BITS if widest.needed <= 1 << (bits - 1))
    return replace(widest, ring_bits=narrowest)

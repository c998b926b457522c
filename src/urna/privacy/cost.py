"""What releases cost, in terms that add up whatever is decided on the way.

A release is priced in one of two ways. Nearly all are Gaussian: telling two neighbours apart
by them is at least as hard as telling N(0, 1) from N(μ, 1), and squares of μ add up. Of the
others only an (epsilon, delta) is known, and these add up as they are. Both ways may differ
from the truth by moving some probability mass (`slip`), which adds up as well.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, cast

import numpy as np

from urna.privacy.budget import Budget
from urna.privacy.gaussian import gaussian_epsilon, gaussian_mu
from urna.privacy.tradeoff import Sensitivity

__all__ = [
    "DECLARED",
    "FREE",
    "GAUSSIAN",
    "SLIP_PART",
    "Cost",
    "Cover",
    "Release",
    "Spent",
    "parts_of",
    "pure_first",
    "together",
]

GAUSSIAN = "GDP (exact PLD of the dominating Gaussian)"
DECLARED = "basic composition"

SLIP_PART = 1e-6
"""The part of delta that is set aside for the precision of draws."""

_BELOW = 1 - 1e-12  # what rounding of sums could hide


@dataclass(frozen=True, slots=True)
class Spent:
    """How much privacy releases have cost."""

    epsilon: float
    accountant: str


@dataclass(frozen=True, slots=True)
class Cost:
    """A bound on what releases tell about one protected unit.

    Guarantee:
        Two neighbouring runs are, up to moving `slip` of probability mass in each, as hard to
        tell apart as a `mu`-GDP pair that is composed with an (`epsilon`, `delta`)-DP pair.
    """

    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    slip: float = 0.0

    def at(self, delta: float) -> float:
        """Return the least epsilon that this implies at `delta`, rounded up.

        P(S) ≤ e^ε·Q(S) + δ_G + δ_declared + (1 + e^ε)·slip: the Gaussian part has what is left
        of delta. Infinite where nothing is left.
        """
        rest = delta - self.delta
        if self.slip > 0:
            rest -= SLIP_PART * delta
        if rest < 0 or (rest == 0 and self.mu > 0):
            return math.inf
        total = self.epsilon + (gaussian_epsilon(self.mu, rest) if self.mu > 0 else 0.0)
        if self.slip > 0 and math.isfinite(total):
            log_needed = math.log(self.slip) + float(np.logaddexp(0.0, total))
            if log_needed > math.log(SLIP_PART * delta):
                return math.inf
        return total

    @property
    def accountant(self) -> str:
        """Which bounds it rests on, in words."""
        parts = [GAUSSIAN] * (self.mu > 0) + [DECLARED] * (self.epsilon > 0 or self.delta > 0)
        return " + ".join(parts) or "nothing released"

    def spent(self, delta: float) -> Spent:
        """Return it as an epsilon, and what computed that."""
        return Spent(self.at(delta), self.accountant)

    def times(self, rounds: int) -> "Cost":
        """Return what so many releases of this cost cost together."""
        return Cost(
            self.mu * math.sqrt(rounds),
            rounds * self.epsilon,
            rounds * self.delta,
            rounds * self.slip,
        )


FREE = Cost()
"""What no release costs."""


class Release(ABC):
    """Something that became public; each kind is a frozen dataclass."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name in a ledger."""

    @abstractmethod
    def cost(self) -> Cost:
        """Return what it costs."""

    def prices(self, rounds: int = 1) -> Sequence[Cost]:
        """Return the proven costs of so many of it, any of which may be counted.

        Most have one. A selection has its epsilon, and a Gaussian beside which it is no easier to
        read: the second is dearer alone and cheaper among many.
        """
        return (self.cost().times(rounds),)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger, from which `read_release` makes the same event."""
        said: dict[str, Any] = {"kind": self.kind}
        for field in fields(cast("Any", self)):
            match getattr(self, field.name):
                case Fraction() as exact:
                    said[field.name] = str(exact)
                case Release() as inner:
                    said[field.name] = inner.as_mapping()
                case Sensitivity() as moved:
                    said |= {name: value for name, value in asdict(moved).items() if value}
                case plain:
                    said[field.name] = plain
        return said


def together(costs: Iterable[Cost]) -> Cost:
    """Return what releases cost together.

    Guarantee:
        The bound of `Cost` holds for all of them as one, also where what is computed later
        depends on what was released earlier.

        Proof. A μ-GDP pair is a post-processing of (N(0, 1), N(μ, 1)) (Blackwell), and so the
        increment over an interval of length μ² of a Brownian motion without drift and with
        drift 1. Put the intervals of all Gaussian releases one after the other: everything
        they give is computed from one path of length Σμ², and the two paths are exactly as
        hard to tell apart as their ends, N(0, Σμ²) and N(Σμ², Σμ²), which is √Σμ²-GDP. The
        declared ones add up by basic composition. An (ε, δ)-DP pair is an ε-DP pair but for a
        failure of probability δ that both sides share (Kairouz, Oh & Viswanath 2015); let E be
        that no declared release fails. Let R be the run whose declared releases are about the
        one neighbour, as in P, and whose Gaussian ones are about the other, as in Q. From P to
        R only Gaussian releases change, so P(S ∩ E) ≤ e^ε_G·R(S ∩ E) + δ_G; from R to Q only
        declared ones, whose ratio within E is at most e^ε_D, so R(S ∩ E) ≤ e^ε_D·Q(S ∩ E). And
        P(S) ≤ P(S ∩ E) + δ_D. Moved mass adds up over the releases, given every history.

        Nothing here asks for the μ of later releases to be fixed in advance: see `Cover`.
    """
    listed = list(costs)
    return Cost(
        math.sqrt(math.fsum(cost.mu**2 for cost in listed)),
        math.fsum(cost.epsilon for cost in listed),
        math.fsum(cost.delta for cost in listed),
        math.fsum(cost.slip for cost in listed),
    )


@dataclass(frozen=True, slots=True)
class Cover:
    """Bounds, fixed for good, that all releases of a ledger together keep within.

    Guarantee:
        Releases whose costs together are covered at every moment are (cap.epsilon,
        cap.delta)-DP in the end, even if each release, its noise included, is chosen by
        looking at all results before it, and whenever one stops: this is a privacy filter.

        Proof. As for `together`, with the Brownian path of length μ² = `mu`² made in advance:
        the next interval begins where the last ended, its length is chosen by what was seen
        before and is independent of what comes, and by the check all intervals fit. So the
        interaction is a post-processing of the path up to `mu`² (Smith & Thakurta 2022 have
        another proof). Sums of declared epsilons and deltas, and of moved mass, are bounded
        whatever was chosen (Rogers et al. 2016, for basic composition), and the hybrid R of
        `together` needs no more than these bounds. Composing loss distributions, or RDP of
        the path taken, has no such proof, and fails: tests/unit/privacy/test_filter.py has a
        strategy that breaks it.

        Releases of (y, z)-DP that were entered before all others, of `first` in all, leave the
        rest a cap of (cap.epsilon − y, cap.delta − z). Each is computed from one randomised
        response that is drawn when it is entered, though its rounds go on among what comes later
        (Lyu 2022): pure but for failures of probability z, so
        P(o) ≤ e^y(o)·Q(o) for what they drew without failing, o. Given o the rest is such a
        filter, so P(S) ≤ Σ P(o)·(e^(ε − y(o))·Q(S | o) + δ − z(o)) + E[z] ≤ e^ε·Q(S) + δ,
        however much y(o) and z(o) were chosen on the way.

    Args:
        cap: What all releases together may cost.
        declared: The part of the cap for releases of which only (epsilon, delta) is known.
        first: What releases with only an (epsilon, delta) cost that were entered before all
            others, in a ledger without such a part.
    """

    cap: Budget
    declared: Budget | None = None
    first: Cost = FREE

    @property
    def mu(self) -> float:
        """Largest root of the sum of squares of μ."""
        epsilon = self.cap.epsilon - self.first.epsilon
        delta = self.cap.delta * (1 - SLIP_PART) - self.first.delta
        if self.declared is not None:
            epsilon, delta = epsilon - self.declared.epsilon, delta - self.declared.delta
        if epsilon <= 0 or delta <= 0:
            return 0.0
        return gaussian_mu(Budget(epsilon, delta)) * _BELOW

    @property
    def slip(self) -> float:
        """Largest sum of moved mass."""
        return SLIP_PART * self.cap.delta / (1 + math.exp(min(self.cap.epsilon, 500.0)))

    def holds(self, cost: Cost) -> bool:
        """Say whether releases of this cost together keep within the cap."""
        return not self.exceeded(cost)

    def exceeded(self, cost: Cost) -> str:
        """Return which bound releases of this cost together would pass; empty if none."""
        declared = self.declared
        part = declared or self.first
        epsilon, delta = part.epsilon, part.delta
        whole = self.cap.delta
        if cost.slip > 0:  # what draws need is not there for anything else
            whole *= (1 - SLIP_PART) * _BELOW**2
            delta = min(delta, whole)
        bounds = (
            ("epsilon of what was entered first", self.first.epsilon * _BELOW, self.cap.epsilon),
            ("delta of what was entered first", self.first.delta * _BELOW, whole),
            ("the root of the sum of squares of μ of all sums", cost.mu, self.mu),
            ("epsilon of declared releases", cost.epsilon * _BELOW, epsilon),
            ("delta of declared releases", cost.delta * _BELOW, delta),
            (
                "how far all noise may differ from exact noise (δ·10⁻⁶/(1 + e^ε) of the cap)",
                cost.slip,
                self.slip,
            ),
        )
        for named, found, most in bounds:
            if not found <= most:
                return f"{named} would be {found:.3g}, at most {most:.3g} is allowed"
        return ""


def parts_of(budget: Budget, parts: Sequence[float]) -> list[Budget]:
    """Split a budget among several releases by parts of μ², whose squares add up.

    Guarantee:
        Gaussian releases that each keep within their part keep within the budget together.
    """
    if len(parts) == 1:
        return [budget]
    whole = Cover(budget).mu * (1 - 1e-8)
    delta = budget.delta * (1 - SLIP_PART)
    epsilons = (gaussian_epsilon(whole * math.sqrt(part), delta) for part in parts)
    return [Budget(epsilon, budget.delta) for epsilon in epsilons]


def pure_first(budget: Budget, part: float) -> tuple[Budget, Budget]:
    """Split a budget between a pure release that comes first and the Gaussian ones after it.

    What follows has what `parts_of` leaves it beside a Gaussian release with this part of μ², so
    that a division costs it the same whatever comes first; the rest of epsilon is for the first.

    Guarantee:
        A pure release within the first budget, entered before all others, and Gaussian releases
        that keep within the second are together within the budget (`Cover`, of which `first` is
        the first's).

    Example:
        >>> first, rest = pure_first(Budget(1.0, 1e-5), 0.5)
        >>> round(first.epsilon, 3), round(rest.epsilon, 3)
        (0.316, 0.684)
    """
    _, rest = parts_of(budget, (part, 1 - part))
    return Budget((budget.epsilon - rest.epsilon) * (1 - 1e-8), budget.delta), rest

"""Integer noise accounted by its Gaussian trade-off: tight for every vector of bounded norm."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import ndtri_exp

from urna.errors import ParameterError
from urna.privacy.distributions import Distribution

__all__ = ["BEYOND", "Sensitivity", "gaussian_parameter"]

BEYOND = 1e-30
"""Probability, on one side and in one coordinate, of noise too large to be looked at."""

_ROUNDING = 1e-7  # relative; more than rounded logarithms do to a step, however wide the noise


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A bound on the difference of two neighbouring sums.

    Only the L2 norm is priced (`gaussian_parameter`); the number of coordinates
    counts for the precision of draws.
    """

    l2_squared: int
    coordinates: int
    """Most coordinates that differ."""
    beyond: float = 0.0
    """Probability, over coins that no data enter, that the difference is longer than this."""

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.l2_squared, self.coordinates)):
            raise ParameterError(f"norms and coordinates are positive integers, got {self}")
        if not 0 <= self.beyond < 1:
            raise ParameterError(f"a probability lies in [0, 1), got {self.beyond}")

    @property
    def l2(self) -> float:
        """The L2 norm."""
        return math.sqrt(self.l2_squared)

    def scaled(self, scale: int) -> "Sensitivity":
        """Return the same move on a grid of `scale` steps to the unit."""
        return Sensitivity(self.l2_squared * scale**2, self.coordinates, self.beyond)

    def times(self, count: int, *, dimension: int) -> "Sensitivity":
        """Return a bound on the sum of so many moves, by the triangle inequality."""
        coordinates = min(count * self.coordinates, dimension)
        return Sensitivity(self.l2_squared * count**2, coordinates, min(count * self.beyond, 0.5))


@functools.lru_cache(maxsize=256)
def gaussian_parameter(family: Distribution, variance: Fraction) -> float:
    """Return η such that moving the noise by an integer vector s is η·‖s‖₂-GDP.

    Guarantee:
        With this noise in every coordinate, telling two integer vectors apart that differ by
        s is at least as hard as telling N(0, 1) from N(η·‖s‖₂, 1) (Dong, Roth & Su 2022), up
        to moving τ = `BEYOND` of mass on either side for each coordinate that differs.

        Proof, one coordinate, s > 0. Let F be the noise's distribution function, h = Φ⁻¹∘F,
        G the trade-off of N(0, 1) and N(μ, 1) with μ = η·s: G(α) = Φ(Φ⁻¹(1 − α) − μ). The
        noise is log-concave, so the best tests of N against N + s are thresholds; with the
        threshold x + 1 their errors are α = 1 − F(x) and β = F(x − s). Let a be the last
        integer with F(a) ≤ τ and b the first with 1 − F(b) ≤ τ; η is the longest step
        h(x) − h(x − 1) of a < x ≤ b. We show β ≥ G(α + τ) − τ for every threshold.
        (1) a ≤ x − s and x ≤ b: the s steps between are at most η, so
        β = Φ(h(x − s)) ≥ Φ(h(x) − μ) = G(α) ≥ G(α + τ).
        (2) x − s < a, x ≤ b: with y = min(a + s, b) ≥ x, α ≥ 1 − F(y), and h(y) − h(a) ≤ μ, so
        G(α + τ) ≤ G(1 − F(y)) = Φ(h(y) − μ) ≤ F(a) ≤ τ, and β ≥ 0 is enough.
        (3) x > b: with α₀ = 1 − F(b) ≤ τ ≤ α + τ, G(α + τ) ≤ G(α₀) = Φ(h(b) − μ). If
        b − s ≥ a that is at most F(b − s) ≤ β; else h(b) − h(a) ≤ μ and it is at most F(a) ≤ τ.
        Between thresholds the trade-off is linear and G(α + τ) − τ is convex, so it holds for
        every α. By symmetry it holds for −s.

        Moving τ of mass realises that bound: take N(0, 1) and put the mass τ of its upper
        tail on a point of its own, take N(μ, 1) and put the mass τ of its lower tail on
        another. Of this pair, a test of level α rejects the second point and all above the
        (α + τ)-quantile and misses G(α + τ) − τ. So by Blackwell's theorem the true pair is a
        post-processing of it, and within τ, on either side, of the same post-processing of
        N(0, 1) and N(μ, 1), which is μ-GDP. For several coordinates the μ-GDP pairs compose to
        the root of the sum of their squares, η·‖s‖₂, and the moved masses add up.

    Args:
        family: The noise's family, symmetric and log-concave.
        variance: Its variance.

    Example:
        >>> from urna.privacy import SKELLAM
        >>> eta = gaussian_parameter(SKELLAM, Fraction(1600))
        >>> f"{40 * eta - 1:.1e}"  # how much harder than the Gaussian of this variance
        '1.0e-04'
    """
    half, _ = family.half_weights(variance)
    total = 2 * sum(half) - half[0]
    log_total = math.log(total)
    logs, tail = [], 0
    for weight in reversed(half[1:]):
        tail += weight
        logs.append(math.log(tail) - log_total)
    log_tails = np.array(logs)  # log F(x) for x = …, −2, −1
    near = np.flatnonzero(log_tails > math.log(BEYOND))
    if not len(near):
        return math.inf  # hardly any noise at all
    quantiles = ndtri_exp(log_tails[max(near[0] - 1, 0) :])
    # h(0) = −h(−1) by symmetry, so the step across the middle is −2·h(−1).
    steps = np.append(np.diff(quantiles), -2 * quantiles[-1])
    return float(steps.max()) * (1 + _ROUNDING)

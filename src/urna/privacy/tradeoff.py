"""Integer noise accounted by its Gaussian trade-off: tight for every vector of bounded norm."""

import functools
import math
from fractions import Fraction

import numpy as np
from scipy.special import ndtri_exp

from urna.privacy.distributions import Distribution

__all__ = ["BEYOND", "gaussian_parameter"]

BEYOND = 1e-30
"""Probability, on one side and in one coordinate, of noise too large to be looked at."""

_ROUNDING = 1e-7  # relative; more than rounded logarithms do to a step, however wide the noise


@functools.lru_cache(maxsize=256)
def gaussian_parameter(family: Distribution, variance: Fraction) -> float:
    """Return η such that moving the noise by an integer vector s is η·‖s‖₂-GDP.

    Guarantee:
        With this noise in every coordinate, telling two integer vectors apart that differ by
        s is at least as hard as telling N(0, 1) from N(η·‖s‖₂, 1) (Dong, Roth & Su 2022), up
        to a total variation of 2·`BEYOND` for each coordinate that differs.

        Proof. Let F be the noise's distribution function and h(x) = Φ⁻¹(F(x)). The noise is
        log-concave, so the best tests of N against N + s are thresholds; with the threshold t
        their errors are α = 1 − F(t − 1) and β = F(t − 1 − s). Between thresholds the
        trade-off is linear and the Gaussian's is convex, so β ≥ Φ(Φ⁻¹(1 − α) − μ) everywhere
        if h(x) − h(x − s) ≤ μ for all integers x. That difference is the sum of s single
        steps, so μ = s·η will do, where η is the longest step of h. By symmetry the same
        holds for −s, and Gaussian trade-offs of independent coordinates compose to the root
        of the sum of squares. Steps are looked at from the last x with F(x) ≤ `BEYOND` to its
        mirror image. Beyond them both errors are within `BEYOND` of those of a Gaussian that
        goes on in steps of η, which is the total variation allowed for.

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

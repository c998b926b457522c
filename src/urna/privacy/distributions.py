"""The exact distributions of integer noise: Skellam and the discrete Gaussian.

Both are symmetric around zero and log-concave, which the accounting relies on. Skellam is
the default: the sum of independent Skellam variables is Skellam, exactly, so what many
clients add has a known distribution, and what is removed leaves a known one.

Probabilities are integer weights. The accounting prices these weights and `urna.noise` draws
from them, so what is accounted for is what is drawn.
"""

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Protocol

from mpmath import mp, mpf

from urna.errors import ParameterError

__all__ = ["DISCRETE_GAUSSIAN", "DISTRIBUTIONS", "DRAW_BITS", "SKELLAM", "Distribution"]

DRAW_BITS = 128
"""A draw looks a uniform number of this many bits up in the cumulative weights."""

LARGEST_STD = 2**17
"""Largest standard deviation, in grid steps, that weights are computed for."""

_BITS = 256  # precision of the weights
_TAIL_BITS = 140  # magnitudes whose two-sided tail is below 2^-140 are left out


class Distribution(Hashable, Protocol):
    """A family of symmetric, log-concave integer distributions, one for each variance."""

    @property
    def name(self) -> str:
        """The family's name in plans, ledgers and messages."""
        ...

    @property
    def closed_under_addition(self) -> bool:
        """Whether a sum of independent members is exactly the member of summed variance."""
        ...

    def half_weights(self, variance: Fraction) -> tuple[tuple[int, ...], float]:
        """Return weights of 0, 1, 2, … and a bound on the error of one draw.

        The bound is in total variation: tails left out, rounding of the weights, and
        `2^-DRAW_BITS` for each boundary between two values.
        """
        ...

    def draw_error(self, variance: Fraction) -> float:
        """Return the bound on the error of one draw alone; weights take a while."""
        ...


class _Skellam:
    """The difference of two Poisson variables of mean variance/2.

    P[k] = exp(−v)·I_k(v) with the modified Bessel function I_k and the variance v.
    """

    name = "skellam"
    closed_under_addition = True

    def half_weights(self, variance: Fraction) -> tuple[tuple[int, ...], float]:
        """Return weights by Miller's backward recurrence, in integers.

        I_{k−1}(v) = I_{k+1}(v) + (2k/v)·I_k(v) run downwards from far outside, where any
        start value is forgotten; all terms are positive, so rounding never cancels. Constant
        factors drop out: the probabilities are weights over their sum.

        Guarantee:
            Weights over their sum are within the returned bound of P in total variation:
            the tail left out (Chernoff), the start (the false start's share decays by the
            ratio of pmf values squared) and `steps·2^-256` for rounding.
        """
        _check_variance(variance)
        reach = _skellam_reach(variance, _TAIL_BITS)
        start = _skellam_reach(variance, 2 * _TAIL_BITS) + 8
        above, here = 0, 1 << _BITS
        column = [here]
        two_q, p = 2 * variance.denominator, variance.numerator
        for k in range(start, 0, -1):
            above, here = here, above + k * two_q * here // p
            column.append(here)
        column.reverse()
        return tuple(column[: reach + 1]), self.draw_error(variance)

    def draw_error(self, variance: Fraction) -> float:
        """Return the bound on the error of one draw."""
        start = _skellam_reach(variance, 2 * _TAIL_BITS) + 8
        rounding = 2 * start * 2.0**-_BITS + 2.0 ** -(2 * _TAIL_BITS - 20)
        return _draw_error(_skellam_reach(variance, _TAIL_BITS), rounding)


class _DiscreteGaussian:
    """P[k] ∝ exp(−k²/(2·σ²)) on the integers; its variance is at most σ² (CKS20, Cor. 9)."""

    name = "discrete-gaussian"
    closed_under_addition = False

    def half_weights(self, variance: Fraction) -> tuple[tuple[int, ...], float]:
        """Return weights by high-precision multiplication.

        With r = exp(−1/(2σ²)), weight k is r^(k²): each is the one before times r^(2k−1).
        """
        _check_variance(variance)
        reach = self._reach(variance)
        with mp.workprec(2 * _BITS):
            ratio = mp.exp(-mpf(variance.denominator) / (2 * variance.numerator))
            square = ratio * ratio
            weight, step = mpf(1), ratio
            column = []
            for _ in range(reach + 1):
                column.append(int(mp.ldexp(weight, _BITS)))
                weight, step = weight * step, step * square
        return tuple(w for w in column if w), self.draw_error(variance)

    def draw_error(self, variance: Fraction) -> float:
        """Return the bound on the error of one draw."""
        reach = self._reach(variance)
        return _draw_error(reach, 2 * (reach + 1) * 2.0**-_BITS)

    @staticmethod
    def _reach(variance: Fraction) -> int:
        return math.ceil(math.sqrt(2 * float(variance) * (_TAIL_BITS + 8) * math.log(2))) + 2


SKELLAM: Distribution = _Skellam()
DISCRETE_GAUSSIAN: Distribution = _DiscreteGaussian()
DISTRIBUTIONS = {family.name: family for family in (SKELLAM, DISCRETE_GAUSSIAN)}


def _draw_error(reach: int, rounding: float) -> float:
    return 2.0**-_TAIL_BITS + rounding + 2 * reach * 2.0**-DRAW_BITS


def _check_variance(variance: Fraction) -> None:
    """Refuse variances no table is built for."""
    if not isinstance(variance, Fraction) or variance <= 0:
        raise ParameterError(f"the variance must be a positive Fraction, got {variance!r}")
    if variance > LARGEST_STD**2:
        raise ParameterError(
            f"noise of a standard deviation of {math.sqrt(variance):.3g} grid steps is asked for; "
            f"at most {LARGEST_STD} are supported. Ask for a larger epsilon, or a smaller scale."
        )


def _skellam_reach(variance: Fraction, bits: int) -> int:
    """Return K with P[|X| > K] < 2^-bits.

    Chernoff with the moment generating function exp(v·(cosh t − 1)) at t = asinh(K/v):
    P[X ≥ K] ≤ exp(√(v² + K²) − v − K·asinh(K/v)).
    """
    v = float(variance)
    goal = -(bits + 1) * math.log(2)

    def exponent(k: int) -> float:
        # sqrt(v²+K²) − v without cancellation
        return k * k / (math.hypot(v, k) + v) - k * math.asinh(k / v)

    low, high = 0, 64
    while exponent(high) > goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exponent(middle) > goal else (low, middle)
    return high

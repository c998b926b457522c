"""Closed forms of the Gaussian mechanism: what every sum of Urna's is priced by."""

import functools
import math
from collections.abc import Callable

from scipy.special import log_ndtr

from urna.errors import ParameterError
from urna.privacy.budget import Budget

__all__ = ["crossing", "gaussian_delta", "gaussian_epsilon", "gaussian_mu", "gaussian_std"]

_DIGITS = 1e-12  # relative; searches end this close to the truth, on the side of more noise
_LARGEST = 1e6  # a larger epsilon counts as infinite


def gaussian_delta(std: float, *, sensitivity: float, epsilon: float) -> float:
    """Return the least delta of the Gaussian mechanism (Balle & Wang 2018, Theorem 8).

    δ = Φ(Δ/2σ − εσ/Δ) − e^ε·Φ(−Δ/2σ − εσ/Δ), computed from logarithms so that small values
    keep their digits.
    """
    ratio = sensitivity / std
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


@functools.lru_cache(maxsize=256)
def gaussian_mu(budget: Budget) -> float:
    """Return the largest μ, rounded down, for which μ-GDP implies `budget`.

    μ is sensitivity over standard deviation. Telling N(0, 1) from N(μ, 1) is exactly as easy
    as a Gaussian mechanism of that ratio makes it (Dong, Roth & Su 2022).

    Example:
        >>> round(gaussian_mu(Budget(1.0, 1e-5)), 3)
        0.268
    """

    def enough(mu: float) -> bool:
        return gaussian_delta(1.0, sensitivity=mu, epsilon=budget.epsilon) <= budget.delta

    return crossing(enough, 1.0, _DIGITS)[0]


@functools.lru_cache(maxsize=1024)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon, rounded up, that μ-GDP implies at this delta.

    Infinite where μ is, zero where μ is.

    Example:
        >>> round(gaussian_epsilon(0.268, 1e-5), 2)
        1.0
    """
    if mu in (0.0, math.inf):
        return mu

    def too_little(epsilon: float) -> bool:
        found = gaussian_delta(1.0, sensitivity=mu, epsilon=epsilon)
        return epsilon <= _LARGEST and not found <= delta

    if not too_little(0.0):
        return 0.0
    high = crossing(too_little, mu, _DIGITS)[1]
    return high if high <= _LARGEST else math.inf


def crossing(holds: Callable[[float], bool], high: float, digits: float) -> tuple[float, float]:
    """Return the largest number found for which something holds, and one for which it does not.

    It holds at zero, and from somewhere on it does not. The two are as close as `digits` says.
    """
    low = 0.0
    while holds(high):
        low, high = high, 2 * high
    while high - low > digits * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def gaussian_std(budget: Budget, *, sensitivity: float) -> float:
    """Return the least standard deviation that meets `budget`, rounded up.

    Example:
        >>> f"{gaussian_std(Budget(1.0, 1e-5), sensitivity=10**0.5):.2f}"
        '11.80'
    """
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise ParameterError(f"sensitivity must be finite and positive, got {sensitivity}")
    return sensitivity / gaussian_mu(budget) * (1 + _DIGITS)

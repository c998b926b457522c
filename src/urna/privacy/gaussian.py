"""Closed forms of the Gaussian mechanism: the reference the integer noise is held against."""

import math

from scipy.special import log_ndtr

from urna.errors import ParameterError
from urna.privacy.budget import Budget

__all__ = ["gaussian_delta", "gaussian_std"]


def gaussian_delta(std: float, *, sensitivity: float, epsilon: float) -> float:
    """Return the least delta of the Gaussian mechanism (Balle & Wang 2018, Theorem 8).

    δ = Φ(Δ/2σ − εσ/Δ) − e^ε·Φ(−Δ/2σ − εσ/Δ), computed from logarithms so that small values
    keep their digits.
    """
    ratio = sensitivity / std
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_std(budget: Budget, *, sensitivity: float) -> float:
    """Return the least standard deviation that meets `budget`, rounded up.

    Example:
        >>> f"{gaussian_std(Budget(1.0, 1e-5), sensitivity=10**0.5):.2f}"
        '11.80'
    """
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise ParameterError(f"sensitivity must be finite and positive, got {sensitivity}")
    low = high = sensitivity

    def enough(std: float) -> bool:
        return gaussian_delta(std, sensitivity=sensitivity, epsilon=budget.epsilon) <= budget.delta

    while not enough(high):
        high *= 2
    while enough(low):
        low /= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

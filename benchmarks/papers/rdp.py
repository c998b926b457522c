"""Rényi differential privacy: bounds that compose by addition."""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from scipy.special import gammaln, logsumexp

from urna.errors import ParameterError
from urna.privacy.budget import Budget

__all__ = [
    "ORDERS",
    "THEOREM_ORDERS",
    "epsilon_from_rdp",
    "gaussian_rdp",
    "sampled_gaussian_epsilon",
    "sampled_noise_multiplier",
    "sampled_rdp",
]

ORDERS = (*range(2, 65), *(round(64 * 1.1**i) for i in range(1, 45)))
"""Integer orders, because bounds for sampled mechanisms are proven for these."""

THEOREM_ORDERS = tuple(range(2, 65))
"""Orders for which the bound of sampled mechanisms is looked at."""

_DIGITS = 1e-6  # relative, of a noise multiplier that is searched for


def gaussian_rdp(order: int, *, l2_squared: float, variance: float) -> float:
    """Return ε(α) = α·Δ₂²/(2σ²) (Mironov 2017, Proposition 7).

    The papers Urna builds on account by it; its own accounting is tighter.
    """
    return order * l2_squared / (2 * variance)


def epsilon_from_rdp(curve: Mapping[int, float], delta: float) -> float:
    """Return the least epsilon any order of the curve gives (Balle et al. 2020, Theorem 21).

    ε = ε(α) + log((α−1)/α) − (log δ + log α)/(α−1).
    """
    best = min(
        spent + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for order, spent in curve.items()
    )
    return max(best, 0.0)


def sampled_rdp(
    order: int, *, rate: float, curve: Callable[[int], float], tight: bool = False
) -> float:
    """Return ε(α) of a mechanism whose clients take part by lots of their own (Hyades, Theorem 1).

    With ε(l) the curve of the mechanism without sampling, one client left out, and γ the rate:

        1/(α−1)·log{ (1−γ)^(α−1)·(αγ−γ+1) + C(α,2)·γ²·(1−γ)^(α−2)·e^ε(2)
                     + c·Σ_{l=3..α} C(α,l)·(1−γ)^(α−l)·γ^l·e^((l−1)·ε(l)) },   c = 3.

    Guarantee:
        It bounds the Rényi divergence either way round for every client whose own rate is at
        most `rate`, so clients may be away before they are drawn, each as often as it likes.
        For equal rates it is Zhu & Wang 2019, Theorem 5. It *grows* with the rate: in the
        braces stands the mean of w(L) over L ~ Binomial(α, γ) with w(0) = w(1) = 1,
        w(2) = e^ε(2) and w(l) = c·e^((l−1)·ε(l)), which does not fall in l because (l−1)·ε(l)
        does not; and a binomial variable of larger rate dominates one of smaller rate. (The
        paper says once that it falls; its proof uses that it grows.)

        With `tight`, c = 1, for mechanisms that are μ-GDP with ε(l) = l·μ²/2. Proof: by
        Blackwell such a mechanism is a post-processing of N(0, 1) against N(μ, 1), and so is
        the sampled one of N(0, 1) against (1−γ)·N(0, 1) + γ·N(μ, 1), the same on both sides
        of the mixture. The divergence of the mixture from N(0, 1) is exactly the formula,
        E_{x~N(0,1)}[(1 − γ + γ·e^(μx − μ²/2))^α] = Σ C(α,l)(1−γ)^(α−l)γ^l·e^(l(l−1)μ²/2), and
        the other way round it is no larger (Mironov, Talwar & Zhang 2019, Theorem 5).

    Args:
        order: α, an integer of at least 2.
        rate: γ, the largest probability that a client takes part.
        curve: ε(l) for l = 2..α, without sampling.
        tight: Whether the mechanism is Gaussian in the sense above.

    Raises:
        ParameterError: The order is no integer of at least 2, or the rate is not in (0, 1].
    """
    if type(order) is not int or order < 2:
        raise ParameterError(f"orders are whole numbers of at least 2, got {order}")
    if not 0 < rate <= 1:
        raise ParameterError(f"a rate is above 0 and at most 1, got {rate}")
    drawn = np.arange(order + 1)
    weights = np.zeros(order + 1)
    for many in range(2, order + 1):
        weights[many] = (many - 1) * curve(many)
    if not tight:
        weights[3:] += math.log(3)
    if rate == 1:
        return float(weights[-1]) / (order - 1)
    chances = (
        gammaln(order + 1)
        - gammaln(drawn + 1)
        - gammaln(order - drawn + 1)
        + drawn * math.log(rate)
        + (order - drawn) * math.log1p(-rate)
    )
    return max(float(logsumexp(chances + weights)) / (order - 1), 0.0)


def sampled_gaussian_epsilon(
    noise_multiplier: float,
    *,
    rate: float,
    rounds: int,
    delta: float,
    tight: bool = False,
    orders: Iterable[int] = THEOREM_ORDERS,
) -> float:
    """Return the epsilon of rounds of a sampled Gaussian, one client left out, by Theorem 1.

    Example:
        >>> round(sampled_gaussian_epsilon(0.935, rate=0.1, rounds=50, delta=1e-3), 1)
        6.0
    """

    def curve(order: int) -> float:
        return gaussian_rdp(order, l2_squared=1.0, variance=noise_multiplier**2)

    spent = {a: rounds * sampled_rdp(a, rate=rate, curve=curve, tight=tight) for a in orders}
    return epsilon_from_rdp(spent, delta)


def sampled_noise_multiplier(
    budget: Budget, *, rate: float, rounds: int, tight: bool = False
) -> float:
    """Return the least noise multiplier, rounded up, for which Theorem 1 meets `budget`."""

    def enough(multiplier: float) -> bool:
        epsilon = sampled_gaussian_epsilon(
            multiplier, rate=rate, rounds=rounds, delta=budget.delta, tight=tight
        )
        return epsilon <= budget.epsilon

    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
    while high - low > _DIGITS * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

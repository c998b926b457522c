"""Rényi differential privacy: bounds that compose by addition."""

import math
from collections.abc import Mapping

__all__ = ["ORDERS", "epsilon_from_rdp", "gaussian_rdp"]

ORDERS = (*range(2, 65), *(round(64 * 1.1**i) for i in range(1, 45)))
"""Integer orders, because bounds for sampled mechanisms are proven for these."""


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

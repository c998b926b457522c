"""Rényi differential privacy: bounds that compose by addition."""

import math
from collections.abc import Mapping

from urna.errors import ParameterError

__all__ = ["ORDERS", "epsilon_from_rdp", "gaussian_rdp", "skellam_rdp"]

ORDERS = (*range(2, 65), *(round(64 * 1.1**i) for i in range(1, 45)))
"""Integer orders, because the Skellam bound is proven for these."""


def gaussian_rdp(order: int, *, l2_squared: float, variance: float) -> float:
    """Return ε(α) = α·Δ₂²/(2σ²) (Mironov 2017, Proposition 7).

    It also holds for the discrete Gaussian and integer queries (Canonne, Kamath & Steinke
    2020, Theorem 4).
    """
    return order * l2_squared / (2 * variance)


def skellam_rdp(order: int, *, l2_squared: float, l1: float, variance: float) -> float:
    """Return the bound for integer queries under Skellam noise of this total variance.

    ε(α) ≤ αΔ₂²/(2μ) + min{((2α−1)Δ₂² + 6Δ₁)/(4μ²), 3Δ₁/(2μ)} for integer α ≥ 2
    (Agarwal, Kairouz & Liu 2021, Theorem 3.5).
    """
    if order < 2 or order != int(order):
        raise ParameterError(f"the Skellam bound holds for integer orders from 2, got {order}")
    extra = min(
        ((2 * order - 1) * l2_squared + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance)
    )
    return order * l2_squared / (2 * variance) + extra


def epsilon_from_rdp(curve: Mapping[int, float], delta: float) -> float:
    """Return the least epsilon any order of the curve gives (Balle et al. 2020, Theorem 21).

    ε = ε(α) + log((α−1)/α) − (log δ + log α)/(α−1).
    """
    best = min(
        spent + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        for order, spent in curve.items()
    )
    return max(best, 0.0)

"""Sums in which clients take part by lot: the privacy loss of a sampled Gaussian.

dp-accounting is imported on first use: a sum without sampling never needs it.
"""

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["sampled_epsilon"]

_GRAIN = 1e-4
_LARGEST_MU = 30.0  # beyond it losses no longer fit into memory
_SPLITS = 24  # ways to divide epsilon between leaving out and putting in


@functools.lru_cache(maxsize=64)
def sampled_epsilon(
    mu: float, rate: Fraction, rounds: int, delta: float, *, replaced: bool
) -> float:
    """Return what rounds cost in which a client takes part with probability `rate`.

    Guarantee:
        All rounds together are (epsilon, delta)-DP, pessimistically rounded. One round
        without sampling is μ-GDP for one client that is left out or added, so
        (N(μ, 1), N(0, 1)) dominates it, and the mixture (1 − q)·N(0, 1) + q·N(μ, 1) against
        N(0, 1), either way round, dominates the sampled one (Zhu, Dong & Wang 2022, Theorem
        11). Mixtures are composed by their privacy loss distributions. A client that is
        *replaced* is left out and another put in:
        δ(ε₁ + ε₂) ≤ δ₁(ε₁) + e^ε₁·δ₂(ε₂), for the best division of ε.

    Assumes:
        Rate and number of rounds are fixed beforehand. Whether a client takes part is its
        own secret lot in every round, and nobody who reads the results learns it.

    Args:
        mu: Of one round without sampling, one client left out.
        rate: Largest probability that a client takes part.
        rounds: How many rounds.
        delta: The delta at which epsilon is asked for.
        replaced: Whether one client's data may be replaced, not only left out.
    """
    if not mu <= _LARGEST_MU:
        return math.inf
    loss = _composed(mu, float(rate), rounds)
    if not replaced:
        return max(float(loss.get_epsilon_for_delta(delta)), 0.0)
    low, high = 0.0, 2 * float(loss.get_epsilon_for_delta(delta / 64)) + 1.0
    if not _chained(loss, high) <= delta:
        return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _chained(loss, middle) <= delta else (middle, high)
    return high


def _chained(loss: "PrivacyLossDistribution", epsilon: float) -> float:
    """Return the delta of two steps at the best division of epsilon between them."""
    first = np.linspace(0.0, epsilon, _SPLITS)
    deltas = np.asarray(loss.get_delta_for_epsilon(first), dtype=np.float64)
    return float((deltas + np.exp(first) * deltas[::-1]).min())


@functools.lru_cache(maxsize=16)
def _composed(mu: float, rate: float, rounds: int) -> "PrivacyLossDistribution":
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    once = from_gaussian_mechanism(
        1 / mu,
        sampling_prob=math.nextafter(rate, 1.0),
        value_discretization_interval=_GRAIN,
    )
    return once.self_compose(rounds)

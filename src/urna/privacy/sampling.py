"""Sums of secret Poisson samples of clients, or of records: the loss of a sampled Gaussian.

dp-accounting is imported on first use: a sum without sampling never needs it.
"""

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["sampled_epsilon"]

_GRAIN = 1e-4
_COARSE = 5e-4  # of the grid whose masses are divided, not rounded
_SLACK = 1e-12  # mass that rounding of floats could move in one round, counted as lost
_LARGEST_MU = 30.0  # beyond it losses no longer fit into memory
_FAR = 1e-18  # mass in a tail of one round that counts as lost altogether

Reals = npt.NDArray[np.float64]


@functools.lru_cache(maxsize=64)
def sampled_epsilon(
    mu: float, rate: Fraction, rounds: int, delta: float, *, replaced: bool, besides: float = 0.0
) -> float:
    """Return what rounds cost in which a client, or a record, is drawn with probability `rate`.

    Guarantee:
        All rounds together are (epsilon, delta)-DP, pessimistically rounded. One round
        without sampling is μ-GDP for one unit (a client, or a record) that is left out or added,
        so (N(μ, 1), N(0, 1)) dominates it, and the mixture (1 − q)·N(0, 1) + q·N(μ, 1) against
        N(0, 1), either way round, dominates the sampled one (Zhu, Dong & Wang 2022, Theorem
        11). For a unit that is *replaced* the pair

            P = (1 − q)·N(0, 1) + q·N(μ, 1),   Q = (1 − q)·N(0, 1) + q·N(−μ, 1)

        dominates, provided that replacing one that is drawn is 2μ-GDP. Both are composed
        by their privacy loss distributions.

        Proof. Fix the draws of all other units, all rounding coins, and who drops out: none of
        them depends on the unit in question, and averaging over them only helps (the
        hockey-stick divergence is jointly convex). Then the sum is one noise, shifted by a fixed
        vector: let f₀ be its law where the unit is not drawn, f and g where it is drawn with its
        one and its other data, E = e^ε ≥ 1, and S any set with f(S) = a. The trade-offs of
        (f, f₀) and (f, g) are at least those of Gaussians at the distances μ and 2μ, so
        f₀(S) ≥ Φ(Φ⁻¹(a) − μ) and g(S) ≥ Φ(Φ⁻¹(a) − 2μ). Hence

            [(1 − q)·f₀ + q·f](S) − E·[(1 − q)·f₀ + q·g](S)
              = q·f(S) − (E − 1)(1 − q)·f₀(S) − E·q·g(S)
              ≤ q·a − (E − 1)(1 − q)·Φ(Φ⁻¹(a) − μ) − E·q·Φ(Φ⁻¹(a) − 2μ),

        which is P(S′) − E·Q(S′) for the half-line S′ = {x > μ − Φ⁻¹(a)}. So the hockey-stick
        divergence of every order E ≥ 1 is at most that of P and Q; for E < 1 it is
        1 − E + E·H_{1/E} with the two sides exchanged, and P and Q are mirror images. A pair
        that dominates in every order composes adaptively (Zhu, Dong & Wang 2022, Theorem 10).
        A smaller rate is cheaper: where the last line is positive, the factor of q in it is.

        If the shifts of f and of g from f₀ have norms of at most L, that between f and g is at
        most 2L, so integer noise of η per step (`tradeoff.gaussian_parameter`) gives μ = η·L and
        2μ, for all three at once, up to the mass in its far tails: continue the noise's weights
        from a inwards of its tail in proportion to their last ratio. That law is symmetric and
        log-concave, none of its steps of Φ⁻¹∘F is longer than the η of the noise, and so its
        trade-offs for every shift are exactly those of Gaussians; only the tails' mass moved.
        Coins that are worse than accounted for may be so for f or for g: with `replaced` the
        moved mass of a release counts twice (`Sampled.rounds`).

    Assumes:
        Rate and number of rounds are fixed beforehand. Whether a unit is drawn is decided anew in
        every round, independently of all else, and nobody who reads the results learns it: not
        from who drops out, nor from how long anything takes or how large it is. A round of which
        anything was revealed is not repeated with another draw.

    Args:
        mu: Of one round without sampling, one unit left out.
        rate: Largest probability that a unit is drawn; others may have smaller ones.
        rounds: How many rounds.
        delta: The delta at which epsilon is asked for.
        replaced: Whether one unit's data may be replaced, not only left out.
        besides: μ of other releases, of the same relation, that are composed with the rounds.
    """
    if not max(mu, besides) <= _LARGEST_MU:
        return math.inf
    composed = _replaced if replaced else _left_out
    loss = composed(mu, math.nextafter(float(rate), 1.0), rounds)
    if besides > 0:
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        grain = _COARSE if replaced else _GRAIN
        loss = loss.compose(
            from_gaussian_mechanism(1 / besides, value_discretization_interval=grain)
        )
    return max(float(loss.get_epsilon_for_delta(delta)), 0.0)


@functools.lru_cache(maxsize=16)
def _left_out(mu: float, rate: float, rounds: int) -> "PrivacyLossDistribution":
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    once = from_gaussian_mechanism(1 / mu, sampling_prob=rate, value_discretization_interval=_GRAIN)
    return once.self_compose(rounds)


@functools.lru_cache(maxsize=16)
def _replaced(mu: float, rate: float, rounds: int) -> "PrivacyLossDistribution":
    """Compose the pair (P, Q) of `sampled_epsilon` on a grid of losses.

    The loss rises with x. What lies between two losses of the grid is divided between them so
    that its mass under P and under Q stays what it is: a pair that dominates, because the
    hockey-stick divergence becomes the chords of a convex curve (Doroshenko et al. 2022).
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    far = -float(ndtri(_FAR))
    low, high = (math.ceil(_loss(x, mu, rate) / _COARSE) for x in (-far, far + mu))
    losses = np.arange(low, high + 1, dtype=np.float64) * _COARSE
    edges = _place(losses, mu, rate)
    ours, theirs = _masses(edges, mu, rate), _masses(-edges[::-1], mu, rate)[::-1]
    upper = (ours - theirs * np.exp(losses[:-1])) / -math.expm1(-_COARSE)
    upper = np.clip(upper, 0.0, ours)
    masses = np.append(ours - upper, 0.0)
    masses[1:] += upper
    masses[0] += _below(edges[:1], mu, rate)[0]
    lost = float(_above(edges[-1:], mu, rate)[0]) + _SLACK
    once: Any = DensePLDPmf(_COARSE, low, masses, lost, True)
    return PrivacyLossDistribution(once.self_compose(rounds))


def _loss(x: float, mu: float, rate: float) -> float:
    """Return log P(x)/Q(x)."""
    first, second = (rate * math.exp(sign * mu * x - mu * mu / 2) for sign in (1, -1))
    return math.log(1 - rate + first) - math.log(1 - rate + second)


def _place(losses: Reals, mu: float, rate: float) -> Reals:
    """Return where the loss has a value: a root of a quadratic in e^(μx), odd in the loss."""
    stay, go, grown = 1 - rate, rate * math.exp(-mu * mu / 2), np.exp(np.abs(losses))
    half = stay * (grown - 1) / (2 * go)
    return np.asarray(np.sign(losses) * np.log(half + np.sqrt(half * half + grown)) / mu)


def _masses(edges: Reals, mu: float, rate: float) -> Reals:
    """Return the mass of P between neighbouring edges, from the side where it is small."""
    below = np.diff(_below(edges, mu, rate))
    above = -np.diff(_above(edges, mu, rate))
    return np.maximum(np.where(edges[1:] < mu / 2, below, above), 0.0)


def _below(x: Reals, mu: float, rate: float) -> Reals:
    return np.asarray((1 - rate) * ndtr(x) + rate * ndtr(x - mu))


def _above(x: Reals, mu: float, rate: float) -> Reals:
    return np.asarray((1 - rate) * ndtr(-x) + rate * ndtr(mu - x))

"""Privacy loss distributions of integer noise, from its exact probabilities.

dp-accounting is imported on first use: most of what needs the noise never prices it.
"""

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.privacy.ballots import Shifts
from urna.privacy.distributions import Distribution

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["declared_loss", "gaussian_loss", "grain", "shifted_noise_loss", "sum_error"]

_GRAIN_OF_MU = 2e-4


def grain(mu: float) -> float:
    """Return how finely privacy losses are resolved for a mechanism of this strength.

    Losses are rounded pessimistically to multiples of the grain. `mu` is sensitivity over
    standard deviation, the parameter of the Gaussian that comes nearest; losses spread over
    a few `mu`. Rounding costs about 0.0025 % of epsilon for each coordinate that moves.
    """
    return min(1e-3, max(_GRAIN_OF_MU * mu, 1e-7))


@functools.lru_cache(maxsize=256)
def shifted_noise_loss(
    family: Distribution, variance: Fraction, shifts: Shifts, interval: float
) -> "PrivacyLossDistribution":
    """Return the loss of noise of this total variance under shifts of many coordinates.

    Guarantee:
        Pessimistic: the hockey-stick divergence at every epsilon is at least that of the
        shifted noise. Probabilities are weights computed in integers (see `distributions`);
        losses round up to multiples of `interval`; what lies beyond the table is an
        infinite loss.
    """
    half, _ = family.half_weights(variance)
    log_total = math.log(2 * sum(half) - half[0])
    log_half = np.array([math.log(weight) - log_total for weight in half])
    log_mass = np.concatenate([log_half[:0:-1], log_half])
    losses = [
        _one_coordinate(log_mass, shift, interval).self_compose(count) for shift, count in shifts
    ]
    if not losses:
        raise ParameterError("a release needs at least one coordinate that can move")
    return functools.reduce(lambda first, second: first.compose(second), losses)


def _one_coordinate(
    log_mass: npt.NDArray[np.float64], shift: int, interval: float
) -> "PrivacyLossDistribution":
    """Return the loss between noise and shifted noise; both directions have the same."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    infinite = float(np.exp(log_mass[:shift]).sum())  # shifted noise does not reach there
    losses = log_mass[shift:] - log_mass[:-shift]
    places = np.ceil(losses / interval).astype(np.int64)
    rounded, inverse = np.unique(places, return_inverse=True)
    mass = np.bincount(inverse, weights=np.exp(log_mass[shift:]))
    return PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(rounded.tolist(), mass.tolist(), strict=True)) or {0: 0.0}, infinite, interval
    )


@functools.lru_cache(maxsize=64)
def gaussian_loss(mu: float, interval: float) -> "PrivacyLossDistribution":
    """Return the loss of a Gaussian mechanism of sensitivity over deviation `mu`."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)


def declared_loss(epsilon: float, delta: float, interval: float) -> "PrivacyLossDistribution":
    """Return the worst loss that (epsilon, delta)-DP allows."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    return from_privacy_parameters(
        DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=interval
    )


def sum_error(share: Fraction, shares: int) -> float:
    """Bound how far a sum of discrete Gaussians is from one of the summed variance.

    The sum of n discrete Gaussians of variance parameter σ² and the discrete Gaussian of nσ²
    differ in log-probability by at most τ = 10·Σ_{k<n} exp(−2π²σ²·k/(k+1)) everywhere
    (Kairouz, Liu & Steinke 2021, Theorem 9, for σ² ≥ 1/4), so by at most τ in total
    variation.
    """
    if share < Fraction(1, 4):
        return math.inf
    rate = 2 * math.pi**2 * float(share)
    tau = 10 * sum(math.exp(-rate * k / (k + 1)) for k in range(1, min(shares, 64)))
    # k/(k+1) only grows: what is left is at most the last term again and again.
    return tau + 10 * max(0, shares - 64) * math.exp(-rate * 64 / 65)

"""Privacy loss distributions of integer noise, from its exact probabilities.

dp-accounting is imported on first use: most of what needs the noise never prices it.
"""

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import fft

from urna.errors import ParameterError
from urna.privacy.ballots import Shifts
from urna.privacy.distributions import Distribution

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["declared_loss", "gaussian_loss", "grain", "shifted_noise_loss", "sum_error"]

_GRAIN_OF_MU = 2e-4
_BEYOND_WINDOW = 1e-18


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

    All coordinates are composed in one Fourier transform, so a ranked ballot of many
    different weights costs little more than one of equal votes.

    Guarantee:
        Pessimistic: the hockey-stick divergence at every epsilon is at least that of the
        shifted noise. Probabilities are weights computed in integers (see `distributions`);
        losses round up to multiples of `interval`; what lies beyond the table is an
        infinite loss, and so is a bound of what lies above the window of the transform. What
        lies below the window comes back in at its upper end.
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    half, _ = family.half_weights(variance)
    log_total = math.log(2 * sum(half) - half[0])
    log_half = np.array([math.log(weight) - log_total for weight in half])
    log_mass = np.concatenate([log_half[:0:-1], log_half])
    parts = [_OneCoordinate.of(log_mass, shift, interval) for shift, _ in shifts]
    counts = [count for _, count in shifts]
    if not parts:
        raise ParameterError("a release needs at least one coordinate that can move")
    low, high = _window(parts, counts)
    length = fft.next_fast_len(high - low + 1, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for part, count in zip(parts, counts, strict=True):
        folded = np.bincount(part.places % length, weights=part.mass, minlength=length)
        spectrum *= fft.rfft(folded) ** count
    mass = np.roll(fft.irfft(spectrum, length), -(low % length))
    certain = any(part.infinite >= 1 for part in parts)
    finite = (
        -math.inf
        if certain
        else sum(
            count * math.log1p(-part.infinite) for part, count in zip(parts, counts, strict=True)
        )
    )
    return PrivacyLossDistribution(
        DensePLDPmf(
            interval, low, np.maximum(mass, 0.0), -math.expm1(finite) + _BEYOND_WINDOW, True
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class _OneCoordinate:
    """The loss between noise and shifted noise; both directions have the same."""

    places: npt.NDArray[np.int64]
    """Losses, rounded up, in intervals."""
    mass: npt.NDArray[np.float64]
    infinite: float

    @classmethod
    def of(cls, log_mass: npt.NDArray[np.float64], shift: int, interval: float) -> "_OneCoordinate":
        infinite = float(np.exp(log_mass[:shift]).sum())  # shifted noise does not reach there
        losses = log_mass[shift:] - log_mass[:-shift]
        places = np.ceil(losses / interval).astype(np.int64)
        return cls(places, np.exp(log_mass[shift:]), min(infinite, 1.0))

    def log_moment(self, rate: float) -> float:
        """Return log E e^(rate·loss), the loss in intervals, over finite losses."""
        powers = rate * self.places
        top = float(powers.max(initial=0.0))
        return top + math.log(max(float(self.mass @ np.exp(powers - top)), sys.float_info.min))


def _window(parts: Sequence[_OneCoordinate], counts: Sequence[int]) -> tuple[int, int]:
    """Return losses, in intervals, between which all but `_BEYOND_WINDOW` of the mass lies.

    By Chernoff's bound, P[L > x] ≤ E e^(tL)·e^(−tx) for every t > 0, and likewise below.
    """
    spread = math.sqrt(
        sum(
            count * float(part.mass @ np.square(part.places, dtype=np.float64))
            for part, count in zip(parts, counts, strict=True)
        )
    )
    margin = -math.log(_BEYOND_WINDOW)
    highs, lows = [], []
    for rate in np.array([6.0, 9.0]) / max(spread, 1.0):
        above = sum(n * part.log_moment(rate) for part, n in zip(parts, counts, strict=True))
        below = sum(n * part.log_moment(-rate) for part, n in zip(parts, counts, strict=True))
        highs.append(math.ceil((above + margin) / rate))
        lows.append(math.floor(-(below + margin) / rate))
    return max(lows), max(min(highs), *lows)


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

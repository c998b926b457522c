"""What was released, as data: the events a ledger composes.

Every event can be priced by a privacy loss distribution (`loss`), by Rényi divergences
(`rdp`), or by both; None says that no bound of that kind is known. An event that neither
can price makes everything it is composed with infinite; it is never priced at zero.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from urna.errors import LedgerError, ParameterError, UnknownName
from urna.privacy.ballots import NormBound, Shifts, norms
from urna.privacy.distributions import DISTRIBUTIONS, SKELLAM
from urna.privacy.loss import declared_loss, gaussian_loss, shifted_noise_loss, sum_error
from urna.privacy.rdp import gaussian_rdp, skellam_rdp
from urna.privacy.tradeoff import BEYOND, gaussian_parameter

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "MOST_PARTS",
    "DeclaredRelease",
    "GaussianRelease",
    "NonPrivateRelease",
    "Release",
    "SkellamVectorRelease",
    "TallyRelease",
    "read_release",
]

MOST_PARTS = 1025
"""A client may draw its share of the noise in up to this many parts, each with its error."""


_MOST_EXACT = 4  # different shifts


class Release(Protocol):
    """One thing that became public."""

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation of the Gaussian that comes nearest."""
        ...

    @property
    def draw_error(self) -> float:
        """Total variation between the mechanism that ran and the one that is priced."""
        ...

    def loss(self, interval: float) -> "PrivacyLossDistribution | None":
        """Return the privacy loss, in pessimistic multiples of `interval`."""
        ...

    def rdp(self, order: int) -> float | None:
        """Return the Rényi divergence bound of this integer order."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        ...


@dataclass(frozen=True, slots=True)
class TallyRelease:
    """A noisy sum of integer ballots, one client's ballot moving it by at most `shifts`."""

    shifts: Shifts | NormBound
    """In grid steps."""
    share: Fraction
    """Variance of one client's noise, in grid steps squared."""
    shares: int
    """How many honest clients' noise is sure to be in the sum."""
    family: str = SKELLAM.name

    def __post_init__(self) -> None:
        if not isinstance(self.shifts, NormBound):
            whole = all(type(part) is int and part >= 1 for pair in self.shifts for part in pair)
            if not self.shifts or not whole:
                raise ParameterError(f"shifts are pairs of positive integers, got {self.shifts}")
        if not isinstance(self.share, Fraction) or self.share <= 0:
            raise ParameterError(f"a share is a positive Fraction, got {self.share!r}")
        if type(self.shares) is not int or self.shares < 1:
            raise ParameterError(f"shares must be at least 1, got {self.shares}")
        if self.family not in DISTRIBUTIONS:
            raise UnknownName("noise family", self.family, DISTRIBUTIONS)

    @property
    def variance(self) -> Fraction:
        """Variance that the fewest honest survivors leave in the sum."""
        return self.share * self.shares

    @property
    def l2_squared(self) -> int:
        """Squared L2 sensitivity in grid steps."""
        return norms(self.shifts).l2_squared

    @property
    def l1(self) -> int:
        """L1 sensitivity in grid steps."""
        return norms(self.shifts).l1

    @property
    def moved(self) -> int:
        """Most coordinates that one client can move."""
        return norms(self.shifts).coordinates

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation."""
        return math.sqrt(self.l2_squared / self.variance)

    @property
    def draw_error(self) -> float:
        """Only moved coordinates count: the others are drawn alike on both sides."""
        family = DISTRIBUTIONS[self.family]
        _, error = family.half_weights(self.share)
        summed = 0.0 if family.closed_under_addition else sum_error(self.share, self.shares)
        return self.moved * (self.shares * MOST_PARTS * error + summed + 2 * BEYOND)

    def loss(self, interval: float) -> "PrivacyLossDistribution | None":
        """Return the loss of the integer noise, pessimistically rounded.

        Where votes are equal it is the exact one. Else it is that of the Gaussian that the
        noise's trade-off is bounded by: there, rounding the exact losses of many different
        shifts would cost more than the Gaussian does.
        """
        family = DISTRIBUTIONS[self.family]
        if isinstance(self.shifts, NormBound) or len(self.shifts) > _MOST_EXACT:
            eta = gaussian_parameter(family, self.variance)
            if math.isinf(eta):
                return None
            return gaussian_loss(eta * math.sqrt(self.l2_squared), interval)
        return shifted_noise_loss(family, self.variance, self.shifts, interval)

    def rdp(self, order: int) -> float:
        """Return the bound of the family."""
        l2_squared, variance = float(self.l2_squared), float(self.variance)
        if self.family == SKELLAM.name:
            return skellam_rdp(order, l2_squared=l2_squared, l1=float(self.l1), variance=variance)
        return gaussian_rdp(order, l2_squared=l2_squared, variance=variance)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {
            "kind": "tally",
            "shifts": (
                asdict(self.shifts)
                if isinstance(self.shifts, NormBound)
                else [list(pair) for pair in self.shifts]
            ),
            "share": str(self.share),
            "shares": self.shares,
            "family": self.family,
        }


@dataclass(frozen=True, slots=True)
class SkellamVectorRelease:
    """Noisy sums of integer vectors of bounded norm: rounds of training."""

    l2_squared: float
    l1: float
    variance: float
    rounds: int = 1

    def __post_init__(self) -> None:
        _check_positive("l2_squared", self.l2_squared)
        _check_positive("l1", self.l1)
        _check_positive("variance", self.variance)
        _check_rounds(self.rounds)

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation of all rounds together."""
        return math.sqrt(self.rounds * self.l2_squared / self.variance)

    @property
    def draw_error(self) -> float:
        """Below 2^-60 for a million rounds of a million coordinates of a million clients."""
        return 2.0**-60

    def loss(self, interval: float) -> None:
        """Return None: the worst pair of integer vectors of bounded norm is not known."""
        return

    def rdp(self, order: int) -> float:
        """Return the Skellam bound, over all rounds."""
        once = skellam_rdp(order, l2_squared=self.l2_squared, l1=self.l1, variance=self.variance)
        return self.rounds * once

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {
            "kind": "skellam-vector",
            "l2_squared": self.l2_squared,
            "l1": self.l1,
            "variance": self.variance,
            "rounds": self.rounds,
        }


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """Rounds of the Gaussian mechanism, for training done elsewhere on the same data."""

    noise_multiplier: float
    rounds: int = 1

    def __post_init__(self) -> None:
        _check_positive("noise_multiplier", self.noise_multiplier)
        _check_rounds(self.rounds)

    @property
    def mu(self) -> float:
        """Sensitivity over standard deviation of all rounds together."""
        return math.sqrt(self.rounds) / self.noise_multiplier

    @property
    def draw_error(self) -> float:
        """Nothing is known of how another program draws; it is taken at its word."""
        return 0.0

    def loss(self, interval: float) -> "PrivacyLossDistribution":
        """Return the loss of all rounds; many Gaussians are one of summed strength."""
        return gaussian_loss(self.mu, interval)

    def rdp(self, order: int) -> float:
        """Return the Gaussian bound, over all rounds."""
        return gaussian_rdp(order, l2_squared=self.rounds, variance=self.noise_multiplier**2)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {
            "kind": "gaussian",
            "noise_multiplier": self.noise_multiplier,
            "rounds": self.rounds,
        }


@dataclass(frozen=True, slots=True)
class DeclaredRelease:
    """Something released elsewhere, of which only its (epsilon, delta) is known."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 <= self.delta < 1):
            raise ParameterError(
                "a declared release needs a finite, positive epsilon and a delta in [0, 1), got "
                f"{self.epsilon} and {self.delta}"
            )

    @property
    def mu(self) -> float:
        """Some Gaussian of about this epsilon; it sets the grain of losses, no more."""
        return self.epsilon / 4

    @property
    def draw_error(self) -> float:
        """Part of the declared delta."""
        return 0.0

    def loss(self, interval: float) -> "PrivacyLossDistribution":
        """Return the worst loss these parameters allow."""
        return declared_loss(self.epsilon, self.delta, interval)

    def rdp(self, order: int) -> float | None:
        """Return min(ε, αε²/2) where delta is zero (Bun & Steinke 2016); else nothing holds."""
        return min(self.epsilon, order * self.epsilon**2 / 2) if self.delta == 0 else None

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {"kind": "declared", "epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True, slots=True)
class NonPrivateRelease:
    """Something released without a guarantee: scripted randomness, or no noise."""

    reason: str

    @property
    def mu(self) -> float:
        """Unbounded."""
        return math.inf

    @property
    def draw_error(self) -> float:
        """Nothing is claimed."""
        return 0.0

    def loss(self, interval: float) -> None:
        """Return None: there is no bound."""
        return

    def rdp(self, order: int) -> None:
        """Return None: there is no bound."""
        return

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {"kind": "non-private", "reason": self.reason}


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(f"{name} must be finite and positive, got {value}")


def _check_rounds(rounds: int) -> None:
    if type(rounds) is not int or rounds < 1:
        raise ParameterError(f"rounds must be a whole number of at least 1, got {rounds}")


def read_release(mapping: Mapping[str, Any]) -> Release:
    """Read what `as_mapping` wrote.

    Raises:
        LedgerError: The kind is unknown, or a field is missing or malformed. An event that
            cannot be read is never skipped.
    """
    fields = {key: value for key, value in mapping.items() if key != "kind"}
    try:
        match mapping.get("kind"):
            case "tally":
                moves = fields["shifts"]
                shifts: Shifts | NormBound = (
                    NormBound(**moves)
                    if isinstance(moves, Mapping)
                    else tuple((int(shift), int(count)) for shift, count in moves)
                )
                share = Fraction(fields["share"])
                return TallyRelease(shifts, share, int(fields["shares"]), fields["family"])
            case "skellam-vector":
                return SkellamVectorRelease(**fields)
            case "gaussian":
                return GaussianRelease(**fields)
            case "declared":
                return DeclaredRelease(**fields)
            case "non-private":
                return NonPrivateRelease(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"an event in the ledger cannot be read: {error!r}") from error
    raise LedgerError(
        f"the ledger holds an event of unknown kind {mapping.get('kind')!r}; it was written by a "
        "newer Urna. Upgrade to read it."
    )

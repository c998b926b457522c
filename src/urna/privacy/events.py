"""What was released, as data: the events a ledger adds up.

Every event has a `Cost`: most are Gaussian, of some only an (epsilon, delta) is known, and one
that has no guarantee costs everything. Events compose like data: `Repeated` is many of one kind,
`Sampled` is one of secret Poisson samples, of clients or of their records.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from urna.errors import LedgerError, ParameterError, UnknownName
from urna.privacy.cost import Cost, Release, Spent, together
from urna.privacy.distributions import DISTRIBUTIONS, SKELLAM
from urna.privacy.sampling import sampled_epsilon
from urna.privacy.selection import SelectionRelease
from urna.privacy.tradeoff import BEYOND, Sensitivity, gaussian_parameter

__all__ = [
    "MOST_PARTS",
    "DeclaredRelease",
    "GaussianRelease",
    "NonPrivateRelease",
    "Repeated",
    "Sampled",
    "SumRelease",
    "compose",
    "read_release",
    "ways_of",
]

MOST_PARTS = 1025
"""A client may draw its share of the noise in up to this many parts, each with its error."""


@dataclass(frozen=True, slots=True)
class SumRelease(Release):
    """A noisy sum of integer vectors, one protected unit moving it by `sensitivity` at most."""

    kind: ClassVar[str] = "sum"
    sensitivity: Sensitivity
    """In grid steps."""
    share: Fraction
    """Variance of one client's noise, in grid steps squared."""
    shares: int
    """How many honest clients' noise is sure to be in the sum."""
    family: str = SKELLAM.name

    def __post_init__(self) -> None:
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

    def cost(self) -> Cost:
        """Return the Gaussian of the noise's trade-off; only moved coordinates slip.

        The others are drawn alike on both sides. Where the sensitivity is bounded but for some
        coins that no data enter (`Sensitivity.beyond`), the runs with such coins are moved mass:
        given any other coins the pair is Gaussian, and so is their mixture, whose weights are the
        same on both sides (trade-offs are convex).
        """
        family = DISTRIBUTIONS[self.family]
        eta = gaussian_parameter(family, self.variance)
        error = family.draw_error(self.share)
        summed = 0.0 if family.closed_under_addition else sum_error(self.share, self.shares)
        slip = self.sensitivity.coordinates * (self.shares * MOST_PARTS * error + summed + BEYOND)
        return Cost(mu=eta * self.sensitivity.l2, slip=slip + self.sensitivity.beyond)


@dataclass(frozen=True, slots=True)
class GaussianRelease(Release):
    """A Gaussian mechanism that another program runs on the same data."""

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float
    """Standard deviation over sensitivity. It is taken at its word."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise ParameterError(
                f"noise_multiplier must be finite and positive, got {self.noise_multiplier}"
            )

    def cost(self) -> Cost:
        """Return the Gaussian."""
        return Cost(mu=1 / self.noise_multiplier)


@dataclass(frozen=True, slots=True)
class DeclaredRelease(Release):
    """Something released elsewhere, of which only its (epsilon, delta) is known."""

    kind: ClassVar[str] = "declared"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0 and 0 <= self.delta < 1):
            raise ParameterError(
                "a declared release needs a finite, positive epsilon and a delta in [0, 1), got "
                f"{self.epsilon} and {self.delta}"
            )

    def cost(self) -> Cost:
        """Return what was declared."""
        return Cost(epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, slots=True)
class NonPrivateRelease(Release):
    """Something released without a guarantee: scripted randomness, or no noise."""

    kind: ClassVar[str] = "non-private"
    reason: str

    def cost(self) -> Cost:
        """Return a cost that no budget covers."""
        return Cost(mu=math.inf)


@dataclass(frozen=True, slots=True)
class Sampled(Release):
    """A sum over a secret Poisson sample: of the clients, or of every client's own records.

    Guarantee:
        That of `sampling.sampled_epsilon`, at the `delta` set apart for it.

    Assumes:
        Nobody who reads the result, the server included, knows which clients, or records, were
        drawn.
    """

    kind: ClassVar[str] = "sampled"
    release: SumRelease | GaussianRelease
    """The sum of all that is drawn. Its sensitivity is that of one unit left out."""
    rate: Fraction
    delta: float
    """The part of delta that all rounds of it together may use."""
    replaced: bool = True
    """Whether a unit's data may be replaced, which is leaving out and putting in."""

    def __post_init__(self) -> None:
        if not isinstance(self.release, SumRelease | GaussianRelease):
            raise ParameterError("only sums are sampled")
        if not isinstance(self.rate, Fraction) or not 0 < self.rate < 1:
            raise ParameterError(f"a sampling rate is a Fraction in (0, 1), got {self.rate!r}")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must lie strictly between 0 and 1, got {self.delta}")

    def cost(self) -> Cost:
        """Return the cost of one round."""
        return self.rounds(1)

    def prices(self, rounds: int = 1) -> Sequence[Cost]:
        """Return what so many rounds cost."""
        return (self.rounds(rounds),)

    def rounds(self, count: int) -> Cost:
        """Return the cost of so many rounds, composed as sampled Gaussians are."""
        once = self.release.cost()
        epsilon = sampled_epsilon(once.mu, self.rate, count, self.delta, replaced=self.replaced)
        # Replaced, both contents have coins that may move them too far from nothing.
        moved = (2 if self.replaced else 1) * count * once.slip
        return Cost(epsilon=epsilon, delta=self.delta, slip=moved)


@dataclass(frozen=True, slots=True)
class Repeated(Release):
    """So many releases of one kind: the rounds of a series."""

    kind: ClassVar[str] = "repeated"
    release: Release
    rounds: int

    def __post_init__(self) -> None:
        if type(self.rounds) is not int or self.rounds < 1:
            raise ParameterError(f"rounds must be a whole number of at least 1, got {self.rounds}")

    def cost(self) -> Cost:
        """Return the cost of all rounds."""
        return self.prices()[0]

    def prices(self, rounds: int = 1) -> Sequence[Cost]:
        """Return the proven costs of all rounds."""
        return self.release.prices(rounds * self.rounds)


@dataclass(frozen=True, slots=True)
class _PastRelease(Release):
    """A sum under clients' coins: version 0.2 could open one, and noted its price in the ledger."""

    kind: ClassVar[str] = "coins"
    fields: Mapping[str, Any]

    def cost(self) -> Cost:
        """Return a cost that no budget covers: it is not opened again."""
        return Cost(mu=math.inf)

    def as_mapping(self) -> dict[str, Any]:
        """Return what was read."""
        return dict(self.fields)


@functools.lru_cache(maxsize=64)
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


def compose(releases: Iterable[Release], delta: float) -> Spent:
    """Return the epsilon of all releases together at this delta.

    Guarantee:
        Together the releases are (epsilon, delta)-DP under their own neighbouring relation,
        also when what is computed later depends on what was released earlier
        (`cost.together`). Selections are counted by their epsilons or by their Gaussians,
        whichever is less for all of them together.

    Assumes:
        How many releases there are and how much noise each has does not depend on the
        results of earlier ones. Where it may, keep a `Ledger`: its cap holds all the same.

    Example:
        >>> compose([], 1e-5)
        Spent(epsilon=0.0, accountant='nothing released')
    """
    return min(ways_of(releases), key=lambda cost: cost.at(delta)).spent(delta)


def ways_of(releases: Iterable[Release]) -> list[Cost]:
    """Return what releases cost together: by the epsilons of selections, and by their Gaussians."""
    listed = [release.prices() for release in releases]
    return [together(prices[way] for prices in listed) for way in (0, -1)]


_KINDS: Mapping[str, Callable[..., Release]] = {
    kind.kind: kind
    for kind in (
        SumRelease,
        SelectionRelease,
        GaussianRelease,
        DeclaredRelease,
        NonPrivateRelease,
        Sampled,
        Repeated,
    )
}


def read_release(mapping: Mapping[str, Any]) -> Release:
    """Read what `as_mapping` wrote.

    Raises:
        LedgerError: The kind is unknown, or a field is missing or malformed. An event that
            cannot be read is never skipped.
    """
    fields = dict(mapping.items())
    try:
        kind = fields.pop("kind", None)
        if kind == _PastRelease.kind:
            return _PastRelease(mapping)
        if kind not in _KINDS:
            raise LedgerError(
                f"the ledger holds an event of unknown kind {kind!r}; it was written by a newer "
                "Urna. Upgrade to read it."
            )
        if kind == SumRelease.kind:
            moved = fields.pop("l2_squared"), fields.pop("coordinates")
            fields["sensitivity"] = Sensitivity(*moved, float(fields.pop("beyond", 0.0)))
        for name, read in (("share", Fraction), ("rate", Fraction), ("release", read_release)):
            if name in fields:
                fields[name] = read(fields[name])
        return _KINDS[kind](**fields)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise LedgerError(f"an event in the ledger cannot be read: {error!r}") from error

"""Opening only who won: what that costs, and the noise it takes.

Every candidate's exact total gets the largest of K independent geometric variables, and only
the candidate with the largest noisy total is opened, perhaps with the gap to the runner-up.
docs/decisions/0027-winner-only.md has the proofs that are summarised here.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from urna.errors import ParameterError
from urna.privacy.cost import Cost, Release

__all__ = ["PRECISION", "Coin", "SelectionRelease", "pure_mu", "range_mu"]

PRECISION = 28
"""Bits to which the probability of each coin is right, relative to itself."""

_TAIL_BITS = 64  # noise that is cut off has a probability below 2^−64 in all
_EXACT = Context(prec=60)
_POINTS = 65_537  # at which a bound over intervals is evaluated
_ROUNDING = 1e-9  # relative; more than rounded quantiles do


@dataclass(frozen=True, slots=True)
class Coin:
    """One binary digit of a geometric variable: 1 where `bits` fair bits are below `threshold`.

    The threshold is odd, so that its lowest bit costs no gate.
    """

    threshold: int
    bits: int

    @property
    def probability(self) -> float:
        """How probably it shows 1."""
        return float(self.threshold / (1 << self.bits))


@dataclass(frozen=True, slots=True)
class SelectionRelease(Release):
    """The candidate of the largest noisy total, opened alone or with its gap.

    Guarantee:
        Up to moving `slip` of probability mass on either side, no outcome is more than
        e^epsilon times as probable as under a neighbour, and the logarithms of these ratios
        differ by at most `range` between any two outcomes.

    Args:
        epsilon: What it costs alone.
        reach: Most votes by which one protected unit moves the difference of two candidates'
            totals: twice the top level.
        candidates: How many candidates there are.
        largest_of: K, how many geometric variables each candidate's noise is the largest of.
        fineness: Bits below the vote that noise is drawn to; the finer, the smaller `range`.
        gap: Whether the gap to the runner-up is opened as well.
        precision: Bits to which the probability of each coin is right, relative to itself.

    Raises:
        ParameterError: Noise of this kind cannot be drawn to this precision.
    """

    kind: ClassVar[str] = "selection"
    epsilon: float
    reach: int
    candidates: int
    largest_of: int = 1
    fineness: int = 0
    gap: bool = True
    precision: int = PRECISION

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and 0 < self.epsilon <= 50):
            raise ParameterError(
                f"the epsilon of a selection is positive and at most 50, got {self.epsilon}"
            )
        whole = {
            "reach": (self.reach, 1, 1 << 20),
            "candidates": (self.candidates, 2, 1 << 20),
            "largest_of": (self.largest_of, 1, 64),
            "fineness": (self.fineness, 0, 16),
            "precision": (self.precision, 16, 64),
        }
        for name, (value, least, most) in whole.items():
            if type(value) is not int or not least <= value <= most:
                raise ParameterError(f"{name} is a whole number in {least}..{most}, got {value!r}")
        if type(self.gap) is not bool:
            raise ParameterError(f"gap is true or false, got {self.gap!r}")
        if self.drawn < 0.9 * self.epsilon:
            raise ParameterError(
                f"coins of {self.precision} bits are too coarse for epsilon {self.epsilon:g} and "
                f"{self.candidates} candidates. Raise the precision."
            )
        if self.digits > 40:
            raise ParameterError(f"epsilon {self.epsilon:g} asks for noise beyond 2^40 votes")

    @property
    def steps(self) -> int:
        """Steps of the noise's grid by which a unit moves a difference."""
        return self.reach << self.fineness

    @property
    def digits(self) -> int:
        """Binary digits of each geometric variable: what they cut off has hardly a chance."""
        nats = (_TAIL_BITS + math.log2(self.candidates * self.largest_of)) * math.log(2)
        return max(1, math.ceil(math.log2(nats * self.steps / (0.9 * self.epsilon))))

    @property
    def coins(self) -> int:
        """Coins that the noise of all candidates takes."""
        return self.candidates * self.largest_of * self.digits

    @property
    def inexact(self) -> float:
        """How far the logarithm of any outcome's probability may be off: coins are not exact.

        Each coin's two probabilities are right up to a factor e^(±2^−precision).
        """
        return self.coins * 2.0**-self.precision * (1 + 1e-6)

    @property
    def drawn(self) -> float:
        """The epsilon that the noise is made for, less than `epsilon` for what is inexact."""
        return self.epsilon - 2 * self.inexact

    @property
    def rate(self) -> float:
        """Logarithm by which the noise's probability falls from step to step."""
        return self.drawn / self.steps

    @property
    def slip(self) -> float:
        """Probability that some geometric variable is cut off."""
        cut = self.rate * 2.0**self.digits
        return self.candidates * self.largest_of * math.exp(-cut)

    @property
    def noise_std(self) -> float:
        """Standard deviation, in votes, of one candidate's noise."""
        # The largest of K exponentials is the sum of independent ones of rates 1, 2, …, K.
        spread = math.sqrt(sum(1 / k**2 for k in range(1, self.largest_of + 1)))
        return spread / self.rate / (1 << self.fineness)

    @property
    def range(self) -> float:
        """Most by which the logarithms of two outcomes' ratios differ.

        Twice epsilon in any case. Where K ≥ 2 and no gap is told, exponential noise has at most
        (1 + 1/K) of its epsilon, and rounding it to the grid moves the logarithm of any
        candidate's chance by at most one step's rate.
        """
        most = 2 * self.epsilon
        if self.gap or self.largest_of < 2:
            return most
        exponential = (1 + 1 / self.largest_of) * self.drawn
        return min(most, exponential + 4 * self.rate + 4 * self.inexact)

    @property
    def mu(self) -> float:
        """The μ of a Gaussian that tells at least as much."""
        return min(pure_mu(self.epsilon), range_mu(self.range))

    def cost(self) -> Cost:
        """Return what it costs alone, or beside others of which an epsilon is known."""
        return Cost(epsilon=self.epsilon, slip=self.slip)

    def prices(self, rounds: int = 1) -> Sequence[Cost]:
        """Return that, and what it costs beside Gaussian releases: more alone, less in a crowd."""
        return self.cost().times(rounds), Cost(mu=self.mu, slip=self.slip).times(rounds)

    def noise_coins(self) -> tuple[Coin, ...]:
        """Return the coins of one geometric variable, its lowest digit first.

        P(N = n) ∝ q^n factors over the binary digits of n: digit i is 1 with probability
        q^(2^i)/(1 + q^(2^i)), whatever the others are. Computed in decimal arithmetic, so
        that both parties find the same thresholds on any machine.
        """
        return _noise_coins(self.rate, self.digits, self.precision)


@functools.lru_cache(maxsize=64)
def _noise_coins(rate: float, digits: int, precision: int) -> tuple[Coin, ...]:
    coins = []
    for digit in range(digits):
        odds = _EXACT.exp(_EXACT.multiply(Decimal(-rate), Decimal(1 << digit)))
        chance = _EXACT.divide(odds, _EXACT.add(Decimal(1), odds))
        zeros = 0
        while chance * (2 << zeros) < 1:  # leading zeros of its binary expansion
            zeros += 1
        bits = zeros + precision + 1
        # Within one of a number of at least 2^precision: right up to 2^−precision.
        threshold = int(_EXACT.multiply(chance, Decimal(1 << bits))) | 1
        coins.append(Coin(threshold, bits))
    return tuple(coins)


def pure_mu(epsilon: float) -> float:
    """Return the least μ, rounded up, for which every ε-DP pair is μ-GDP.

    Guarantee:
        The trade-off of an ε-DP pair is nowhere below f(α) = max(1 − e^ε·α, e^−ε·(1 − α), 0):
        two chords that meet in (a, a), a = 1/(1 + e^ε). The Gaussian trade-off is convex, runs
        from (0, 1) to (1, 0), and with this μ passes through (a, a), so it lies below both.

    Example:
        >>> round(pure_mu(0.1), 4)
        0.1253
    """
    return -2 * float(ndtri(1 / (1 + math.exp(epsilon)))) * (1 + _ROUNDING)


@functools.lru_cache(maxsize=64)
def range_mu(most: float) -> float:
    """Return a μ, rounded up, for which every pair of this bounded range is μ-GDP.

    Guarantee:
        The likelihood ratio lies in [e^(t−η), e^t] for some 0 ≤ t ≤ η. Of all ratios of mean 1
        in there, the one with only the two ends as values is the largest in convex order, so
        the pair is a post-processing of one with two outcomes (Dong, Durfee & Rogers 2020). Its
        trade-off has one corner, (α, 1 − h) with h = (1 − e^(t−η))/(1 − e^−η) and α = e^−t·h,
        and as for `pure_mu` μ(t) = Φ⁻¹(h) − Φ⁻¹(α) is enough. Over an interval of t it is
        bounded twice, and the smaller bound counts: by the ends' quantiles, since α and h fall
        with t; and, as μ(t) = ∫ dx/φ(Φ⁻¹(x)) from α to h, by the largest h − α times the
        larger end of that convex integrand. Next to t = η, where 1/φ(Φ⁻¹(x)) ≤ 1/(x·z),
        z = −Φ⁻¹(x) (Mills), it is at most η/z(h); next to t = 0 by symmetry as well.

    Example:
        >>> round(range_mu(0.1), 4)
        0.0627
    """
    t = np.linspace(0.0, most, _POINTS)
    high = -np.expm1(t - most) / -math.expm1(-most)
    low = high * np.exp(-t)
    edge = most / -float(ndtri(high[-2]))
    high, low = high[1:-1], low[1:-1]
    upper, lower = ndtri(high[:-1]), ndtri(low[1:])
    by_quantiles = upper - lower
    # h − α is concave in t with its top in the middle, which is one of the points.
    apart = np.maximum(high - low, np.roll(high - low, -1))[:-1]
    steepest = np.maximum(np.exp(upper**2 / 2), np.exp(lower**2 / 2)) * math.sqrt(2 * math.pi)
    bound = float(np.minimum(by_quantiles, apart * steepest).max())
    return max(bound, edge) * (1 + _ROUNDING)

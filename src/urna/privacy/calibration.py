"""Size the noise of a sum: the least integer noise that meets a budget."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from urna.errors import ParameterError
from urna.privacy.budget import Budget
from urna.privacy.cost import GAUSSIAN, SLIP_PART, Cover
from urna.privacy.distributions import SKELLAM, Distribution
from urna.privacy.events import Repeated, Sampled, SumRelease
from urna.privacy.gaussian import crossing
from urna.privacy.sampling import sampled_epsilon
from urna.privacy.tradeoff import Sensitivity

__all__ = ["LARGEST_EPSILON", "SAMPLED", "Calibration", "calibrate"]

LARGEST_EPSILON = 20.0
"""A larger budget gets the noise of this one: draws are exact enough for it."""

_SHARE_STD = 4  # grid steps; one client's noise is then smooth
_SUM_STD = 16  # grid steps; the sum's noise then costs 0.07 % more than the Gaussian's at most
_SHARE_BITS = 12  # a share is resolved to one part in 2^12 of its variance
SAMPLED = "PLD of the sampled dominating Gaussian"
"""What computes the epsilon of sums of secret Poisson samples."""

MOST_SAMPLED = 20_000
"""Sampled rounds that are composed in a plan; more take too long, or too much memory."""

_DIGITS = 1e-4  # relative; a search over composed loss distributions ends this close
_BELOW = 1 - 1e-9  # room for several such releases to fill a budget together


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise that meets a budget, and the event that using it is."""

    scale: int
    """Grid steps per unit of the summed vectors, a power of two."""
    release: SumRelease
    epsilon: float
    """What all rounds of it really cost: at most the budget's epsilon."""
    accountant: str = GAUSSIAN
    """What computed epsilon."""

    @property
    def noise_std(self) -> float:
        """Standard deviation, in units, that the fewest honest survivors leave."""
        return math.sqrt(self.release.variance) / self.scale


@functools.lru_cache(maxsize=128)
def calibrate(
    budget: Budget,
    sensitivity: Sensitivity,
    *,
    shares: int,
    family: Distribution = SKELLAM,
    finest: int | None = None,
    rounds: int = 1,
    rate: Fraction | None = None,
    replaced: bool = True,
) -> Calibration:
    """Return the least noise per client under which a sum, or a series, meets `budget`.

    Guarantee:
        A sum that holds the noise of at least `shares` honest clients is (epsilon, delta)-DP
        for the returned epsilon, which is at most the budget's, and a ledger of this cap
        takes it. The variance is a multiple of a fine unit, rounded up; more clients' noise
        only helps, because adding independent noise is post-processing. Of sums of secret
        Poisson samples it is that of `sampling.sampled_epsilon`.

    Assumes:
        One protected unit moves the sum by no more than `sensitivity`, the sum reveals nothing
        else, and every honest client draws its share from a secret source. As `Sampled`: nobody
        who reads the results knows who, or which records, were drawn.

    Args:
        budget: What the release may cost.
        sensitivity: How far one unit moves the sum, before scaling.
        shares: Fewest honest clients whose noise is in the sum.
        family: The noise's family.
        finest: Largest scale; vectors that are on a fine grid already need none.
        rounds: How many such sums the budget is for, each under the returned noise.
        rate: Largest probability that a unit is drawn into a round's secret sample; None where
            all are. With it, `sensitivity` is that of one unit left out.
        replaced: Whether a unit that is drawn may be replaced, not only left out.

    Raises:
        ParameterError: No noise will do, or so many rounds with samples are not composed in
            reasonable time and memory.

    Example:
        >>> vote = calibrate(Budget(1.0, 1e-5), Sensitivity(10, 10), shares=100)
        >>> round(vote.noise_std, 1)
        11.8
    """
    if rate is not None and rounds > MOST_SAMPLED:
        raise ParameterError(
            f"at most {MOST_SAMPLED:,} sampled rounds are accounted for, got {rounds:,}"
        )
    budget = Budget(min(budget.epsilon, LARGEST_EPSILON), budget.delta)
    limit = Cover(budget).mu
    if rate is None:
        limit *= _BELOW / math.sqrt(rounds)  # squares of μ add up
    else:  # with sampling, one round is allowed more than `limit`
        limit = _sampled_limit(budget, limit, rate, rounds, replaced)
    scale, made = _least(limit, budget, sensitivity, shares, family, finest)
    event = made if rate is None else Sampled(made, rate, sampled_delta(budget), replaced)
    epsilon = Repeated(event, rounds).cost().at(budget.delta)
    if not epsilon <= budget.epsilon:
        raise ParameterError(
            f"delta {budget.delta:g} is too small for the precision of draws. Raise delta."
        )
    return Calibration(scale, made, epsilon, GAUSSIAN if rate is None else SAMPLED)


def _sampled_limit(
    budget: Budget, high: float, rate: Fraction, rounds: int, replaced: bool
) -> float:
    """Return the largest μ of one round of which only a sample takes part."""
    delta = sampled_delta(budget)

    def enough(mu: float) -> bool:
        return sampled_epsilon(mu, rate, rounds, delta, replaced=replaced) <= budget.epsilon

    return crossing(enough, high, _DIGITS)[0]


def sampled_delta(budget: Budget) -> float:
    """Return the part of delta that a sampled series may use: all but what draws need."""
    return budget.delta * (1 - 2 * SLIP_PART)


def _least(
    limit: float,
    budget: Budget,
    sensitivity: Sensitivity,
    shares: int,
    family: Distribution,
    finest: int | None,
) -> tuple[int, SumRelease]:
    """Return a scale and the least noise under which one sum is `limit`-GDP."""
    if shares < 1:
        raise ParameterError(f"shares must be at least 1, got {shares}")
    guess = sensitivity.l2 / limit  # in units, of the sum
    steps = max(_SHARE_STD * math.sqrt(shares), _SUM_STD)
    scale = 1 << max(0, math.ceil(math.log2(steps / guess)))
    scale = min(scale, finest or scale)
    target = Fraction(guess * scale) ** 2 / shares
    unit = Fraction(2) ** (math.floor(math.log2(target)) - _SHARE_BITS)

    def release(units: int) -> SumRelease:
        return SumRelease(sensitivity.scaled(scale), units * unit, shares, family.name)

    # η·σ falls towards 1 as noise grows, so correcting the guess by it overshoots by next to
    # nothing, and never falls short for long.
    units = math.ceil(target / unit)
    while (over := release(units).cost().mu / limit) > 1:
        if not units * unit <= 64 * target:
            raise ParameterError(
                f"no noise meets epsilon {budget.epsilon:g} at delta {budget.delta:g}. Raise delta."
            )
        units = max(units + 1, math.ceil(units * min(over, 2.0) ** 2))
    return scale, release(units)

"""Size the noise of a vote: the least integer noise that meets a budget."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from urna.errors import ParameterError
from urna.privacy.accountant import compose
from urna.privacy.ballots import Ballot, NormBound, Shifts, norms, scaled
from urna.privacy.budget import Adjacency, Budget
from urna.privacy.distributions import SKELLAM, Distribution
from urna.privacy.events import TallyRelease
from urna.privacy.gaussian import gaussian_std

__all__ = [
    "LARGEST_EPSILON",
    "Calibration",
    "calibrate_ballots",
    "honest_survivors",
    "readers",
]

LARGEST_EPSILON = 20.0
"""A larger budget gets the noise of this one: draws are exact enough for it."""

_SHARE_STD = 4  # grid steps; below it discreteness would begin to cost
_SHARE_BITS = 12  # a share is resolved to one part in 2^12 of its variance


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise that meets a budget, and the event that using it is."""

    scale: int
    """Grid steps per unit of a ballot's weights, a power of two."""
    release: TallyRelease
    epsilon: float
    """What the release really costs: at most the budget's epsilon."""
    accountant: str

    @property
    def noise_std(self) -> float:
        """Standard deviation, in ballot weights, that the fewest honest survivors leave."""
        return math.sqrt(self.release.variance) / self.scale


def honest_survivors(clients: int, *, dropout: Fraction, colluding: Fraction) -> int:
    """Return the fewest clients whose noise is in the sum and unknown to any reader of it.

    At most ⌊n·dropout⌋ clients drop out and at most ⌊n·colluding⌋ reveal or omit their
    noise. In the worst case all who drop out are honest, so the two are subtracted, not
    multiplied. At least one client is always counted out: each learns the result and could
    subtract its own noise from it.

    Raises:
        ParameterError: A fraction is outside [0, 1), or nobody honest would be left.

    Example:
        >>> honest_survivors(100, dropout=Fraction(1, 5), colluding=Fraction(1, 10))
        70
        >>> honest_survivors(100, dropout=Fraction(0), colluding=Fraction(0))
        99
    """
    for name, part in (("dropout", dropout), ("colluding", colluding)):
        if not 0 <= part < 1:
            raise ParameterError(f"{name} must be at least 0 and below 1, got {float(part):g}")
    left = clients - math.floor(clients * dropout) - readers(clients, colluding)
    if left < 1:
        raise ParameterError(
            f"of {clients} clients {float(dropout):g} may drop out and {float(colluding):g} may "
            "collude, so no honest client is sure to remain beside a reader of the result. Lower "
            "one of them, or ask more clients."
        )
    return left


def readers(clients: int, colluding: Fraction) -> int:
    """Return how many clients' noise somebody may know: all colluders', at least one's own."""
    return max(1, math.floor(clients * colluding))


def calibrate_ballots(
    budget: Budget,
    shape: Ballot,
    *,
    shares: int,
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    family: Distribution = SKELLAM,
) -> Calibration:
    """Return the least noise per client under which a sum of ballots meets `budget`.

    Guarantee:
        A sum that holds the noise of at least `shares` honest clients is (epsilon, delta)-DP
        for the returned epsilon, which is at most the budget's. The variance is found by
        bisection over multiples of a grid and rounded up; more clients' noise only helps,
        because adding independent noise is post-processing.

    Assumes:
        Ballots have the given shape or are empty, the sum reveals nothing else, and every
        honest client draws its share from a secret source.

    Args:
        budget: What the release may cost.
        shape: What a valid ballot is.
        shares: Fewest honest clients whose noise is in the sum; see `honest_survivors`.
        adjacency: Between which electorates the guarantee holds.
        family: The noise's family.

    Example:
        >>> from urna.privacy import BallotShape
        >>> vote = BallotShape.top_k(5, candidates=100)
        >>> calibration = calibrate_ballots(Budget(1.0, 1e-5), vote, shares=100)
        >>> round(calibration.noise_std, 1)
        11.8
    """
    budget = Budget(min(budget.epsilon, LARGEST_EPSILON), budget.delta)
    return _calibrate(budget, shape.shifts(adjacency), shares, family)


@functools.lru_cache(maxsize=128)
def _calibrate(
    budget: Budget, moves: Shifts | NormBound, shares: int, family: Distribution
) -> Calibration:
    """Size the noise for moves of the sum: relations that move it alike share the work."""
    sensitivity = math.sqrt(norms(moves).l2_squared)
    guess = gaussian_std(budget, sensitivity=sensitivity)  # in weights, of the sum
    scale = 1 << max(0, math.ceil(math.log2(_SHARE_STD * math.sqrt(shares) / guess)))
    shifts = scaled(moves, scale)
    target = Fraction(guess * scale) ** 2 / shares
    unit = Fraction(2) ** (math.floor(math.log2(target)) - _SHARE_BITS)

    def price(units: int) -> tuple[TallyRelease, float, str]:
        release = TallyRelease(shifts, units * unit, shares, family.name)
        spent = compose([release], budget.delta)
        return release, spent.epsilon, spent.accountant

    # The Gaussian is near, and epsilon falls about as the standard deviation grows: a few units
    # around the corrected guess nearly always hold the answer.
    near = math.ceil(target / unit)
    off = min(price(near)[1] / budget.epsilon, 2.0)  # infinite where delta is too small
    low = high = max(1, math.ceil(near * off**2))
    step = 2
    best = price(high)
    while best[1] > budget.epsilon:
        if high * unit > 64 * target:
            raise ParameterError(
                f"no noise meets epsilon {budget.epsilon:g} at delta {budget.delta:g}. Raise delta."
            )
        low, high, step = high, high + step, 4 * step
        best = price(high)
    while low == high and low > 1:
        low, step = max(1, low - step), 4 * step
        found = price(low)
        if found[1] <= budget.epsilon:
            best, high = found, low
    while high - low > 1:
        middle = (low + high) // 2
        found = price(middle)
        if found[1] <= budget.epsilon:
            best, high = found, middle
        else:
            low = middle
    return Calibration(scale, *best)

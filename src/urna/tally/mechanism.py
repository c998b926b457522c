"""One client's part of a sum, and whether an opened sum can be what it claims to be."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import InvalidSum, ParameterError
from urna.noise import IntVector
from urna.randomness import SEED_BYTES, SecretSource
from urna.tally.plan import TallyPlan

FALSE_ALARM = 1e-10
"""How often an honest sum would be called spoiled."""


def to_grid(vector: IntVector, plan: TallyPlan) -> IntVector:
    """Check a contribution against the plan and scale it to grid steps.

    Guarantee:
        What leaves this function is what the plan's accounting assumes.
    """
    if vector.shape != (plan.dimension,) or not np.issubdtype(vector.dtype, np.integer):
        raise ParameterError(
            f"a contribution holds {plan.dimension} integers, got shape {vector.shape} of "
            f"{vector.dtype}"
        )
    plan.contribution.check(vector)
    return np.asarray(vector.astype(np.int64) * plan.scale)


def add_noise(on_grid: IntVector, plan: TallyPlan, secrets: SecretSource) -> IntVector:
    """Add one client's share of the noise, from a fresh secret seed."""
    if not plan.share:
        return on_grid
    table = plan.noise.table(plan.share)
    return np.asarray(on_grid + table.draw(secrets.take(SEED_BYTES), plan.dimension))


def in_units(total: IntVector, plan: TallyPlan) -> npt.NDArray[np.float64]:
    """Return a sum in the units of the contributions."""
    return np.asarray(total / plan.scale)


def check_sum(total: IntVector, plan: TallyPlan, clients: int, variance: Fraction) -> None:
    """Refuse an opened sum that valid contributions and their noise cannot have made.

    A client that leaves out a mask, or masks with another seed, makes every entry uniform
    over the ring; so does a server that adds something. A client that puts in another vector
    within the range goes unnoticed: nothing of this kind can see it.

    Guarantee:
        An honest sum is refused with probability at most `FALSE_ALARM`, by a union bound over
        the entries and their total with the tails of `_tail_bound`.

    Args:
        total: The opened sum, in grid steps.
        plan: What was planned.
        clients: How many contributions are in it.
        variance: Variance of the noise in it, in grid steps squared.

    Raises:
        InvalidSum: It lies outside. Its numbers are not told: they mean nothing.
    """
    where, scale = plan.contribution.range_of(clients), plan.scale
    each = _tail_bound(variance, FALSE_ALARM / (4 * plan.dimension))
    if int(total.min()) < where.low * scale - each or int(total.max()) > where.high * scale + each:
        raise InvalidSum(
            "an entry of the opened sum lies where no valid contributions and no noise of this "
            "size can bring it: somebody's vector or masks were not what the protocol asks for"
        )
    whole = _tail_bound(variance * plan.dimension, FALSE_ALARM / 4)
    low, high = where.total_low * scale - whole, where.total_high * scale + whole
    if not low <= sum_of(total) <= high:
        raise InvalidSum(
            "the entries of the opened sum add up to more or less than valid contributions can: "
            "somebody's vector or masks were not what the protocol asks for"
        )


def sum_of(vector: IntVector) -> int:
    """Return the sum of all entries, whatever its size."""
    if int(np.abs(vector).max(initial=0)) < (1 << 62) // max(1, len(vector)):
        return int(vector.sum())
    return sum(map(int, vector))


def _tail_bound(variance: Fraction, probability: float) -> int:
    """Return what noise of this variance exceeds on either side at most so probably.

    Bernstein's bound for sums of Poisson differences, P[X ≥ x] ≤ exp(−x²/(2v + 2x/3)), which
    also bounds the discrete Gaussian's exp(−x²/2v).
    """
    if not variance:
        return 0
    need, v = -math.log(probability), float(variance)
    return math.ceil(need / 3 + math.sqrt((need / 3) ** 2 + 2 * v * need))

"""One client's part of a sum, and how the sum is read."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.randomness import SEED_BYTES, SecretSource
from urna.tally.plan import TallyPlan

__all__ = ["add_noise", "decode", "encode", "encode_ballots"]


def encode(ballot: IntVector, plan: TallyPlan) -> IntVector:
    """Check a ballot against the plan and scale it to grid steps.

    Guarantee:
        What leaves this function is what the plan's accounting assumes: a ballot of the
        plan's shape, or nothing.
    """
    if ballot.shape != (plan.dimension,) or not np.issubdtype(ballot.dtype, np.integer):
        raise ParameterError(
            f"a ballot holds {plan.dimension} integers, got shape {ballot.shape} of {ballot.dtype}"
        )
    plan.shape.check(ballot)
    return np.asarray(ballot.astype(np.int64) * plan.scale)


def encode_ballots(ballots: Sequence[IntVector], plan: TallyPlan) -> IntVector:
    """Check the ballots of a client's shards and add them up, in grid steps.

    Guarantee:
        What leaves this function is a sum of `plan.shards` ballots of the plan's shape (or
        nothing for a shard that abstains): the ring was sized for it, and another content of
        one shard moves it by no more than one ballot.
    """
    if len(ballots) != plan.shards:
        raise ParameterError(
            f"the plan has {plan.shards} ballots of each client, got {len(ballots)}"
        )
    total = np.zeros(plan.dimension, dtype=np.int64)
    for ballot in ballots:
        total += encode(ballot, plan)
    return total


def add_noise(encoded: IntVector, plan: TallyPlan, secrets: SecretSource) -> IntVector:
    """Add one client's share of the noise, from a fresh secret seed."""
    table = plan.noise.table(plan.share)
    return np.asarray(encoded + table.draw(secrets.take(SEED_BYTES), plan.dimension))


def decode(total: IntVector, plan: TallyPlan) -> npt.NDArray[np.float64]:
    """Return a sum in votes."""
    return np.asarray(total / plan.vote)

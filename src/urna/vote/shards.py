"""A client's ballots where single records are protected: one for each shard of its records."""

import logging
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np

from urna.data import MIN_SAMPLES, PUBLIC_SHARD_KEY, Records, count_records, split_records
from urna.errors import ParameterError, UrnaError
from urna.local import Objective, Progress
from urna.noise import IntVector
from urna.randomness import derive_seed
from urna.space import Space
from urna.tally import TallyPlan
from urna.vote.ballot import fill_ballot

__all__ = ["LEAST_RECORDS", "check_clients", "check_records", "shard_ballots"]

LEAST_RECORDS = 2
"""One record to train on, one to judge by."""

_log = logging.getLogger(__name__)

DataT = TypeVar("DataT")


def shard_ballots(
    objective: Objective[DataT],
    data: DataT,
    space: Space,
    plan: TallyPlan,
    *,
    key: bytes,
    seed: int,
    shard_key: bytes = PUBLIC_SHARD_KEY,
    smallest: int = MIN_SAMPLES,
    progress: Progress | None = None,
) -> list[IntVector]:
    """Split a client's records into the plan's shards and let each fill a ballot.

    A shard with fewer than `smallest` records abstains, and so does one whose evaluation
    fails: an error that left this function would tell of one record by the silence of the
    whole client. Shards are evaluated one after the other and apart from each other. All of
    them together hold each record once, so the training is about as much as without shards.

    Guarantee:
        Replacing one record (its id staying) changes at most one of the returned ballots.

        Proof. The record is in one shard, decided by its id (`split_records`). Every other
        shard holds the same rows as before, and its ballot is computed from these rows,
        the space, the seed and a tie-breaking key that no data enters.

    Assumes:
        The objective's losses depend on the rows it is given, the space and the seed alone.
        Scaling by all of the client's rows beforehand, or a time limit that other shards'
        work runs into, would break this.

    Args:
        objective: How a shard's rows are evaluated.
        data: All records of the client.
        space: The candidates.
        plan: How many shards, and what a ballot is.
        key: 32 secret bytes that break ties; each shard derives its own.
        seed: Public seed of local training.
        shard_key: 32 bytes that decide the split, the same in every round.
        smallest: Fewest records of a shard that votes.
        progress: Called with candidates finished over all shards.
    """
    check_records(data, plan.shards, smallest)
    total = plan.shards * len(space)
    ballots = []
    parts = split_records(cast(Any, data), shards=plan.shards, key=shard_key)
    for number, shard in enumerate(parts):

        def advance(done: int, _: int, before: int = number * len(space)) -> None:
            if progress is not None:
                progress(before + done, total)

        ballot = np.zeros(plan.dimension, dtype=np.int64)
        if shard.records >= smallest:
            try:
                losses = objective.losses(shard.data, space, seed=seed, progress=advance)
            except UrnaError:
                raise  # wrong settings, the same for every content
            except Exception as error:
                _log.warning("a shard abstains: its evaluation failed (%s)", type(error).__name__)
            else:
                tie_key = derive_seed(key, b"shard %d" % number)
                ballot = fill_ballot(np.asarray(losses), plan.shape, tie_key)
        ballots.append(ballot)
        advance(len(space), len(space))
    return ballots


def check_records(data: object, shards: int, smallest: int) -> None:
    """Refuse data that does not fill its shards.

    How many records a client has is no secret under `replace-one-record`: neighbours have
    equally many.

    Raises:
        ParameterError: The data is not made of records, or shards would be too small.
    """
    if smallest < LEAST_RECORDS:
        raise ParameterError(
            f"the smallest shard has at least {LEAST_RECORDS} records, got {smallest}"
        )
    count = count_records(cast(Records, data))  # which looks for itself
    if count // shards < smallest:
        raise ParameterError(
            f"{shards} shards of at least {smallest} records need {shards * smallest:,}, got "
            f"{count:,}; at most {max(count // smallest, 0)} shards are possible"
        )


def check_clients(clients: Sequence[object], shards: int, smallest: int) -> None:
    """Refuse clients whose data does not fill its shards, before any of them is trained.

    Raises:
        ParameterError: It names the client.
    """
    for number, data in enumerate(clients):
        try:
            check_records(data, shards, smallest)
        except ParameterError as error:
            raise ParameterError(f"client {number}: {error}") from error

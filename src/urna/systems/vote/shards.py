"""A client's ballots where single records are protected: one for each shard of its records."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from urna.data import MIN_SAMPLES, PUBLIC_SHARD_KEY, Records, count_records, split_records
from urna.errors import ParameterError
from urna.local import Objective, Progress, losses_apart
from urna.noise import IntVector
from urna.randomness import derive_seed
from urna.space import Space
from urna.systems.vote.plan import VotePlan

__all__ = ["LEAST_RECORDS", "SHARD_SECONDS", "check_clients", "check_records", "shard_ballots"]

LEAST_RECORDS = 2
"""One record to train on, one to judge by."""

SHARD_SECONDS = 600.0
"""How long the evaluation of one shard may take."""

DataT = TypeVar("DataT")


def shard_ballots(
    objective: Objective[DataT],
    data: DataT,
    space: Space,
    vote: VotePlan,
    *,
    key: bytes,
    seed: int,
    shard_key: bytes = PUBLIC_SHARD_KEY,
    smallest: int = MIN_SAMPLES,
    seconds: float = SHARD_SECONDS,
    progress: Progress | None = None,
    failed: Callable[[int, str], None] | None = None,
) -> list[IntVector]:
    """Split a client's records into the plan's shards and let each fill a ballot.

    A shard with fewer than `smallest` records abstains, and so does one whose evaluation
    raises anything, crashes, or takes too long: what one record does to its shard must not be
    seen, neither by an error nor by what becomes of the other shards. Each is evaluated in a
    process of its own.

    Guarantee:
        Replacing one record (its id staying) changes at most one of the returned ballots.

        Proof. The record is in one shard, decided by its id (`split_records`). Every other
        shard holds the same rows as before, and its ballot is computed in its own process
        from these rows, the space, the seed and a tie-breaking key that no data enters.

    Assumes:
        The objective's losses depend on the rows it is given, the space and the seed alone:
        scaling by all of the client's rows beforehand would break this. A process has the
        machine it needs: a record that slows down others' processes could push them over
        their time.

    Args:
        objective: How a shard's rows are evaluated.
        data: All records of the client.
        space: The candidates.
        vote: How many shards, and what a ballot is.
        key: 32 secret bytes that break ties; each shard derives its own.
        seed: Public seed of local training.
        shard_key: 32 bytes that decide the split, the same in every round.
        smallest: Fewest records of a shard that votes.
        seconds: How long one shard's evaluation may take.
        progress: Called with candidates finished, of all shards that vote, and how many they are.
        failed: Called with a failed shard's place and traceback; see `losses_apart`.
    """
    shards = vote.terms.shards
    check_records(data, shards, smallest)
    parts = split_records(cast(Any, data), shards=shards, key=shard_key)
    large = [number for number, part in enumerate(parts) if part.records >= smallest]
    pieces = [parts[number].data for number in large]
    evaluated = losses_apart(
        objective,
        pieces,
        space,
        seeds=[seed] * len(pieces),
        seconds=seconds,
        progress=progress,
        failed=failed,
    )
    ballots = [np.zeros(vote.candidates, dtype=np.int64) for _ in parts]
    for number, losses in zip(large, evaluated, strict=True):
        if losses is not None:
            ballots[number] = vote.fill(losses, derive_seed(key, b"shard %d" % number))
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

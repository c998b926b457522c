"""What people hand in, evaluated: the ballots of all clients, or of all shards of their records."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from urna.data import PUBLIC_SHARD_KEY, Records, Samples, count_records, split_records
from urna.errors import ParameterError
from urna.local import (
    CallableObjective,
    EstimatorObjective,
    Losses,
    Objective,
    Progress,
    check_objective,
    losses_apart,
    losses_of_each,
)
from urna.local.cache import data_fingerprint
from urna.local.generators import own_generators
from urna.noise import IntVector
from urna.privacy import Budget, Unit
from urna.progress import Steps
from urna.randomness import SEED_BYTES, SecretSource, derive_seed
from urna.space import Space
from urna.systems.vote.plan import VotePlan
from urna.systems.vote.settings import Rehearsal, VoteSettings
from urna.tally import Run

LEAST_RECORDS = 2
"""One record to train on, one to judge by."""

_TRIED = 3  # clients on which a broken objective is looked for

DataT = TypeVar("DataT")


def as_space(space: Space | Mapping[str, Any]) -> Space:
    """Return a space; a mapping from names to values is one, anything else a ParameterError."""
    if isinstance(space, Space):
        return space
    for tool, named in (("optuna", "from_optuna"), ("ConfigSpace", "from_configspace")):
        inner = space.values() if isinstance(space, Mapping) else ()
        if any(type(each).__module__.partition(".")[0] == tool for each in (space, *inner)):
            raise ParameterError(
                f"ranges need a number of points: hand in urna.conversion.{named}(space, points=5)"
            )
    if isinstance(space, Mapping):
        return Space(**space)
    raise ParameterError(
        "a space is a Space, or a dict of names and values such as {'lr': [0.1, 0.01]}; got "
        f"{type(space).__name__}"
    )


def as_objective(objective: Any) -> Objective[Any]:  # noqa: ANN401 - whatever people hand in
    """Return an objective; a function of (candidate, data) or an estimator is one."""
    if isinstance(objective, type):
        raise ParameterError(
            f"a class was handed in; hand in an object of it, as in {objective.__name__}()"
        )
    if hasattr(objective, "losses"):
        found: Objective[Any] = objective
        return found
    if hasattr(objective, "fit") and hasattr(objective, "get_params"):
        return EstimatorObjective(objective)
    if hasattr(objective, "parameters") and hasattr(objective, "forward"):
        raise ParameterError(
            "a torch module was handed in; an objective trains a fresh one for every candidate: "
            "hand in BatchedObjective(factory) with a function that makes the module"
        )
    if callable(objective):
        return CallableObjective(objective)
    raise ParameterError(
        "an objective has a method `losses`, or is a function of (candidate, data) or a "
        f"scikit-learn estimator; got {type(objective).__name__}"
    )


def as_clients(clients: Sequence[Any]) -> list[Any]:
    """Return each client's data as `as_data` does, or raise ParameterError."""
    if isinstance(clients, str | bytes | Mapping | Samples) or not hasattr(clients, "__len__"):
        raise ParameterError(
            "clients are a list with each client's data, such as `split` returns; got "
            f"{type(clients).__name__}"
        )
    return [as_data(data) for data in clients]


def as_data(data: Any) -> Any:  # noqa: ANN401 - whatever people hand in
    """Return one client's data: a pair of features and targets is made into `Samples`."""
    return Samples(*data) if isinstance(data, tuple) and len(data) in (2, 3) else data


def as_budget(budget: Any) -> Budget:  # noqa: ANN401 - whatever people hand in
    """Return a budget. A lone epsilon is a ParameterError: delta is a choice."""
    if isinstance(budget, Budget):
        return budget
    raise ParameterError(
        f"a budget names epsilon and delta, as in Budget(epsilon=1, delta=1e-5); got {budget!r:.60}"
    )


def try_objective(
    objective: Objective[DataT],
    space: Space,
    clients: Sequence[DataT],
    seed: int,
    seconds: float | None = None,
) -> None:
    """Find out that an objective is broken before anything is spent on it.

    What no data cause is told at once. For the rest a few candidates are evaluated on one
    client; only if none of them has a finite loss on any of the first clients is the objective
    to blame, and is that told, to whoever holds all clients' data in this process. With `seconds`
    each evaluation has a process of its own and may take as long.

    Assumes:
        Nobody else learns that a search was refused: data decide it.

    Raises:
        ParameterError: The objective cannot judge this space, or fails on the first clients.
    """
    check_objective(objective, space)
    some = space.only(sorted({0, len(space) // 2, len(space) - 1}))
    errors: list[Exception] = []
    for data in clients[:_TRIED]:
        try:
            for candidates in (some, space):  # all of them only if some were not enough
                if _works(objective, data, candidates, seed, seconds):
                    return
            raise ValueError("no candidate has a finite loss (the log names the first error)")
        except Exception as error:
            # Whatever a stranger's function raises: what it means is decided below.
            errors.append(error)
    raise ParameterError(
        f"the objective fails on each of the first {len(errors)} clients: "
        f"{type(errors[0]).__name__}: {errors[0]}. Nothing was spent"
    ) from errors[0]


def _works(
    objective: Objective[DataT], data: DataT, space: Space, seed: int, seconds: float | None
) -> bool:
    """Say whether some candidate has a finite loss on a client's data."""
    if seconds is None:
        with own_generators(seed):
            found: Losses | None = objective.losses(data, space, seed=seed)
    else:
        (found,) = losses_apart(objective, [data], space, seeds=[seed], seconds=seconds)
    if found is None:
        raise RuntimeError(f"it raised, ended its process, or took longer than {seconds:g} s")
    if np.shape(found) != (len(space),):
        raise ValueError("an objective returns one loss per candidate")
    return bool(np.isfinite(found).any())


def ballots_of(
    objective: Objective[DataT],
    clients: Sequence[DataT],
    space: Space,
    vote: VotePlan,
    how: VoteSettings,
    run: Run,
    *,
    seed: int,
    report: Steps,
) -> dict[int, IntVector]:
    """Let every client evaluate the candidates, and return their ballots in grid steps.

    Where records are protected every shard fills a ballot, and each client adds up its own.

    Raises:
        ParameterError: A client's records do not fill its shards, or the objective is broken: see
            `try_objective`. Where the run is forced it is not tried first.
    """
    doing, shards, secrets = "evaluating candidates", vote.terms.shards, run.secrets
    by_record = vote.terms.adjacency.unit is Unit.RECORD
    for client, data in enumerate(clients if by_record else ()):
        try:
            check_records(data, shards, how.smallest_shard)
        except ParameterError as error:
            raise ParameterError(f"client {client}: {error}") from error
    if not run.force:
        seconds = how.shard_seconds * shards if by_record else None
        try_objective(objective, space, clients, seed, seconds)
    if not by_record:
        evaluated = losses_of_each(
            objective,
            clients,
            space,
            seeds=[seed] * len(clients),
            progress=lambda done, total: report(doing, done, total),
        )
        return fill_all(evaluated, vote, secrets)
    ballots, each = {}, shards * len(space)
    for client, data in enumerate(clients):

        def advance(done: int, _: int, before: int = client * each) -> None:
            report(doing, before + done, len(clients) * each)

        filled = shard_ballots(
            objective,
            data,
            space,
            vote,
            key=secrets.take(SEED_BYTES),
            seed=seed,
            smallest=how.smallest_shard,
            seconds=how.shard_seconds,
            progress=advance,
        )
        ballots[client] = vote.contribution(np.sum(filled, axis=0))
        advance(each, each)  # shards that are too small are done as well
    return ballots


def fill_all(
    evaluated: Iterable[Losses], vote: VotePlan, secrets: SecretSource
) -> dict[int, IntVector]:
    """Return every client's ballot, in grid steps, from its losses."""
    return {
        client: vote.contribution(vote.fill(losses, secrets.take(SEED_BYTES)))
        for client, losses in enumerate(evaluated)
    }


def shard_ballots(
    objective: Objective[DataT],
    data: DataT,
    space: Space,
    vote: VotePlan,
    *,
    key: bytes,
    seed: int,
    shard_key: bytes = PUBLIC_SHARD_KEY,
    smallest: int,
    seconds: float,
    progress: Progress | None = None,
    failed: Callable[[int, str], None] | None = None,
) -> list[IntVector]:
    """Split a client's records into the plan's shards and let each fill a ballot.

    A shard with fewer than `smallest` records abstains, and so does one whose evaluation
    raises anything, crashes, or takes more than `seconds`: what one record does to its shard
    must not be seen, neither by an error nor by what becomes of the other shards. Each is
    evaluated in a process of its own. `progress` counts candidates of the shards that vote;
    `failed` is called with a failed shard's place and traceback.

    Guarantee:
        Replacing one record (its id staying) changes at most one of the returned ballots.

        Proof. The record is in one shard, decided by its id and `shard_key`, which is the same
        in every round (`split_records`). Every other shard holds the same rows as before, and
        its ballot is computed in its own process from these rows, the space, the seed and a
        tie-breaking key (derived from `key`, 32 secret bytes) that no data enters.

    Assumes:
        The objective's losses depend on the rows it is given, the space and the seed alone:
        scaling by all of the client's rows beforehand would break this. A process has the
        machine it needs: a record that slows down others' processes could push them over
        their time.
    """
    shards = vote.terms.shards
    check_records(data, shards, smallest)
    parts = split_records(cast(Any, data), shards=shards, key=shard_key)
    large = [number for number, part in enumerate(parts) if part.records >= smallest]
    evaluated = losses_apart(
        objective,
        [parts[number].data for number in large],
        space,
        seeds=[seed] * len(large),
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


def rehearse(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    data: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Rehearsal:
    """Evaluate every candidate on public data, split among a few pretend clients.

    It costs no privacy, because nothing private is read.

    Assumes:
        The data are public, and whether to use them was not decided by private data.

    Args:
        space: The candidates, in order.
        objective: How a client evaluates them on its data.
        clients: Each pretend client's public data; as large as a real client's, if that is known.
        data: What the data are called, in results.
        seed: Public seed of local training.
        progress: Called with candidates finished and their number.

    Raises:
        ParameterError: There are no data, or no candidate has a finite loss on them.
    """
    space, judge, parts = as_space(space), as_objective(objective), as_clients(clients)
    if not parts:
        raise ParameterError("a rehearsal needs the data of at least one pretend client, got none")
    evaluated = losses_of_each(
        judge,
        parts,
        space,
        seeds=[seed] * len(parts),
        progress=progress or (lambda done, total: None),
    )
    losses = np.array([np.asarray(found, dtype=np.float64) for found in evaluated])
    rows = all(isinstance(part, Samples) for part in parts)
    text = "".join(map(data_fingerprint, parts)).encode() if rows else losses.tobytes()
    return Rehearsal(space, losses, data, hashlib.sha256(b"urna rehearsal\0" + text).hexdigest())

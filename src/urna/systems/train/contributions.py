"""What the clients of one round put in, on this machine: they train, measure, clip and round."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Unit
from urna.protocols.secagg import Stage
from urna.randomness import SEED_BYTES, SecretSource, StreamSecrets
from urna.systems.train.layout import client_log, norm_of
from urna.systems.train.learner import Learner, RecordLearner, Vector
from urna.systems.train.plan import TrainPlan
from urna.systems.train.sampling import drawn, drawn_records
from urna.systems.train.settings import ACCURACY, LOSS, SHORT
from urna.tally import ClearSummation, SecureAggregation, Summation, to_grid

__all__ = ["Dropouts", "contributions", "losing"]

Dropouts = Callable[[int, int], Mapping[int, Stage]]
"""Which clients drop out, by their place among a round's clients, and from which stage on: a
function of the round's number and of how often it was tried before. For trying out what happens."""

Row = npt.NDArray[np.floating[Any]]
DataT = TypeVar("DataT")


def contributions(
    learner: Learner[DataT],
    clients: Sequence[DataT],
    plan: TrainPlan,
    weights: Vector,
    clip_norm: float,
    number: int,
    secrets: SecretSource,
) -> dict[int, Callable[[], IntVector]]:
    """Return for each client of a round what produces its vector once it is asked for.

    Guarantee:
        A client's vector follows from the weights, its own data and its own secrets, drawn for
        all clients beforehand, if the learner keeps its guarantee (`Learner.train`). A client
        whose data make the learner raise contributes nothing, and no other vector changes.

    Args:
        learner: How a client trains.
        clients: The data of the round's clients.
        plan: The training's plan.
        weights: The common weights.
        clip_norm: How long an update may be.
        number: The round's number.
        secrets: Where secret draws and coins come from.
    """
    settings, everyone = plan.settings, range(len(clients))
    in_it = [drawn(settings.sampling.client_rate, secrets) for _ in everyone]
    keys = [secrets.take(SEED_BYTES) for _ in everyone]
    draws = [secrets.take(SEED_BYTES) for _ in everyone if settings.sampling.batch]
    active = [place for place in everyone if in_it[place]]
    members = settings.sampling.members(number, plan.clients, seed=settings.seed)
    data = [clients[place] for place in active]
    seeds = [settings.seed + 1 + members[place] for place in active]
    if plan.terms.adjacency.unit is Unit.RECORD:
        found = _record_sums(learner, weights, data, plan, draws)
    else:
        found = _updates(learner, weights, data, plan, number, seeds)
    updates = dict(zip(active, found, strict=True))
    measured = dict(zip(active, _measurements(learner, weights, data, plan), strict=True))

    def produce(place: int) -> IntVector:
        update, values = updates.get(place), measured.get(place, {})
        if update is not None and settings.clipping.measurements:
            norm = norm_of(update)
            values = values | {SHORT: math.nan if math.isnan(norm) else float(norm <= clip_norm)}
        coins = StreamSecrets(keys[place], private=secrets.private)
        vector = plan.layout.encode(update, clip_norm, values, coins)
        return to_grid(vector, plan.tally)

    return {place: functools.partial(produce, place) for place in everyone}


def _updates(
    learner: Learner[DataT],
    weights: Vector,
    clients: Sequence[DataT],
    plan: TrainPlan,
    number: int,
    seeds: Sequence[int],
) -> list[Row]:
    """Return every client's update: what it would add to the common weights."""
    if not clients:
        return []

    def train(places: Sequence[int]) -> Sequence[Row]:
        some, own = [clients[place] for place in places], [seeds[place] for place in places]
        rows = learner.train(weights, some, number=number, seeds=own)
        if len(rows) != len(some):
            raise ParameterError("a learner returns one row of weights for each client")
        return list(rows)

    trained = _of_each(train, len(clients), np.full(len(weights), np.nan))
    # A row of the wrong length stays as it is: the client's own side finds out.
    with np.errstate(invalid="ignore", over="ignore"):
        return [row - weights if row.shape == weights.shape else row for row in trained]


def _record_sums(
    learner: Learner[DataT],
    weights: Vector,
    clients: Sequence[DataT],
    plan: TrainPlan,
    keys: Sequence[bytes],
) -> list[Row]:
    """Return the sum of every client's records' steps, or of its secret sample of them."""
    clip, rate = plan.settings.record_clip, plan.settings.sampling.rate
    if clip is None or not hasattr(learner, "record_sums"):
        raise ParameterError("this learner cannot protect single records: it has no `record_sums`")
    by_record = cast(RecordLearner[DataT], learner)
    if rate is None:
        return list(by_record.record_sums(weights, clients, record_clip=clip))

    def draw(key: bytes, count: int) -> npt.NDArray[np.bool_]:
        return drawn_records(rate, count, StreamSecrets(key))

    draws = [functools.partial(draw, key) for key in keys]
    return list(by_record.record_sums(weights, clients, record_clip=clip, draws=draws))


def _measurements(
    learner: Learner[DataT], weights: Vector, clients: Sequence[DataT], plan: TrainPlan
) -> list[dict[str, float]]:
    """Return what every client measures of the weights it was sent."""
    validation = plan.settings.validation
    if validation is None or not clients:
        return [{} for _ in clients]

    def judge(places: Sequence[int]) -> Sequence[Row]:
        return list(learner.judge(weights, [clients[place] for place in places]))

    found = _of_each(judge, len(clients), np.full(2, np.nan))
    return [{LOSS: validation.scaled(float(loss)), ACCURACY: float(right)} for loss, right in found]


def _of_each(
    work: Callable[[Sequence[int]], Sequence[Row]], clients: int, instead: Row
) -> list[Row]:
    """Do something for all clients, or one by one where that fails: who fails alone abstains.

    Raises:
        Exception: What the work raises, if it does so for every client.
    """
    try:
        return list(work(range(clients)))
    except Exception:  # whatever strangers' data make strangers' code raise
        found, failed = [], 0
        for place in range(clients):
            try:
                (row,) = work([place])
            except Exception:  # likewise
                client_log.warning("a client's data cannot be worked on: it contributes nothing")
                row, failed = instead, failed + 1
            found.append(row)
        if failed == clients > 1:  # then it is hardly the data
            raise
        return found


def losing(summation: Summation, lost: Mapping[int, Stage]) -> Summation:
    """Return the summation in which these clients drop out.

    Raises:
        ParameterError: It cannot simulate dropouts.
    """
    if not lost:
        return summation
    if isinstance(summation, SecureAggregation):
        return replace(summation, dropouts=dict(lost))
    if isinstance(summation, ClearSummation):
        return replace(summation, absent=frozenset(lost))
    if hasattr(summation, "losing"):
        return cast(Summation, summation.losing(lost))
    raise ParameterError(f"{type(summation).__name__} cannot simulate clients that drop out")

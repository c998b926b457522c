"""One round: what its clients put in, and what the server makes of their noisy sum."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, RoundFailed
from urna.noise import IntVector
from urna.privacy import Release, SumRelease, Unit, gaussian_epsilon
from urna.privacy.cost import SLIP_PART
from urna.protocols.secagg import Stage
from urna.randomness import SEED_BYTES, SecretSource, StreamSecrets
from urna.systems.train.checkpoint import Progress
from urna.systems.train.layout import client_log, norm_of
from urna.systems.train.learner import Learner, RecordLearner, Vector
from urna.systems.train.plan import TrainPlan
from urna.systems.train.result import RoundReport
from urna.systems.train.settings import ACCURACY, LOSS, SHORT, drawn, drawn_records
from urna.tally import ClearSummation, Released, SecureAggregation, Summation, Tallied, to_grid

__all__ = ["Dropouts", "after_failure", "after_round", "by_member", "contributions", "losing"]

_EXACT = 2**28  # grid steps squared up to which the noise that was left is priced anew: a second

Dropouts = Callable[[int, int], Mapping[int, Stage]]
"""Which clients drop out, by their place among a round's clients, and from which stage on: a
function of the round's number and of how often it was tried before. For trying out what happens."""

Row = npt.NDArray[np.floating[Any]]
DataT = TypeVar("DataT")


# --- the clients' side ----------------------------------------------------------------------------


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
        found = _updates(learner, weights, data, number, seeds)
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
    number: int,
    seeds: Sequence[int],
) -> list[Row]:
    """Return every client's update: what it would add to the common weights."""

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
    if validation is None:
        return [{} for _ in clients]

    def judge(places: Sequence[int]) -> Sequence[Row]:
        return list(learner.judge(weights, [clients[place] for place in places]))

    found = _of_each(judge, len(clients), np.full(2, np.nan))
    return [{LOSS: validation.scaled(float(loss)), ACCURACY: float(right)} for loss, right in found]


def _of_each(
    work: Callable[[Sequence[int]], Sequence[Row]], clients: int, instead: Row
) -> list[Row]:
    """Do something for all clients, or one by one where that fails: who fails alone abstains."""
    if not clients:
        return []
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
    """Return the summation in which these clients drop out."""
    if not lost:
        return summation
    if isinstance(summation, SecureAggregation):
        return replace(summation, dropouts=dict(lost))
    if isinstance(summation, ClearSummation):
        return replace(summation, absent=frozenset(lost))
    if hasattr(summation, "losing"):
        return cast(Summation, summation.losing(lost))
    raise ParameterError(f"{type(summation).__name__} cannot simulate clients that drop out")


# --- the server's side ----------------------------------------------------------------------------


def after_round(
    plan: TrainPlan, state: Progress, released: Released, members: Sequence[int], attempts: int
) -> Progress:
    """Return where training stands after a round: weights, optimiser, clip norm, history.

    The members were invited to it, by number among all clients; it was tried `attempts` times.
    """
    settings, tallied = plan.settings, released.tallied
    expected = plan.expected * len(tallied.accepted) / plan.terms.clients
    summary = plan.layout.read(tallied.total, clients=expected, variance=tallied.noise_variance)
    step, slots = settings.optimiser.step(state.clip_norm * summary.update, state.slots)
    planned, left = plan.tally.release, tallied.release
    ratio = 1.0
    if isinstance(left, SumRelease) and planned is not None:
        ratio = float(left.variance / planned.variance)
        # Pricing very wide noise takes long; the planned one, of which there is more, is a bound.
        left = left if left.variance < _EXACT else planned
    weights = (state.weights + step).astype(np.float32)
    tail, tailed = state.tail, state.tailed
    if state.done + 1 > plan.rounds * (1 - settings.tail):
        tail = weights.astype(np.float64) + (0.0 if tail is None else tail)
        tailed += 1
    accepted = [members[place] for place in sorted(tallied.accepted)]
    counted = _counted(
        plan,
        state,
        left,
        accepted,
        released.privacy.epsilon,
        members,
        tallied,
        took_part=len(accepted),
        attempts=attempts,
        noise_std=state.clip_norm * summary.update_error,
        noise_ratio=ratio,
        measured=summary.measured,
        errors=summary.errors,
    )
    clip_norm = settings.clipping.after(state.clip_norm, summary.measured)
    return counted.after(
        weights=weights, slots=slots, tail=tail, tailed=tailed, clip_norm=clip_norm
    )


def after_failure(
    plan: TrainPlan,
    state: Progress,
    failed: RoundFailed,
    members: Sequence[int],
    attempts: int,
    stated: float,
) -> Progress:
    """Return where training stands after a failed round; `stated` is all rounds' epsilon."""
    return _counted(
        plan,
        state,
        plan.tally.release,
        members,
        stated,
        members,
        failed,
        took_part=0,
        attempts=attempts,
        noise_std=0.0,
        noise_ratio=1.0,
        failed=failed.reason,
    )


def _counted(
    plan: TrainPlan,
    state: Progress,
    release: Release | None,
    spenders: Sequence[int],
    stated: float,
    members: Sequence[int],
    what: Tallied | RoundFailed,
    **figures: Any,  # noqa: ANN401 - fields of a RoundReport
) -> Progress:
    """Add a round to the history: epsilon is as stated, or as the noise left proves."""
    settings, spent, epsilon = plan.settings, None, None
    if isinstance(release, SumRelease):
        spent = np.zeros(plan.clients) if state.spent is None else state.spent.copy()
        spent[list(spenders)] += release.cost().mu ** 2
    if math.isfinite(stated) and not (state.history and state.history[-1].epsilon is None):
        epsilon = stated
        if spent is not None and settings.sampling.rate is None and settings.stop is None:
            delta = plan.terms.budget.delta * (1 - SLIP_PART)
            epsilon = min(gaussian_epsilon(math.sqrt(float(spent.max())), delta), stated)
    figures |= {"number": state.done + 1, "clip_norm": state.clip_norm, "epsilon": epsilon}
    report = RoundReport(lost=len(what.lost), **figures)
    return state.after(
        done=report.number,
        history=(*state.history, report),
        spent=spent,
        lost=by_member(what.lost, members),
        faults={**state.faults, **by_member(what.faults, members)},
    )


def by_member(found: Mapping[int, str], members: Sequence[int]) -> dict[str, str]:
    """Return what was found of a round's clients, by their number among all clients."""
    return {str(members[place]): why for place, why in found.items()}

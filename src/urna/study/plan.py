"""What a study will cost, and where its budget would be better spent. Nothing is spent here."""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from urna.average import Schema, choose, plan_average
from urna.average.blind import Blind
from urna.average.objective import default_space
from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.privacy import Budget, Unit
from urna.study.file import Study
from urna.study.keys import Follow
from urna.study.prepare import Prepared, division_of, learner_of, settings_of
from urna.study.tune_and_train import Division
from urna.tally import Terms
from urna.train.plan import TrainPlan, plan_training
from urna.vote import VotePlan, plan_vote

__all__ = ["StagePlan", "StudyPlan", "plan_study"]

_AGREEMENT = 0.4  # of the ballots, the gap that a usual electorate shows
_SURE = 0.95
_PATIENCE = 5.0  # seconds for which a plan keeps people waiting


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One release, or a series of them, before it happens."""

    name: str
    budget: Budget
    noise: str
    """In words, with its unit."""
    bytes_per_client: int
    seconds: float
    """Of everybody's protocol together on one core, without local training."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study, before anything is spent."""

    study: Study
    clients: int
    candidates: int
    vote: VotePlan
    division: Division | None
    stages: tuple[StagePlan, ...]
    chances: "dict[str, float]"
    """How probably a good candidate wins, for what is said of the electorate."""
    local_seconds: float | None
    """Of evaluating all candidates on all clients' data one after the other, from one candidate on
    one client's data, timed on this machine."""
    advice: tuple[str, ...]

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "clients": self.clients,
            "candidates": self.candidates,
            "epsilon": self.study.privacy.epsilon,
            "delta": self.study.privacy.delta,
            "adjacency": str(self.study.privacy.relation),
            "division": None if self.division is None else self.division.as_mapping(),
            "stages": [
                {
                    "name": stage.name,
                    "epsilon": stage.budget.epsilon,
                    "delta": stage.budget.delta,
                    "noise": stage.noise,
                    "bytes_per_client": stage.bytes_per_client,
                    "seconds": stage.seconds,
                }
                for stage in self.stages
            ],
            "vote": self.vote.as_mapping(),
            "chances": self.chances,
            "local_seconds": self.local_seconds,
            "advice": list(self.advice),
        }


def plan_study(prepared: Prepared, *, timed: bool = True) -> StudyPlan:
    """Plan a study whose data are read. Nothing is released.

    Args:
        prepared: The study.
        timed: Whether to time one candidate on one client's data. The time depends on that
            client's data, and stays with whoever runs this.

    Raises:
        ParameterError: It cannot be planned.
    """
    study = prepared.study
    privacy, follow = study.privacy, study.then.follow
    clients, terms = len(prepared.clients), None
    with study.blaming("privacy.epsilon"):
        terms = Terms.of(clients, privacy.budget, **privacy.options)
        division = division_of(prepared)
        budget = privacy.budget if division is None else division.vote
        candidates = _candidates(prepared, terms, division)
        vote = plan_vote(
            terms.costing(budget),
            candidates,
            ballot=study.vote.ballot or None,
            votes=study.vote.votes or None,
        )
        rest = list(_rest(prepared, terms, division))
    protocol = vote.tally.round_plan
    first = StagePlan(
        "vote",
        budget,
        f"± {vote.noise_std:.1f} votes of {vote.fewest_ballots} ballots",
        protocol.bytes_per_client,
        clients * protocol.client_seconds + protocol.server_seconds,
    )
    seconds = (
        _local_seconds(prepared, candidates) if timed and follow is not Follow.AVERAGE else None
    )
    return StudyPlan(
        study,
        clients,
        candidates,
        vote,
        division,
        (first, *(stage for stage, _ in rest)),
        _chances(vote),
        seconds,
        tuple(_advice(prepared, vote, division, [p for _, p in rest if p is not None])),
    )


def _chances(vote: VotePlan) -> dict[str, float]:
    """Return how probably a good candidate wins. The one place where votes are forecast."""
    return {
        "if all agree": vote.best_case,
        f"if the good lead by {100 * _AGREEMENT:.0f} % of the ballots": vote.success_probability(
            _AGREEMENT * vote.fewest_ballots
        ),
    }


def _candidates(prepared: Prepared, terms: Terms, division: Division | None) -> int:
    if prepared.space is not None:
        return len(prepared.space)
    base = _average_base(prepared, terms, division)
    return len(default_space(base))


def _average_base(prepared: Prepared, terms: Terms, division: Division | None) -> Blind:
    electorate, then = prepared.electorate, prepared.study.then
    width = prepared.clients[0].features.shape[1]
    schema = Schema(width, tuple(range(len(electorate.labels or ()))))
    records = [count_records(samples) for samples in prepared.clients]
    budget = terms.budget if division is None else division.train
    base = choose(then.learner, schema, terms.costing(budget), records).learner
    if not isinstance(base, Blind):
        raise ParameterError(f"{then.learner} has no settings to vote on")
    return base


def _rest(
    prepared: Prepared, terms: Terms, division: Division | None
) -> Iterator[tuple[StagePlan, TrainPlan | None]]:
    """Plan what follows the vote."""
    study = prepared.study
    if division is None:
        return
    clients, budget = len(prepared.clients), division.train
    match study.then.follow:
        case Follow.TRAIN:
            size = len(learner_of(prepared).first_weights(seed=study.seed))
            planned = plan_training(
                clients,
                size,
                budget=budget,
                rounds=study.then.rounds,
                settings=settings_of(study),
                **study.privacy.options,
            )
            said = planned.as_mapping()
            client, server = planned.seconds_per_round
            yield (
                StagePlan(
                    f"train, {study.then.rounds} rounds",
                    budget,
                    f"{planned.noise_multiplier:.2f} clip norms in a sum; all of it "
                    f"{planned.noise_to_signal:.2f} of the longest way",
                    study.then.rounds * (said["bytes_per_client_and_round"] + said["model_bytes"]),
                    planned.rounds * (planned.terms.clients * client + server),
                ),
                planned,
            )
        case Follow.AVERAGE:
            base = _average_base(prepared, terms, division)
            average = plan_average(terms.costing(budget), base)
            protocol = average.tally.round_plan
            yield (
                StagePlan(
                    "average",
                    budget,
                    f"± {average.encoding.error(clients, average.tally.most_noise):.3g} in each "
                    f"of {base.dimension:,} numbers of the mean",
                    protocol.bytes_per_client,
                    clients * protocol.client_seconds + protocol.server_seconds,
                ),
                None,
            )
        case _:
            yield StagePlan("combine", budget, "one noisy mean of settings", 0, 0.0), None


def _local_seconds(prepared: Prepared, candidates: int) -> float | None:
    """Time one candidate on one client's data; None where it cannot be tried."""
    if prepared.chosen is None or prepared.space is None:
        return None
    one: Samples = prepared.clients[0]
    middle = prepared.space.only([len(prepared.space) // 2])
    judge, seed = prepared.chosen.objective, prepared.study.seed
    with suppress(Exception):  # whatever a stranger's objective raises: `check` tells
        judge.losses(one, middle, seed=seed)  # packages are imported now
        begun = time.perf_counter()
        judge.losses(one, middle, seed=seed)
        each = (time.perf_counter() - begun) * candidates
        if each < _PATIENCE:  # many objectives judge all candidates together, in less time
            begun = time.perf_counter()
            judge.losses(one, prepared.space, seed=seed)
            each = time.perf_counter() - begun
        return each * len(prepared.clients)
    return None


def _advice(
    prepared: Prepared, vote: VotePlan, division: Division | None, trained: list[TrainPlan]
) -> Iterator[str]:
    """Say where the budget would be better spent."""
    privacy = prepared.study.privacy
    gap = _AGREEMENT * vote.fewest_ballots
    likely = vote.success_probability(gap)
    if likely < _SURE:
        with suppress(ParameterError):
            need = vote.epsilon_for(gap, _SURE)
            yield (
                f"a good candidate that leads by {100 * _AGREEMENT:.0f} % of the ballots wins with "
                f"{100 * likely:.0f} %; {100 * _SURE:.0f} % need epsilon {need:.2g} for the vote, "
                f"or {vote.clients_for(_AGREEMENT, _SURE)} clients"
            )
        if vote.terms.adjacency.unit is Unit.CLIENT and len(prepared.clients) < 30:
            yield (
                'with few, large clients say unit = "record" and shards = '
                f"{max(2, math.ceil(100 / len(prepared.clients)))}: single records are protected"
            )
        elif vote.terms.adjacency.unit is Unit.RECORD:
            need_shards = vote.shards_for(_AGREEMENT, _SURE)
            yield f"or {need_shards} shards of each client, where each keeps enough records"
    elif division is None and likely > 0.999 and privacy.epsilon > 0.2:
        with suppress(ParameterError):
            need = vote.epsilon_for(gap, 0.99)
            if need < 0.8 * privacy.epsilon:
                yield (
                    f"epsilon {need:.2g} would do for the same lead with 99 %: the rest could "
                    'train (what = "train") or stay unspent'
                )
    for planned in trained:
        if planned.noise_to_signal > 1:
            yield (
                f"the noise of training is {planned.noise_to_signal:.1f} times as long as its "
                "longest way: fewer parameters, more clients or a larger epsilon help; fewer "
                "rounds with a larger server_lr may"
            )
    if privacy.colluding in (0, 0.0, "0"):
        yield "nobody is taken to collude: a tenth (colluding = 0.1) costs little more noise"

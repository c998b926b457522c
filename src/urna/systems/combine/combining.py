"""One call for every way to combine: a strategy, and what clients are promised."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from urna.errors import ParameterError, UnknownName
from urna.files import today
from urna.privacy import Adjacency, Budget, NonPrivateRelease, PrivacyStatement
from urna.systems.combine.cells import Clustering, FederatedDbscan
from urna.systems.combine.frame import Frame
from urna.systems.combine.memory import play
from urna.systems.combine.noisy import noisy_mean
from urna.systems.combine.result import Combination, Guarantee, Point
from urna.systems.combine.searches import KeepingRule, Searches, keep_best
from urna.systems.combine.server import EncryptedOutcome
from urna.systems.combine.strategies import (
    TOP_SHARE,
    Averaging,
    Dbscan,
    MeanSetting,
    Median,
    Strategy,
    TrimmedMean,
)
from urna.systems.combine.tasks import Task
from urna.tally import Options, Run

STRATEGIES: Mapping[str, Strategy] = {
    "mean": MeanSetting(),
    "median": Median(),
    "trimmed-mean": TrimmedMean(),
    "top-mean": MeanSetting(TOP_SHARE),
    "top-median": Median(TOP_SHARE),
    "dbscan": Dbscan(),
    "federated-dbscan": FederatedDbscan(),
}
"""By the names commands know them under."""

_CLEAR = "Everybody's settings and scores were combined in the clear"
_EXACT = (
    "What was opened is exact: encryption hides who put in what, and is no differential privacy"
)
_HIDDEN = (
    "Vectors were added up under threshold encryption (Urna's own, unaudited), for parties and a "
    "server that are honest but curious; {helpers} of {parties} parties together could have "
    "opened single vectors"
)


def strategy_named(name: str) -> Strategy:
    """Return a strategy by its name, or refuse it."""
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, STRATEGIES)
    return STRATEGIES[name]


def combine(
    searches: Searches,
    strategy: Strategy | str = "dbscan",
    *,
    guarantee: Guarantee | str = Guarantee.NONE,
    budget: Budget | None = None,
    threshold: int | None = None,
    recomputes: bool = False,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Combination:
    """Combine clients' searches into one setting for all.

    All clients are simulated in this process. Under encryption there are the mean and federated
    density clusters, with noise there is the mean. A client of whom no run ended in a score is
    left out and named in `lost`; with noise it counts like any other, since whether it has one is
    its own affair.

    Guarantee:
        `none`: nothing. `encryption`: nobody learns more than what `Combination.opened` holds
        and who took part, as `urna.protocols.he` promises; the result is exact and no differential
        privacy. `dp` and `both`: what is opened is (epsilon, delta)-DP under `adjacency`.

    Args:
        searches: Everybody's settings and scores.
        strategy: How to combine; a name will do.
        guarantee: What clients are promised.
        budget: What it may cost, where noise is added.
        threshold: Under encryption, how many must help to open; all by default.
        recomputes: Under encryption, whether parties compute results again before they help.
        run: Where it is counted and kept; only what has noise has an `entry`.
        options: With noise, the rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The strategy has no such guarantee, or leaves nothing to combine.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
    """
    strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
    run = (run or Run()).only("a combination", "ledger", "entry", "secrets", "keep")
    guarantee = Guarantee(guarantee)
    if guarantee is not Guarantee.ENCRYPTION and (threshold is not None or recomputes):
        raise ParameterError(
            f"threshold and recomputes belong to the guarantee encryption; this is {guarantee}"
        )
    if guarantee.private:
        if budget is None:
            raise ParameterError("noise needs a budget: an epsilon and a delta")
        mean = averaged_on(searches.frame, strategy, _most(searches))
        searches.check_public()
        return noisy_mean(
            searches.clients, mean, budget=budget, guarantee=guarantee, run=run, **options
        )
    if run.ledger is not None:
        run.ledger.check(NonPrivateRelease("the result is exact"))
    there = searches.usable()
    heard = replace(searches, clients=tuple(searches.clients[place] for place in there))
    if guarantee is Guarantee.NONE:
        done = _in_the_clear(heard, strategy)
    else:
        agreed = agreed_on(heard.frame, strategy, _most(heard))
        task = task_for(agreed, len(heard), len(heard) if threshold is None else threshold)
        outcome = play(task, heard.clients, run.secrets, recomputes=recomputes)
        done = opened(len(heard), outcome, private=run.secrets.private)
    done = _of_all(done, len(searches), there)
    run.kept(done)
    return done


def _of_all(done: Combination, clients: int, there: Sequence[int]) -> Combination:
    """Return a combination of some clients as one of all: the others have nothing to combine."""
    silent = dict.fromkeys(set(range(clients)) - set(there), "has no run that ended in a score")
    lost = {there[place]: why for place, why in done.lost.items()} | silent
    points = tuple(point._replace(client=there[point.client]) for point in done.points)
    return replace(done, clients=clients, lost=dict(sorted(lost.items())), points=points)


def _in_the_clear(searches: Searches, strategy: Strategy) -> Combination:
    combined = strategy.combine(searches)
    return Combination(
        setting=combined.setting,
        strategy=strategy.name,
        guarantee=Guarantee.NONE,
        frame=searches.frame,
        privacy=_statement(_CLEAR),
        clients=len(searches),
        took_part=len(searches),
        clusters=combined.clusters,
        points=_points(searches, strategy, combined.labels),
        cell=getattr(strategy, "cell", None),
        when=today(),
    )


def _points(
    searches: Searches, strategy: Strategy, labels: Sequence[Sequence[int]]
) -> tuple[Point, ...]:
    """Return what clients kept, for pictures."""
    found = []
    for client, search in enumerate(searches.clients):
        if isinstance(strategy, KeepingRule):
            kept = strategy.kept(search)
        else:
            kept = keep_best(search, getattr(strategy, "share", None))
        marks = labels[client] if labels else [-1] * len(kept)
        for values, score, label in zip(
            kept.settings.tolist(), kept.scores.tolist(), marks, strict=True
        ):
            found.append(Point(client, tuple(values), score, label))
    return tuple(found)


def task_for(agreed: Averaging | Clustering, parties: int, threshold: int) -> Task:
    """Return what is computed under encryption; refuse cells that nobody could make dense."""
    if isinstance(agreed, Clustering) and agreed.min_points > parties:
        raise ParameterError(
            f"{agreed.min_points} clients make a cell dense, and there are {parties}: lower "
            "min_points"
        )
    return Task(parties, threshold, agreed)


def agreed_on(frame: Frame, strategy: Strategy, tried: int = 100) -> Averaging | Clustering:
    """Return what parties agree on for a strategy that is made of sums; refuse others.

    Clients tried so many settings at most.
    """
    if isinstance(strategy, MeanSetting):
        most = 1 if strategy.share is None else math.ceil(strategy.share * tried)
        return Averaging(frame, strategy.share, most)
    if isinstance(strategy, FederatedDbscan):
        return strategy.agreed(frame)
    if isinstance(strategy, Dbscan):
        if strategy.stretched or strategy.by_rule:
            raise ParameterError(
                "stretched axes and the paper's rules look at everybody's settings"
            )
        return Clustering(frame, **strategy.rule)
    raise ParameterError(
        f"{strategy.name} needs everybody's settings in one place; under encryption there are "
        "mean, top-mean and dbscan, with noise mean and top-mean"
    )


def averaged_on(frame: Frame, strategy: Strategy, tried: int = 100) -> Averaging:
    """Return what clients agree on for a strategy that is there with noise; refuse others."""
    agreed = agreed_on(frame, strategy, tried)
    if isinstance(agreed, Clustering):
        raise ParameterError(
            "there are no density clusters with noise: a noisy mean or a private vote finds more "
            "for the same epsilon. Take mean, top-mean or vote"
        )
    return agreed


def _most(searches: Searches) -> int:
    return max(len(client) for client in searches.clients)


def opened(clients: int, outcome: EncryptedOutcome, *, private: bool) -> Combination:
    """Return what came of an encrypted run to which so many clients were invited."""
    task, agreed = outcome.task, outcome.task.agreed
    helpers = "all" if task.threshold == task.parties else f"any {task.threshold}"
    caveats = [_EXACT, _HIDDEN.format(helpers=helpers, parties=task.parties)]
    if not private:
        caveats.append("The randomness was scripted, so nothing is hidden")
    online = {p: outcome.traffic[p] - outcome.key_traffic[p] for p in outcome.traffic}
    return Combination(
        setting=outcome.combined.setting,
        strategy=agreed.name,
        guarantee=Guarantee.ENCRYPTION,
        frame=agreed.frame,
        privacy=_statement(*caveats),
        clients=clients,
        took_part=len(outcome.took_part),
        clusters=outcome.combined.clusters,
        cell=getattr(agreed, "cell", None),
        opened=tuple(tuple(np.asarray(entries).tolist()) for entries in outcome.shown),
        lost=outcome.lost,
        cost={
            "bytes_per_party": max(online.values()),
            "key_bytes_per_party": max(outcome.key_traffic.values()),
        },
        when=today() if private else None,
    )


def _statement(*caveats: str) -> PrivacyStatement:
    return PrivacyStatement(float("inf"), 0.0, Adjacency.REPLACE_ONE_CLIENT, "none", tuple(caveats))

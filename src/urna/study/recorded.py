"""Searches that clients have run already, in a table: one setting of all of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.privacy import Budget
from urna.space import Space
from urna.study.file import Study
from urna.study.journal import Journal
from urna.study.schema import CombinePart
from urna.systems.combine import (
    STRATEGIES,
    Combination,
    Dbscan,
    FederatedDbscan,
    Guarantee,
    MeanSetting,
    Recorded,
    Searches,
    Strategy,
    combine,
    read_searches,
    strategy_named,
)
from urna.systems.vote import VoteResult
from urna.systems.vote import search as hold_vote
from urna.tally import EncryptedSummation, Options, Run, SecureAggregation

__all__ = ["all_strategies", "combine_recorded", "losses_on", "recorded_of", "vote_on"]

_VOTE, _LOSS = "vote", "loss"
_BY_ACCURACY = (Dbscan, FederatedDbscan)


def recorded_of(study: Study) -> Recorded:
    """Return the searches in the table that is the study's source.

    Raises:
        ParameterError: The table cannot be read, or has no such rows or columns.
    """
    said, where = study.combine, {}
    for each in said.where:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise study.error("combine.where", f"a condition is COLUMN=VALUE, got {each!r}")
        where[name] = value
    with study.blaming("data.source"):
        return read_searches(
            study.base / study.data.source,
            where=where,
            axes=said.axes or None,
            score=said.score,
            space=study.space,
            log=said.log_scale,
        )


def combine_recorded(study: Study, journal: Journal, run: Run) -> Combination:
    """Combine recorded searches as the study says, without a vote before."""
    said, budget = study.combine, study.privacy.budget
    found = journal.found("combination.json")
    if found is not None:
        return Combination.read(found)
    recorded = recorded_of(study)
    strategy = _chosen(recorded, said)

    def keep(done: Combination) -> None:
        journal.keep("combination.json", done.as_mapping(), *done.entries)

    noisy: dict[str, Any] = dict(study.privacy.options) if said.guarantee.private else {}
    if strategy is None:
        done = vote_on(
            recorded.searches,
            guarantee=said.guarantee,
            space=recorded.space,
            budget=budget,
            run=replace(run, keep=keep),
            **noisy,
        )
    else:
        entry = journal.entry("then") if isinstance(strategy, MeanSetting) else None
        done = combine(
            recorded.searches,
            strategy,
            guarantee=said.guarantee,
            budget=budget,
            threshold=said.threshold,
            recomputes=said.recompute,
            run=replace(run, entry=entry, keep=keep),
            **noisy,
        )
    keep(done)
    return done


def _chosen(recorded: Recorded, said: CombinePart) -> Strategy | None:
    """Return the strategy that was asked for; None for a vote."""
    if said.strategy == _VOTE:
        if not said.guarantee.private:
            raise ParameterError("a vote has noise: ask for the guarantee dp or both")
        if said.log_scale:
            raise ParameterError("vote averages nothing: leave `log_scale` out")
        return None
    chosen = _configured(recorded, said, said.strategy)
    if isinstance(chosen, Dbscan) and said.guarantee is not Guarantee.NONE:
        chosen = _configured(recorded, said, "federated-dbscan")
    elif said.cell is not None and not isinstance(chosen, FederatedDbscan):
        raise ParameterError(f"{said.strategy} counts in no cells: leave `cell` out")
    in_the_clear = [("reach", said.reach), ("stretched", said.stretched), ("by_rule", said.by_rule)]
    for name, wanted in in_the_clear if not isinstance(chosen, Dbscan) else ():
        if wanted:
            raise ParameterError(
                f"`{name}` is of dbscan in the clear, which sees everybody's settings: leave it out"
            )
    if said.score == _LOSS and isinstance(chosen, _BY_ACCURACY):
        raise ParameterError(f"{said.strategy} needs accuracies between 0 and 1, not losses")
    return chosen


def all_strategies(recorded: Recorded, said: CombinePart) -> list[Strategy]:
    """Return all strategies that can work with these scores."""
    every = [_configured(recorded, said, name) for name in STRATEGIES]
    return [each for each in every if said.score != _LOSS or not isinstance(each, _BY_ACCURACY)]


def _configured(recorded: Recorded, said: CombinePart, name: str) -> Strategy:
    """Return the strategy that was asked for, as it was asked for."""
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, [*STRATEGIES, _VOTE])
    strategy = strategy_named(name)
    match strategy:
        case Dbscan():
            return Dbscan(
                reach=strategy.reach if said.reach is None else said.reach,
                min_points=said.min_points,
                tolerance=said.tolerance,
                stretched=said.stretched,
                by_rule=said.by_rule,
            )
        case FederatedDbscan():
            found = FederatedDbscan(
                cell=strategy.cell if said.cell is None else said.cell,
                min_points=said.min_points,
                tolerance=said.tolerance,
            )
            found.agreed(recorded.searches.frame)  # refuses what cannot be
            return found
    return strategy


def vote_on(
    searches: Searches,
    *,
    guarantee: Guarantee,
    space: Space,
    budget: Budget,
    run: Run,
    **options: Unpack[Options],
) -> Combination:
    """Hold a private vote on the candidates of a space, with the scores that clients recorded.

    `keep` of the run is called with the result as soon as the tally is open.

    Guarantee:
        That of `urna.search`: the tally is (epsilon, delta)-DP under `adjacency`.
    """
    searches.check_public()
    losses = losses_on(searches, space)
    numbered = {tuple(candidate.values()): n for n, candidate in enumerate(space)}

    def recorded(candidate: Mapping[str, Any], row: npt.NDArray[np.float64]) -> float:
        return float(row[numbered[tuple(candidate.values())]])

    summation = EncryptedSummation() if guarantee is Guarantee.BOTH else SecureAggregation()

    def as_combination(result: VoteResult) -> Combination:
        return Combination(
            setting={name: float(value) for name, value in result.best.items()},
            strategy="vote",
            guarantee=guarantee,
            frame=searches.frame,
            privacy=result.privacy,
            clients=len(searches),
            took_part=result.took_part,
            opened=(tuple(result.votes.tolist()),),
            noise=(result.standard_error,),
            terms=result.terms,
            lost=result.lost,
            entries=() if result.entry is None else (result.entry,),
            when=result.when,
        )

    result = hold_vote(
        space,
        recorded,
        list(losses),
        budget=budget,
        summation=summation,
        run=replace(
            run, force=True, progress=False, keep=lambda found: run.kept(as_combination(found))
        ),
        **options,
    )
    return as_combination(result)


def losses_on(searches: Searches, space: Space) -> npt.NDArray[np.float64]:
    """Return each client's losses on the candidates of a space.

    A setting a client tried several times counts as its mean; one it never tried as its worst;
    one that is no candidate not at all.
    """
    numbered = {tuple(float(v) for v in c.values()): n for n, c in enumerate(space)}
    losses = np.full((len(searches), len(space)), np.inf)
    for client, search in enumerate(searches.clients):
        found: dict[int, list[float]] = {}
        for row, score in zip(search.settings.tolist(), search.scores.tolist(), strict=True):
            if tuple(row) in numbered:
                found.setdefault(numbered[tuple(row)], []).append(-score)
        for place, each in found.items():
            losses[client, place] = float(np.mean(each))
    return losses

"""A private vote on the scores of searches that clients have run already."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from urna.privacy import Budget
from urna.space import Space
from urna.systems.combine import Combination, Guarantee, Searches
from urna.systems.vote import VoteResult
from urna.systems.vote import search as hold_vote
from urna.tally import EncryptedSummation, Options, Run, SecureSummation

__all__ = ["losses_on", "vote_on"]


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

    summation = EncryptedSummation() if guarantee is Guarantee.BOTH else SecureSummation()

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
            run,
            force=True,
            progress=False,
            keep=lambda found: run.kept(as_combination(found)),
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

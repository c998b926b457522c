"""Two rounds, coarse to fine: a part of the budget finds the region, the rest chooses in it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local import Losses, Objective, Progress, losses_of_each
from urna.privacy import (
    Adjacency,
    Budget,
    GaussianRelease,
    Ledger,
    NonPrivateRelease,
    Unit,
    compose,
    gaussian_std,
)
from urna.randomness import OsSecrets, SecretSource
from urna.space import Space
from urna.tally import SecureSummation, Summation
from urna.vote.decode import NoisyVotes
from urna.vote.plan import VotePlan, plan
from urna.vote.posterior import PosteriorDecoder
from urna.vote.result import Result
from urna.vote.search import SearchProgress, search

__all__ = ["FIRST_SHARE", "KEPT", "TwoRounds", "search_twice"]

FIRST_SHARE = 0.35
"""Part of the budget, as a share of μ², that finds the region."""
KEPT = 0.1
"""Part of the candidates that the second round votes on."""
_FEWEST = 4  # candidates of the second round

DataT = TypeVar("DataT")


@dataclass(frozen=True, slots=True)
class TwoRounds:
    """A region, and the winner in it."""

    first: Result
    """The vote on all candidates."""
    second: Result
    """The vote on the promising ones. Its statement says what both rounds cost together."""


def search_twice(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    *,
    budget: Budget,
    first_share: float = FIRST_SHARE,
    kept: float = KEPT,
    dropout: float = 0.0,
    colluding: float = 0.0,
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    summation: Summation | None = None,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    seed: int = 0,
    progress: SearchProgress | None = None,
    between: Callable[[Result], None] | None = None,
) -> TwoRounds:
    """Vote on all candidates, then again on the most promising of them.

    It pays where noise is moderate: a ballot over a tenth of the candidates says
    more about each (docs/guide/ballots-and-decoding.md has the measured table). Every client
    evaluates the candidates once.

    Guarantee:
        Both tallies together are (epsilon, delta)-DP for an epsilon of at most the budget's.
        The noise of both rounds and the number of candidates of the second are fixed before
        the first begins; which candidates these are is read from the first noisy tally.

    Args:
        space: The candidates, in order.
        objective: How a client evaluates them on its data.
        clients: Each client's data.
        budget: What both rounds together may cost.
        first_share: Part of the budget for the first round, as a share of μ².
        kept: Part of the candidates that the second round votes on.
        dropout: Largest fraction of clients that may drop out.
        colluding: Largest fraction of clients that may tell the server their noise.
        adjacency: Between which electorates the guarantee holds; about clients only.
        summation: How ballots are added up; securely by default.
        ledger: Where both releases are counted. It is asked for both before the first.
        secrets: Where keys and noise come from; the operating system by default.
        seed: Public seed of the clients' local training.
        progress: Called while the search runs.
        between: Called with the first round's result before the second begins. Its part of the
            budget is spent by then; who keeps it has it even if the second round fails.
    """
    if not (0 < first_share < 1 and 0 < kept < 1):
        raise ParameterError(
            f"the first round's share and the part kept lie in (0, 1), got {first_share} and {kept}"
        )
    if adjacency.unit is not Unit.CLIENT:
        raise ParameterError("two rounds protect clients; for records hold one round with shards")
    count = min(len(space), max(_FEWEST, math.ceil(kept * len(space))))
    summation, secrets = summation or SecureSummation(), secrets or OsSecrets()
    terms: dict[str, Any] = {"dropout": dropout, "colluding": colluding, "adjacency": adjacency}
    plans = _plans(
        budget,
        first_share,
        clients=len(clients),
        sizes=(len(space), count),
        removes_excess=summation.removes_excess,
        **terms,
    )
    releases = [vote.tally.calibration.release for vote in plans]
    if ledger is not None:
        ledger.check_relation(adjacency)
        ledger.check(*(releases if secrets.private else [NonPrivateRelease("scripted secrets")]))
    report = progress or (lambda what, done, total: None)
    evaluated = losses_of_each(
        objective,
        clients,
        space,
        seeds=[seed] * len(clients),
        progress=lambda done, total: report("evaluating candidates", done, total),
    )
    known = np.array(list(evaluated), dtype=np.float64)
    terms |= {"summation": summation, "ledger": ledger, "secrets": secrets, "seed": seed}
    numbers = range(len(clients))
    first = search(space, _Known(known), numbers, budget=plans[0].tally.budget, **terms)
    if between is not None:
        between(first)
    places = PosteriorDecoder().promising(_tally(first), count)
    inside = _Known(known[:, places])
    second = search(space.only(places), inside, numbers, budget=plans[1].tally.budget, **terms)
    spent = compose(releases, budget.delta)
    statement = replace(
        second.privacy,
        epsilon=spent.epsilon if second.privacy.private else math.inf,
        accountant=spent.accountant,
        caveats=(*second.privacy.caveats, "Epsilon is that of both rounds together"),
    )
    return TwoRounds(first, replace(second, privacy=statement))


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Losses that clients have computed already; a client's data is its number."""

    table: npt.NDArray[np.float64]

    def losses(
        self, data: int, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        del space, seed, progress
        return np.asarray(self.table[data])


def _tally(result: Result) -> NoisyVotes:
    norm = result.plan.ballot_norm
    return NoisyVotes(result.space, result.votes, result.standard_error, result.took_part, norm)


def _plans(
    budget: Budget,
    share: float,
    *,
    sizes: tuple[int, int],
    **terms: Any,  # noqa: ANN401 - those of `plan`
) -> tuple[VotePlan, VotePlan]:
    """Plan both rounds so that together they keep within the budget."""
    mu = 1 / gaussian_std(budget, sensitivity=1.0)
    tight = 1.0
    while True:
        first, second = (
            plan(candidates=size, budget=_part(mu * tight * math.sqrt(part), budget.delta), **terms)
            for size, part in zip(sizes, (share, 1 - share), strict=True)
        )
        both = [vote.tally.calibration.release for vote in (first, second)]
        if compose(both, budget.delta).epsilon <= budget.epsilon:
            return first, second
        tight *= 0.999


def _part(mu: float, delta: float) -> Budget:
    """Return the budget of one round of this strength."""
    return Budget(compose([GaussianRelease(1 / mu)], delta).epsilon, delta)

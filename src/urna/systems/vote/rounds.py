"""Two rounds, coarse to fine: a part of the budget finds the region, the rest chooses in it."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

import numpy as np

from urna.errors import ParameterError
from urna.local import Objective, losses_of_each
from urna.privacy import (
    Budget,
    NonPrivateRelease,
    PrivacyStatement,
    Unit,
    compose,
    parts_of,
)
from urna.progress import live_line
from urna.space import Candidate, Space
from urna.systems.vote.decode import Decoder, NoisyVotes
from urna.systems.vote.hold import check_readable, hold_vote, read_again
from urna.systems.vote.inputs import as_budget, as_clients, as_objective, as_space
from urna.systems.vote.plan import VotePlan, plan_vote, usable
from urna.systems.vote.posterior import Posterior, PosteriorDecoder
from urna.systems.vote.rehearsal import RehearsedDecoder
from urna.systems.vote.result import VoteResult
from urna.systems.vote.search import check_objective, fill_all
from urna.tally import Options, Run, SecureAggregation, Summation, Terms

__all__ = ["BOTH_ROUNDS", "FIRST_SHARE", "KEPT", "TwoRounds", "after_first", "search_twice"]

FIRST_SHARE = 0.35
"""Part of the budget, as a share of μ², that finds the region."""
BOTH_ROUNDS = "Epsilon is that of both rounds together"
"""What the statement of a second round says."""
KEPT = 0.1
"""Part of the candidates that the second round votes on."""
KIND, VERSION = "rounds", 1
"""What a file that holds both rounds says it is."""
_FEWEST = 4  # candidates of the second round

DataT = TypeVar("DataT")


@dataclass(frozen=True, slots=True)
class TwoRounds:
    """A region, and the winner in it."""

    first: VoteResult
    """The vote on all candidates."""
    second: VoteResult
    """The vote on the promising ones. Its statement says what both rounds cost together."""

    @property
    def best(self) -> Candidate:
        """The winning hyperparameters."""
        return self.second.best

    @property
    def best_params_(self) -> Candidate:
        """The same, by scikit-learn's name."""
        return self.second.best

    @property
    def privacy(self) -> PrivacyStatement:
        """What both rounds cost together."""
        return self.second.privacy

    def as_mapping(self) -> dict[str, Any]:
        """Return both rounds as plain values for JSON, from which `read` makes them again."""
        rounds = {"first": self.first.as_mapping(), "second": self.second.as_mapping()}
        return {"kind": KIND, "version": VERSION, **rounds}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "TwoRounds":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: It is no such result, or of a newer version.
        """
        if (mapping.get("kind"), mapping.get("version")) != (KIND, VERSION):
            raise ParameterError(f"these are no two rounds of version {VERSION}")
        return cls(VoteResult.read(mapping["first"]), VoteResult.read(mapping["second"]))

    def as_json(self) -> str:
        """Return both rounds as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def _repr_html_(self) -> str:
        return self.second._repr_html_()


def search_twice(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    budget: Budget,
    first_share: float = FIRST_SHARE,
    kept: float = KEPT,
    summation: Summation | None = None,
    seed: int = 0,
    between: Callable[[VoteResult], None] | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> TwoRounds:
    """Vote on all candidates, then again on the most promising of them.

    It pays where noise is moderate: a ballot over a tenth of the candidates says
    more about each (docs/explanation/ballots-and-decoding.md has the measured table). Every client
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
        summation: How ballots are added up; securely by default.
        seed: Public seed of the clients' local training.
        between: Called with the first round's result before the second begins. Its part of the
            budget is spent by then; who keeps it has it even if the second round fails.
        run: Where both are counted and shown. The ledger is asked for both before the first;
            `keep` is called with the second round's result before its winner is weighed.
        options: The rest of the terms; see `urna.tally.Terms`. The relation is about clients.
    """
    space, objective, clients = as_space(space), as_objective(objective), as_clients(clients)
    if not (0 < first_share < 1 and 0 < kept < 1):
        raise ParameterError(
            f"the first round's share and the part kept lie in (0, 1), got {first_share} and {kept}"
        )
    terms = Terms.of(len(clients), as_budget(budget), **options)
    if terms.adjacency.unit is not Unit.CLIENT:
        raise ParameterError("two rounds protect clients; for records hold one round with shards")
    count = min(len(space), max(_FEWEST, math.ceil(kept * len(space))))
    run = (run or Run()).only("two rounds", "ledger", "secrets", "keep", "progress", "force")
    summation, secrets = summation or SecureAggregation(), run.secrets
    votes = _plans(terms, first_share, (len(space), count), summation.removes_excess)
    if not run.force:
        votes[0].check_hopeful()
    for vote, some in zip(votes, (space, space.only(range(count))), strict=True):
        check_readable(some, vote)
    events = [vote.event for vote in votes]
    if run.ledger is not None:
        run.ledger.check_relation(terms.adjacency)
        run.ledger.check(*(events if secrets.private else [NonPrivateRelease("scripted secrets")]))
    check_objective(objective, space, clients, seed)
    with live_line(run.progress) as report:
        evaluated = losses_of_each(
            objective,
            clients,
            space,
            seeds=[seed] * len(clients),
            progress=lambda done, total: report("evaluating candidates", done, total),
        )
        known = np.array([usable(losses, len(space)) for losses in evaluated])

    def hold(
        vote: VotePlan, some: Space, places: Sequence[int], decoder: Decoder, kept: Keep
    ) -> VoteResult:
        ballots = fill_all(known[:, places], vote, secrets)
        first_round = len(space) if len(some) < len(space) else None

        def keep_named(found: VoteResult) -> None:
            if kept is not None:
                kept(replace(found, first_round=first_round))

        with live_line(run.progress) as report:
            report("summing ballots", 0, 1)
            kept_here = replace(run, keep=keep_named)
            unread = hold_vote(vote, some, ballots, kept_here, summation=summation)
            report("summing ballots", 1, 1)
        return replace(read_again(unread, decoder), first_round=first_round)

    alone = PosteriorDecoder()
    first = hold(votes[0], space, range(len(space)), alone, between)
    places = alone.promising(first.tally, count)
    after = after_first(first.tally, places, votes[1].ballot_norm)
    second = hold(votes[1], space.only(places), places, after, run.keep)
    spent = compose(events, terms.budget.delta)
    statement = replace(
        second.privacy,
        epsilon=spent.epsilon if second.privacy.private else math.inf,
        accountant=spent.accountant if second.privacy.private else "none",
        caveats=(*second.privacy.caveats, BOTH_ROUNDS),
    )
    return TwoRounds(first, replace(second, privacy=statement))


Keep = Callable[[VoteResult], None] | None


def after_first(first: NoisyVotes, places: Sequence[int], norm: float) -> Decoder:
    """Return how the second tally is read: it may look as the first one's posterior mean does.

    That mean is public, so expecting it costs nothing; the second tally weighs it, as it weighs
    a rehearsal.

    Args:
        first: The first round's tally.
        places: The candidates of the second.
        norm: L2 norm of one of its ballots, in votes.
    """
    alone = PosteriorDecoder()
    if first.std == 0 or np.ptp(first.votes) == 0:
        return alone
    mean = Posterior.of(first).mean
    some = mean[list(places)] - mean[list(places)].mean()
    length = float(np.linalg.norm(some))
    if length == 0:
        return alone
    agreement = float(np.linalg.norm(mean)) / (first.clients * first.norm)
    name = f"{alone.name}, after the first round"
    return RehearsedDecoder(agreement * norm / length * some, alone, name)


def _plans(
    terms: Terms, share: float, sizes: tuple[int, int], removes_excess: bool
) -> tuple[VotePlan, VotePlan]:
    """Plan both rounds so that together they keep within the budget: squares of μ add up."""
    first, second = (
        plan_vote(terms.costing(part), size, removes_excess=removes_excess)
        for part, size in zip(parts_of(terms.budget, (share, 1 - share)), sizes, strict=True)
    )
    return first, second

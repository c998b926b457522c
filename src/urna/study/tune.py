"""A vote and what follows it, under one budget and one ledger.

Both are planned, and the ledger is asked for both, before the first spends anything; what both
promise together follows from what both released.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from urna.privacy import (
    Budget,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Repeated,
    Sampled,
    compose,
)
from urna.privacy.cost import DECLARED, GAUSSIAN, Cost
from urna.privacy.sampling import sampled_epsilon
from urna.randomness import staged_secrets
from urna.study.division import Division
from urna.study.stages import Among, AverageStage, CombineStage, TrainStage, VoteStage
from urna.systems.vote import VoteResult, plan_vote
from urna.tally import Options, Run, SecureAggregation, Summation

__all__ = ["Tuned", "tune"]

_ALL_ROUNDS = re.compile(r"Epsilon is that of \d+ rounds together")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A vote, and what it decided."""

    division: Division
    vote: VoteResult
    result: Any
    """What followed: a training, a model or a combination."""
    privacy: PrivacyStatement = field(repr=False)
    """What both promise together."""

    def as_mapping(self) -> dict[str, Any]:
        """Return what choosing the settings cost, and what followed alone, as plain values."""
        return {
            "division": self.division.as_mapping(),
            "privacy": self.privacy.as_mapping(),
            "vote": self.vote.privacy.as_mapping(),
            "training": self.result.privacy.as_mapping(),
        }


def tune(
    vote: VoteStage,
    follow: TrainStage | AverageStage | CombineStage,
    clients: Sequence[Any],
    *,
    budget: Budget,
    division: Division | None = None,
    summation: Summation | None = None,
    say: Callable[[str], None] | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Tuned:
    """Let clients vote on how something is done, and do it with the winner, under one budget.

    Guarantee:
        Vote and what follows together are (epsilon, delta)-DP for `budget`, under the same
        relation. How it is divided is fixed before the vote begins (`Reveal.divide`), and no data
        decide it. With a ledger both are entered there, each before it happens. One record, or
        one client, is in one ballot and in what follows.

    Args:
        vote: The vote.
        follow: What is done with the winner.
        clients: Each client's data.
        budget: What both together may cost.
        division: How the budget is divided; as what follows says by default. It only fits what it
            was made to reveal: `divide` is told.
        summation: How ballots and what follows are added up; securely by default.
        say: Called with sentences about what was decided.
        run: Where both are counted and shown, and what follows is kept.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, the vote cannot succeed, or the one that was
            held is another; votes protect clients, or shards of records, not single records as
            training does. Nothing was released.
        BudgetExceeded: The ledger has no room for both. Nothing was released.
    """
    run, tell = run or Run(), say or (lambda sentence: None)
    among = Among(follow.data(clients), summation or SecureAggregation(), options)
    ledger, chosen = run.ledger, vote.before
    candidates = len(vote.space) if vote.space is not None else None
    divided = division or follow.divide(budget, among, vote.settings.reveal, candidates)
    plan: Any = follow.plan(divided.train, among, force=run.force)
    space, proposed = follow.voted_on(plan, vote.space)
    planned = plan_vote(
        among.terms(divided.vote),
        space,
        vote.settings,
        removes_excess=among.summation.removes_excess,
    )
    vote.check(planned, space, ledger, force=follow.weighs)
    if ledger is not None:
        ledger.check_relation(among.terms(budget).adjacency)
        asked = [planned.event, *follow.events(plan)]
        if not run.secrets.private:
            asked = [NonPrivateRelease("scripted secrets") for _ in asked]
        if chosen is None:
            ledger.check(*asked, ids=[vote.entry, run.entry])
    tell(str(divided))
    of_vote, of_rest = staged_secrets(run.secrets, b"vote", follow.script)
    if chosen is None:
        counted = Run(
            ledger=ledger,
            entry=vote.entry,
            secrets=of_vote,
            keep=vote.keep,
            force=vote.force or follow.weighs,
        )
        chosen = vote.hold(planned, space, vote.objective or proposed, among, counted)
        if vote.keep is not None and chosen.decoder is not None:  # counts, and weighed by now
            vote.keep(chosen)
    held = chosen
    tell(held.verdict)

    def statement(made: Any) -> PrivacyStatement:  # noqa: ANN401 - each stage has its own
        spent = follow.spent(plan, made)
        return together(held, planned.event, made.privacy, spent, budget, follow.named(made))

    def joined(made: Any) -> Any:  # noqa: ANN401
        return follow.joined(made, held, divided.part, statement(made))

    if follow.before is not None:
        joint = isinstance(follow, CombineStage)
        privacy = statement(follow.before) if joint else follow.before.privacy
        return Tuned(divided, held, follow.before, privacy)
    rest = replace(run, secrets=of_rest, keep=lambda made: run.kept(joined(made)))
    rest = rest if run.keep is not None else replace(rest, keep=None)
    result = follow.run(held.best, divided.train, among, rest)
    return Tuned(divided, held, joined(result), statement(result))


def together(
    vote: VoteResult,
    event: Release,
    follow: PrivacyStatement,
    spent: Sequence[Release] | None,
    budget: Budget,
    what: str,
) -> PrivacyStatement:
    """Return what a vote and what follows it promise together.

    What they cost is composed, not what they state. Where it is not known what followed released,
    it kept within its part of the budget, as the vote did: both keep within the whole
    (`Reveal.divide`).
    """
    pure = vote.revealed.counts is None
    epsilon, accountant = math.inf, "none"
    if vote.privacy.private and follow.private:
        epsilon, accountant = budget.epsilon, f"{GAUSSIAN} + {DECLARED}" if pure else GAUSSIAN
        if spent is not None:
            epsilon, accountant = _composed(event, spent, budget.delta, follow.accountant)
    # Why the vote is not private, where it is not; and on whom a winner rests.
    said = vote.privacy.caveats if pure else vote.privacy.caveats[: not vote.privacy.private]
    unit = follow.adjacency.unit
    caveat = f"Epsilon is that of a vote on hyperparameters and of {what} together"
    # What follows may state of its own epsilon which rounds it counts: here that is a part.
    rest = (
        each.replace("Epsilon is that of", "The part of what follows is that of", 1)
        for each in follow.caveats
        if not _ALL_ROUNDS.fullmatch(each)
    )
    caveats = (f"{caveat}, for the same {unit}", *said, *rest)
    return replace(
        follow, epsilon=epsilon, delta=budget.delta, accountant=accountant, caveats=caveats
    )


def _composed(
    event: Release, spent: Sequence[Release], delta: float, sampled: str
) -> tuple[float, str]:
    """Return what releases cost, and by which accountant; sampled rounds compose by losses."""
    if spent and isinstance(spent[0], Repeated) and isinstance(spent[0].release, Sampled):
        step, count = spent[0].release, spent[0].rounds
        return min(_beside(price, step, count).at(delta) for price in event.prices()), sampled
    found = compose([event, *spent], delta)
    return found.epsilon, found.accountant


def _beside(first: Cost, step: Sampled, count: int) -> Cost:
    once = step.release.cost()
    epsilon = sampled_epsilon(
        once.mu, step.rate, count, step.delta, replaced=step.replaced, besides=first.mu
    )
    return Cost(
        epsilon=first.epsilon + epsilon, delta=step.delta, slip=first.slip + count * once.slip
    )

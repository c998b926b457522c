"""Tune and train under one budget: clients vote on the step size, then train with the winner.

How the budget is divided is decided before anybody computes anything, by a dry run on made-up
data, and printed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError
from urna.forecast.votes import draw_winners
from urna.local import BatchedObjective, Objective
from urna.privacy import (
    Budget,
    Ledger,
    PrivacyStatement,
    Release,
    Repeated,
    Sampled,
    Unit,
)
from urna.privacy.cost import Cost, together
from urna.privacy.sampling import sampled_epsilon
from urna.randomness import staged_secrets
from urna.space import Axis, Space
from urna.study.dry_run import DryRun
from urna.study.held import Held, check_same, said_of
from urna.systems.train import PublicScore, Settings, TorchLearner, TrainResult, fit
from urna.systems.train.plan import TrainPlan, plan_training
from urna.systems.vote import (
    COUNTS,
    PosteriorDecoder,
    Reveal,
    VotePlan,
    VoteResult,
    VoteSettings,
    plan_vote,
    search,
)
from urna.tally import Options, Run, SecureAggregation, Summation, Terms

__all__ = ["Division", "Tuned", "divide", "tune_and_train"]

PARTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Parts of the squared budget that a vote may get."""

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Step sizes that are voted on unless one says otherwise."""

_VOTES = 200  # made-up votes for each part
_SEEDS = 3
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Division:
    """How a budget is divided between a vote and a training."""

    part: float
    """Of the square of μ: what the vote gets, or what a winner that comes first costs the rest."""
    vote: Budget
    train: Budget
    tried: tuple[tuple[float, float, float], ...]
    """Parts, how often the best candidates win, and the accuracy reached, all in the dry run."""

    def __str__(self) -> str:
        rows = "\n".join(
            f"  {100 * part:4.0f} %   {100 * won:3.0f} %   {100 * reached:5.1f} %"
            + ("   <- chosen" if part == self.part else "")
            for part, won, reached in self.tried
        )
        dry = "dry run on made-up data: part for the vote, a good rate wins, accuracy"
        return (
            f"of the budget (squares of mu) the vote gets {100 * self.part:.0f} %: epsilon "
            f"{self.vote.epsilon:.3g} for the vote, {self.train.epsilon:.3g} for what follows"
        ) + (f"\n{dry}\n{rows}" if rows else "")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "part": self.part,
            "vote_epsilon": self.vote.epsilon,
            "train_epsilon": self.train.epsilon,
            "tried": [list(row) for row in self.tried],
        }


@dataclass(frozen=True, slots=True)
class Tuned:
    """A vote, and the training it decided."""

    division: Division
    vote: VoteResult
    training: TrainResult
    privacy: PrivacyStatement = field(repr=False)
    """What both promise together."""

    def as_mapping(self) -> dict[str, Any]:
        """Return what choosing the settings cost, and what the model alone, as plain values."""
        return {
            "division": self.division.as_mapping(),
            "privacy": self.privacy.as_mapping(),
            "vote": self.vote.privacy.as_mapping(),
            "training": self.training.privacy.as_mapping(),
        }


def divide(
    budget: Budget,
    *,
    clients: int,
    parameters: int,
    rounds: int,
    settings: Settings | None = None,
    candidates: int = len(RATES),
    reveal: Reveal = COUNTS,
    seed: int = 0,
    **options: Unpack[Options],
) -> Division:
    """Divide a budget between a vote and a training, by a dry run that sees no data.

    For each way to divide it: clients of a made-up federation vote under the noise that the
    vote would have, and a model is trained with the winner under noise that is as long beside
    its updates as the real one would be. The way with the best accuracy wins.

    Guarantee:
        Both parts fit into one ledger whose cap is the budget, in this order
        (`Reveal.divide`).

    Args:
        budget: What both together may cost.
        clients: How many clients there are.
        parameters: How many numbers the model has.
        rounds: Rounds of the training.
        settings: How the model is trained.
        candidates: How many candidates are voted on.
        reveal: What the vote reveals.
        seed: Public seed of the dry run.
        options: The rest of the terms.
    """
    rates = np.geomspace(0.003, 3.0, candidates)
    dry = DryRun(clients, seed)
    losses = dry.local_losses(rates)
    rng = np.random.default_rng([0x444956, seed])
    rows = []
    for part in PARTS:
        voting, training = reveal.divide(budget, part)
        terms = Terms.of(clients, voting, **options)
        chances = _winners(losses, rates, terms, rng, reveal)
        planned = plan_training(
            clients, parameters, budget=training, rounds=rounds, settings=settings, **options
        )
        reached = np.array(
            [
                np.mean(
                    [
                        dry.accuracy(float(rate), planned.noise_to_signal, _ROUNDS, turn)
                        for turn in range(_SEEDS)
                    ]
                )
                if chance > 0.01
                else 0.0
                for rate, chance in zip(rates, chances, strict=True)
            ]
        )
        rows.append((part, chances, reached))
    everything = np.max([reached for _, _, reached in rows], axis=0)
    good = everything >= everything.max() - 0.02
    tried = tuple(
        (part, float(chances[good].sum()), float(chances @ reached))
        for part, chances, reached in rows
    )
    part = max(tried, key=lambda row: row[2])[0]
    voting, training = reveal.divide(budget, part)
    return Division(part, voting, training, tried)


def tune_and_train(
    learner: TorchLearner,
    clients: Sequence[Samples],
    *,
    budget: Budget,
    rounds: int,
    settings: Settings | None = None,
    space: Space | None = None,
    objective: Objective[Samples] | None = None,
    division: Division | None = None,
    voting: VoteSettings | None = None,
    held: Held | None = None,
    score: PublicScore | None = None,
    summation: Summation | None = None,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    announce: Callable[[str], None] | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> Tuned:
    """Let clients vote on how they train, and train with the winner, within one budget.

    Guarantee:
        Vote and training together are (epsilon, delta)-DP for `budget`; with a ledger both are
        entered there, each before it happens.

    Args:
        learner: What is trained; the winner's hyperparameters go into its recipe.
        clients: Each client's rows.
        budget: What both together may cost.
        rounds: Rounds of training, at most.
        settings: How updates are used.
        space: The candidates; step sizes by default. Its names are fields of a recipe.
        objective: How a client judges candidates; by training the learner's module alone.
        division: How the budget is divided; by a dry run by default. It only fits what it was made
            to reveal: `divide` is told.
        voting: How the vote is held.
        held: The vote, where it was held before, and what becomes of it.
        score: Judges weights on public rows.
        summation: How ballots and updates are added up.
        folder: Where training writes down how far it is.
        about: What else must be the same where training goes on; see `fit`.
        announce: Called with sentences about what was decided.
        run: Where both are counted. `progress` is called after each round of training.
        options: The rest of the terms.

    Raises:
        ParameterError: It cannot be planned, or the vote that was held is another one; votes
            protect clients, or shards of records, not single records as training does.
        BudgetExceeded: The ledger has no room for the vote and what training begins with.
            Nothing was released.
    """
    asking, before = voting or VoteSettings(), held or Held()
    run = (run or Run()).only("a training", "ledger", "secrets", "progress", "force")
    how, source, ledger, vote = settings or Settings(), run.secrets, run.ledger, before.vote
    say = announce or (lambda sentence: None)
    if how.record_clip is not None:
        raise ParameterError(
            "a vote before a training that protects single records needs shards: hold it by itself"
        )
    asked = space or Space(lr=Axis.log(list(RATES)))
    recipe = learner.recipe
    judge = objective or BatchedObjective(
        learner.factory, epochs=5 * recipe.epochs, batch_size=recipe.batch_size, loss=learner.loss
    )
    parameters = len(learner.first_weights(seed=how.seed))
    divided = division or divide(
        budget,
        clients=len(clients),
        parameters=parameters,
        rounds=rounds,
        settings=how,
        candidates=len(asked),
        reveal=asking.reveal,
        **options,
    )
    say(str(divided))
    adding = summation if summation is not None else SecureAggregation()
    planned = plan_training(
        len(clients),
        parameters,
        budget=divided.train,
        rounds=rounds,
        settings=how,
        removes_excess=adding.removes_excess,
        **options,
    )
    planned_vote = plan_vote(
        Terms.of(len(clients), divided.vote, **options),
        asked,
        asking,
        removes_excess=adding.removes_excess,
    )
    if not run.force:
        planned.check_hopeful()
    if vote is not None:
        check_same(vote, planned_vote, asked, ledger)
    elif ledger is not None and source.private:
        _check_room(ledger, planned_vote, before.entry, planned)
    of_vote, of_training = staged_secrets(source, b"vote", b"training")
    if vote is None:
        vote = search(
            asked,
            judge,
            clients,
            budget=divided.vote,
            settings=asking,
            summation=None if asking.reveal.winner else adding,
            seed=how.seed,
            run=Run(
                ledger=ledger,
                entry=before.entry,
                secrets=of_vote,
                keep=before.keep,
                progress=before.progress or (False if callable(run.progress) else run.progress),
                force=True,  # the dry run has weighed how little it may find
            ),
            **options,
        )
        if before.keep is not None:
            before.keep(vote)
    chosen = ", ".join(f"{name}={value}" for name, value in vote.best.items())
    say(f"the vote chose {chosen}")
    trained = fit(
        learner.with_recipe(**vote.best),
        clients,
        budget=divided.train,
        rounds=rounds,
        settings=how,
        score=score,
        summation=adding,
        folder=folder,
        about=about,
        run=Run(ledger=ledger, secrets=of_training, force=run.force, progress=run.progress),
        **options,
    )
    return Tuned(divided, vote, trained, _both(vote, planned_vote, trained, planned, budget))


def _check_room(ledger: Ledger, voting: VotePlan, entry: str | None, planned: TrainPlan) -> None:
    """Refuse where the ledger has no room for the vote and the first round beside it."""
    first = planned.tally.event
    if isinstance(first, Sampled):  # counted as a whole when it begins
        first = Repeated(first, planned.counted)
    ledger.check(voting.event, *(() if first is None else (first,)), ids=[entry])


def _both(
    vote: VoteResult, voting: VotePlan, trained: TrainResult, planned: TrainPlan, budget: Budget
) -> PrivacyStatement:
    """Return what both promise together: what they cost is composed, not what they state."""
    settings, event = planned.settings, planned.tally.event
    # Where results decide when to stop, only what was planned holds.
    whole = settings.stop is not None or isinstance(event, Sampled)
    rounds = planned.rounds if whole else trained.rounds
    counted = settings.sampling.counts(rounds, planned.clients) if trained.rounds else 0
    finite = vote.privacy.private and trained.privacy.private
    cost = Cost(math.inf)
    if finite and event is not None:
        costs = [_together(price, event, counted) for price in voting.event.prices()]
        cost = min(costs, key=lambda each: each.at(budget.delta))
    epsilon = cost.at(budget.delta) if math.isfinite(cost.mu) else math.inf
    unit = trained.privacy.adjacency.unit
    accountant = planned.tally.accountant if isinstance(event, Sampled) else cost.accountant
    return PrivacyStatement(
        epsilon,
        budget.delta,
        trained.privacy.adjacency,
        accountant if math.isfinite(epsilon) else "none",
        (
            f"Epsilon is that of a vote on hyperparameters and of {trained.rounds} rounds of "
            f"training together, for the same {'record' if unit is Unit.RECORD else 'client'}",
            *said_of(vote),
            *trained.privacy.caveats,
        ),
    )


def _together(first: Cost, step: Release, counted: int) -> Cost:
    """Return what a vote and so many rounds cost; a sampled series composes by its losses."""
    if not counted:
        return first
    if not isinstance(step, Sampled):
        return together([first, Repeated(step, counted).cost()])
    once = step.release.cost()
    epsilon = sampled_epsilon(
        once.mu, step.rate, counted, step.delta, replaced=step.replaced, besides=first.mu
    )
    return Cost(
        epsilon=first.epsilon + epsilon, delta=step.delta, slip=first.slip + counted * once.slip
    )


def _winners(
    losses: np.typing.NDArray[np.float64],
    rates: np.typing.NDArray[np.float64],
    terms: Terms,
    rng: np.random.Generator,
    reveal: Reveal,
) -> np.typing.NDArray[np.float64]:
    """Return how often each candidate wins a vote among such clients, as it would be held."""
    space = Space(lr=Axis.log(rates.tolist()))
    planned = plan_vote(terms, space, VoteSettings(reveal=reveal))
    winners = list(draw_winners(losses, space, planned, PosteriorDecoder(), rng, _VOTES))
    return np.bincount(winners, minlength=len(space)) / _VOTES

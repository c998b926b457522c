"""Stages on clients' data: a vote, and what follows it or stands alone. `tune` composes two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.local import BatchedObjective, Objective, losses_of_each
from urna.privacy import (
    Budget,
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Repeated,
    Sampled,
)
from urna.progress import Steps, live_line
from urna.space import Axis, Space
from urna.study.division import RATES, VOTE_SHARE, Division, divide
from urna.systems.average import (
    AverageLearner,
    Blind,
    LearnerKind,
    LearnerSettings,
    ModelResult,
    Schema,
    choose,
    plan_average,
)
from urna.systems.average import fit as fit_average
from urna.systems.average.fit import as_samples
from urna.systems.average.objective import BlindObjective, candidate_learner, default_space
from urna.systems.average.plan import AveragePlan
from urna.systems.combine import (
    Combination,
    Frame,
    LocalSearch,
    Searches,
    SettingsSum,
    averaged_on,
    combine,
    strategy_named,
)
from urna.systems.train import PublicScore, Settings, TorchLearner, TrainResult
from urna.systems.train import fit as fit_rounds
from urna.systems.train.plan import TrainPlan, plan_training
from urna.systems.vote import Reveal, VotePlan, VoteResult, VoteSettings, read_again
from urna.systems.vote.fill import fill_all, try_objective
from urna.systems.vote.search import check_ready, hold_vote
from urna.tally import Options, Run, SecureAggregation, Summation, TallyPlan, Terms

__all__ = [
    "Among",
    "AverageStage",
    "CombineStage",
    "Follower",
    "TrainStage",
    "VoteStage",
]

_SAME = ("budget", "contribution", "noise_variance_per_client", "scale", "selection", "levels")

Setting = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Among:
    """Who takes part in all stages, and how their contributions are added up."""

    clients: Sequence[Any]
    """Each client's data; over Flower one place for each node that has data."""
    summation: Summation = field(default_factory=SecureAggregation)
    options: Options = field(default_factory=Options)
    """The terms of each sum, but for the clients and the budget."""

    def terms(self, budget: Budget) -> Terms:
        """Return the terms of a sum that costs this budget."""
        return Terms.of(len(self.clients), budget, **self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteStage:
    """A vote that something follows.

    Args:
        space: The candidates; by default what follows proposes some.
        objective: How a client judges them; by default as what follows says.
        settings: What is revealed, how ballots are filled and how the winner is read.
        seed: Public seed of the clients' holdouts.
        before: Its result, where it was held before under the same plan: it is not held again.
        entry: Its id in the ledger; see `Run`.
        keep: Called with its result as soon as there is one, and again once the winner is
            weighed: its part of the budget is spent by then, and nothing that follows is there.
        progress: Called while it is held; see `Run`.
        force: Whether to hold it where it probably cannot succeed, without trying the objective.
    """

    space: Space | None = None
    objective: Objective[Any] | None = None
    settings: VoteSettings = field(default_factory=VoteSettings)
    seed: int = 0
    before: VoteResult | None = None
    entry: str | None = None
    keep: Callable[[VoteResult], None] | None = None
    progress: Steps | bool | None = None
    force: bool = False

    def check(self, planned: VotePlan, space: Space, ledger: Ledger | None, *, force: bool) -> None:
        """Refuse a vote that cannot succeed, or whose result is of another one."""
        if self.before is not None:
            check_same(self.before, planned, space, ledger)
            return
        check_ready(planned, space, self.settings, force=force or self.force)

    def hold(
        self, planned: VotePlan, space: Space, objective: Objective[Any], among: Among, run: Run
    ) -> VoteResult:
        """Hold the vote, and weigh its winner; a ballot is of all of a client's data."""
        clients = among.clients
        if not run.force:
            try_objective(objective, space, clients, self.seed)
        with live_line(self.progress) as report:
            losses = losses_of_each(
                objective,
                clients,
                space,
                seeds=[self.seed] * len(clients),
                progress=lambda done, total: report("evaluating candidates", done, total),
            )
            ballots = fill_all(losses, planned, run.secrets)
            unread = hold_vote(planned, space, ballots, run, summation=among.summation)
        return read_again(unread, self.settings)


class Follower:
    """What follows a vote, or stands alone: it divides the budget, plans, runs and sums up."""

    script: ClassVar[bytes]
    """Which part of scripted secrets it has."""
    weighs: ClassVar[bool] = False
    """Whether it has weighed how little a vote may find."""
    share: ClassVar[float] = 0.5
    """What a vote gets of the budget, as a part of μ², unless one says otherwise."""
    what: ClassVar[str]
    """What a statement calls it."""

    def divide(
        self, budget: Budget, among: Among, reveal: Reveal, candidates: int | None = None
    ) -> Division:
        """Divide a budget between a vote on so many candidates and this."""
        del among, candidates
        return Division.of(budget, self.share, reveal)

    def named(self, result: Any) -> str:  # noqa: ANN401 - each stage has its own
        """Return what a statement calls it."""
        del result
        return self.what

    def data(self, clients: Sequence[Any]) -> Sequence[Any]:
        """Return each client's data in the form it takes them."""
        return clients

    def joined(
        self,
        result: Any,  # noqa: ANN401 - each stage has its own
        vote: VoteResult,
        part: float,
        privacy: PrivacyStatement,
    ) -> Any:  # noqa: ANN401
        """Return the result as it is kept after a vote."""
        del vote, part, privacy
        return result


@dataclass(frozen=True, slots=True)
class TrainStage(Follower):
    """A federated training in rounds.

    Args:
        learner: What is trained; the winner's hyperparameters go into its recipe.
        rounds: Rounds, at most.
        settings: How updates are used.
        score: Judges weights on public rows.
        folder: Where it writes down how far it is.
        about: What else must be the same where it goes on; see `urna.train`.
        before: Its result, where it was held before.
    """

    learner: TorchLearner
    rounds: int
    settings: Settings = field(default_factory=Settings)
    score: PublicScore | None = None
    folder: Path | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    before: TrainResult | None = None
    script: ClassVar[bytes] = b"training"
    weighs: ClassVar[bool] = True  # by the dry run that divides the budget

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return len(self.learner.first_weights(seed=self.settings.seed))

    def divide(
        self, budget: Budget, among: Among, reveal: Reveal, candidates: int | None = None
    ) -> Division:
        """Divide a budget between a vote and the training, by a dry run."""
        self._check_unit()
        return divide(
            budget,
            clients=len(among.clients),
            parameters=self.parameters,
            rounds=self.rounds,
            settings=self.settings,
            candidates=candidates or len(RATES),
            reveal=reveal,
            **among.options,
        )

    def plan(self, budget: Budget, among: Among, *, force: bool = False) -> TrainPlan:
        """Plan it, and refuse what noise drowns unless that is forced."""
        planned = plan_training(
            len(among.clients),
            self.parameters,
            budget=budget,
            rounds=self.rounds,
            settings=self.settings,
            removes_excess=among.summation.removes_excess,
            **among.options,
        )
        if not force:
            planned.check_hopeful()
        return planned

    def voted_on(self, planned: TrainPlan, space: Space | None) -> tuple[Space, Objective[Any]]:
        """Return the candidates, and how a client judges them: by training alone."""
        del planned
        self._check_unit()
        learner, recipe = self.learner, self.learner.recipe
        judge = BatchedObjective(
            learner.factory,
            epochs=5 * recipe.epochs,
            batch_size=recipe.batch_size,
            loss=learner.loss,
        )
        return space or Space(lr=Axis.log(list(RATES))), judge

    def events(self, planned: TrainPlan) -> tuple[Release, ...]:
        """Return what a ledger must have room for beside the vote: what training begins with."""
        first = planned.tally.event
        if isinstance(first, Sampled):  # counted as a whole when it begins
            first = Repeated(first, planned.counted)
        return () if first is None else (first,)

    def run(self, setting: Setting, budget: Budget, among: Among, run: Run) -> TrainResult:
        """Train with a vote's winner; `progress` is called after each round."""
        return fit_rounds(
            self.learner.with_recipe(**setting) if setting else self.learner,
            among.clients,
            budget=budget,
            rounds=self.rounds,
            settings=self.settings,
            score=self.score,
            summation=among.summation,
            folder=self.folder,
            about=self.about,
            run=run,
            **among.options,
        )

    def spent(self, planned: TrainPlan, result: TrainResult) -> tuple[Release, ...] | None:
        """Return what was released; None where only its part of the budget is known."""
        settings, event = planned.settings, planned.tally.event
        # Where results decide when to stop, only what was planned holds.
        whole = settings.stop is not None or isinstance(event, Sampled)
        rounds = planned.rounds if whole else result.rounds
        counted = settings.sampling.counts(rounds, planned.clients) if result.rounds else 0
        return (Repeated(event, counted),) if event is not None and counted else ()

    def named(self, result: TrainResult) -> str:
        """Return what a statement calls it."""
        return f"{result.rounds} rounds of training"

    def _check_unit(self) -> None:
        if self.settings.record_clip is not None:
            raise ParameterError(
                "a vote before a training that protects single records needs shards: hold it by "
                "itself"
            )


@dataclass(frozen=True, slots=True)
class AverageStage(Follower):
    """One message of each client, averaged into one model.

    A client judges settings by its own model under the noise of the mean. Its own is worse than
    the mean, most of all under a large Λ: where clients are few, or rows nearly parallel (features
    that are not centred), the defaults may do better.

    Args:
        schema: What the tables hold; classes.
        learner: What each client computes; after a vote `softmax`, `svm` or `logistic`.
        group: Records of one client that are protected together. A ballot is of all of a
            client's records, so this is no more for the vote.
        settings: What is not voted on.
        before: Its result, where it was held before; its statement is of the vote as well.
    """

    schema: Schema
    learner: AverageLearner | LearnerKind | str = LearnerKind.SOFTMAX
    group: int = 1
    settings: LearnerSettings = field(default_factory=LearnerSettings)
    before: ModelResult | None = None
    script: ClassVar[bytes] = b"model"
    share: ClassVar[float] = VOTE_SHARE
    what: ClassVar[str] = "the model"

    def data(self, clients: Sequence[Any]) -> Sequence[Samples]:
        """Return each client's rows; pairs of features and targets will do."""
        return as_samples(clients)

    def plan(self, budget: Budget, among: Among, *, force: bool = False) -> AveragePlan:
        """Plan it, with settings that nobody has voted on yet."""
        del force
        self.schema.check(among.clients)
        terms, records = among.terms(budget), [count_records(one) for one in among.clients]
        chosen = choose(
            self.learner, self.schema, terms, records, group=self.group, **self.settings
        )
        return plan_average(terms, chosen.learner, removes_excess=among.summation.removes_excess)

    def voted_on(self, planned: AveragePlan, space: Space | None) -> tuple[Space, Objective[Any]]:
        """Return the candidates, among Λ, R and c, and how a client judges them."""
        base = planned.learner
        if not isinstance(base, Blind):
            raise ParameterError(
                "moments have no settings to vote on: the ridge follows from the noise. Name "
                "softmax, svm or logistic, or leave tuning out"
            )
        candidates, objective = space or default_space(base), BlindObjective(base, planned.terms)
        objective.check(candidates)
        return candidates, objective

    def events(self, planned: AveragePlan) -> tuple[Release, ...]:
        """Return what a ledger must have room for beside the vote."""
        return (planned.tally.release or NonPrivateRelease("no noise"),)

    def run(self, setting: Setting, budget: Budget, among: Among, run: Run) -> ModelResult:
        """Average with a vote's winner."""
        stage = self
        if setting:
            base = self.plan(budget, among).learner
            if not isinstance(base, Blind):
                raise ParameterError("moments have no settings")
            winner = candidate_learner(base, setting)
            stage = AverageStage(winner.schema, winner, winner.group)
        return fit_average(
            among.clients,
            stage.schema,
            budget=budget,
            learner=stage.learner,
            group=stage.group,
            settings=stage.settings,
            summation=among.summation,
            run=replace(run, force=False),
            **among.options,
        )

    def spent(self, planned: AveragePlan, result: ModelResult) -> tuple[Release, ...] | None:
        """Return what was released."""
        del planned
        removes = bool(result.plan["removes_excess"])
        made = plan_average(result.terms, result.learner, removes_excess=removes).tally.release
        return () if made is None else (made,)

    def joined(
        self, result: ModelResult, vote: VoteResult, part: float, privacy: PrivacyStatement
    ) -> ModelResult:
        """Return the model with what chose its settings, and what it and the vote cost together."""
        tuned = {
            "best": vote.best,
            "candidates": len(vote.space),
            "confidence": vote.confidence,
            "share": part,
            "entry": vote.entry,
            "epsilon": vote.privacy.epsilon if vote.privacy.private else None,
        }
        return replace(result, privacy=privacy, tuned=tuned)


@dataclass(frozen=True, slots=True)
class CombineStage(Follower):
    """Clients' own best settings, combined into one under noise.

    Args:
        space: The candidates, all numbers: each client searches them alone.
        objective: How a client judges them.
        strategy: How their settings become one: `mean` or `top-mean`.
        seed: Public seed of the clients' holdouts.
        before: Its result, where it was held before; its statement is its own.
    """

    space: Space
    objective: Objective[Any]
    strategy: str = "mean"
    seed: int = 0
    before: Combination | None = None
    script: ClassVar[bytes] = b"combine"
    what: ClassVar[str] = "the combination"

    def plan(self, budget: Budget, among: Among, *, force: bool = False) -> TallyPlan:
        """Plan it, and refuse axes without numbers."""
        del force
        agreed = averaged_on(self._frame(), strategy_named(self.strategy), len(self.space))
        return SettingsSum(agreed).plan(among.terms(budget))

    def voted_on(self, planned: TallyPlan, space: Space | None) -> tuple[Space, Objective[Any]]:
        """Return the candidates, and how a client judges them: as it searches alone."""
        del planned
        return space or self.space, self.objective

    def events(self, planned: TallyPlan) -> tuple[Release, ...]:
        """Return what a ledger must have room for beside the vote."""
        return (planned.release or NonPrivateRelease("no noise"),)

    def run(self, setting: Setting, budget: Budget, among: Among, run: Run) -> Combination:
        """Let each client search alone, and combine what they find."""
        del setting
        with live_line(run.progress) as report:
            losses = losses_of_each(
                self.objective,
                among.clients,
                self.space,
                seeds=[self.seed] * len(among.clients),
                progress=lambda done, total: report("own searches", done, total),
            )
            rows = np.array([[float(value) for value in one.values()] for one in self.space])
            found = tuple(LocalSearch(rows, -np.asarray(one)) for one in losses)
        return combine(
            Searches(self._frame(), found),
            self.strategy,
            guarantee="dp",
            budget=budget,
            run=replace(run, progress=None, force=False),
            **among.options,
        )

    def spent(self, planned: TallyPlan, result: Combination) -> tuple[Release, ...] | None:
        """Return what was released."""
        del result
        return () if planned.release is None else (planned.release,)

    def _frame(self) -> Frame:
        return Frame.of(self.space, log=True)


def check_same(vote: VoteResult, plan: VotePlan, space: Space, ledger: Ledger | None) -> None:
    """Refuse a vote that is not the one that this plan would hold.

    Raises:
        ParameterError: It is another one, or is counted elsewhere.
    """
    asked = plan.as_mapping()
    same = (
        vote.revealed.kind == plan.reveal.kind
        and vote.terms == plan.terms
        and vote.space.fingerprint == space.fingerprint
        and all(vote.plan.get(name) == asked.get(name) for name in _SAME)
    )
    if not same:
        raise ParameterError(
            "the vote that was held is another one: its budget, delta, plan or candidates are not "
            "those of this division. Go on with the same, or begin anew in another folder."
        )
    if ledger is not None and all(entry.id != vote.entry for entry in ledger.entries()):
        raise ParameterError(
            f"the vote that was held is not counted in {ledger.path}: go on with its ledger"
        )

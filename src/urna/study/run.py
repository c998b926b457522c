"""A study from beginning to end: the vote, what follows, one budget, one folder."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from urna.average import ModelResult, Schema
from urna.average import model_card as average_card
from urna.combine import Combination, Frame, LocalSearch, Searches, combine
from urna.data import Samples
from urna.errors import ParameterError, RoundSpoiled, RoundUnfinished, UnknownName
from urna.files import check_folder, held_alone, write_whole
from urna.local import CachedObjective, Objective, Recipe, check_objective, losses_of_each
from urna.privacy import Budget, Ledger, PrivacyStatement, parts_of
from urna.privacy.accountant import GAUSSIAN
from urna.randomness import OsSecrets, ScriptedSecrets, SecretSource, staged_secrets
from urna.space import Space
from urna.study.federation import run_in_federation
from urna.study.file import Study
from urna.study.journal import LEDGER, Journal
from urna.study.keys import Follow
from urna.study.objectives import Chosen, choose_objective
from urna.study.sources import Electorate, gather
from urna.study.tune import VOTE_SHARE, tune_then_fit
from urna.study.tune_and_train import Division, divide, tune_and_train
from urna.tally import ClearSummation, EncryptedSummation, SecureSummation, Summation
from urna.train import RoundReport, Settings, TorchLearner, TrainResult, read_optimiser
from urna.train.card import model_card as train_card
from urna.train.checkpoint import write_tensors
from urna.vote import DecoderKind, Result, SearchProgress, read_again, search
from urna.vote.search import UNREAD

__all__ = [
    "FILES",
    "Hooks",
    "Outcome",
    "Prepared",
    "Stages",
    "division_of",
    "learner_of",
    "prepare",
    "run_stages",
    "run_study",
    "settings_of",
    "within",
]

FILES = ("vote.json", "result.json", "report.html", "README.md")
"""What a study writes beside its model, its ledger and its journal."""

_SUMMATIONS: Mapping[str, Callable[[], Summation]] = {
    "secure": SecureSummation,
    "encrypted": EncryptedSummation,
    "clear": ClearSummation,
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A study whose data are read and whose objective is there; nothing is spent yet."""

    study: Study
    electorate: Electorate
    chosen: Chosen | None
    """How candidates are judged; None where they are settings of an average."""
    space: Space | None

    @property
    def title(self) -> str:
        """What pages are called."""
        return self.study.title or f"{self.electorate.how}: {self.what}"

    @property
    def what(self) -> str:
        """What is voted on, in a few words."""
        return "one message, one model" if self.chosen is None else self.chosen.description

    @property
    def clients(self) -> list[Samples]:
        """Each client's data."""
        return self.electorate.clients

    def objective(self, cache: Path | None) -> Objective[Samples]:
        """Return how candidates are judged, with losses kept on disk where that is wanted."""
        if self.chosen is None:
            raise ParameterError("settings of an average are judged by themselves")
        enabled = self.study.objective.cache and cache is not None
        folder = cache or Path()
        return CachedObjective(self.chosen.objective, folder, enabled=enabled)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a study."""

    vote: Result
    follow: TrainResult | ModelResult | Combination | None
    privacy: PrivacyStatement
    """Of everything together."""
    files: tuple[Path, ...] = ()
    again: bool = False
    """Whether everything was found finished, and nothing was done."""

    @property
    def result(self) -> Result | TrainResult | ModelResult | Combination:
        """The last of it."""
        return self.vote if self.follow is None else self.follow


Done = tuple[Result, TrainResult | ModelResult | Combination | None, PrivacyStatement]
"""The vote, what followed, and what both promise together."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told what while a study runs."""

    progress: SearchProgress = lambda what, done, total: None
    say: Callable[[str], None] = lambda sentence: None
    page: Callable[[Path, Outcome, str], None] = lambda path, outcome, title: None
    """Writes the page about all stages."""


def prepare(study: Study) -> Prepared:
    """Read a study's data and find its objective. Nothing is computed and nothing is spent.

    Raises:
        ParameterError: Something is not there or does not fit; the message names the line.
    """
    with study.blaming("data.source"):
        electorate = gather(study.data, seed=study.seed, base=study.base)
    return prepare_with(study, electorate)


def prepare_with(study: Study, electorate: Electorate, *, own: Path | None = None) -> Prepared:
    """Find the objective of a study whose clients are known; see `prepare`."""
    follow = study.then.follow
    if follow is Follow.AVERAGE:
        if electorate.labels is None:
            raise study.error("then.what", "settings of an average are voted on for classes alone")
        return Prepared(study, electorate, None, study.space)
    with study.blaming("objective.model"):
        chosen = choose_objective(
            study.objective,
            electorate.dataset,
            base=own or study.base,
            train=follow is Follow.TRAIN,
        )
        if follow is Follow.TRAIN and chosen.factory is None:
            raise ParameterError(
                "training follows a vote on how a torch module is trained, and "
                f"{chosen.description} is none: name `linear`, `mlp`, `pooled` or what makes one"
            )
    space = study.space or chosen.space
    if space is None:
        raise study.error(
            "objective.model",
            f"{chosen.description} has no candidates of its own: name some under [space], such as "
            'C = { kind = "log", values = [0.01, 0.1, 1.0] }',
        )
    try:
        check_objective(chosen.objective, space)
    except UnknownName as error:
        raise study.error(f"space.{error.name}", str(error)) from error
    except ParameterError as error:
        raise study.error("space", str(error)) from error
    return Prepared(study, electorate, chosen, space)


def settings_of(study: Study) -> Settings:
    """Return how a study's model is trained."""
    then = study.then
    chosen = {"lr": then.server_lr}
    if then.optimiser == "fedavgm":
        chosen["momentum"] = then.momentum
    return Settings(
        optimiser=read_optimiser(then.optimiser, **chosen),
        clip=then.clip,
        tail=then.tail,
        seed=study.seed,
    )


def learner_of(prepared: Prepared) -> TorchLearner:
    """Return what is trained after the vote."""
    then, chosen = prepared.study.then, prepared.chosen
    if chosen is None or chosen.factory is None:
        raise ParameterError("there is nothing to train")
    recipe = Recipe(lr=then.lr, epochs=then.epochs, batch_size=then.batch_size)
    return TorchLearner(chosen.factory, recipe, 0.0, chosen.loss)


def division_of(prepared: Prepared, clients: int | None = None) -> Division | None:
    """Return how the budget is divided between the vote and what follows; None if nothing does."""
    study = prepared.study
    privacy, follow = study.privacy, study.then.follow
    if follow is Follow.NOTHING:
        return None
    share = privacy.vote_share
    if share == "auto" and follow is Follow.TRAIN:
        return divide(
            privacy.budget,
            clients=clients or len(prepared.clients),
            parameters=len(learner_of(prepared).first_weights(seed=study.seed)),
            rounds=study.then.rounds,
            settings=settings_of(study),
            candidates=len(prepared.space or ()),
            **privacy.options,
        )
    part = float(share) if share != "auto" else VOTE_SHARE if follow is Follow.AVERAGE else 0.5
    voting, rest = parts_of(privacy.budget, (part, 1 - part))
    return Division(part, voting, rest, ())


def run_study(
    study: Study, *, version: str, cache: Path | None = None, hooks: Hooks | None = None
) -> Outcome:
    """Run a study, or go on with one that was interrupted.

    Guarantee:
        Everything that is released is together (epsilon, delta)-DP for the study's budget under
        its relation, and is counted in the study's ledger before it happens, once, however often
        the run was killed. A result is on disk before it is shown.

    Assumes:
        No sum of an interrupted stage became public: it was in this process alone. Results are
        read from the folder.

    Args:
        study: The study.
        version: Of Urna, for the journal.
        cache: Where local losses are kept on this machine; None keeps none.
        hooks: Who is told what.

    Raises:
        ParameterError: The study cannot be run, the plan is hopeless, or the folder holds
            another study. Nothing was spent.
        BudgetExceeded: A ledger has no room. Nothing was released.
    """
    told = hooks or Hooks()
    check_folder(study.folder)
    with held_alone(study.folder, "the study"):
        journal = Journal.open(study, version)
        journal.check()
        if journal.finished and (found := _finished(journal)) is not None:
            return found
        if not study.engine.federation:
            return run_stages(prepare(study), journal, told, cache)
    # Not held any longer: the ServerApp that the federation starts holds the folder.
    run_in_federation(study, say=told.say)
    journal = Journal.open(study, version)
    journal.check()
    found = _finished(journal)
    if found is None:
        raise ParameterError(f"the study in {journal.folder} is not finished: run it again")
    _draw(found, study, told)
    return replace(found, files=_files(journal.folder), again=False)


def _draw(outcome: Outcome, study: Study, hooks: Hooks) -> None:
    """Draw the pages of a study whose server could not."""
    hooks.page(study.folder / "report.html", outcome, study.title or study.path.stem)


def run_stages(
    prepared: Prepared,
    journal: Journal,
    hooks: Hooks,
    cache: Path | None,
    over: "Callable[[Stages], Done] | None" = None,
) -> Outcome:
    """Hold the stages of a study that is open and held alone; see `run_study`.

    Args:
        prepared: The study.
        journal: Where its results are kept.
        hooks: Who is told what.
        cache: Where local losses are kept.
        over: Holds the stages among nodes that are there already.
    """
    journal.ledger = _ledger(prepared.study, journal.folder)
    stages = Stages(prepared, journal, hooks, cache)
    try:
        return stages.run(over)
    except (RoundSpoiled, RoundUnfinished) as failed:
        journal.fail(stages.now, failed)
        raise


def _ledger(study: Study, folder: Path) -> Ledger | None:
    """Return the ledger that releases are counted in; none for what has no guarantee."""
    privacy = study.privacy
    if privacy.scripted_secrets or study.vote.summation == "clear":
        return None
    if privacy.ledger:
        ledger = Ledger(study.base / privacy.ledger)
        with study.blaming("privacy.ledger"):
            ledger.check_relation(privacy.relation)
        return ledger
    subject = study.title or study.path.stem
    return Ledger.open(folder / LEDGER, privacy.budget, adjacency=privacy.relation, subject=subject)


def _finished(journal: Journal) -> Outcome | None:
    """Return what a finished study came to; None where its files are gone."""
    vote, last = journal.found("vote.json"), journal.found("result.json")
    if vote is None or last is None:
        return None
    readers: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
        "training": TrainResult.read,
        "model": ModelResult.read,
        "combination": Combination.read,
    }
    reader = readers.get(str(last.get("kind")))
    follow = None if reader is None else reader(last)
    privacy = PrivacyStatement.read(journal.values["privacy"])
    return Outcome(Result.read(vote), follow, privacy, _files(journal.folder), again=True)


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.iterdir() if path.is_file()))


class Stages:
    """The stages of a study, each held once."""

    def __init__(
        self, prepared: Prepared, journal: Journal, hooks: Hooks, cache: Path | None
    ) -> None:
        self.prepared, self.journal, self.hooks = prepared, journal, hooks
        self.study, self.cache = prepared.study, cache
        self.now = "vote"
        script = self.study.privacy.scripted_secrets
        self.secrets: SecretSource = ScriptedSecrets(script.encode()) if script else OsSecrets()
        self.summation = _SUMMATIONS[self.study.vote.summation]()
        self.decoder = DecoderKind(self.study.vote.decoder).build()

    def run(self, over: "Callable[[Stages], Done] | None" = None) -> Outcome:
        """Hold every stage that is not finished, and write everything."""
        study, journal = self.study, self.journal
        journal.begin("everything")
        if over is not None:
            vote, follow, privacy = over(self)
        elif study.engine.kind == "flower":
            vote, follow, privacy = _over_flower(self)
        else:
            vote, follow, privacy = {
                Follow.NOTHING: self._only_vote,
                Follow.TRAIN: self._train,
                Follow.AVERAGE: self._average,
                Follow.COMBINE: self._combine,
            }[study.then.follow]()
        last: Any = vote if follow is None else follow
        title = self.prepared.title
        journal.note(privacy=privacy.as_mapping())
        mapping = last.as_mapping()
        if follow is not None:
            mapping = {**mapping, "privacy": privacy.as_mapping()}
        entries = last.entries if isinstance(last, Combination) else (last.entry,)
        journal.keep("result.json", mapping, *entries)
        if isinstance(last, TrainResult | ModelResult | Combination):
            last = replace(last, privacy=privacy)
        outcome = Outcome(vote, None if follow is None else last, privacy)
        self.hooks.page(journal.folder / "report.html", outcome, title)
        journal.end("everything")
        journal.note(finished=True)
        return replace(outcome, files=_files(journal.folder))

    def held(self) -> Result | None:
        """Return the vote that was held before, its winner read; None where none was."""
        mapping = self.journal.found("vote.json")
        if mapping is None:
            return None
        vote = Result.read(mapping)
        if vote.decoder == UNREAD:
            vote = read_again(vote, self.decoder)
            self.keep_vote(vote)
        return vote

    def keep_vote(self, vote: Result) -> None:
        """Write the vote's result, as far as it is known."""
        self.journal.keep("vote.json", vote.as_mapping(), vote.entry)

    @property
    def voting(self) -> dict[str, Any]:
        """How a vote is held, for every way to hold one."""
        vote = self.study.vote
        return {
            "ballot": vote.ballot or None,
            "votes": vote.votes or None,
            "decoder": self.decoder,
        }

    def _only_vote(self) -> tuple[Result, None, PrivacyStatement]:
        vote = self._vote(self.study.privacy.budget, self.secrets)
        return vote, None, vote.privacy

    def _vote(self, budget: Budget, secrets: SecretSource) -> Result:
        """Hold the vote, unless it was held before."""
        before = self.held()
        if before is not None:
            return before
        prepared, study, journal = self.prepared, self.study, self.journal
        journal.begin("vote")
        found = search(
            _there(prepared.space),
            prepared.objective(self.cache),
            prepared.clients,
            budget=budget,
            summation=self.summation,
            ledger=journal.ledger,
            secrets=secrets,
            seed=study.seed,
            anyway=study.vote.anyway,
            entry=journal.entry("vote"),
            progress=self.hooks.progress,
            keep=self.keep_vote,
            **self.voting,
            **study.privacy.options,
        )
        self.keep_vote(found)
        journal.end("vote")
        return found

    def _train(self) -> tuple[Result, TrainResult, PrivacyStatement]:
        prepared, study, journal = self.prepared, self.study, self.journal
        learner, electorate = learner_of(prepared), prepared.electorate
        division = division_of(prepared)
        if division is None:
            raise ParameterError("nothing follows the vote")
        before, report = self.held(), self.hooks.progress
        if before is not None:
            self.now = "training"

        def score(weights: Any) -> tuple[float, float]:  # noqa: ANN401 - a vector
            loss, right = learner.scores(weights, [electorate.dataset.test])[0]
            return float(loss), float(right)

        def progress(done: RoundReport) -> None:
            report("training", done.number, study.then.rounds)

        def keep(vote: Result) -> None:
            self.keep_vote(vote)
            self.now = "training" if vote.decoder != UNREAD else "vote"

        journal.begin("train")
        done = tune_and_train(
            learner,
            prepared.clients,
            budget=study.privacy.budget,
            rounds=study.then.rounds,
            settings=settings_of(study),
            space=prepared.space,
            objective=prepared.objective(self.cache),
            division=division,
            vote=before,
            entry=journal.entry("vote"),
            score=score if electorate.tested else None,
            summation=self.summation,
            ledger=journal.ledger,
            secrets=self.secrets,
            folder=journal.folder / "training",
            about={"study": study.fingerprint},
            anyway=study.then.anyway,
            announce=self.hooks.say,
            keep=keep,
            progress=progress,
            voting_progress=report,
            **self.voting,
            **study.privacy.options,
        )
        journal.end("train")
        result = replace(done.training, privacy=done.privacy)
        self.keep_trained(learner, result)
        journal.note(division=done.division.as_mapping())
        return done.vote, result, done.privacy

    def keep_trained(self, learner: TorchLearner, result: TrainResult) -> None:
        """Write a trained model and its card."""
        folder = self.journal.folder
        said = {
            "privacy": result.privacy.as_mapping(),
            "weights": result.as_mapping()["weights_sha256"],
        }
        write_tensors(folder / "model.safetensors", learner.tensors(result.weights), said)
        card = train_card(result, title=self.prepared.title, data=self.prepared.electorate.how)
        write_whole(folder / "README.md", card)

    def _average(self) -> tuple[Result, ModelResult, PrivacyStatement]:
        prepared, study, journal = self.prepared, self.study, self.journal
        electorate, division = prepared.electorate, division_of(prepared)
        labels = electorate.labels
        if division is None or labels is None:
            raise ParameterError("nothing follows the vote")
        found = journal.found("model.json")
        before = self.held()
        if found is not None and before is not None:
            model = ModelResult.read(found)
            return before, self._with_model(model), model.privacy

        def keep(model: ModelResult) -> None:
            journal.keep("model.json", model.as_mapping(), model.entry)

        def between(vote: Result) -> None:
            self.keep_vote(vote)
            self.now = "average" if vote.decoder != UNREAD else "vote"

        journal.begin("average")
        done = tune_then_fit(
            prepared.clients,
            Schema(electorate.clients[0].features.shape[1], tuple(range(len(labels)))),
            budget=study.privacy.budget,
            learner=study.then.learner,
            space=prepared.space,
            share=division.part,
            summation=self.summation,
            ledger=journal.ledger,
            secrets=self.secrets,
            seed=study.seed,
            anyway=study.vote.anyway,
            decoder=self.decoder,
            vote=before,
            entries=(journal.entry("vote"), journal.entry("then")),
            progress=self.hooks.progress,
            between=between,
            keep=keep,
            **study.privacy.options,
        )
        keep(done.model)
        journal.end("average")
        return done.vote, self._with_model(done.model), done.model.privacy

    def _with_model(self, model: ModelResult) -> ModelResult:
        """Measure a model on public rows, where there are any, and write it."""
        test = self.prepared.electorate.dataset.test
        if len(test):
            score = model.score(test.features, np.asarray(test.targets, dtype=np.float64))
            model = replace(model, measured={"accuracy": score} if math.isfinite(score) else {})
        model.save(self.journal.folder / "model.npz")
        card = average_card(model, name=self.prepared.title)
        write_whole(self.journal.folder / "README.md", card)
        return model

    def _combine(self) -> tuple[Result, Combination, PrivacyStatement]:
        """Combine clients' own best settings, under what the vote leaves."""
        prepared, study, journal = self.prepared, self.study, self.journal
        division, space = division_of(prepared), _there(prepared.space)
        if division is None:
            raise ParameterError("nothing follows the vote")
        frame = Frame.of(space)  # refuses axes without numbers before anything is spent
        of_vote, of_rest = staged_secrets(self.secrets, b"vote", b"combine")
        vote = self._vote(division.vote, of_vote)
        self.now = "combination"
        found = journal.found("combination.json")
        if found is not None:
            done = Combination.read(found)
            return vote, done, within(study.privacy.budget, vote, done.privacy, "the combination")
        journal.begin("combine")
        rows = np.array([[float(value) for value in one.values()] for one in space])
        losses = losses_of_each(
            prepared.objective(self.cache),
            prepared.clients,
            space,
            seeds=[study.seed] * len(prepared.clients),
            progress=lambda done, total: self.hooks.progress("own searches", done, total),
        )
        searches = Searches(frame, tuple(LocalSearch(rows, -np.asarray(one)) for one in losses))

        def keep(done: Combination) -> None:
            journal.keep("combination.json", done.as_mapping(), *done.entries)

        done = combine(
            searches,
            study.then.strategy,
            guarantee="dp",
            budget=division.train,
            ledger=journal.ledger,
            secrets=of_rest,
            entry=journal.entry("then"),
            keep=keep,
            **study.privacy.options,
        )
        keep(done)
        journal.end("combine")
        return vote, done, within(study.privacy.budget, vote, done.privacy, "the combination")


def within(budget: Budget, vote: Result, follow: PrivacyStatement, what: str) -> PrivacyStatement:
    """Return what a vote and what follows it promise together.

    Each keeps within its part of the budget, and squares of mu add up (`parts_of`).
    """
    if not (vote.privacy.private and follow.private):
        return replace(follow, epsilon=math.inf, accountant="none")
    caveat = f"Epsilon is that of a vote on hyperparameters and of {what} together"
    return replace(
        follow,
        epsilon=budget.epsilon,
        delta=budget.delta,
        accountant=GAUSSIAN,
        caveats=(caveat, *follow.caveats),
    )


def _over_flower(stages: Stages) -> Done:
    """Hold the stages in Flower's simulation."""
    # Read when Flower and Ray are first imported, so not at the top of a file.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    try:
        from urna.study.over_flower import simulate_study  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise stages.study.error(
            "engine.kind", "the Flower engine needs Flower: pip install 'urna[flower]'"
        ) from error
    return simulate_study(stages)


def _there(space: Space | None) -> Space:
    if space is None:
        raise ParameterError("there are no candidates")
    return space

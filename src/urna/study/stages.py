"""The stages of a study, each held once and kept before it is shown."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.files import write_whole
from urna.local import losses_of_each
from urna.privacy import Budget, PrivacyStatement
from urna.privacy.cost import DECLARED, GAUSSIAN
from urna.progress import Steps
from urna.randomness import SecretSource, secrets_of, staged_secrets
from urna.study.alone import average_alone, train_alone
from urna.study.averages import named_clients, named_targets, said_of_learner, schema_of
from urna.study.held import Held, said_of
from urna.study.journal import Journal
from urna.study.prepare import Prepared, division_of, learner_of, reveal_of, settings_of
from urna.study.recorded import combine_recorded
from urna.study.rehearsal import rehearse
from urna.study.schema import Follow
from urna.study.tune import tune_then_fit
from urna.study.tune_and_train import tune_and_train
from urna.systems.average import ModelResult
from urna.systems.average import model_card as average_card
from urna.systems.combine import Combination, Frame, LocalSearch, Searches, combine
from urna.systems.train import RoundReport, TorchLearner, TrainResult
from urna.systems.train.checkpoint import read_tensors, write_model
from urna.systems.train.pipelined import PipelinedSummation
from urna.systems.train.result import model_card as train_card
from urna.systems.vote import DecoderKind, VoteResult, VoteSettings, read_again, search
from urna.systems.vote.kernels import describe_structure
from urna.systems.vote.result import UNREAD
from urna.tally import ClearSummation, EncryptedSummation, Run, SecureAggregation, Summation

__all__ = ["Done", "Hooks", "Stages", "StudyOutcome", "files_in", "within"]

_MODEL = "model.safetensors"
_TRAINING = "training"  # the folder of a training's rounds
_SUMMATIONS: Mapping[str, Callable[[], Summation]] = {
    "secure": SecureAggregation,
    "encrypted": EncryptedSummation,
    "pipelined": PipelinedSummation,
    "clear": ClearSummation,
}


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What came of a study."""

    vote: VoteResult | None
    follow: TrainResult | ModelResult | Combination | None
    privacy: PrivacyStatement
    """Of everything together."""
    files: tuple[Path, ...] = ()
    again: bool = False
    """Whether everything was found finished, and nothing was done."""
    baseline: float | None = None
    """Accuracy of the best constant answer on public test rows, where there are any."""

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the model on public test rows, where there are any."""
        if isinstance(self.follow, ModelResult):
            return self.follow.measured.get("accuracy")
        return self.follow.accuracy if isinstance(self.follow, TrainResult) else None

    @property
    def result(self) -> VoteResult | TrainResult | ModelResult | Combination:
        """The last of it."""
        last = self.vote if self.follow is None else self.follow
        if last is None:
            raise ParameterError("nothing was held")
        return last


Done = tuple[VoteResult | None, TrainResult | ModelResult | Combination | None, PrivacyStatement]
"""The vote, where there was one, what followed, and what both promise together."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told what while a study runs."""

    progress: Steps = lambda what, done, total: None
    say: Callable[[str], None] = lambda sentence: None
    page: Callable[[Path, StudyOutcome, str], None] = lambda path, outcome, title: None
    """Writes the page about all stages."""
    about: Callable[[str], Mapping[str, Any]] = lambda title: {}
    """Returns what is kept beside the last result, given its title: where it comes from."""


def files_in(folder: Path) -> tuple[Path, ...]:
    """Return what a study has written, without its folders."""
    return tuple(sorted(path for path in folder.iterdir() if path.is_file()))


class Stages:
    """The stages of a study, each held once."""

    def __init__(
        self, prepared: Prepared, journal: Journal, hooks: Hooks, cache: Path | None
    ) -> None:
        self.prepared, self.journal, self.hooks = prepared, journal, hooks
        self.study, self.cache = prepared.study, cache
        self.now = "vote"
        baseline = prepared.client_data.baseline
        self.told: dict[str, Any] = {} if baseline is None else {"baseline": baseline}
        """What the last result's file says beside it."""
        script = self.study.privacy.scripted_secrets
        self.secrets = secrets_of(script or None)
        self.summation = _SUMMATIONS[self.study.privacy.summation]()
        self.decoder = DecoderKind(self.study.vote.decoder).build()
        self.reveal = reveal_of(self.study)

    def run(self, over: "Callable[[Stages], Done] | None" = None) -> StudyOutcome:
        """Hold every stage that is not finished, and write everything."""
        study, journal = self.study, self.journal
        if over is not None:
            vote, follow, privacy = over(self)
        elif not study.votes:
            done = self._alone()
            vote, follow, privacy = None, done, done.privacy
        else:
            vote, follow, privacy = {
                Follow.NOTHING: self._only_vote,
                Follow.TRAIN: self._train,
                Follow.AVERAGE: self._average,
                Follow.COMBINE: self._combine,
            }[study.follow]()
        last: Any = vote if follow is None else follow
        title = self.prepared.title
        journal.note(privacy=privacy.as_mapping())
        mapping = last.as_mapping()
        if follow is not None:
            mapping = {**mapping, "privacy": privacy.as_mapping()}
        entries = last.entries if isinstance(last, Combination) else (last.entry,)
        journal.keep("result.json", {**mapping, **self.told, **self.hooks.about(title)}, *entries)
        if isinstance(last, TrainResult | ModelResult | Combination):
            last = replace(last, privacy=privacy)
        outcome = StudyOutcome(
            vote, None if follow is None else last, privacy, baseline=self.told.get("baseline")
        )
        right, baseline = outcome.accuracy, outcome.baseline
        if right is not None and baseline is not None and right <= baseline < 1:
            self.hooks.say(
                "the model is no better than a constant answer, which is right in "
                f"{100 * baseline:.1f} % of the test rows: do not use it"
            )
        self.hooks.page(journal.folder / "report.html", outcome, title)
        journal.note(finished=True)
        return replace(outcome, files=files_in(journal.folder))

    def held(self) -> VoteResult | None:
        """Return the vote that was held before, its winner read; None where none was."""
        mapping = self.journal.found("vote.json")
        if mapping is None:
            return None
        vote = VoteResult.read(mapping)
        if vote.decoder == UNREAD:
            vote = read_again(vote, VoteSettings(decoder=self.decoder))
            self.keep_vote(vote)
        return vote

    def keep_vote(self, vote: VoteResult) -> None:
        """Write the vote's result, as far as it is known."""
        self.journal.keep("vote.json", vote.as_mapping(), vote.entry)

    def _held(self, before: VoteResult | None, what: str) -> Held:
        """Return the vote that something follows; kept, and once its winner is known it does."""

        def keep(vote: VoteResult) -> None:
            self.keep_vote(vote)
            self.now = "vote" if vote.decoder == UNREAD else what

        entry = self.journal.entry("vote")
        return Held(vote=before, entry=entry, keep=keep, progress=self.hooks.progress)

    @property
    def voting(self) -> VoteSettings:
        """How a vote is held, for every way to hold one."""
        vote = self.study.vote
        return VoteSettings(
            reveal=self.reveal,
            ballot=vote.ballot or None,
            votes=vote.votes or None,
            decoder=None if self.reveal.winner else self.decoder,
        )

    def _alone(self) -> TrainResult | ModelResult | Combination:
        """Hold the one stage of a study that votes on nothing."""
        prepared, journal = self.prepared, self.journal
        run = Run(ledger=journal.ledger, secrets=self.secrets, progress=self.hooks.progress)
        if self.study.follow is Follow.TRAIN:
            self.now, learner = "training", learner_of(prepared)
            result = train_alone(prepared, journal, learner, self.summation, run)
            self.keep_trained(learner, result)
            return result
        if self.study.follow is Follow.AVERAGE:
            self.now = "average"
            return self.with_model(average_alone(prepared, journal, self.summation, run))
        self.now = "combination"
        return combine_recorded(self.study, journal, replace(run, progress=None))

    def _only_vote(self) -> tuple[VoteResult, None, PrivacyStatement]:
        vote = self._vote(self.study.privacy.budget, self.secrets)
        return vote, None, vote.privacy

    def _vote(self, budget: Budget, secrets: SecretSource) -> VoteResult:
        """Hold the vote, unless it was held before."""
        before = self.held()
        if before is not None:
            return before
        prepared, study, journal = self.prepared, self.study, self.journal
        reads = not self.reveal.winner and study.vote.decoder is DecoderKind.POSTERIOR
        if reads and (missing := describe_structure(prepared.candidates)[1]):
            self.hooks.say(f"the decoder leaves out {missing}")
        how = self.voting
        if study.vote.rehearse:
            public = rehearse(prepared, self.cache, self.hooks.progress)
            how = replace(how, rehearsal=public)
        found: VoteResult = search(
            prepared.candidates,
            prepared.objective(self.cache),
            prepared.clients,
            budget=budget,
            settings=how,
            summation=None if self.reveal.winner else self.summation,
            seed=study.seed,
            run=replace(self._run(secrets), entry=journal.entry("vote")),
            **study.privacy.options,
        )
        self.keep_vote(found)
        return found

    def _run(self, secrets: SecretSource) -> Run:
        """Return where a vote is counted, kept and shown."""
        return Run(
            ledger=self.journal.ledger,
            secrets=secrets,
            keep=self.keep_vote,
            progress=self.hooks.progress,
            force=self.study.vote.force,
        )

    def _train(self) -> tuple[VoteResult, TrainResult, PrivacyStatement]:
        prepared, study, journal = self.prepared, self.study, self.journal
        learner, client_data = learner_of(prepared), prepared.client_data
        division = division_of(prepared)
        if division is None:
            raise ParameterError("nothing follows the vote")
        before, report = self.held(), self.hooks.progress
        if before is not None:
            self.now = "training"

        self.journal.has(_TRAINING)  # its rounds may have been seen

        def progress(done: RoundReport) -> None:
            journal.wrote(_TRAINING)
            report("training", done.number, study.train.rounds)

        done = tune_and_train(
            learner,
            prepared.clients,
            budget=study.privacy.budget,
            rounds=study.train.rounds,
            settings=settings_of(study),
            space=prepared.space,
            objective=prepared.objective(self.cache),
            division=division,
            voting=self.voting,
            held=self._held(before, "training"),
            score=learner.scorer(client_data.dataset.test) if client_data.tested else None,
            summation=self.summation,
            folder=journal.folder / _TRAINING,
            about={"study": study.fingerprint},
            announce=self.hooks.say,
            run=Run(
                ledger=journal.ledger,
                secrets=self.secrets,
                progress=progress,
                force=study.train.force,
            ),
            **study.privacy.options,
        )
        result = replace(done.training, privacy=done.privacy)
        self.keep_trained(learner, result)
        journal.note(division=done.division.as_mapping())
        self.told["tuned"] = done.as_mapping()
        return done.vote, result, done.privacy

    def trained(self) -> TrainResult | None:
        """Return the training that was held before, without its weights; None where none was."""
        if not self.journal.has(_MODEL):
            return None
        _, said = read_tensors(self.journal.folder / _MODEL)
        return TrainResult.read(said["result"])

    def keep_trained(self, learner: TorchLearner, result: TrainResult) -> None:
        """Write a trained model and its card."""
        folder = self.journal.folder
        if np.isfinite(result.weights).all():  # else it was read from there
            write_model(folder / _MODEL, learner, result)
            self.journal.wrote(_MODEL)
        card = train_card(result, title=self.prepared.title, data=self.prepared.client_data.how)
        write_whole(folder / "MODEL_CARD.md", card)

    def _average(self) -> tuple[VoteResult, ModelResult, PrivacyStatement]:
        prepared, study, journal = self.prepared, self.study, self.journal
        division = division_of(prepared)
        if division is None:
            raise ParameterError("nothing follows the vote")
        found = journal.found("model.json")
        before = self.held()
        if found is not None and before is not None:
            model = ModelResult.read(found)
            return before, self.with_model(model), model.privacy

        def keep(model: ModelResult) -> None:
            journal.keep("model.json", model.as_mapping(), model.entry)

        done = tune_then_fit(
            named_clients(prepared),
            schema_of(prepared),
            budget=study.privacy.budget,
            learner=study.average.voted_on,
            group=study.privacy.group,
            settings=said_of_learner(study.average),
            space=prepared.space,
            share=division.part,
            summation=self.summation,
            seed=study.seed,
            voting=replace(self.voting, ballot=None, votes=None),
            held=self._held(before, "average"),
            run=Run(
                ledger=journal.ledger,
                entry=journal.entry("then"),
                secrets=self.secrets,
                keep=keep,
                progress=self.hooks.progress,
                force=study.vote.force,
            ),
            **study.privacy.options,
        )
        keep(done.model)
        return done.vote, self.with_model(done.model), done.model.privacy

    def with_model(self, model: ModelResult) -> ModelResult:
        """Measure a model on public rows, where there are any, and write it."""
        client_data = self.prepared.client_data
        test = client_data.dataset.test
        if len(test):
            kind = "r2" if model.schema.classes is None else "accuracy"
            coded = replace(model, columns=())
            with np.errstate(all="ignore"):
                score = coded.score(test.features, named_targets(client_data, test))
            measured = {kind: score} if math.isfinite(score) else {}
            if client_data.baseline is not None:
                measured["baseline"] = client_data.baseline
            model = replace(model, measured=measured)
        model = replace(model, columns=client_data.columns, coding=client_data.coding)
        model.save(self.journal.folder / "model.npz")
        card = average_card(model, name=self.prepared.title)
        write_whole(self.journal.folder / "MODEL_CARD.md", card)
        return model

    def _combine(self) -> tuple[VoteResult, Combination, PrivacyStatement]:
        """Combine clients' own best settings, under what the vote leaves."""
        prepared, study, journal = self.prepared, self.study, self.journal
        division, space = division_of(prepared), prepared.candidates
        if division is None:
            raise ParameterError("nothing follows the vote")
        frame = Frame.of(space, log=True)  # refuses axes without numbers before anything is spent
        of_vote, of_rest = staged_secrets(self.secrets, b"vote", b"combine")
        vote = self._vote(division.vote, of_vote)
        self.now = "combination"
        found = journal.found("combination.json")
        if found is not None:
            done = Combination.read(found)
            return vote, done, within(study.privacy.budget, vote, done.privacy, "the combination")
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
            study.combine.strategy,
            guarantee="dp",
            budget=division.train,
            run=Run(ledger=journal.ledger, secrets=of_rest, entry=journal.entry("then"), keep=keep),
            **study.privacy.options,
        )
        keep(done)
        return vote, done, within(study.privacy.budget, vote, done.privacy, "the combination")


def within(
    budget: Budget, vote: VoteResult, follow: PrivacyStatement, what: str
) -> PrivacyStatement:
    """Return what a vote and what follows it promise together.

    Each keeps within its part of the budget (`Reveal.divide`): squares of mu add up, and the
    epsilon of a winner that came first adds up with that of the rest.
    """
    if not (vote.privacy.private and follow.private):
        return replace(follow, epsilon=math.inf, accountant="none")
    caveat = f"Epsilon is that of a vote on hyperparameters and of {what} together"
    pure = vote.revealed.counts is None
    return replace(
        follow,
        epsilon=budget.epsilon,
        delta=budget.delta,
        accountant=f"{GAUSSIAN} + {DECLARED}" if pure else GAUSSIAN,
        caveats=(caveat, *said_of(vote), *follow.caveats),
    )

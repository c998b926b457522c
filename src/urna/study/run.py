"""A study from beginning to end: the vote, what follows, one budget, one folder."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from urna.errors import InvalidSum, ParameterError, RoundUnfinished
from urna.files import check_folder, held_alone, write_whole
from urna.privacy import Ledger, PrivacyStatement
from urna.progress import Steps
from urna.randomness import secrets_of
from urna.study.division import check_likely
from urna.study.file import Study
from urna.study.journal import LEDGER, Journal
from urna.study.prepare import (
    Prepared,
    among_of,
    division_of,
    learner_of,
    named_targets,
    reveal_of,
    stage_of,
)
from urna.study.recorded import combine_recorded
from urna.study.rehearsal import rehearse
from urna.study.schema import Follow
from urna.study.stages import Among, AverageStage, CombineStage, TrainStage, VoteStage
from urna.study.tune import tune
from urna.systems.average import ModelResult
from urna.systems.average import model_card as average_card
from urna.systems.combine import Combination
from urna.systems.train import RoundReport, TrainResult
from urna.systems.train.checkpoint import write_model
from urna.systems.train.result import model_card as train_card
from urna.systems.vote import (
    DecoderKind,
    VoteResult,
    VoteSettings,
    plan_vote,
    read_again,
    search,
)
from urna.systems.vote.kernels import describe_structure
from urna.systems.vote.result import UNREAD
from urna.tally import Run

__all__ = ["Hooks", "StudyOutcome", "StudyRun", "files_in", "opened", "outcome_of", "run_stages"]

MODEL, CARD = "model.safetensors", "MODEL_CARD.md"
TRAINING = "training"  # the folder of a training's rounds
_NAMES = {Follow.TRAIN: "training", Follow.AVERAGE: "average", Follow.COMBINE: "combination"}

Result = TrainResult | ModelResult | Combination


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What came of a study."""

    vote: VoteResult | None
    follow: Result | None
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
    def result(self) -> VoteResult | Result:
        """The last of it."""
        last = self.vote if self.follow is None else self.follow
        if last is None:
            raise ParameterError("nothing was held")
        return last


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told what while a study runs."""

    progress: Steps = lambda what, done, total: None
    say: Callable[[str], None] = lambda sentence: None
    page: Callable[[Path, StudyOutcome, str], None] = lambda path, outcome, title: None
    """Writes the page about all stages."""
    about: Callable[[str], Mapping[str, Any]] = lambda title: {}
    """Returns what is kept beside the last result, given its title: where it comes from."""


def run_stages(study: Study, version: str, make: "Callable[[Journal], StudyRun]") -> StudyOutcome:
    """Hold the stages of a study alone in its folder, unless all are finished; see `run_study`."""
    with opened(study, version) as journal:
        if (found := outcome_of(journal)) is not None:
            return found
        made = make(journal)
        journal.ledger = _ledger(study)
        try:
            return made.run()
        except (InvalidSum, RoundUnfinished) as failed:
            journal.fail(made.now, failed)
            raise


def check_vote(prepared: Prepared, among: Among) -> None:
    """Refuse a vote that nothing follows and that will probably be inconclusive.

    A rehearsal may decide what counts cannot; what follows a vote has weighed how little it finds.

    Raises:
        Inconclusive: It will be, and nobody forces it. Nothing was spent.
    """
    study = prepared.study
    if study.follow is Follow.NOTHING and not (study.vote.force or study.vote.rehearse):
        terms = among.terms(study.privacy.budget)
        how = VoteSettings(
            reveal=reveal_of(study), ballot=study.vote.ballot, votes=study.vote.votes or None
        )
        planned = plan_vote(terms, prepared.candidates, how)
        planned.check_hopeful()
        check_likely(planned, prepared.fewest)


@contextmanager
def opened(study: Study, version: str) -> Iterator[Journal]:
    """Give the journal of a study that may go on, its folder held alone."""
    check_folder(study.folder)
    with held_alone(study.folder, "the study"):
        journal = Journal.open(study, version)
        journal.check()
        yield journal


def _ledger(study: Study) -> Ledger | None:
    """Return the ledger that releases are counted in; none for what has no guarantee."""
    privacy = study.privacy
    if privacy.ledger:
        ledger = Ledger(study.base / privacy.ledger)
        with study.blaming("privacy.ledger"):
            ledger.check_relation(privacy.relation)
        return ledger
    exact = not study.votes and study.follow is Follow.COMBINE
    exact = exact and not study.combine.guarantee.private
    if privacy.scripted_secrets or privacy.summation == "clear" or exact:
        return None
    return Ledger.open(
        study.folder / LEDGER,
        privacy.budget,
        adjacency=privacy.relation,
        subject=study.title or study.path.stem,
    )


def files_in(folder: Path) -> tuple[Path, ...]:
    """Return what a study has written, without its folders."""
    return tuple(sorted(path for path in folder.iterdir() if path.is_file()))


def outcome_of(journal: Journal) -> StudyOutcome | None:
    """Return what a finished study came to; None where it is not finished."""
    if not journal.finished:
        return None
    vote, last = journal.found("vote.json"), journal.found("result.json")
    if last is None:
        return None
    readers: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
        "training": TrainResult.read,
        "model": ModelResult.read,
        "combination": Combination.read,
    }
    reader = readers.get(str(last.get("kind")))
    return StudyOutcome(
        None if vote is None else VoteResult.read(vote),
        None if reader is None else reader(last),
        PrivacyStatement.read(journal.values["privacy"]),
        files_in(journal.folder),
        again=True,
        baseline=last.get("baseline"),
    )


class StudyRun:
    """The stages of a study, each held once and kept before it is shown; all in this process."""

    def __init__(
        self, prepared: Prepared, journal: Journal, hooks: Hooks, cache: Path | None = None
    ) -> None:
        self.prepared, self.journal, self.hooks = prepared, journal, hooks
        self.study, self.cache = prepared.study, cache
        self.now = "vote"
        """The stage that is held."""
        self.beside: dict[str, Any] = {}
        """What the last result's file says beside it."""
        if (baseline := prepared.client_data.baseline) is not None:
            self.beside["baseline"] = baseline

    def run(self) -> StudyOutcome:
        """Hold every stage that is not finished, and write everything."""
        journal, title = self.journal, self.prepared.title
        vote, follow, privacy = self.hold()
        journal.note(privacy=privacy.as_mapping())
        if follow is not None:
            follow = replace(follow, privacy=privacy)
        outcome = StudyOutcome(vote, follow, privacy, baseline=self.beside.get("baseline"))
        last = outcome.result
        entries = last.entries if isinstance(last, Combination) else (last.entry,)
        said = {**last.as_mapping(), **self.beside, **self.hooks.about(title)}
        journal.keep("result.json", said, *entries)
        right, baseline = outcome.accuracy, outcome.baseline
        if right is not None and baseline is not None and right <= baseline < 1:
            self.hooks.say(
                "the model is no better than a constant answer, which is right in "
                f"{100 * baseline:.1f} % of the test rows: do not use it"
            )
        self.hooks.page(journal.folder / "report.html", outcome, title)
        journal.note(finished=True)
        return replace(outcome, files=files_in(journal.folder))

    def hold(self) -> tuple[VoteResult | None, Result | None, PrivacyStatement]:
        """Hold the vote, where there is one, and what follows; say what both promise together."""
        study, journal, privacy = self.study, self.journal, self.study.privacy
        if study.follow is Follow.COMBINE and not study.votes:
            self.now = "combination"
            counted = Run(
                ledger=journal.ledger, secrets=secrets_of(privacy.scripted_secrets or None)
            )
            combined = combine_recorded(study, journal, counted)
            return None, combined, combined.privacy
        among, follow = self.among(), self.follower()
        if follow is None:
            vote = self.held()
            if vote is None:
                check_vote(self.prepared, among)
                vote = self.vote(among)
            return vote, None, vote.privacy
        what = _NAMES[study.follow]
        if not study.votes:
            self.now = what
            result = follow.before
            if result is None:
                result = follow.run({}, privacy.budget, among, self.counted())
            return None, self.written(result), result.privacy
        done = tune(
            self.vote_stage(what),
            follow,
            among.clients,
            budget=privacy.budget,
            division=division_of(self.prepared, among),
            summation=among.summation,
            say=self.hooks.say,
            run=self.counted(),
            **among.options,
        )
        if study.follow is Follow.TRAIN:
            journal.note(division=done.division.as_mapping())
            self.beside["tuned"] = done.as_mapping()
        return done.vote, self.written(replace(done.result, privacy=done.privacy)), done.privacy

    def among(self) -> Among:
        """Return who takes part, and how contributions are added up."""
        return among_of(self.prepared)

    def vote(self, among: Among) -> VoteResult:
        """Hold a vote that nothing follows."""
        prepared, study, stage = self.prepared, self.study, self.vote_stage("vote")
        how, winner = stage.settings, stage.settings.reveal.winner
        reads = not winner and study.vote.decoder is DecoderKind.POSTERIOR
        if reads and (missing := describe_structure(prepared.candidates)[1]):
            self.hooks.say(f"the decoder leaves out {missing}")
        if study.vote.rehearse:
            how = replace(how, rehearsal=rehearse(prepared, self.cache, self.hooks.progress))
        found: VoteResult = search(
            prepared.candidates,
            prepared.objective(self.cache),
            among.clients,
            budget=study.privacy.budget,
            settings=how,
            summation=None if winner else among.summation,
            seed=study.seed,
            run=replace(self.counted("vote"), keep=self.keep_vote, force=stage.force),
            **among.options,
        )
        self.keep_vote(found)
        return found

    def held(self) -> VoteResult | None:
        """Return the vote that was held before, its winner read; None where none was."""
        mapping = self.journal.found("vote.json")
        if mapping is None:
            return None
        vote = VoteResult.read(mapping)
        if vote.decoder == UNREAD:
            decoder = DecoderKind(self.study.vote.decoder).build()
            vote = read_again(vote, VoteSettings(decoder=decoder))
            self.keep_vote(vote)
        return vote

    def keep_vote(self, vote: VoteResult) -> None:
        """Write the vote's result, as far as it is known."""
        self.journal.keep("vote.json", vote.as_mapping(), vote.entry)

    def vote_stage(
        self,
        what: str,
        kind: type[VoteStage] = VoteStage,
        **more: Any,  # noqa: ANN401 - fields of that kind
    ) -> VoteStage:
        """Return the vote; once its winner is known, what follows is at work."""
        study, said, reveal = self.study, self.study.vote, reveal_of(self.study)
        before = self.held()

        def keep(vote: VoteResult) -> None:
            self.keep_vote(vote)
            self.now = "vote" if vote.decoder == UNREAD else what

        if before is not None:
            self.now = what
        own = self.prepared.chosen is not None
        usual: dict[str, Any] = {
            "space": self.prepared.space,
            "objective": self.prepared.objective(self.cache) if own else None,
            "settings": VoteSettings(
                reveal=reveal,
                ballot=said.ballot or None,
                votes=said.votes or None,
                decoder=None if reveal.winner else DecoderKind(said.decoder).build(),
            ),
            "seed": study.seed,
            "before": before,
            "entry": self.journal.entry("vote"),
            "keep": keep,
            "progress": self.hooks.progress,
            "force": said.force,
        }
        return kind(**usual | more)

    def follower(self) -> TrainStage | AverageStage | CombineStage | None:
        """Return what follows the vote, or stands alone, with what was done of it."""
        journal, stage = self.journal, stage_of(self.prepared, self.cache)
        if isinstance(stage, TrainStage):
            journal.has(TRAINING)  # its rounds may have been seen
            return replace(stage, folder=journal.folder / TRAINING)
        if isinstance(stage, AverageStage) and (found := journal.found("model.json")):
            return replace(stage, before=ModelResult.read(found))
        if isinstance(stage, CombineStage) and (found := journal.found("combination.json")):
            return replace(stage, before=Combination.read(found))
        return stage

    def counted(self, stage: str = "then") -> Run:
        """Return where a stage is counted, kept and shown; rounds of training keep themselves."""
        study, journal, report = self.study, self.journal, self.hooks.progress
        run = Run(
            ledger=journal.ledger,
            entry=journal.entry(stage),
            secrets=secrets_of(study.privacy.scripted_secrets or None),
            progress=report,
        )
        if stage == "vote":
            return run
        if study.follow is Follow.TRAIN:

            def rounds(done: RoundReport) -> None:
                journal.wrote(TRAINING)
                report("training", done.number, study.train.rounds)

            return replace(run, entry=None, progress=rounds, force=study.train.force)

        def keep(made: ModelResult | Combination) -> None:
            if isinstance(made, ModelResult):
                journal.keep("model.json", made.as_mapping(), made.entry)
            else:
                journal.keep("combination.json", made.as_mapping(), *made.entries)

        return replace(run, keep=keep)

    def written(self, result: Result) -> Result:
        """Write a model and its card, measured on public rows where there are any."""
        folder, title, data = self.journal.folder, self.prepared.title, self.prepared.client_data
        played = not self.prepared.study.engine.federation
        if isinstance(result, TrainResult):
            if np.isfinite(result.weights).all():  # else it was read from there
                write_model(folder / MODEL, learner_of(self.prepared), result)
                self.journal.wrote(MODEL)
            write_whole(
                folder / CARD, train_card(result, title=title, data=data.how, played=played)
            )
        if isinstance(result, ModelResult):
            result = self._measured(result)
            result.save(folder / "model.npz")
            write_whole(folder / CARD, average_card(result, name=title, played=played))
        return result

    def _measured(self, model: ModelResult) -> ModelResult:
        data = self.prepared.client_data
        test = data.dataset.test
        if len(test):
            kind = "r2" if model.schema.classes is None else "accuracy"
            coded = replace(model, columns=())
            with np.errstate(all="ignore"):
                score = coded.score(test.features, named_targets(data, test))
            measured = {kind: score} if math.isfinite(score) else {}
            if data.baseline is not None:
                measured["baseline"] = data.baseline
            model = replace(model, measured=measured)
        return replace(model, columns=data.columns, coding=data.coding)

"""A study from beginning to end: the vote, what follows, one budget, one folder."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from urna.errors import InvalidSum, ParameterError, RoundUnfinished
from urna.files import check_folder, held_alone
from urna.privacy import Ledger, PrivacyStatement
from urna.study.federation import run_in_federation
from urna.study.file import Study
from urna.study.journal import LEDGER, Journal
from urna.study.prepare import Prepared, prepare
from urna.study.schema import Follow
from urna.study.stages import Done, Hooks, Stages, StudyOutcome, files_in
from urna.systems.average import ModelResult
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

__all__ = ["outcome_of", "run_stages", "run_study"]


def run_study(
    study: Study, *, version: str, cache: Path | None = None, hooks: Hooks | None = None
) -> StudyOutcome:
    """Run a study, or go on with one that was interrupted.

    Guarantee:
        Everything that is released is together (epsilon, delta)-DP for the study's budget under
        its relation, and is counted in the study's ledger before it happens, once, however often
        the run was killed. A result is on disk before it is shown.

    Assumes:
        A process that was killed between opening a sum and writing it down has shown it to
        nobody: it was in this process alone. Results are read from the folder. Its ledger is
        the one that counted before, not an older copy.

    Args:
        study: The study.
        version: Of Urna, for the journal.
        cache: Where local losses are kept on this machine; None keeps none.
        hooks: Who is told what.

    Raises:
        ParameterError: The study cannot be run, the plan is hopeless, or the folder holds
            another study. Nothing was spent.
        BudgetExceeded: A ledger has no room. Nothing was released.
        LedgerError: The ledger knows of a result that the folder does not hold: the folder is a
            copy, or an older one. Nothing was released.
    """
    told = hooks or Hooks()
    check_folder(study.folder)
    with held_alone(study.folder, "the study"):
        journal = Journal.open(study, version)
        journal.check()
        if (found := outcome_of(journal)) is not None:
            return found
        if not study.engine.federation:
            return run_stages(prepare(study), journal, told, cache)
    # Not held any longer: the ServerApp that the federation starts holds the folder.
    run_in_federation(study, say=told.say)
    journal = Journal.open(study, version)
    journal.check()
    found = outcome_of(journal)
    if found is None:
        raise ParameterError(f"the study in {journal.folder} is not finished: run it again")
    # The server had nobody to draw the page.
    told.page(study.folder / "report.html", found, study.title or study.path.stem)
    return replace(found, files=files_in(journal.folder), again=False)


def run_stages(
    prepared: Prepared,
    journal: Journal,
    hooks: Hooks,
    cache: Path | None,
    over: "Callable[[Stages], Done] | None" = None,
) -> StudyOutcome:
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
    if over is None and prepared.study.engine.kind == "flower":
        over = _simulated
    try:
        return stages.run(over)
    except (InvalidSum, RoundUnfinished) as failed:
        journal.fail(stages.now, failed)
        raise


def _ledger(study: Study, folder: Path) -> Ledger | None:
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
    subject = study.title or study.path.stem
    return Ledger.open(folder / LEDGER, privacy.budget, adjacency=privacy.relation, subject=subject)


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
    follow = None if reader is None else reader(last)
    privacy = PrivacyStatement.read(journal.values["privacy"])
    return StudyOutcome(
        None if vote is None else VoteResult.read(vote),
        follow,
        privacy,
        files_in(journal.folder),
        again=True,
        baseline=last.get("baseline"),
    )


def _simulated(stages: Stages) -> Done:
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

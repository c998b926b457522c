"""`urna run`: a study from its file, to the end, once."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import urna
from urna.cli.options import QuietOption
from urna.cli.output import Format, FormatOption, errors, results
from urna.cli.printing import print_result
from urna.cli.progress import live_progress
from urna.cli.report import write_page
from urna.errors import OutputError
from urna.privacy import Ledger
from urna.report import Provenance, account_of, load_run
from urna.report.results import LEDGER
from urna.study import Hooks, Study, StudyOutcome, read_study, run_study
from urna.systems.vote import VoteResult
from urna.tally.card import header

__all__ = ["StudyArgument", "head_of", "hold", "run_file"]

StudyArgument = Annotated[
    Path, typer.Argument(metavar="STUDY", help="A study file, or the folder that holds study.toml.")
]


def run_file(
    study: StudyArgument,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run STUDY: vote, then what follows, under one budget. Goes on where it was interrupted.

    As JSON the result is one line.
    """
    found = read_study(study)
    run = Provenance(
        version=urna.__version__,
        command="" if found.privacy.scripted_secrets else f"urna run {found.path.name}",
        study=found.text,
        study_name=found.path.name,
        simulated=not found.engine.federation,
    )
    outcome, title = hold(found, run, quiet=quiet)
    if output is Format.JSON:
        typer.echo(json.dumps(_as_mapping(outcome, found), allow_nan=False))
        return
    print_result(outcome, title, head_of(outcome, found))
    results().print(f"\nwritten to {found.folder}:")
    for path in outcome.files:
        if not path.name.startswith("."):
            results().print(f"  {path.name:<20} {_ABOUT.get(path.name, '')}".rstrip())


def hold(
    study: Study, run: Provenance, *, quiet: bool, drawn: bool = True
) -> tuple[StudyOutcome, str]:
    """Run a study; return what came of it, and what it is called.

    Args:
        study: The study.
        run: Where its results come from, as its pages say.
        quiet: Whether to show no progress.
        drawn: Whether to draw the page.
    """
    for name in ("result.json", "report.html"):
        if (study.folder / name).is_dir():  # found out later, it would be paid for by then
            raise OutputError(f"cannot write {study.folder / name}: it is a folder")
    titles = [study.title or study.path.stem]

    def draw(path: Path, _: StudyOutcome, title: str) -> None:
        titles.append(title)
        if drawn:
            write_page(path.with_name("result.json"), path)

    def about(title: str) -> dict[str, Any]:
        named = study.privacy.ledger
        account = account_of(Ledger(study.base / named)) if named else None
        return {"run": replace(run, title=title, account=account).as_mapping()}

    with live_progress(quiet) as report:
        said = (lambda sentence: None) if quiet else errors.print
        hooks = Hooks(report, said, draw, about)
        outcome = run_study(study, version=urna.__version__, cache=cache_folder(), hooks=hooks)
    if outcome.again and (before := load_run(study.folder / "result.json")) is not None:
        titles.append(before.title)
    return outcome, titles[-1]


def ledger_of(study: Study) -> Path | None:
    """Return the ledger that counted a study: the one it names, or its own; None where none did."""
    named = study.privacy.ledger
    path = study.base / named if named else study.folder / LEDGER
    return path if path.exists() else None


def head_of(outcome: StudyOutcome, study: Study) -> str:
    """Return what stands at the head of a study's output, as on its page and card."""
    ledger = ledger_of(study)
    return header(
        outcome.privacy,
        played=not study.engine.federation,
        ledger=None if ledger is None else ledger.name,
    )


def cache_folder() -> Path:
    """Return where this user's programs keep losses, which can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "urna" / "losses"


def _as_mapping(outcome: StudyOutcome, study: Study) -> dict[str, Any]:
    last, privacy, ledger = outcome.result, outcome.privacy, ledger_of(study)
    return {
        "kind": "study",
        "version": 1,
        "epsilon": privacy.epsilon if privacy.private else None,
        "delta": privacy.delta,
        "unit": str(study.privacy.relation.unit),
        "simulated": not study.engine.federation,
        "ledger": None if ledger is None else str(ledger),
        "accuracy": outcome.accuracy,
        "baseline": outcome.baseline,
        "folder": str(study.folder),
        "files": [path.name for path in outcome.files],
        "best": None if outcome.vote is None else outcome.vote.best,
        "privacy": outcome.privacy.as_mapping(),
        "vote": None if outcome.vote is None else outcome.vote.as_mapping(),
        "result": None if isinstance(last, VoteResult) else last.as_mapping(),
    }


_ABOUT = {
    "report.html": "the page to show",
    "result.json": "the last result",
    "vote.json": "the vote",
    "model.safetensors": "the model",
    "model.npz": "the model",
    "model.json": "the model, with its plan",
    "combination.json": "the combination",
    "MODEL_CARD.md": "the model's card",
    "ledger": "what was spent (`urna ledger show`)",
    "study.toml": "the study as it was run",
    "study.json": "how far it is",
}

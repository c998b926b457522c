"""`urna run`: a study from its file, to the end, once."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import urna
from urna.cli.keep import write_page
from urna.cli.output import Format, FormatOption, errors, print_json, results
from urna.cli.progress import live_progress
from urna.cli.terms import QuietOption, cache_folder
from urna.report import Run
from urna.study import Hooks, Outcome, read_study, run_study
from urna.systems.combine import Combination
from urna.systems.vote import VoteResult

__all__ = ["StudyArgument", "run_file"]

StudyArgument = Annotated[
    Path, typer.Argument(metavar="STUDY", help="A study file, or the folder that holds study.toml.")
]


def run_file(
    study: StudyArgument,
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run STUDY: vote, then what follows, under one budget. Goes on where it was interrupted."""
    found = read_study(study)

    run = Run(
        version=urna.__version__,
        title=found.title,
        command="" if found.privacy.scripted_secrets else f"urna run {found.path.name}",
        study=found.text,
        study_name=found.path.name,
        simulated=not found.engine.federation,
    )

    def draw(path: Path, _: Outcome, title: str) -> None:
        write_page(path.with_name("result.json"), path, run=replace(run, title=title))

    with live_progress(quiet) as report:
        said = (lambda sentence: None) if quiet else errors.print
        hooks = Hooks(report, said, draw, {"run": run.as_mapping()})
        outcome = run_study(found, version=urna.__version__, cache=cache_folder(), hooks=hooks)
    if output is Format.JSON:
        print_json(_as_mapping(outcome, found.folder))
    else:
        _print(outcome, found.folder)


def _as_mapping(outcome: Outcome, folder: Path) -> dict[str, Any]:
    last = outcome.result
    return {
        "kind": "study",
        "version": 1,
        "folder": str(folder),
        "files": [path.name for path in outcome.files],
        "best": outcome.vote.best,
        "privacy": outcome.privacy.as_mapping(),
        "vote": outcome.vote.as_mapping(),
        "result": None if isinstance(last, VoteResult) else last.as_mapping(),
    }


def _print(outcome: Outcome, folder: Path) -> None:
    console = results()
    if outcome.again:
        console.print("this study is finished; nothing was spent now\n", style="dim")
    best = ", ".join(f"{name}={value}" for name, value in outcome.vote.best.items())
    last = outcome.result
    if isinstance(last, VoteResult):
        console.print(str(last))
    else:
        console.print(f"the vote chose: {best}")
        console.print(str(last))
        if isinstance(last, Combination):
            console.print(f"everything together: {outcome.privacy}")
    console.print(f"\nwritten to {folder}:")
    for path in outcome.files:
        if not path.name.startswith("."):
            console.print(f"  {path.name:<20} {_ABOUT.get(path.name, '')}".rstrip())


_ABOUT = {
    "report.html": "the page to show",
    "result.json": "the last result",
    "vote.json": "the vote",
    "model.safetensors": "the model",
    "model.npz": "the model",
    "model.json": "the model, with its plan",
    "combination.json": "the combination",
    "README.md": "the model's card",
    "ledger": "what was spent (`urna ledger show`)",
    "study.toml": "the study as it was run",
    "study.json": "how far it is",
}

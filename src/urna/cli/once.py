"""A study of one stage, or of a vote and one, that a command's options say."""

import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import urna
from urna.cli.options import Said
from urna.cli.output import Format, errors, results
from urna.cli.printing import print_result
from urna.cli.run import head_of, hold
from urna.files import today
from urna.privacy import Ledger, Unit
from urna.report import Provenance
from urna.study import Study, StudyOutcome
from urna.study.draft import seen_of
from urna.study.schema import DataPart
from urna.study.sources import is_known

__all__ = ["once", "run_once"]

_TOLD = ("label", "record_column", "clients", "classes", "span", "ranges", "categories")


def run_once(said: Said, *stages: str, quiet: bool, output: Format) -> None:
    """Run the study that options say, as `urna run` would, and print what came of it."""
    for stage in stages:
        said.section(stage)
    study = said.study()
    if seen := _seen(study):
        for name, value in seen.items():
            said.section("data").setdefault(name, value)
        study = said.study()
    with once(study, quiet=quiet) as (outcome, title, folder, head):
        pass
    if output is Format.JSON:
        typer.echo(outcome.result.as_json())
        return
    print_result(outcome, title, head)
    if folder is not None:
        results().print(f"written: {folder / 'report.html'} and {folder / 'result.json'}")


@contextmanager
def once(study: Study, *, quiet: bool) -> Iterator[tuple[StudyOutcome, str, Path | None, str]]:
    """Run a study; give what came of it, its title, the folder that is kept, and its head.

    Without a folder it runs in one that is thrown away; with a ledger the folder is beside it.
    """
    with _somewhere(study) as (folder, kept):
        scripted = bool(study.privacy.scripted_secrets)
        command = "" if scripted else shlex.join(["urna", *sys.argv[1:]])
        run = Provenance(version=urna.__version__, command=command, simulated=True)
        placed = replace(study, output=replace(study.output, folder=str(folder)))
        outcome, title = hold(placed, run, quiet=quiet, drawn=kept)
        yield outcome, title, folder if kept else None, head_of(outcome, placed)


@contextmanager
def _somewhere(study: Study) -> Iterator[tuple[Path, bool]]:
    """Give the folder that results are written to, and whether it stays."""
    if ("output", "folder") in study.places:
        yield study.folder, True
    elif study.privacy.ledger:
        ledger = Ledger(study.base / study.privacy.ledger).path
        yield ledger.with_name(f"{ledger.name}.results") / _stamp(), True
    else:
        with tempfile.TemporaryDirectory(prefix="urna-") as folder:
            yield Path(folder), False


def _stamp() -> str:
    """Return a name of its own for what is kept: the day, because hours tell how long data took."""
    day = time.strftime("%Y%m%d", time.gmtime(today()))
    return f"{day}-{uuid.uuid4().hex[:8]}"


def _seen(study: Study) -> dict[str, Any]:
    """Return what files of one's own say of themselves, where nobody says it, and tell it."""
    part: DataPart = study.data
    if part.hub or is_known(part.source) or not (study.base / part.source).exists():
        return {}
    if (part.classes or part.span) and (part.features or part.ranges or part.categories):
        return {}
    with study.blaming("data.source"):
        people = study.privacy.relation.unit is Unit.RECORD
        guess = ("data", "label") not in study.places
        seen, notes = seen_of(part, base=study.base, people=people, guess=guess)
    new = {key: value for key, value in seen.items() if ("data", key) not in study.places}
    for note in notes:
        errors.print(f"note: {note}")
    told = (f"{key} = {str(new[key])[:60]}" for key in _TOLD if key in new)
    errors.print("note: read off these data, and so as public as your command line:", end=" ")
    errors.print(", ".join(told))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in new.items()}

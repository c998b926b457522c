"""`urna init`: a first study file, from what can be seen of the data."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, errors, print_json, results
from urna.data import catalogue
from urna.errors import Inconclusive, ParameterError
from urna.files import check_folder, write_whole
from urna.study.division import check_likely, said_likely
from urna.study.draft import check_draft, draft_study, find_data, labels_of, seen_of
from urna.study.schema import DataPart, Follow
from urna.study.sources import is_known

__all__ = ["init"]

_FILE = "study.toml"


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write study.toml.")
    ] = Path(),
    data: Annotated[
        str | None,
        typer.Option(
            help="A file, a folder (one file for each client, or class folders of pictures), or a "
            "set that `urna data` lists; what DIR holds by default, else digits."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    client_column: Annotated[
        str | None, typer.Option(help="The column that says whose a row is, in one file.")
    ] = None,
    record_column: Annotated[
        str | None,
        typer.Option(help="The column whose equal values make rows one record, such as a person."),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Deal one pool of rows out to so many clients.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A ready-made model, or module:name of your own.")
    ] = None,
    then: Annotated[Follow | None, typer.Option(help="What follows the vote.")] = None,
    force: Annotated[bool, typer.Option(help="Write over a study.toml that is there.")] = False,
    ask: Annotated[
        bool | None,
        typer.Option("--ask/--no-ask", help="Ask what is not said; on a terminal by default."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Look at the data and write a study file with every choice explained."""
    path = folder / _FILE
    if path.exists() and not force:
        raise ParameterError(f"{path} is there already: say --force to write over it")
    asks = sys.stdin.isatty() and output is Format.TEXT if ask is None else ask
    found = data or find_data(folder)
    if asks and data is None:
        names = ", ".join(entry.name for entry in catalogue())
        errors.print(f"Data: a file, a folder, or one of {names}")
        found = str(typer.prompt("data", default=found or "digits", err=True))
    named = {"label": label, "client_column": client_column, "record_column": record_column}
    said = {key: value for key, value in {**named, "clients": clients}.items() if value}
    part = DataPart(source=_placed(found or "digits", folder), **said)  # type: ignore[arg-type]
    people = True
    if asks and not is_known(part.source) and _is_table(folder / part.source):
        part, people = _asked(part, folder, label is None)
    draft = draft_study(
        part, base=folder, model=model, follow=then, people=people, guess=label is None
    )
    check_folder(folder)
    try:
        planned = check_draft(draft, path)
    except ParameterError as error:
        raise ParameterError(f"nothing was written, because `urna plan` says: {error}") from error
    digest = write_whole(path, draft.as_toml())
    notes = list(draft.notes)
    if planned.vote is not None:
        notes.append(f"In the vote {said_likely(planned.vote)}.")
        if planned.division is None:
            try:
                check_likely(planned.vote)
            except Inconclusive as refused:
                notes.append(f"`urna run` refuses it: {refused}.")
    if output is Format.JSON:
        print_json({"written": str(path), "sha256": digest, "notes": notes})
    else:
        _print(notes, path)


def _placed(source: str, folder: Path) -> str:
    """Return a source as the study says it: beside the file, though it was typed from here."""
    if is_known(source) or (folder / source).exists() or not Path(source).exists():
        return source
    return os.path.relpath(source, folder)


def _asked(part: DataPart, folder: Path, guessing: bool) -> tuple[DataPart, bool]:
    """Ask for the columns that nobody has named; say as well whether there is one of people."""
    if guessing:
        columns = labels_of(folder / part.source)
        errors.print(f"Columns: {', '.join(columns[:20])}")
        usual = part.label if part.label in columns else columns[-1]
        label = str(typer.prompt("column to predict", default=usual, err=True))
        part = replace(part, label=label)
    if part.record_column:
        return part, True
    found = seen_of(part, base=folder)[0].get("record_column", "none")
    said = "column of people, whose rows are protected together; none protects single rows"
    record = str(typer.prompt(said, default=found, err=True))
    return replace(part, record_column="" if record == "none" else record), record != "none"


def _is_table(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(p.is_file() for p in path.iterdir()))


def _print(notes: list[str], path: Path) -> None:
    console = results()
    console.print(f"written: {path}")
    for note in notes:
        console.print(note)
    console.print(
        f"next: `urna plan {path}` says what it costs, `urna check {path}` tries it on one client, "
        f"`urna run {path}` does it"
    )

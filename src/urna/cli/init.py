"""`urna init`: a first study file, from what can be seen of the data."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, errors, print_json, results
from urna.data import catalogue
from urna.errors import ParameterError
from urna.files import check_folder, write_whole
from urna.study.draft import Draft, draft_study, find_data, labels_of
from urna.study.file import parse_study
from urna.study.schema import Follow
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
    client: Annotated[
        str | None, typer.Option(help="The column that says whose a row is, in one file.")
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
    source = found or "digits"
    if asks and label is None and not is_known(source) and _is_table(folder / source):
        columns = labels_of(folder / source)
        errors.print(f"Columns: {', '.join(columns[:20])}")
        label = str(typer.prompt("column to predict", default=columns[-1], err=True))
    draft = draft_study(
        source,
        base=folder,
        label=label,
        client=client,
        clients=clients,
        model=model,
        follow=then,
    )
    text = draft.as_toml()
    parse_study(text, path)  # what we write can be read
    check_folder(folder)
    digest = write_whole(path, text)
    if output is Format.JSON:
        print_json({"written": str(path), "sha256": digest, "notes": list(draft.notes)})
    else:
        _print(draft, path)


def _is_table(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(p.is_file() for p in path.iterdir()))


def _print(draft: Draft, path: Path) -> None:
    console = results()
    console.print(f"written: {path}")
    for note in draft.notes:
        console.print(note)
    console.print(
        f"next: `urna plan {path}` says what it costs, `urna check {path}` tries it on one client, "
        f"`urna run {path}` does it"
    )

"""How commands print and write: results to stdout, the rest to stderr, files whole or not."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table

from urna.errors import OutputError

__all__ = [
    "Format",
    "FormatOption",
    "check_folder",
    "errors",
    "print_json",
    "results",
    "table",
    "write_whole",
]


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]

errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def results() -> Console:
    """Return a console on the standard output there is now; a pipe gets wide lines."""
    width = None if sys.stdout.isatty() else 120
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)


def table(title: str, *columns: str) -> Table:
    """Return a table in the house's looks; columns named with a leading > go to the right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        number = name != column
        justify: JustifyMethod = "right" if number else "left"
        made.add_column(name, justify=justify, header_style="dim", no_wrap=number)
    return made


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def check_folder(folder: Path, *names: str) -> None:
    """Make sure that these files can be written to a folder, before any work is done.

    Raises:
        OutputError: The folder cannot be made or written to, or a name is taken by a folder.
    """
    for name in names:
        if (folder / name).is_dir():
            raise OutputError(f"cannot write {folder / name}: it is a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write to the folder {folder}: {error.strerror}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, also after a kill.

    Raises:
        OutputError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)

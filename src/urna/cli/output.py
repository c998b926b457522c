"""How commands print: results to stdout, the rest to stderr."""

import importlib
import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table

from urna.errors import ParameterError

__all__ = [
    "Format",
    "FormatOption",
    "errors",
    "of_flower",
    "print_json",
    "print_table",
    "results",
    "table",
]


def of_flower(module: str) -> Any:  # noqa: ANN401 - a module
    """Return a module of `urna.flower`, which is an optional part.

    Raises:
        ParameterError: Flower is not installed.
    """
    try:
        return importlib.import_module(f"urna.flower.{module}")
    except ModuleNotFoundError as error:
        raise ParameterError("this command needs Flower: pip install 'urna[flower]'") from error


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]

errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


_LEAST = 10
WIDTH = 80
"""Columns that a table may have where no terminal says otherwise."""


def print_table(made: Table) -> None:
    """Print a table; texts that do not fit the terminal, or 80 columns, are wrapped.

    Figures are never cut: where even narrow texts leave no room for them, lines are longer.
    """
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(highlight=False, markup=False, width=width)
    console.width = max(console.width, _narrowest(made))
    if made.title:  # a table's own title is wrapped to the table's width, which may be small
        console.print(made.title, style="bold", soft_wrap=True)
        made.title = None
    console.print(made)


def _narrowest(made: Table) -> int:
    """Return how many columns of text a table takes at least, all of its figures being whole."""
    narrowest = 2 * (len(made.columns) - 1)  # between columns
    for column in made.columns:
        cells = [str(column.header), *map(str, column.cells)]
        longest = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        text = max(column.min_width or 0, min(_LEAST, longest))
        narrowest += longest if column.no_wrap else text
    return narrowest


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
        made.add_column(
            name,
            justify=justify,
            header_style="dim",
            min_width=None if number or not name else _LEAST,  # texts give way, but do not vanish
            no_wrap=number,
            overflow="fold",
        )
    return made


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))

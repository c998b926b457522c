"""How commands print: results to stdout, progress and the rest to stderr."""

import importlib
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from urna.errors import ParameterError
from urna.progress import Steps

__all__ = [
    "Format",
    "FormatOption",
    "errors",
    "live_progress",
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


_FEW = 5  # steps below which a rate says nothing


class _Time(ProgressColumn):
    """The time that is left, and the time it took once it is done."""

    _left = TimeRemainingColumn(compact=True)

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        if task.finished:
            return Text(f"took {task.finished_time or 0:.0f} s")
        return Text("left ").append_text(self._left.render(task))


class _Rate(ProgressColumn):
    """How many steps are done in a second."""

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        speed = task.finished_speed if task.finished else task.speed
        if speed is None or (task.total or 0) < _FEW:
            return Text("")
        return Text(f"{speed:.0f}/s" if speed >= 10 else f"{speed:.1f}/s", style="dim")


@contextmanager
def live_progress(quiet: bool) -> Iterator[Steps]:
    """Show one bar per kind of work while the block runs.

    On a terminal the bars move; elsewhere (a pipe, a log file) nothing is shown.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        _Rate(),
        _Time(),
        console=errors,
        disable=quiet or not errors.is_terminal,
    )
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    with ExitStack() as shown:
        tasks: dict[str, TaskID] = {}
        shown.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, stop))

        def report(what: str, done: int, total: int) -> None:
            if stopped:  # raised inside a destructor or a library's callback, it was lost
                raise KeyboardInterrupt
            if not tasks:
                # Not before there is work: what is refused at once is told in one line.
                shown.enter_context(bars)
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report

"""One live view for every long command, on stderr: stage, steps done, throughput, time left."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

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
from rich.text import Text

from urna.cli.output import errors
from urna.progress import Steps

__all__ = ["live_progress"]


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


_FEW = 5  # steps below which a rate says nothing


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

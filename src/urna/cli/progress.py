"""Live progress with the time that is left, on stderr."""

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
from urna.vote import SearchProgress

__all__ = ["live_progress"]


class _Time(ProgressColumn):
    """The time that is left, and the time it took once it is done."""

    _left = TimeRemainingColumn(compact=True)

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        if task.finished:
            return Text(f"took {task.finished_time or 0:.0f} s")
        return Text("left ").append_text(self._left.render(task))


@contextmanager
def live_progress(quiet: bool) -> Iterator[SearchProgress]:
    """Show one bar per kind of work while the block runs.

    On a terminal the bars move; elsewhere (a log file) they are printed once, at the end.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        _Time(),
        console=errors,
        disable=quiet,
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

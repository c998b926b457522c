"""Live progress with the time that is left, on stderr."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from urna.cli.output import errors
from urna.vote import SearchProgress

__all__ = ["live_progress"]


@contextmanager
def live_progress(quiet: bool) -> Iterator[SearchProgress]:
    """Show one bar per kind of work while the block runs.

    On a terminal the bars move; elsewhere (a log file) they are printed once, at the end.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
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

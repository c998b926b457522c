"""One live line on stderr while something long runs, in a terminal or a notebook.

The command line has bars of its own. A library asks for no package to say how far it is.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

__all__ = ["Steps", "live_line"]

Steps = Callable[[str, int, int], None]
"""Called with (what is being done, steps finished, steps in all)."""

_SECONDS = 0.1  # between two looks at the same work


@contextmanager
def live_line(progress: Steps | bool | None = None) -> Iterator[Steps]:
    """Yield what to call while the block works.

    Args:
        progress: Called as it is. None shows a line where somebody looks: in a terminal or a
            notebook; True shows it anywhere, False nowhere.
    """
    if callable(progress):
        yield progress
        return
    shown = _watched(sys.stderr) if progress is None else progress
    if not shown:
        yield lambda what, done, total: None
        return
    line = _Line(sys.stderr)
    try:
        yield line
    finally:
        line.end()


def _watched(stream: TextIO | None) -> bool:
    if stream is None or stream.closed:  # a program without a terminal
        return False
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


class _Line:
    """The line, drawn over itself; each kind of work leaves its last state behind."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._what, self._began, self._drawn, self._width = "", 0.0, 0.0, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self.end()
            self._what, self._began, self._drawn = what, now, 0.0
        elif done < total and now < self._drawn + _SECONDS:
            return
        spent = now - self._began
        text = f"{what}: {done:,} of {total:,}"
        if done >= total:
            text += f", took {spent:.0f} s"
        elif done > 0:
            text += f", {spent / done * (total - done):.0f} s left"
        self._write(f"\r{text:<{self._width}}")
        self._drawn, self._width = now, len(text)

    def end(self) -> None:
        """Leave the line, if there is one."""
        if self._width:
            self._write("\n")
        self._what, self._width = "", 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone stops nothing that was paid
            self._stream.write(text)
            self._stream.flush()

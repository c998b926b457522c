"""Where a command's result comes from: its version and line, and how long each stage took."""

import shlex
import sys
import time

import urna
from urna.report import Run, Stage
from urna.vote import SearchProgress

__all__ = ["Clock"]


class Clock:
    """Times the stages of a command by the progress that is reported anyway.

    Args:
        report: Called in turn.
    """

    def __init__(self, report: SearchProgress) -> None:
        self._report = report
        self._seen: dict[str, tuple[float, float]] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Note that a stage has come so far."""
        now = time.monotonic()
        self._seen[what] = (self._seen.get(what, (now, now))[0], now)
        self._report(what, done, total)

    def run(self, title: str, *, simulated: bool, repeatable: bool) -> Run:
        """Return where a result comes from.

        Args:
            title: What its page is called.
            simulated: Whether all clients were on this machine.
            repeatable: Whether randomness was scripted: the result then is the same whenever
                it is made, and so is what is noted beside it.
        """
        stages = tuple(Stage(what, end - start) for what, (start, end) in self._seen.items())
        return Run(
            version=urna.__version__,
            title=title,
            command="" if repeatable else shlex.join(["urna", *sys.argv[1:]]),
            simulated=simulated,
            stages=() if repeatable else stages,
        )

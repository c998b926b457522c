"""Where a command's result comes from: its version and line."""

import shlex
import sys

import urna
from urna.report import Run

__all__ = ["origin"]


def origin(title: str, *, simulated: bool, repeatable: bool) -> Run:
    """Return where a result comes from.

    Args:
        title: What its page is called.
        simulated: Whether all clients were on this machine.
        repeatable: Whether randomness was scripted: the result then is the same whenever it is
            made, and so is what is noted beside it.
    """
    return Run(
        version=urna.__version__,
        title=title,
        command="" if repeatable else shlex.join(["urna", *sys.argv[1:]]),
        simulated=simulated,
    )

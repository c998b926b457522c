#!/usr/bin/env python3
"""Trace a command: which files of `urna` it visits, and how often it changes the package.

    .venv/bin/python tools/walk.py search --data digits --clients 60 --epsilon 2

Functions count when they are first called, in this order. A switch is a function whose package is
not that of the function before it. Threads are traced, processes of their own are not.
"""

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "urna"


@dataclass
class Walk:
    """What was visited so far."""

    files: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    _seen: set[CodeType] = field(default_factory=set)

    @property
    def switches(self) -> int:
        """How often the package changed."""
        return max(len(self.packages) - 1, 0)

    def visit(self, frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 - a profiler's
        """Note a call; bodies of modules and classes are no calls."""
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        self._seen.add(code)
        path = Path(code.co_filename)
        if code.co_name == "<module>" or "__module__" in code.co_names[:2]:
            return
        if path.suffix != ".py" or not path.is_relative_to(SOURCE):
            return
        file = str(path.relative_to(SOURCE))
        if file not in self.files:
            self.files.append(file)
        package = file.partition("/")[0].removesuffix(".py")
        if not self.packages or self.packages[-1] != package:
            self.packages.append(package)


def walk(arguments: Sequence[str]) -> Walk:
    """Run `urna` with these arguments and return what it visited."""
    sys.path.insert(0, str(SOURCE.parent))
    sys.argv = ["urna", *arguments]
    from urna.cli import main  # noqa: PLC0415 - from the tree beside this file
    from urna.cli.app import app  # noqa: F401, PLC0415 - what runs at import is no visit

    found = Walk()
    threading.setprofile(found.visit)
    sys.setprofile(found.visit)
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="a command of `urna`")
    found = walk(parser.parse_args().arguments)
    print("\n".join(found.files), file=sys.stderr)
    print(f"{len(found.files)} files, {found.switches} package switches")

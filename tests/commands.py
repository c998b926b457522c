"""What a command of the command line's tests left behind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Command", "Done"]


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        """Return the one JSON object that stdout holds, and nothing else."""
        assert self.code == 0, self.stderr
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    def refused(self, code: int) -> str:
        """Return the one line of an error, after notes on the data, after checking it is one."""
        assert "Traceback" not in self.stderr
        assert self.code == code, self.stderr
        assert self.stdout == ""
        (line,) = (line for line in self.stderr.splitlines() if not line.startswith("note: "))
        assert line.startswith("error: ")
        return line


Command = Callable[..., Done]
"""Runs `urna` with arguments, in a process of its own."""

"""Run commands as processes of their own."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forks import ForkServer


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
        """Return the one line of an error, after checking that it is one."""
        assert "Traceback" not in self.stderr
        assert self.code == code, self.stderr
        assert self.stdout == ""
        lines = self.stderr.splitlines()
        (line,) = (line for line in lines if not line.startswith("simulating votes"))
        assert line.startswith("error: ")
        return line


Command = Callable[..., Done]


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a server that forks processes which have imported the command line."""
    here = Path(__file__).parent
    server = ForkServer(tmp_path_factory.mktemp("outputs"), "cli_commands", folders=(here,))
    yield server
    server.close()


@pytest.fixture
def urna(commands: ForkServer) -> Command:
    """Return a function that runs `urna` with arguments, in a process of its own."""

    def run(*arguments: object) -> Done:
        child = commands.start("cli_commands:command", *map(str, arguments))
        code = child.wait()
        return Done(
            code,
            child.stdout.read_text(encoding="utf-8"),
            child.stderr.read_text(encoding="utf-8"),
        )

    return run


@pytest.fixture
def few(tmp_path: Path) -> tuple[str, ...]:
    """Return options of a search that takes a second: 12 clients, 3 candidates."""
    space = tmp_path / "few.toml"
    space.write_text('[axes]\neta0 = { kind = "log", values = [1e-6, 1e-2, 100.0] }\n')
    settings = "--data digits --clients 12 --votes 1 --epsilon 0.5 --delta 1e-3"
    return (*settings.split(), "--space", str(space))

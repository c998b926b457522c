"""What several rooms' tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command, Done
from forks import ForkServer


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of full data sets, or skip the test."""
    named = os.environ.get("URNA_DATA")
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(named) if named else beside
    if not folder.is_dir():
        pytest.skip("full data sets are not here; set URNA_DATA to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a server that forks processes which have imported the command line."""
    here = Path(__file__).parent / "cli"
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
    settings = "--data digits --clients 12 --votes 1 --epsilon 0.5 --delta 1e-3 --force"
    return (*settings.split(), "--space", str(space))

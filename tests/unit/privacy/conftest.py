"""Processes that share a ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import ForkServer


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a server that forks processes which have imported Urna."""
    server = ForkServer(
        tmp_path_factory.mktemp("outputs"), "ledger_workers", folders=(Path(__file__).parent,)
    )
    yield server
    server.close()

"""Quiet and offline: read by Flower and Ray when they are imported."""

import os
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context

from urna.local import losses_apart

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """Return a folder in memory where there is one: every ledger is synced at every step."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def evaluate_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate in this process, so that tests can count calls and need not wait for processes.

    In a test marked `apart` the first node evaluates as a deployed one does.
    """
    marked = request.node.get_closest_marker("apart") is not None

    def evaluate(
        objective: Any, pieces: Sequence[Any], space: Any, *, seeds: Sequence[int], **limits: Any
    ) -> list[Any]:
        first = all(isinstance(p, Context) and p.node_config["partition-id"] == 0 for p in pieces)
        if marked and first:
            return losses_apart(objective, pieces, space, seeds=seeds, **limits)
        return _losses_here(objective, pieces, space, seeds, limits.get("failed"))

    monkeypatch.setattr("urna.flower.votes.losses_apart", evaluate)
    monkeypatch.setattr("urna.systems.vote.fill.losses_apart", evaluate)


def _losses_here(
    objective: Any, pieces: Sequence[Any], space: Any, seeds: Sequence[int], failed: Any
) -> list[Any]:
    found: list[Any] = []
    for place, (piece, seed) in enumerate(zip(pieces, seeds, strict=True)):
        try:
            found.append(objective.losses(piece, space, seed=seed))
        except Exception:
            found.append(None)
            if failed is not None:
                failed(place, traceback.format_exc())
    return found

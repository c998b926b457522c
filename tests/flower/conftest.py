"""Quiet and offline: read by Flower and Ray when they are imported."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@pytest.fixture(autouse=True)
def evaluate_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate in this process, so that tests can count calls and need not wait for processes.

    A test marked `apart` evaluates as a deployed node does.
    """
    if request.node.get_closest_marker("apart") is None:
        monkeypatch.setattr("urna.flower.voter.losses_apart", _losses_here)
        monkeypatch.setattr("urna.vote.shards.losses_apart", _losses_here)


def _losses_here(
    objective: Any, pieces: Sequence[Any], space: Any, *, seed: int, **_: object
) -> list[Any]:
    found: list[Any] = []
    for piece in pieces:
        try:
            found.append(objective.losses(piece, space, seed=seed))
        except Exception:
            found.append(None)
    return found

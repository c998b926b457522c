"""Torch on one thread: small tensors gain nothing from more, and busy cores lose much."""

import pytest

try:
    import torch

    from urna.local.engine import recorded
except ImportError:  # what needs torch is skipped
    recorded = None
else:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the first step of every shape: searches in tests are too short for more."""
    if recorded is not None:
        monkeypatch.setattr(recorded, "_OFTEN", 1)

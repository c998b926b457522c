"""Torch on one thread: small tensors gain nothing from more, and busy cores lose much."""

import pytest

try:
    import torch

    from urna.local.engine import tape
except ImportError:  # what needs torch is skipped
    tape = None
else:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the first step of every shape: searches in tests are too short for more."""
    if tape is not None:
        monkeypatch.setattr(tape, "_OFTEN", 1)

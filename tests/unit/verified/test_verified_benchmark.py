"""The benchmark of verified ballots runs, and prints the figures that are quoted."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "verified.py"


def test_the_benchmark_prints_what_is_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--reports", "60", "--votes", "1", "--format", "json"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *given])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = json.loads(capsys.readouterr().out)
    assert found["levels"]["reports"] == 60
    assert found["levels"]["soundness_log2"] < -70
    assert found["malice"]["named"] == 1.0  # whoever stuffs the urn is named
    assert found["malice"]["moved_verified"] <= found["malice"]["moved_plain"]

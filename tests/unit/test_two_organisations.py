"""The benchmark of two organisations runs, and prints what is asked of it last."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]


@pytest.mark.audit
def test_the_benchmark_prints_its_figures_last() -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(HOUSE / "benchmarks" / "two_organisations.py"),
            *("--draws", "6", "--subsets", "1", "--format", "json"),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=HOUSE,
    )
    found = json.loads(done.stdout)
    last = ["regret_ratio_n100", "regret_ratio_n20", "circuit_cpu_s", "circuit_mb"]
    assert list(found)[-4:] == last
    assert found["circuit_mb"] < 20
    for regrets in found["regret_points"].values():
        assert 0 < regrets["winner"] < 100

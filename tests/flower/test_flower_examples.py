"""The examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")
pytest.importorskip("ray", reason="the simulation engine needs Ray")

from forks import environment

from urna.privacy import Ledger

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRUE = (44, 19, 21, 16)  # of the devices that the example draws
HISTOGRAM = EXAMPLES / "private-histogram" / "histogram.py"


@pytest.mark.parametrize("where", ["memory", pytest.param("flower", marks=pytest.mark.audit)])
def test_a_private_histogram_needs_no_more_than_a_page(where: str) -> None:
    assert len(HISTOGRAM.read_text().splitlines()) <= 60
    options = ["--flower"] if where == "flower" else []
    done = subprocess.run(
        [sys.executable, str(HISTOGRAM), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()[-1]
    counts = [float(n) for n in re.findall(r"'[a-z]+': (-?[0-9.]+)", printed)]
    (std,) = re.findall(r"± ([0-9.]+)", printed)
    # Eight standard deviations: a false alarm in less than a thousand million runs.
    assert all(abs(a - b) < 8 * float(std) for a, b in zip(counts, TRUE, strict=True))
    assert "1e-05)-DP, replace-one-client" in printed
    assert ("over Flower" in printed) == (where == "flower")


@pytest.mark.audit
def test_a_daily_statistic_is_one_entry_and_ends_with_its_budget(tmp_path: Path) -> None:
    daily = EXAMPLES / "daily-statistic" / "daily.py"
    assert len(daily.read_text().splitlines()) <= 80
    said = [_run(daily, str(tmp_path)) for _ in range(8)]
    assert [done.returncode for done in said] == [0] * 7 + [1]
    assert "so far: (4, 1e-05)-DP, replace-one-client" in said[6].stdout
    assert "all 7 rounds of this series were held" in said[7].stderr
    (entry,) = Ledger(tmp_path / "ledger").entries()
    assert entry.rounds == 7


def test_a_model_is_trained_among_simulated_nodes() -> None:
    done = _run(EXAMPLES / "private-training" / "training.py")
    assert done.returncode == 0, done.stderr
    accuracies = [float(a) for a in re.findall(r"([0-9.]+) % of public rows", done.stdout)]
    # 84 % in most runs; a guess is right in a tenth.
    assert len(accuracies) == 9
    assert accuracies[-1] > 60
    assert "(10, 0.001)-DP, replace-one-client" in done.stdout


def _run(script: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=environment(),
    )

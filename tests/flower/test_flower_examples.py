"""The examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")
pytest.importorskip("ray", reason="the simulation engine needs Ray")

from forks import environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRUE = (44, 19, 21, 16)  # of the devices that the example draws
HISTOGRAM = EXAMPLES / "private-histogram" / "histogram.py"


@pytest.mark.parametrize("where", ["memory", "flower"])
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

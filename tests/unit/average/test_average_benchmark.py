"""The benchmark's contract: what it is called with, and what it prints last."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from forks import environment

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "dp_helmet.py"


def test_the_benchmark_prints_its_three_figures_last(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(10, 12))
    arrays = {}
    for part, count in (("train", 400), ("test", 100)):
        y = np.arange(count) % 10
        arrays |= {f"x_{part}": centres[y] + rng.normal(size=(count, 12)), f"y_{part}": y}
    np.savez(tmp_path / "cifar10_features.npz", **arrays)
    options = ["--clients", "20", "--epsilon", "20", "--draws", "1", "--format", "json"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--data", str(tmp_path), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found)[-3:] == ["accuracy", "accuracy_blind", "accuracy_moments"]
    assert found["accuracy"] == max(row["accuracy"] for row in found["learners"].values())
    assert found["accuracy_moments"] > 0.5
    assert {"dp_fl_own_noise", "ada_ssp_own_noise", "local_models_no_noise"} <= set(
        found["baselines"]
    )
    assert all(row["relation"] == "replace-one-record" for row in found["learners"].values())

"""The battery: tables are made again as they were, and votes are held on them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from urna.space import Axis, Space

pytest.importorskip("sklearn")
pytest.importorskip("mlxtend")

HERE = Path(__file__).resolve().parents[2]
SCRIPTS = HERE / "benchmarks" / "battery"


def run(script: str, *arguments: object) -> str:
    """Run one of the scripts; return what it prints."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(HERE / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_table_is_made_again_as_it_was(tmp_path: Path) -> None:
    run("record.py", "--only", "bayes-digits", "--output", tmp_path, "--jobs", 1)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["bayes-digits-iid.npz", "bayes-digits-skewed.npz"]
    for name in made:
        kept = np.load(HERE / "benchmarks" / "results" / "battery" / name)
        again = np.load(tmp_path / name)
        assert str(again["meta"]) == str(kept["meta"])
        np.testing.assert_allclose(again["losses"], kept["losses"], rtol=1e-3, atol=1e-6)
        for points in ("final", "public"):
            np.testing.assert_allclose(again[points], kept[points], atol=0.5)
    assert "bayes" not in run("record.py", "--only", "bayes-digits", "--output", tmp_path)


def test_tables_to_choose_rules_on_are_drawn_again_as_they_were(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        run("drawn.py", "--only", "bayes", "--each", 2, "--output", tmp_path / folder, "--jobs", 1)
    for name in ("bayes-0-iid.npz", "bayes-1-skewed.npz"):
        first, second = (np.load(tmp_path / folder / name) for folder in ("first", "second"))
        assert str(first["meta"]) == str(second["meta"])
        np.testing.assert_array_equal(first["losses"], second["losses"])
        assert np.isfinite(first["losses"]).mean() > 0.5
        assert np.ptp(first["final"]) > 0
    told = run(
        "run.py", "--tables", tmp_path / "first", "--clients", 100, "--epsilon", 1, "--part", 0.02
    )
    assert "bayes-1/skewed" in told


def table(folder: Path, name: str, best: int) -> None:
    """Write a table whose clients all find the same candidate best, and its neighbours next."""
    space = Space(depth=Axis.ordinal([1, 2, 3, 4, 5, 6]), leaf=Axis.ordinal([1, 2, 4]))
    away = space.places - space.places[best]  # both axes are ordinal: steps are places
    far = np.sqrt((away**2).sum(axis=1))
    rng = np.random.default_rng(best)
    meta = {"name": name, "kind": "made up", "split": "iid", "data": "", "public_data": ""}
    np.savez(
        folder / f"{name}-iid.npz",
        losses=far + 0.01 * rng.random((25, len(space))),
        final=100 - 10 * far,
        public=-far[::-1],
        meta=np.array(json.dumps({**meta, "space": space.as_mapping()})),
    )


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the runner says about two tables of 18 candidates."""
    folder = tmp_path_factory.mktemp("battery")
    table(folder, "first", 4)
    table(folder, "second", 13)
    text = run("run.py", "--tables", folder, "--part", 0.1, "--jobs", 1, "--format", "json")
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_table_gets_a_cell_for_each_budget(held: dict[str, Any]) -> None:
    cells = [(c["table"], c["clients"], c["epsilon"]) for c in held["cells"]]
    few, many = (0.5, 1.0, 3.0), (0.05, 0.1, 0.25, 0.5, 1.0)
    expected = [(f"{name}/iid", 100, e) for name in ("first", "second") for e in many]
    expected += [(f"{name}/iid", 20, e) for name in ("first", "second") for e in few]
    assert cells == expected


def test_what_all_clients_want_wins_under_weak_noise_and_is_in_the_set(
    held: dict[str, Any],
) -> None:
    sure = [c for c in held["cells"] if (c["clients"], c["epsilon"]) == (100, 1.0)]
    assert [c["regret"]["default"] for c in sure] == [0.0, 0.0]
    assert [c["near"]["default"] for c in sure] == [1.0, 1.0]
    assert [c["covered"] for c in sure] == [1.0, 1.0]
    # Noise of 194 votes buries a lead of 100: that the best always wins would be a fault.
    assert all(c["regret"]["paper"] > 0 for c in held["cells"] if c["epsilon"] == 0.05)


def test_the_control_takes_the_best_of_the_public_table(held: dict[str, Any]) -> None:
    # Read backwards, the best of the first table, at 4, lies at 13, and that of the second at 4:
    # both are three steps and none away on the two axes.
    assert {round(c["regret"]["public"], 6) for c in held["cells"]} == {30.0}


def test_the_summary_is_made_of_the_cells(held: dict[str, Any]) -> None:
    (row,) = (r for r in held["summary"]["by_epsilon"] if r["epsilon"] == 0.1)
    cells = [c for c in held["cells"] if c["epsilon"] == 0.1]
    means = {m: sum(c["regret"][m] for c in cells) / len(cells) for m in held["methods"]}
    assert row["regret"] == pytest.approx(means)
    assert row["ratio"] == pytest.approx(means["default"] / means["paper"])
    votes = sum(r["votes"] for r in held["summary"]["reliability"])
    assert votes == sum(round(c["told"] * c["decoded"]) for c in held["cells"])
    assert votes > 0

"""The paper's evaluation from end to end, on rows made up in a moment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

HERE = Path(__file__).resolve().parents[2]
SCRIPTS = HERE / "benchmarks" / "dp_hype"


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


def rows(path: Path, count: int) -> None:
    """Write rows like Adult's: two classes that one feature nearly tells apart."""
    rng = np.random.default_rng(count)
    features = rng.standard_normal((count, 108)).astype(np.float16)
    np.savez(path, features=features, targets=(features[:, 0] > 0.5).astype(np.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the losses of one setting, computed and compacted."""
    folder = tmp_path_factory.mktemp("evaluation")
    rows(folder / "adult_rows.npz", 1200)
    rows(folder / "adult_test.npz", 300)
    copy_page(folder)
    options = ("--data", folder, "--device", "cpu", "--settings", "adult/100/iid")
    (line,) = json.loads(run("losses.py", *options, "--output", folder / "full"))
    assert line["setting"] == "adult/100/iid"
    assert line["opt"] > line["rand_guess"]
    planned = run("losses.py", *options, "--output", folder / "full", "--plan")
    assert planned.split()[2] == "local+federated"
    run("compact.py", folder / "full", folder / "losses")
    train_again(folder / "losses")
    return folder


def train_again(losses: Path) -> None:
    """Write a second training of the setting, in which everybody ends one point higher."""
    with np.load(losses / "adult-n100-iid-s0.npz") as kept:
        arrays = dict(kept)
    meta = json.loads(str(arrays["meta"]))
    meta["setting"]["seed"] = 1
    changed = {"meta": np.array(json.dumps(meta)), "federated": arrays["federated"] + 0.01}
    np.savez(losses / "adult-n100-iid-s1.npz", **{**arrays, **changed})


def copy_page(folder: Path) -> None:
    """Copy the page, so that the one in the repository stays as it is."""
    page = (HERE / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (folder / "page.md").write_text(page, encoding="utf-8")


@pytest.mark.audit
def test_losses_are_kept_small_and_say_how_they_were_made(folder: Path) -> None:
    with np.load(folder / "losses" / "adult-n100-iid-s0.npz") as kept:
        assert kept["accuracies"].shape == kept["losses"].shape == (100, 100)
        assert kept["accuracies"].dtype == kept["losses"].dtype == np.float16
        assert kept["federated"].shape == (100,)
        meta = json.loads(str(kept["meta"]))
    assert "--settings adult/100/iid" in meta["command"]
    assert meta["federated"]["epochs"] == meta["local"]["epochs"] == 5
    assert {"date", "machine", "torch"} <= set(meta["local"])


@pytest.mark.audit
def test_rates_that_move_nothing_may_be_searched_as_one(folder: Path) -> None:
    options = ("--data", folder, "--device", "cpu", "--settings", "adult/2/iid")
    found = []
    for name, more in (("each", ()), ("once", ("--still-once",))):
        output = folder / name
        run("losses.py", *options, "--output", output, "--parts", "local", *more)
        run("compact.py", output, output)
        with np.load(output / "adult-n2-iid-s0.npz") as kept:
            found.append(kept["losses"])
            assert ("--still-once" in str(kept["meta"])) == bool(more)
    each, once = found
    # Half of the learning rates move something; of the others the largest, 1e-6, stands for all.
    np.testing.assert_allclose(once[:, :60], each[:, :60], rtol=2e-3)
    np.testing.assert_array_equal(once[:, 60:], np.tile(once[:, 50:60], 4))
    np.testing.assert_allclose(once[:, 60:], each[:, 60:], rtol=2e-3)


@pytest.mark.audit
def test_the_evaluation_runs_from_losses_to_page(folder: Path) -> None:
    options = ("--losses", folder / "losses", "--output", folder, "--page", folder / "page.md")
    shown = json.loads(
        run("evaluate.py", *options, "--draws", 20, "--repetitions", 2, "--format", "json")
    )
    assert [claim["epsilon"] for claim in shown["claims"]] == [0.25, 0.1, 1.0, 3.0, "inf"]
    found = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    (end,) = found["ends"]
    cells = {(row["method"], row["epsilon"]): row for row in found["rows"]}
    assert len({method for method, _ in cells}) == 14
    assert end["trainings"] == 2
    assert cells["ours", 1.0]["draws"] == 40
    with np.load(folder / "losses" / "adult-n100-iid-s0.npz") as kept:
        assert end["opt"] == pytest.approx(float(kept["federated"].max()) + 0.005, abs=1e-4)
    for row in cells.values():
        assert row["mean"] == pytest.approx(end["opt"] - row["regret"], abs=2e-5)
        assert row["runs_low"] <= row["runs_mean"] <= row["runs_high"]
    # Without noise only ties are left to chance: votes and accuracies find a good candidate.
    for method in ("ours", "paper", "raw-losses"):
        assert cells[method, "inf"]["mean"] > end["rand_guess"] + 0.05
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert "| Adult, 100 clients, iid | 2 | – | " in page
    assert "CIFAR-10, 250 clients" in page
    for name in ("accuracy-adult", "regret", "simulation-good", "simulation-spread"):
        assert (folder / f"{name}.svg").read_text(encoding="utf-8").endswith("</svg>\n")
    assert (folder / "rows.csv").read_text(encoding="utf-8").count("\n") == len(cells) + 1


def test_a_page_says_where_no_epsilon_is_enough(tmp_path: Path) -> None:
    found = json.loads((SCRIPTS / "results" / "evaluation.json").read_text(encoding="utf-8"))
    found["equal_epsilon"][0] |= {"ours_epsilon": "inf", "ratio": "inf"}
    (tmp_path / "evaluation.json").write_text(json.dumps(found), encoding="utf-8")
    copy_page(tmp_path)
    run("evaluate.py", "--output", tmp_path, "--page", tmp_path / "page.md", "--render")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| none | none |" in page.partition("<!-- equal-epsilon -->")[2].split("\n")[3]


@pytest.mark.audit
def test_a_page_without_a_place_for_every_table_is_refused(folder: Path) -> None:
    (folder / "short.md").write_text("<!-- claims -->\n<!-- /claims -->\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="should have the markers"):
        run("evaluate.py", "--output", folder, "--page", folder / "short.md", "--render")


def test_the_page_holds_what_the_recorded_votes_say(tmp_path: Path) -> None:
    page, results = HERE / "docs" / "evaluation.md", tmp_path / "results"
    results.mkdir()
    shutil.copy(SCRIPTS / "results" / "evaluation.json", results)
    shutil.copy(page, tmp_path)
    run("evaluate.py", "--render", "--output", results, "--page", tmp_path / page.name)
    assert (tmp_path / page.name).read_text(encoding="utf-8") == page.read_text(encoding="utf-8")

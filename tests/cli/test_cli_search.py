"""`urna search`: candidates by axes, and rehearsals on files of one's own."""

from pathlib import Path

import numpy as np
import pytest
from commands import Command

from urna.cli.options import named_candidates
from urna.data import load
from urna.space import Axis, Space

HELD = "--label y --clients 8 --epsilon 0.25 --quiet --scripted-secrets x"


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("1,2,3", Axis.ordinal([1, 2, 3])),
        ("a,true,0.5", Axis.categorical(["a", True, 0.5])),
        ("0.01,0.1:log", Axis.log([0.01, 0.1])),
        ("0.01,0.1:log:1e-4..1", Axis.log([0.01, 0.1], works=(1e-4, 1.0))),
        ("0.01,0.1:log:1e-4..", Axis.log([0.01, 0.1], works=(1e-4, None))),
        ("0,1:linear:..0.5", Axis.linear([0, 1], works=(None, 0.5))),
        ("1,4,16:ordinal:..8", Axis.ordinal([1, 4, 16], works=(None, 8))),
        ("0.01,0.1:log:..", Axis.log([0.01, 0.1], works=(None, None))),
        ("0.01,0.1 : log", Axis.log([0.01, 0.1])),
        ("a:b,c:d:categorical", Axis.categorical(["a:b", "c:d"])),
        ("a:1..2,c:categorical", Axis.categorical(["a:1..2", "c"])),
    ],
)
def test_an_axis_is_read_with_its_kind_and_where_it_works(text: str, axis: Axis) -> None:
    assert named_candidates([f"x={text}", "z=1,2"]) == Space(x=axis, z=[1, 2])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr=0.01,0.1:log:1e-4-1", "a window is LOW..HIGH"),
        ("lr=0.01,0.1:log:1e-4:1", "a window is LOW..HIGH"),
        ("lr=0.01,0.1:log:1e-4...1", "a window is LOW..HIGH"),
        ("lr=0.01,,0.1", "an axis is NAME=VALUE,VALUE,...:KIND"),
    ],
)
def test_a_wrong_axis_is_told_before_any_data_are_read(
    urna: Command, tmp_path: Path, text: str, says: str
) -> None:
    nowhere = tmp_path / "nowhere.csv"
    told = urna("search", "--data", nowhere, "--space", text, "--epsilon", 1)
    assert told.code == 2
    assert says in " ".join(told.stderr.split())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder of two tables of wine, and the first with its rows in another order."""
    rows = load("wine").train
    order = np.random.default_rng(0).permutation(len(rows))
    columns = [f"f{i}" for i in range(rows.features.shape[1])]
    for name, some in (("own", order[:90]), ("again", order[:90][::-1]), ("other", order[90:])):
        lines = [",".join([*columns, "y"])]
        lines += [",".join(map(str, [*rows.features[i], rows.targets[i]])) for i in some]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_search_is_rehearsed_on_a_file(urna: Command, files: Path) -> None:
    """With a rehearsal nobody says --force, although the tally alone could not decide."""
    told = urna("search", "--data", files / "own.csv", *HELD.split())
    assert told.code == 2
    assert "this vote cannot succeed" in told.stderr
    rehearsed = ("--rehearse", files / "other.csv", "--format", "json")
    shown = urna("search", "--data", files / "own.csv", *HELD.split(), *rehearsed).json()
    said = shown["rehearsal"]
    assert (said["data"], said["voted_on"], said["candidates"]) == (
        str(files / "other.csv"),
        10,
        40,
    )


def test_the_clients_own_rows_are_told_by_what_they_hold(urna: Command, files: Path) -> None:
    for name in ("own.csv", "again.csv"):
        rehearsed = ("--rehearse", files / name)
        told = urna("search", "--data", files / "own.csv", *HELD.split(), *rehearsed)
        assert told.code == 2
        assert "is what the clients hold" in told.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("header.csv", "f0,y\n", "header.csv has columns and no rows"),
        ("label.csv", "f0,z\n" + "1.5,0\n2.5,1\n" * 30, "has no column 'y'; it has f0, z"),
        ("table.txt", "f0,y\n1,0\n", "tables are .csv, .tsv, .parquet or .npz files"),
    ],
)
def test_data_that_cannot_be_rehearsed_on_are_refused_in_a_line(
    urna: Command, files: Path, name: str, text: str, says: str
) -> None:
    if name:
        (files / name).write_text(text)
    rehearsed = ("--rehearse", files / name if name else "")
    told = urna("search", "--data", files / "own.csv", *HELD.split(), *rehearsed)
    assert told.code == 2
    assert says in " ".join(told.stderr.splitlines()[-2:])


def test_a_rehearsal_judges_by_the_same_model_of_ones_own(urna: Command, files: Path) -> None:
    model = (
        "--model sklearn.linear_model:LogisticRegression --space C=0.01,0.1,1:log --space tol=1,2"
    )
    rehearsed = ("--rehearse", files / "other.csv", "--format", "json")
    command = ("search", "--data", files / "own.csv", *HELD.split(), *model.split(), *rehearsed)
    assert urna(*command).json()["rehearsal"]["candidates"] == 6

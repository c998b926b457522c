"""Samples: made of what people have, and never printed row by row."""

from typing import Any

import numpy as np
import pytest

from urna.data import Dataset, Samples
from urna.errors import ParameterError

SECRET = 31_415.926


def test_printing_shows_sizes_and_never_a_row() -> None:
    rows = Samples(np.full((1_200, 3), SECRET), np.full(1_200, 777_777), ["patient x"] * 1_200)
    assert repr(rows) == str(rows) == "Samples(1,200 rows of 3, with ids)"
    pictures = Samples(np.full((5, 1, 8, 8), SECRET), np.zeros(5))
    assert repr(pictures) == "Samples(5 rows of 1×8×8)"
    assert repr(Samples(np.full(4, SECRET), np.zeros(4))) == "Samples(4 rows of 1)"
    shown = repr(Dataset("digits", rows, rows, classes=10))
    assert "31415" not in shown
    assert "patient" not in shown


def test_lists_are_taken_as_arrays() -> None:
    rows = Samples([[1.0, 2.0], [3.0, 4.0]], [0, 1], ["a", "b"])  # type: ignore[arg-type]
    assert isinstance(rows.features, np.ndarray)
    assert rows.features.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert rows.targets.tolist() == [0, 1]
    assert rows.ids is not None
    assert rows.ids.tolist() == ["a", "b"]
    taken = rows.take(np.array([1]))
    assert (taken.features.tolist(), taken.targets.tolist()) == ([[3.0, 4.0]], [1])
    assert taken.ids is not None
    assert taken.ids.tolist() == ["b"]


def test_arrays_are_not_copied() -> None:
    features, targets = np.zeros((3, 2)), np.zeros(3)
    rows = Samples(features, targets)
    assert rows.features is features
    assert rows.targets is targets


def test_a_frame_stays_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [30, 40, 50], "job": ["a", "b", "a"]})
    rows = Samples(frame, pandas.Series([0, 1, 1]), pandas.Index(["x", "y", "z"]))
    columns: Any = rows.features
    assert list(columns.columns) == ["age", "job"]
    assert isinstance(rows.targets, np.ndarray)
    taken = rows.take(np.array([2, 0]))
    assert taken.features["age"].tolist() == [50, 30]
    assert taken.targets.tolist() == [1, 0]
    assert taken.ids is not None
    assert taken.ids.tolist() == ["z", "x"]
    assert len(rows) == 3
    assert "30" not in repr(rows)


class FrameLike:
    """What a frame looks like, without pandas."""

    def __init__(self, values: list[int]) -> None:
        self.values = np.array(values)
        self.shape, self.ndim = self.values.shape, 1

    @property
    def iloc(self) -> "FrameLike":
        return self

    def __getitem__(self, rows: np.ndarray) -> "FrameLike":
        return FrameLike(self.values[rows].tolist())

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values


def test_whatever_is_taken_by_place_like_a_frame_stays_as_it_is() -> None:
    frame = FrameLike([4, 5, 6])
    rows = Samples(frame, [0, 1, 0])  # type: ignore[arg-type]
    assert rows.features is frame
    assert rows.take(np.array([2, 1])).features.values.tolist() == [6, 5]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("features", "targets", "ids", "says"),
    [
        ([[1.0]], [0, 1], None, "equally many rows, got 1 and 2"),
        (3.0, [1], None, "one entry for each row"),
        ([[1.0]], 1, None, "one entry for each row"),
        (
            [[1.0], [2.0]],
            [0, 1],
            ["a"],
            r"each of the 2 rows needs one id, got ids of shape \(1,\)",
        ),
        ([[1.0]], [0], [["a"]], "needs one id"),
        ([[1.0]], [0], "a", "needs one id"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(
    features: object, targets: object, ids: object, says: str
) -> None:
    with pytest.raises(ParameterError, match=says):
        Samples(features, targets, ids)  # type: ignore[arg-type]


def test_no_row_at_all_is_a_client_too() -> None:
    rows = Samples(np.zeros((0, 4)), np.zeros(0))
    assert (len(rows), repr(rows)) == (0, "Samples(0 rows of 4)")

"""The hub is never reached here: rows come from a stand-in with a few real ones."""

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Dataset, load
from urna.data.files import HUB, Rows, load_hub
from urna.errors import DataMissing, ParameterError

# Three rows of the census table, as the hub's copy writes them, repeated to fill both parts.
_ADULT: dict[str, list[Any]] = {
    "age": [90, 82, 52],
    "workclass": ["?", "Private", "Self-emp-inc"],
    "fnlwgt": [77053, 132870, 287927],
    "education": ["HS-grad", "HS-grad", "HS-grad"],
    "education.num": [9, 9, 9],
    "marital.status": ["Widowed", "Widowed", "Married-civ-spouse"],
    "occupation": ["?", "Exec-managerial", "Exec-managerial"],
    "relationship": ["Not-in-family", "Not-in-family", "Wife"],
    "race": ["White", "White", "White"],
    "sex": ["Female", "Female", "Female"],
    "capital.gain": [0, 0, 15024],
    "capital.loss": [4356, 4356, 0],
    "hours.per.week": [40, 18, 40],
    "native.country": ["United-States", "United-States", "United-States"],
    "income": ["<=50K", "<=50K", ">50K"],
}


class Table:
    """Columns in memory, read as `datasets.Dataset` is read."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, column: str) -> list[Any]:
        return self._columns[column]


def _digits(size: int) -> list[np.ndarray]:
    """Return real digits, laid in the corner of a larger picture."""
    small = load_digits().images[:6].astype(np.uint8) * 15
    return [np.pad(picture, ((0, size - 8), (0, size - 8))) for picture in small]


def _fetching(columns: dict[str, list[Any]]) -> Callable[[str, str], Rows]:
    return lambda place, part: Table(columns)


def test_the_hubs_mnist_becomes_rows_in_zero_to_one() -> None:
    asked = []

    def fetch(place: str, part: str) -> Rows:
        asked.append((place, part))
        return Table({"image": _digits(28), "label": [0, 1, 2, 3, 4, 5]})

    dataset = load_hub("mnist", fetch=fetch)
    assert asked == [("ylecun/mnist", "train"), ("ylecun/mnist", "test")]
    assert dataset.train.features.shape == (6, 784)
    assert np.allclose(dataset.train.features.reshape(6, 28, 28) * 255, _digits(28))
    assert dataset.train.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.writers is None


def test_the_hubs_cifar10_gets_its_channels_first() -> None:
    coloured = [np.stack([p, p // 2, p // 3], axis=2) for p in _digits(32)]
    dataset = load_hub("cifar10", fetch=_fetching({"img": coloured, "label": [0] * 6}))
    channels = dataset.train.features.reshape(6, 3, 32, 32) * 255
    assert np.allclose(channels, np.stack(coloured).transpose(0, 3, 1, 2), atol=1e-4)
    assert dataset.shape == (3, 32, 32)


def test_the_hubs_adult_holds_out_a_fifth() -> None:
    columns = {name: values * 10 for name, values in _ADULT.items()}
    dataset = load_hub("adult", fetch=_fetching(columns))
    assert dataset.train.features.shape == (24, 108)
    assert dataset.test.features.shape == (6, 108)
    assert dataset.train.targets.sum() == 8
    assert dataset.test.targets.sum() == 2


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("mnist", {"picture": [], "label": []}, "'image' is missing; found are picture, label"),
        ("mnist", {"image": [np.zeros((28, 27), np.uint8)], "label": [0]}, r"shape \(28, 28\)"),
        ("mnist", {"image": [], "label": []}, "holds no pictures"),
        ("mnist", {"image": _digits(28), "label": [0] * 5}, "equally many rows, got 6 and 5"),
        ("cifar10", {"img": _digits(32), "label": [0] * 6}, r"shape \(32, 32, 3\)"),
        ("adult", {"age": [1]}, "'income' is missing"),
        ("adult", {"age": [1, 2], "income": ["<=50K", ">50K"]}, "missing are fnlwgt"),
    ],
)
def test_other_rows_than_expected_are_refused_in_words(
    name: str, columns: dict[str, list[Any]], says: str
) -> None:
    with pytest.raises(ParameterError, match=f"{HUB[name]} on the hub is not '{name}'.*{says}"):
        load_hub(name, fetch=_fetching(columns))


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataMissing, match=r"pip install 'urna\[hub\]'"):
        load("mnist", hub=True)


def test_the_package_is_asked_for_each_part_and_its_failure_put_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in = types.ModuleType("datasets")
    monkeypatch.setitem(sys.modules, "datasets", stand_in)

    def answers(place: str, *, split: str) -> Table:
        return Table({"image": _digits(28), "label": [7] * 6})

    def offline(place: str, *, split: str) -> Table:
        raise ConnectionError("a long trace of addresses")

    stand_in.load_dataset = answers  # type: ignore[attr-defined]
    found = load("mnist", hub=True)
    assert isinstance(found, Dataset)
    assert found.test.targets.tolist() == [7] * 6

    stand_in.load_dataset = offline  # type: ignore[attr-defined]
    with pytest.raises(DataMissing, match=r"could not be fetched .*\(ConnectionError\); check"):
        load("mnist", hub=True)

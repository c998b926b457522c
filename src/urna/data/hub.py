"""The same sets from the Hugging Face hub, where there is internet.

Needs the extra `urna[hub]`. Nothing is fetched before `load_hub` is called. The hub's MNIST
names no writers, and its Adult is the 32,561 training rows only, of which a fixed fifth is
held out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from urna.data.adult import adult
from urna.data.dataset import Dataset
from urna.data.files import pictures
from urna.data.prepare import hold_out
from urna.errors import DataMissing, ParameterError

__all__ = ["HUB", "Rows", "load_hub"]

HUB: Mapping[str, str] = {
    "adult": "scikit-learn/adult-census-income",
    "cifar10": "uoft-cs/cifar10",
    "mnist": "ylecun/mnist",
}
"""Where each set lies on the hub, by name of the set."""


class Rows(Protocol):
    """What is used of a `datasets.Dataset`: its columns, by name."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        ...

    def __getitem__(self, column: str) -> Iterable[Any]:
        """Return one column."""
        ...


Fetch = Callable[[str, str], Rows]
"""Called with a place on the hub and a split; returns its rows."""


def load_hub(name: str, *, fetch: Fetch | None = None) -> Dataset:
    """Fetch one of `HUB`, or read it from the hub's cache on this machine.

    Args:
        name: A key of `HUB`.
        fetch: How rows are fetched; by default the package `datasets` does it.

    Raises:
        DataMissing: The package is not installed, or the hub does not answer.
        ParameterError: What the hub sent is not what the set should hold.
    """
    fetch = fetch or _fetch
    try:
        if name == "adult":
            return _adult(fetch(HUB[name], "train"))
        column = {"cifar10": "img", "mnist": "image"}[name]
        shape = {"cifar10": (3, 32, 32), "mnist": (1, 28, 28)}[name]
        train, test = (_pixels(fetch(HUB[name], part), column, shape) for part in ("train", "test"))
        return pictures(name, train, test, shape=shape)
    except DataMissing:
        raise
    except ParameterError as error:
        raise ParameterError(f"{HUB[name]} on the hub is not {name!r} as known: {error}") from error


def _fetch(place: str, part: str) -> Rows:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DataMissing(
            "the hub is read with the package flwr-datasets, which is not installed; "
            "install it with: pip install 'urna[hub]'"
        ) from error
    try:
        rows: Rows = load_dataset(place, split=part)
    except (OSError, ValueError) as error:
        raise DataMissing(
            f"{place} could not be fetched from the Hugging Face hub ({type(error).__name__}); "
            "check the connection, or read the set from a folder"
        ) from error
    return rows


def _column(rows: Rows, name: str) -> list[Any]:
    if name not in rows.column_names:
        raise ParameterError(
            f"a column {name!r} is missing; found are {', '.join(rows.column_names) or 'none'}"
        )
    return list(rows[name])


def _pixels(
    rows: Rows, column: str, shape: tuple[int, int, int]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    channels, height, width = shape
    seen = (height, width) if channels == 1 else (height, width, channels)
    images = [np.asarray(image) for image in _column(rows, column)]
    if any(image.shape != seen or image.dtype != np.uint8 for image in images):
        raise ParameterError(f"every picture must hold bytes of shape {seen}")
    if not images:
        raise ParameterError("a part holds no pictures")
    stack = np.stack(images).reshape(-1, height, width, channels)
    # The hub's pictures hold channels last; torch and our shape have them first.
    return np.moveaxis(stack, 3, 1), np.array(_column(rows, "label"))


def _adult(rows: Rows) -> Dataset:
    # The hub's copy writes education.num where the set's description writes education-num.
    columns = {
        name.replace(".", "_").replace("-", "_"): _column(rows, name) for name in rows.column_names
    }
    if "income" not in columns:
        raise ParameterError("a column 'income' is missing")
    incomes = np.array([str(income).strip().startswith(">") for income in columns["income"]])
    train_rows, _ = hold_out("adult", incomes.astype(np.int64))
    train = np.zeros(len(incomes), dtype=bool)
    train[train_rows] = True
    return adult(columns, train)

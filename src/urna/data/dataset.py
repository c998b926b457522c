"""Samples, and a data set made of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = ["Dataset", "Samples"]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Features and targets, row by row: one client's data, or a whole training set.

    Features of the sets that `load` returns are a matrix of float32, images included;
    `Dataset.shape` says what picture a row is. Data of one's own may be a pandas DataFrame.
    """

    features: npt.NDArray[np.floating]
    targets: npt.NDArray[np.integer] | npt.NDArray[np.floating]
    ids: npt.NDArray[Any] | None = None
    """Which record each row belongs to (integers or texts), where records are to be protected;
    rows of one id are one record. Never a function of the row's content."""

    def __post_init__(self) -> None:
        if len(self.features) != len(self.targets):
            raise ParameterError(
                f"features and targets must have equally many rows, got {len(self.features)} "
                f"and {len(self.targets)}"
            )
        if self.ids is not None and np.shape(self.ids) != (len(self.targets),):
            raise ParameterError(
                f"each of the {len(self.targets)} rows needs one id, got ids of shape "
                f"{np.shape(self.ids)}"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: npt.NDArray[np.integer]) -> "Samples":
        """Return the given rows, in the given order."""
        ids = None if self.ids is None else self.ids[rows]
        return Samples(_rows(self.features, rows), _rows(self.targets, rows), ids)


def _rows(table: Any, rows: npt.NDArray[np.integer]) -> Any:  # noqa: ANN401 - or a DataFrame
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A named data set: training samples, and test samples nobody trains on."""

    name: str
    train: Samples
    test: Samples
    classes: int | None
    """Number of classes; None for regression."""
    writers: npt.NDArray[np.integer] | None = None
    """Who made each training sample, where that is known."""
    shape: tuple[int, int, int] | None = None
    """Channels, height and width of the picture in each row; None where rows are no pictures.
    A torch model for pictures begins with `nn.Unflatten(1, dataset.shape)`."""

    def __post_init__(self) -> None:
        if self.writers is not None and len(self.writers) != len(self.train):
            raise ParameterError(
                f"each of the {len(self.train)} training samples needs its writer, got "
                f"{len(self.writers)} writers"
            )

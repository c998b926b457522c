"""How columns of a table become numbers, by public facts alone.

Ranges and categories are agreed on beforehand. Means, deviations or lists of values taken from
the data would tell about them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = ["Coding"]

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coding:
    """What is known of columns before anybody looks into them.

    Args:
        ranges: Smallest and largest value of columns of numbers. Values are scaled to -1..1, and
            clipped to it; what is no number becomes 0, the middle.
        categories: All values of columns of texts. Each is a column of 0 and 1; a text that is
            not among them is 0 everywhere.

    Raises:
        ParameterError: A range or a list cannot be.

    Example:
        >>> coding = Coding({"age": (0, 100)}, {"sex": ("f", "m")})
        >>> coding.columns("age", np.array(["25", "?"], dtype=object)).tolist()
        [[-0.5], [0.0]]
        >>> coding.columns("sex", np.array(["m", ""], dtype=object)).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, ends in self.ranges.items():
            numbers = isinstance(ends, tuple | list) and all(
                isinstance(end, int | float) and math.isfinite(end) for end in ends
            )
            if not numbers or len(ends) != 2 or not ends[0] < ends[1]:
                raise ParameterError(
                    f"the range of {name!r} is two numbers, the smaller first; got {ends!r}"
                )
        for name, known in self.categories.items():
            texts = isinstance(known, tuple | list) and all(isinstance(k, str) for k in known)
            if not texts or not known or len(set(known)) < len(known):
                raise ParameterError(
                    f"the categories of {name!r} are a list of different texts; got {known!r}"
                )
        if both := sorted(self.ranges.keys() & self.categories.keys()):
            raise ParameterError(f"{both[0]!r} has a range or categories, not both")

    def __bool__(self) -> bool:
        return bool(self.ranges or self.categories)

    def columns(self, name: str, values: npt.NDArray[Any]) -> Matrix:
        """Return a column of a table as columns of numbers."""
        if name in self.categories:
            texts = np.array([str(value).strip() for value in values.tolist()], dtype=object)
            return np.stack(
                [(texts == known).astype(np.float64) for known in self.categories[name]], axis=1
            )
        numbers = as_numbers(values)[:, None]
        if name not in self.ranges:
            return numbers
        low, high = map(float, self.ranges[name])
        with np.errstate(invalid="ignore"):
            scaled = np.clip((numbers - low) / (high - low) * 2 - 1, -1, 1)
        return np.asarray(np.where(np.isnan(numbers), 0.0, scaled))


def as_numbers(values: npt.NDArray[Any]) -> Matrix:
    """Return cells as numbers; what is none becomes NaN."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    return np.array([_number(value) for value in values.tolist()], dtype=np.float64)


def _number(value: Any) -> float:  # noqa: ANN401 - whatever a cell holds
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")

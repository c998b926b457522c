"""How columns of a table become numbers, by public facts alone.

Ranges and categories are agreed on beforehand. Means, deviations or lists of values taken from
the data would tell about them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = ["MISSING", "Coding", "as_numbers", "as_texts"]

Matrix = npt.NDArray[np.float64]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "<na>", "null", "-", "."})
"""Texts, in lower case, that say a cell is empty."""

_TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_WHOLE = re.compile(r"([-+]?\d+)\.0+")


@dataclass(frozen=True, slots=True)
class Coding:
    """What is known of columns before anybody looks into them.

    Args:
        ranges: Smallest and largest value of columns of numbers. Values are scaled to -1..1, and
            clipped to it; what is no number becomes 0, the middle.
        categories: All values of columns of texts. Each is a column of 0 and 1; a text that is
            not among them is 0 everywhere. `1` and `1.0` are one value.

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

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "categories": {name: list(known) for name, known in self.categories.items()},
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Coding":
        """Read what `as_mapping` wrote."""
        ranges, categories = mapping.get("ranges", {}), mapping.get("categories", {})
        return cls(
            {name: tuple(ends) for name, ends in ranges.items()},
            {name: tuple(known) for name, known in categories.items()},
        )

    def __bool__(self) -> bool:
        return bool(self.ranges or self.categories)

    def rows(self, names: Sequence[str], table: Any) -> Matrix:  # noqa: ANN401 - arrays and frames
        """Return the rows of a table as numbers, as models have them.

        Args:
            names: The columns, in the order of a model.
            table: A matrix of these columns as files hold them; or a frame or mapping by name.

        Raises:
            ParameterError: It has other columns.
        """
        named = isinstance(table, Mapping) or hasattr(table, "columns")
        matrix = None if named else np.asarray(table)
        if matrix is not None and (matrix.ndim != 2 or matrix.shape[1] != len(names)):
            raise ParameterError(
                f"rows have {len(names)} columns ({', '.join(names)}), these have shape "
                f"{matrix.shape[1:]}"
            )
        if lacking := [name for name in names if named and name not in table]:
            raise ParameterError(f"the table has no column {lacking[0]!r}")
        parts = [table[name] for name in names] if matrix is None else list(matrix.T)
        coded = [self.columns(n, np.asarray(p)) for n, p in zip(names, parts, strict=True)]
        return np.concatenate(coded, axis=1)

    def columns(self, name: str, values: npt.NDArray[Any]) -> Matrix:
        """Return a column of a table as columns of numbers."""
        if name in self.categories:
            texts = as_texts(values)
            known = as_texts(np.array(self.categories[name], dtype=object))
            return np.stack([(texts == one).astype(np.float64) for one in known], axis=1)
        numbers = as_numbers(values)[:, None]
        if name not in self.ranges:
            return numbers
        low, high = map(float, self.ranges[name])
        with np.errstate(invalid="ignore"):
            scaled = np.clip((numbers - low) / (high - low) * 2 - 1, -1, 1)
        return np.asarray(np.where(np.isnan(numbers), 0.0, scaled))


def as_numbers(values: npt.NDArray[Any]) -> Matrix:
    """Return cells as numbers, true and false as 1 and 0; what is none becomes NaN."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    return np.array([_number(value) for value in values.tolist()], dtype=np.float64)


def as_texts(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return cells as texts, one for each value: `1.0` is "1", `TRUE` is "true", `NA` is ""."""
    return np.array([_text(value) for value in values.tolist()], dtype=object)


def _number(value: Any) -> float:  # noqa: ANN401 - whatever a cell holds
    if isinstance(value, str) and (truth := _TRUTH.get(value.strip().lower())) is not None:
        return truth
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _text(value: Any) -> str:  # noqa: ANN401 - whatever a cell holds
    text = "" if value is None else str(value).strip()
    lowered = text.lower()
    if lowered in MISSING:
        return ""
    if whole := _WHOLE.fullmatch(text):
        return whole.group(1)
    return lowered if lowered in _TRUTH else text

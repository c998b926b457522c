"""What the columns of somebody's own tables seem to hold, for a first look on their machine."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data.coding import as_numbers, as_texts

__all__ = ["ColumnKind", "ColumnLook", "look_at_column", "record_column_of"]

_MOST_CATEGORIES = 20
_NEARLY = 0.95  # of the values
_FEW_TEXTS, _FEW_NUMBERS = 20, 100  # fewer may be all different by chance
_NAMED_ID = re.compile(r"(^|[_\W]|(?<=[a-z])(?=[A-Z]))(id|ids|nbr|no|nr|key|uuid|mrn|ssn)$", re.I)
_NAMED_CODE = re.compile(r"(^|[_\W]|(?<=[a-z])(?=[A-Z]))(id|code|type|class)$", re.I)
_PERSON = re.compile(r"patient|person|subject|member|customer|client|user|mrn|ssn", re.I)
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T]\d.*)?"
)
_CODE = re.compile(r"[A-Za-z]+[-. ]?\d[\w.-]*")
_TAIL = 0.01  # of the values at either end, which a range leaves out
_STEPS = 10


class ColumnKind(StrEnum):
    """What a column holds; numbers and categories can be predicted from."""

    NUMBERS = "numbers"
    CATEGORIES = "categories"
    ID = "ids"
    DATES = "dates"
    TEXTS = "too many different texts or codes"
    CONSTANT = "one value alone"
    EMPTY = "nothing"


@dataclass(frozen=True, slots=True)
class ColumnLook:
    """One column, looked at."""

    kind: ColumnKind
    distinct: int
    """Different values."""
    filled: int
    """Cells that are not empty."""
    span: tuple[float, float] | None = None
    """Round numbers around nearly all values of a column of numbers."""
    categories: tuple[str, ...] = ()


def look_at_column(name: str, values: npt.NDArray[Any]) -> ColumnLook:
    """Return what a column seems to hold, by its name and its cells."""
    texts = as_texts(values)
    found = sorted({text for text in texts.tolist() if text})
    filled = int((texts != "").sum())
    numbers = as_numbers(values)
    finite = numbers[np.isfinite(numbers)]
    different = len(found)

    def look(kind: ColumnKind, **more: Any) -> ColumnLook:  # noqa: ANN401 - fields
        return ColumnLook(kind, different, filled, **more)

    if different < 2:
        return look(ColumnKind.CONSTANT if found else ColumnKind.EMPTY)
    strays = [text for text in found if not math.isfinite(as_numbers(np.array([text]))[0])]
    numeric = 2 * len(finite) >= filled and not any(map(_CODE.fullmatch, strays))
    whole = numeric and bool((finite % 1 == 0).all())
    if sum(bool(_DATE.fullmatch(text)) for text in found) >= _NEARLY * different:
        return look(ColumnKind.DATES)
    spaced = sum(" " in text for text in found) > different / 2  # names, remarks
    if not spaced and (whole or not numeric) and _is_id(name, different, filled, whole=whole):
        return look(ColumnKind.ID)
    coded = whole and _NAMED_CODE.search(name)
    if numeric and not (coded and 2 < different <= _MOST_CATEGORIES):
        return look(ColumnKind.NUMBERS, span=round_span(finite))
    if different <= _MOST_CATEGORIES:
        return look(ColumnKind.CATEGORIES, categories=tuple(found))
    return look(ColumnKind.TEXTS)


def record_column_of(looks: Mapping[str, ColumnLook]) -> str | None:
    """Return the column of ids that says whose a row is; None where none does.

    Columns that are called after people come first, then the one with the fewest values.
    """
    ids = [name for name, look in looks.items() if look.kind is ColumnKind.ID]
    return min(ids, key=lambda name: (not _PERSON.search(name), looks[name].distinct), default=None)


def _is_id(name: str, different: int, filled: int, *, whole: bool) -> bool:
    """Say whether values are ids: nearly all different, or many and called so."""
    if different >= max(_NEARLY * filled, _FEW_NUMBERS if whole else _FEW_TEXTS):
        return True
    return bool(_NAMED_ID.search(name) and different > max(_MOST_CATEGORIES, filled / 20))


def round_span(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return round numbers around all but the outermost values: they should not tell a single one.

    Example:
        >>> round_span(np.array([101.0, 113.0, 187.0, 196.0]))
        (100.0, 200.0)
    """
    if not len(values):
        return 0.0, 1.0
    ends = np.quantile(values, [_TAIL, 1 - _TAIL], method="inverted_cdf")
    low, high = map(float, ends)
    if low == high:
        low, high = float(values.min()), float(values.max())
    if low == high:
        return low - 1, high + 1
    rough = (high - low) / _STEPS
    power = math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * 10.0**power >= rough) * 10.0**power
    digits = max(0, -power)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return round(low, digits), round(high, digits)

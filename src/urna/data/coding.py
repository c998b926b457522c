"""Columns of tables: how they become numbers, by public facts alone, and what they seem to hold.

Ranges and categories are agreed on beforehand. Means, deviations or lists of values taken from
the data would tell about them. `look_at_column` is for a first look, on the owner's machine.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

__all__ = [
    "MISSING",
    "Coding",
    "ColumnKind",
    "ColumnLook",
    "as_numbers",
    "as_texts",
    "fault_of",
    "look_at_column",
    "places_of",
    "record_column_of",
    "round_span",
    "spellings_of",
]

Matrix = npt.NDArray[np.float64]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "<na>", "null", "-", "."})
"""Texts, in lower case, that say a cell is empty."""

_TRUTH = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_WHOLE = re.compile(r"([-+]?\d+)\.0+")

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


@dataclass(frozen=True, slots=True)
class Coding:
    """What is known of columns before anybody looks into them.

    Args:
        ranges: Smallest and largest value of columns of numbers. Values are scaled to -1..1, and
            clipped to it; what is no number becomes 0, the middle.
        categories: All values of columns of texts. Each is a column of 0 and 1; a text that is
            not among them is 0 everywhere. `1` and `1.0` are one value, and so are `M` and `m`
            unless the list has both.

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
            known = self.categories[name]
            return np.eye(len(known) + 1)[places_of(values, known)][:, :-1]
        numbers = as_numbers(values)[:, None]
        if name not in self.ranges:
            return numbers
        low, high = map(float, self.ranges[name])
        with np.errstate(invalid="ignore"):
            scaled = np.clip((numbers - low) / (high - low) * 2 - 1, -1, 1)
        return np.asarray(np.where(np.isnan(numbers), 0.0, scaled))

    def usable(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which cells of a column say something: known texts, or numbers in its range."""
        if name in self.categories:
            return places_of(values, self.categories[name]) >= 0
        low, high = self.ranges.get(name, (-np.inf, np.inf))
        numbers = as_numbers(values)
        return np.isfinite(numbers) & (numbers >= low) & (numbers <= high)

    def wanted(self, name: str) -> str:
        """Say what the usable cells of a column are."""
        if name in self.categories:
            return f"among its {len(self.categories[name])} categories"
        low, high = self.ranges.get(name, (None, None))
        return "numbers" if low is None else f"numbers from {low:g} to {high:g}"


def places_of(values: npt.NDArray[Any], known: Sequence[str]) -> npt.NDArray[np.intp]:
    """Return each cell's place among known texts, -1 where it is none of them or empty.

    Upper and lower case are the same, unless two known texts differ in nothing else.

    Example:
        >>> places_of(np.array(["Yes ", "no", "?"], dtype=object), ("no", "yes")).tolist()
        [1, 0, -1]
    """
    texts = [_text(one) for one in known]
    fold = str if len({text.casefold() for text in texts}) < len(texts) else str.casefold
    place = {fold(text): at for at, text in enumerate(texts) if text}
    return np.array([place.get(fold(_text(v)), -1) for v in values.tolist()], dtype=np.intp)


def fault_of(known: object) -> str | None:
    """Say why texts cannot be told apart in tables: one means an empty cell, or two are one value.

    Example:
        >>> fault_of(("1", "1.0"))
        "'1' and '1.0' are one value: leave one of them out"
        >>> fault_of(("yes", "no"))
    """
    first: dict[str, object] = {}
    for one in known if isinstance(known, list | tuple) else ():
        text = _text(one)
        if not text:
            return f"a cell {one!r} is an empty one: leave it out, or call it something else"
        if text in first:
            return f"{first[text]!r} and {one!r} are one value: leave one of them out"
        first[text] = one
    return None


def spellings_of(texts: Sequence[str]) -> list[str]:
    """Return the texts that are there, in order; the most usual spelling of each.

    Example:
        >>> spellings_of(["sick", "Sick", "sick", "", "well"])
        ['sick', 'well']
    """
    usual: dict[str, str] = {}
    for text, _ in sorted(Counter(texts).items(), key=lambda pair: (-pair[1], pair[0])):
        if text:
            usual.setdefault(text.casefold(), text)
    return sorted(usual.values())


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
    found = spellings_of(texts.tolist())
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

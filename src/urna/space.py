"""The public, ordered, finite space of candidates that clients vote on.

Candidates are the product of the axes in the order given, the last axis running fastest, or
a subset of that product. Both the set and its order are public; a fingerprint lets a client
check that it votes on what the server announced.
"""

import functools
import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName

__all__ = ["Axis", "AxisKind", "Candidate", "Space", "Value", "Window"]

Scalar = bool | int | float | str | None
Value = bool | int | float | str | Any
"""Any: None (no limit) and tuples of scalars (layer sizes), on axes of no arithmetic only."""
Candidate = dict[str, Value]
Window = tuple[float | None, float | None]
"""Where something works: from the first number to the second, None standing for no bound."""

_MOST_CANDIDATES = 1_000_000
_MOST_AXES = 1_000
_NONE = {"none": True}  # None in a TOML file, which has no null
_LARGEST = float(np.finfo(np.float64).max)


class AxisKind(StrEnum):
    """How far apart two values of an axis are."""

    LOG = "log"
    """By ratio: 0.01 and 0.1 are as far apart as 0.1 and 1."""
    LINEAR = "linear"
    """By difference."""
    ORDINAL = "ordinal"
    """By position in the list."""
    CATEGORICAL = "categorical"
    """Equal or not."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One hyperparameter and its values, in order.

    Args:
        kind: How far apart two values are.
        values: In order.
        works: Between which numbers good values are expected (either may be None), as
            whoever makes the space knows without looking at any client's data; (None, None)
            where nothing is known. Left out, the axis's name decides: see `vote.windows`. It
            is read by decoders only and excludes nothing.

    Example:
        >>> Axis.log_range(1e-3, 1e-1, count=3).values
        (0.001, 0.01, 0.1)
        >>> Axis.log([1e-4, 1e-2, 1.0], works=(1e-3, None)).works
        (0.001, None)
    """

    kind: AxisKind
    values: tuple[Value, ...]
    works: Window | None = None

    def __post_init__(self) -> None:
        if self.kind not in list(AxisKind):
            raise UnknownName("kind of axis", str(self.kind), AxisKind)
        # "log" is as good as AxisKind.LOG to a caller; inside it is always the latter.
        object.__setattr__(self, "kind", AxisKind(self.kind))
        object.__setattr__(self, "values", _plain(self.values))
        if not self.values:
            raise ParameterError("an axis needs at least one value, got none")
        for value in self.values:
            for part in value if isinstance(value, tuple) else (value,):
                _check_scalar(part)
        _check_different(self.values)
        if self.kind in (AxisKind.LOG, AxisKind.LINEAR):
            for value in self.values:
                if not _is_number(value):
                    raise ParameterError(f"a {self.kind} axis holds numbers, got {value!r}")
                if abs(value) > _LARGEST:
                    raise ParameterError(
                        f"a {self.kind} axis holds numbers of at most {_LARGEST:.3g}; "
                        "an ordinal axis holds any"
                    )
                if self.kind is AxisKind.LOG and value <= 0:
                    raise ParameterError(f"a log axis holds positive numbers, got {value!r}")
        if self.works is not None:
            if not self.takes_bounds:
                raise ParameterError(
                    f"`works` bounds a log or a linear axis, or numbers in order; this {self.kind} "
                    "axis holds something else"
                )
            low, high = works = _window(self.works, self.kind)
            if all(_outside(value, low, high) for value in self.values):
                raise ParameterError(
                    f"`works` should hold some value of its axis, got {_bounds(works)} for values "
                    f"from {min(self.values)} to {max(self.values)}"
                )
            object.__setattr__(self, "works", works)

    @classmethod
    def log(cls, values: Sequence[float], works: Window | None = None) -> Self:
        """Return an axis whose values compare by ratio (learning rates)."""
        return cls(AxisKind.LOG, _plain(values), works)

    @classmethod
    def linear(cls, values: Sequence[float], works: Window | None = None) -> Self:
        """Return an axis whose values compare by difference (momentum)."""
        return cls(AxisKind.LINEAR, _plain(values), works)

    @classmethod
    def ordinal(cls, values: Sequence[Value], works: Window | None = None) -> Self:
        """Return an axis whose values compare by position in the list (network sizes)."""
        return cls(AxisKind.ORDINAL, _plain(values), works)

    @classmethod
    def categorical(cls, values: Sequence[Value]) -> Self:
        """Return an axis whose values are equal or not (kinds of optimiser)."""
        return cls(AxisKind.CATEGORICAL, _plain(values))

    @classmethod
    def log_range(cls, low: float, high: float, count: int, works: Window | None = None) -> Self:
        """Return `count` values from `low` to `high` in equal ratios."""
        if not 0 < low < high <= _LARGEST or count < 2:
            raise ParameterError(
                f"a log range needs 0 < low < high and count >= 2, got {low}, {high}, {count}"
            )
        low, high = float(low), float(high)
        start, end = math.log10(low), math.log10(high)
        step = (end - start) / (count - 1)
        # Six digits read well; more where the steps are so fine that six would not tell them apart.
        digits = min(max(6, 5 - math.floor(math.log10(step))), 17) if step > 0 else 17
        inner = [float(f"{10 ** (start + step * i):.{digits}g}") for i in range(1, count - 1)]
        return cls.log([low, *inner, high], works)

    @classmethod
    def linear_range(cls, low: float, high: float, count: int, works: Window | None = None) -> Self:
        """Return `count` values from `low` to `high` in equal steps."""
        if not -_LARGEST <= low < high <= _LARGEST or count < 2:
            raise ParameterError(
                f"a linear range needs low < high and count >= 2, got {low}, {high}, {count}"
            )
        low, high = float(low), float(high)
        step = high / (count - 1) - low / (count - 1)  # the difference itself may overflow
        # Six digits of a step: fine steps far from zero stay apart. And no -0.0.
        places = 5 - math.floor(math.log10(step)) if step > 0 else 0
        inner = [round(low + step * i, places) + 0.0 for i in range(1, count - 1)]
        return cls.linear([low, *inner, high], works)

    @classmethod
    def of(cls, values: "Axis | Sequence[Value]") -> "Axis":
        """Return an axis from a plain list: numbers are ordinal, anything else categorical.

        `None` at an end of a list of numbers means no limit there, so that list is ordinal too.
        By position, a list of equal ratios has the distances of a log axis.

        Example:
            >>> Axis.of([2, 4, 8, None]).kind, Axis.of([(64,), (64, 64)]).kind
            (<AxisKind.ORDINAL: 'ordinal'>, <AxisKind.CATEGORICAL: 'categorical'>)
        """
        if isinstance(values, Axis):
            return values
        plain = _plain(values)
        inner = (
            plain[1:] if plain[:1] == (None,) else plain[:-1] if plain[-1:] == (None,) else plain
        )
        ordered = all(map(_is_number, inner))
        return cls(AxisKind.ORDINAL if ordered else AxisKind.CATEGORICAL, plain)

    @property
    def takes_bounds(self) -> bool:
        """Whether a number has a place on it: its values are numbers, on a scale or in order."""
        if self.kind in (AxisKind.LOG, AxisKind.LINEAR):
            return True
        numbers = [v for v in self.values if _is_number(v) and abs(v) <= _LARGEST]
        if self.kind is AxisKind.CATEGORICAL or len(numbers) < len(self.values):
            return False
        return numbers in (sorted(numbers), sorted(numbers, reverse=True))

    def places(self) -> npt.NDArray[np.float64]:
        """Return where each value lies, one mean step of the axis being 1.

        Values of a categorical axis are numbered; they lie nowhere.
        """
        count = len(self.values)
        if self.kind in (AxisKind.CATEGORICAL, AxisKind.ORDINAL):
            return np.arange(count, dtype=np.float64)
        places = np.array([float(v) for v in self.values])
        if self.kind is AxisKind.LOG:
            places = np.log(places)
        # Scaled by a power of two first (exact), so that no difference can overflow.
        places = np.ldexp(places, -int(np.frexp(np.abs(places).max())[1]))
        places -= places.min()
        if width := places.max():
            places *= (count - 1) / width
        return np.asarray(places)

    def steps(self) -> npt.NDArray[np.float64]:
        """Return the distances between all values, one mean step of the axis being 1."""
        places = self.places()
        if self.kind is AxisKind.CATEGORICAL:
            return 1.0 - np.eye(len(places))
        return np.asarray(np.abs(places[:, None] - places[None, :]))


class Space(Sequence[Candidate]):
    """An ordered, finite, public set of candidates.

    Args:
        axes: One keyword per hyperparameter: a list of values, or an `Axis`.

    Raises:
        ParameterError: There is no axis, an axis is empty or holds a value twice.

    Example:
        >>> space = Space(lr=Axis.log([0.01, 0.1]), momentum=[0.0, 0.9])
        >>> len(space), space[1]
        (4, {'lr': 0.01, 'momentum': 0.9})
    """

    def __init__(self, /, **axes: Axis | Sequence[Value]) -> None:
        if not axes:
            raise ParameterError("a space needs at least one axis: Space(lr=[0.01, 0.1])")
        built = {}
        for name, values in axes.items():
            try:
                _check_text(name)
                built[name] = Axis.of(values)
            except ParameterError as error:
                raise ParameterError(f"axis {name!r}: {error}") from error
        self._axes: Mapping[str, Axis] = built
        self._shape = tuple(len(axis.values) for axis in built.values())
        if math.prod(self._shape) > _MOST_CANDIDATES:
            raise ParameterError(
                f"the product of the axes has {math.prod(self._shape):,} candidates; at most "
                f"{_MOST_CANDIDATES:,} are supported. Use fewer values per axis."
            )
        self._chosen: tuple[int, ...] | None = None

    @property
    def axes(self) -> Mapping[str, Axis]:
        """The axes by name, in product order."""
        return dict(self._axes)

    @property
    def chosen(self) -> tuple[int, ...] | None:
        """Places in the full product, ascending; None when the space is the full product."""
        return self._chosen

    def __len__(self) -> int:
        return math.prod(self._shape) if self._chosen is None else len(self._chosen)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - Sequence's overloads
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"candidate {index} of {len(self)}")
        places = self.places[index]
        return {
            name: axis.values[place]
            for (name, axis), place in zip(self._axes.items(), places, strict=True)
        }

    def __iter__(self) -> Iterator[Candidate]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        axes = ", ".join(f"{n}={a.kind}[{len(a.values)}]" for n, a in self._axes.items())
        return f"Space({axes}: {len(self)} candidates)"

    def subset(self, count: int, rng: np.random.Generator) -> "Space":
        """Return `count` candidates drawn without replacement, kept in product order.

        Args:
            count: How many candidates to keep.
            rng: A public generator. The draw must not depend on any client's data.
        """
        if not 1 <= count <= len(self):
            raise ParameterError(f"a subset takes 1 to {len(self)} candidates, got {count}")
        drawn = sorted(rng.choice(len(self), size=count, replace=False).tolist())
        before = self._chosen or range(len(self))
        return self._with_chosen([before[i] for i in drawn])

    def only(self, places: Sequence[int]) -> "Space":
        """Return the candidates at these places, kept in product order.

        Example:
            >>> list(Space(x=[1, 2, 3, 4]).only([3, 1]))
            [{'x': 2}, {'x': 4}]
        """
        if not places or not all(0 <= place < len(self) for place in places):
            raise ParameterError(f"places must lie in 0..{len(self) - 1}, got {list(places)}")
        before = self._chosen or range(len(self))
        return self._with_chosen(sorted({before[place] for place in places}))

    def places_of(self, asked: "Space") -> list[int]:
        """Return where another space's candidates are in this one; all of them must be.

        Example:
            >>> Space(x=[1, 2, 3, 4]).places_of(Space(x=[4, 2]))
            [3, 1]
        """
        if asked == self:
            return list(range(len(self)))
        known = {tuple(candidate.values()): place for place, candidate in enumerate(self)}
        return [known[tuple(candidate.values())] for candidate in asked]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of axes, values, kinds and order, for clients and server to compare."""
        text = json.dumps(self.as_mapping(), ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(b"urna space\0" + text.encode()).hexdigest()

    def as_mapping(self) -> dict[str, Any]:
        """Return the space as plain values, for JSON."""
        # A list, not an object: the order of axes is part of the space.
        axes = [
            {"name": name, "kind": str(axis.kind), "values": _listed(axis.values)}
            | ({} if axis.works is None else {"works": _bounds(axis.works)})
            for name, axis in self._axes.items()
        ]
        return {"axes": axes} | ({} if self._chosen is None else {"chosen": list(self._chosen)})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Space":
        """Read what `as_mapping` wrote, or axes as `{name: values}`."""
        if not isinstance(mapping, Mapping) or not mapping.keys() <= {"axes", "chosen"}:
            raise ParameterError("a space holds `axes` and, for a subset, `chosen`")
        axes = mapping.get("axes")
        if isinstance(axes, Mapping | list) and len(axes) > _MOST_AXES:
            raise ParameterError(f"a space has at most {_MOST_AXES:,} axes, got {len(axes):,}")
        if isinstance(axes, Mapping):
            named = [(str(name), _axis(str(name), entry)) for name, entry in axes.items()]
        elif isinstance(axes, list) and all(isinstance(a, Mapping) and "name" in a for a in axes):
            named = [(str(entry["name"]), _axis(str(entry["name"]), entry)) for entry in axes]
        else:
            raise ParameterError("`axes` must map names to values, or list entries with a `name`")
        if len(dict(named)) < len(named):
            raise ParameterError(f"axes must differ in name, got {[n for n, _ in named]}")
        space = cls(**dict(named))
        return space if "chosen" not in mapping else space._with_chosen(mapping["chosen"])

    def as_json(self) -> str:
        """Return the space as JSON text."""
        return json.dumps(self.as_mapping(), indent=2)

    def as_toml(self) -> str:
        """Return the space as TOML text."""
        lines = [] if self._chosen is None else [f"chosen = {list(self._chosen)}", ""]
        for name, axis in self._axes.items():
            values = ", ".join(_toml(v) for v in axis.values)
            lines += ["[[axes]]", f"name = {_toml(name)}"]
            lines += [f'kind = "{axis.kind}"', f"values = [{values}]"]
            if axis.works is not None:
                bounds = [f"{name} = {_toml(v)}" for name, v in _bounds(axis.works).items()]
                lines.append(f"works = {{{', '.join(bounds)}}}")
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def read(cls, path: Path | str) -> "Space":
        """Read a space from a .json or .toml file."""
        path = Path(path)
        readers: Mapping[str, Callable[[str], Any]] = {".json": _read_json, ".toml": tomllib.loads}
        if path.suffix not in readers:
            raise ParameterError(f"a space file ends in .json or .toml, got {path.name!r}")
        try:
            return cls.from_mapping(readers[path.suffix](path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ParameterError(f"cannot read the space file: {error}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise ParameterError(f"{path}: {error}") from error

    def _with_chosen(self, chosen: Sequence[int]) -> "Space":
        total = math.prod(self._shape)
        whole = isinstance(chosen, Sequence) and all(type(i) is int for i in chosen)
        if not whole or not chosen or list(chosen) != sorted(set(chosen)):
            raise ParameterError("`chosen` must list different places, ascending")
        if not 0 <= chosen[0] <= chosen[-1] < total:
            raise ParameterError(f"`chosen` must lie in 0..{total - 1}")
        space = Space(**self._axes)
        if len(chosen) < total:
            space._chosen = tuple(chosen)
        return space

    @functools.cached_property
    def places(self) -> npt.NDArray[np.intp]:
        """Each candidate's place on each axis, shape (m, axes)."""
        flat = np.arange(len(self)) if self._chosen is None else np.array(self._chosen)
        places = np.empty((len(self), len(self._shape)), dtype=np.intp)
        for axis in reversed(range(len(self._shape))):  # the last axis runs fastest
            flat, places[:, axis] = np.divmod(flat, self._shape[axis])
        return places


def _axis(name: str, entry: Any) -> Axis:  # noqa: ANN401 - read from a file
    if not isinstance(entry, Mapping):
        entry = {"values": entry}
    try:
        if not {"values"} <= entry.keys() <= {"name", "kind", "values", "works"}:
            raise ParameterError(
                f"it has `values` and may have a `kind` and `works`, got {sorted(entry)}"
            )
        works = entry.get("works")
        if works is not None:
            if not (isinstance(works, Mapping) and works.keys() <= {"low", "high"}):
                raise ParameterError(f"`works` may have a `low` and a `high`, got {works!r}")
            works = (works.get("low"), works.get("high"))
        kind = entry["kind"] if "kind" in entry else Axis.of(entry["values"]).kind
        return Axis(kind, entry["values"], works)
    except ParameterError as error:
        raise ParameterError(f"axis {name!r}: {error}") from error


def _window(works: Any, kind: AxisKind) -> Window:  # noqa: ANN401 - checked here
    """Return where an axis works as plain numbers, or raise ParameterError."""
    if not isinstance(works, Sequence) or isinstance(works, str) or len(works) != 2:
        raise ParameterError(f"`works` is a pair of numbers or None, got {works!r}")
    low, high = (bound.item() if isinstance(bound, np.generic) else bound for bound in works)
    for bound in (low, high):
        if bound is None:
            continue
        if not isinstance(bound, int | float) or isinstance(bound, bool):
            raise ParameterError(f"`works` is a pair of numbers or None, got {bound!r}")
        if not abs(bound) <= _LARGEST or (kind is AxisKind.LOG and bound <= 0):
            raise ParameterError(f"`works` lies within what a {kind} axis holds, got {bound!r}")
    if low is not None and high is not None and low >= high:
        raise ParameterError(f"`works` goes from low to high, got {low} to {high}")
    return (None if low is None else float(low), None if high is None else float(high))


def _outside(value: Any, low: float | None, high: float | None) -> bool:  # noqa: ANN401 - a number
    return (low is not None and value < low) or (high is not None and value > high)


def _bounds(works: Window) -> dict[str, float]:
    return {name: v for name, v in zip(("low", "high"), works, strict=True) if v is not None}


def _plain(values: Sequence[Value]) -> tuple[Value, ...]:
    """Return values as Python's own types: NumPy scalars and arrays are taken as they print."""
    listed = isinstance(values, Sequence) or (isinstance(values, np.ndarray) and values.ndim == 1)
    if isinstance(values, str | bytes) or not listed:
        raise ParameterError(f"an axis takes a list of values, got {values!r}")
    return tuple(_value(value) for value in values)


def _value(value: Any) -> Any:  # noqa: ANN401 - checked by the axis
    """Return a value as Python's own type; a list is what files hold for a tuple."""
    if isinstance(value, list | tuple):
        return tuple(_scalar(part) for part in value)
    return _scalar(value)


def _scalar(value: Any) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, Mapping) and value == _NONE:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _listed(values: Sequence[Value]) -> list[Any]:
    """Return values for JSON, where a tuple is a list and None is null."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_scalar(value: object) -> None:
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ParameterError(
            "axis values are numbers, texts, true/false, None or tuples of these, got "
            f"{value!r:.80} ({type(value).__name__})"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(f"axis values must be finite, got {value}")
    if isinstance(value, str):
        _check_text(value)


def _check_different(values: Sequence[Value]) -> None:
    seen: set[str] = set()
    for value in values:
        exact = (
            f"tuple {[_exact(part) for part in value]}"
            if isinstance(value, tuple)
            else _exact(value)
        )
        if exact in seen:
            raise ParameterError(f"axis values must differ, got {value!r} twice")
        seen.add(exact)


def _exact(value: Scalar) -> str:
    # Texts hash by a secret of the process; numbers hash alike for whoever wants them to.
    if value is None:
        return "none"
    return f"text {value}" if isinstance(value, str) else str(value.as_integer_ratio())


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParameterError("texts must be Unicode that can be written to a file") from error


def _toml(value: Value) -> str:
    if value is None:
        return "{ none = true }"  # TOML has no null
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's numbers and true/false are TOML's, and its texts too, but for pairs of surrogates
    # (so no ASCII only) and the delete character, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read_json(text: str) -> Any:  # noqa: ANN401 - whatever the file holds
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ParameterError(f"names must differ, got {[name for name, _ in pairs]}")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)

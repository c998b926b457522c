"""Settings as points: every axis from 0 to 1, on the scale on which its values are averaged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.space import AxisKind, Space

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
"""What is added up, exactly: points in steps of 2^-PLACE_BITS, and counts."""

PLACE_BITS = 24
"""A coordinate is held to 2^-24 of its axis: sums of these integers are exact."""


@dataclass(frozen=True, slots=True)
class Ruler:
    """One axis: where a value of a hyperparameter lies between its smallest and its largest.

    All of it is public and agreed on beforehand. A range taken from clients' settings would
    tell about them.
    """

    name: str
    low: float
    high: float
    log: bool = False
    """Whether values compare by ratio."""
    listed: tuple[float, ...] = ()
    """The values of an axis that counts by position, in order."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ParameterError(f"axis {self.name!r} goes from a number to a larger one")
        if self.log and self.low <= 0:
            raise ParameterError(f"axis {self.name!r} has a log scale and holds {self.low:g}")

    def units(self, values: Floats) -> Floats:
        """Return values as parts of the axis, 0 to 1; refuse those that are not on it."""
        if self.listed:
            return self._positions(values)
        if len(values) and not (values.min() >= self.low and values.max() <= self.high):
            raise ParameterError(
                f"settings of {self.name!r} lie in {self.low:g} to {self.high:g}, got "
                f"{values.min():g} to {values.max():g}"
            )
        low, high = self._ends()
        width = high - low
        placed = (np.log(values) if self.log else values) - low
        return np.clip(placed / width if width else placed, 0.0, 1.0)

    def value(self, unit: float) -> float:
        """Return the value at a part of the axis; beyond its ends, the end."""
        unit = min(max(unit, 0.0), 1.0)
        if self.listed:
            return self.listed[round(unit * (len(self.listed) - 1))]
        low, high = self._ends()
        found = low + unit * (high - low)
        return min(max(math.exp(found) if self.log else found, self.low), self.high)

    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def _positions(self, values: Floats) -> Floats:
        places = {value: place for place, value in enumerate(self.listed)}
        last = max(1, len(self.listed) - 1)
        try:
            return np.array([places[value] / last for value in values.tolist()])
        except KeyError as unknown:
            raise ParameterError(f"{self.name!r} has no value {unknown}") from None


@dataclass(frozen=True, slots=True)
class Frame:
    """All axes of the settings that are combined, in order.

    Example:
        >>> from urna.space import Axis
        >>> space = Space(lr=Axis.log([0.01, 1.0]), momentum=Axis.linear([0.0, 0.9]))
        >>> frame = Frame.of(space, log=True)
        >>> frame.units(np.array([[0.1, 0.9]]))
        array([[0.5, 1. ]])
        >>> frame.setting([0.5, 1.0])
        {'lr': 0.1, 'momentum': 0.9}
    """

    rulers: tuple[Ruler, ...]

    def __post_init__(self) -> None:
        if not self.rulers or len({ruler.name for ruler in self.rulers}) < len(self.rulers):
            raise ParameterError("settings have at least one axis, and no two of one name")

    @classmethod
    def of(cls, space: Space, *, log: bool = False) -> "Frame":
        """Return the frame of a space; ordinal axes count by position.

        Axes with a log scale are averaged as they are, or with `log` on that scale. Nothing can be
        averaged along an axis that has no numbers: it is refused.
        """
        rulers = []
        for name, axis in space.axes.items():
            numbers = all(isinstance(value, int | float) for value in axis.values)
            if axis.kind is AxisKind.CATEGORICAL or not numbers:
                raise ParameterError(
                    f"settings cannot be averaged along {name!r}: it has no numbers in order"
                )
            values = [float(value) for value in axis.values]
            listed = tuple(values) if axis.kind is AxisKind.ORDINAL else ()
            rulers.append(
                Ruler(name, min(values), max(values), axis.kind is AxisKind.LOG and log, listed)
            )
        return cls(tuple(rulers))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(ruler.name for ruler in self.rulers)

    def units(self, settings: Floats) -> Floats:
        """Return settings, one per row, as points of the unit cube."""
        if settings.ndim != 2 or settings.shape[1] != len(self.rulers):
            raise ParameterError(
                f"settings have the axes {', '.join(self.names)}, got shape {settings.shape}"
            )
        columns = [ruler.units(settings[:, i]) for i, ruler in enumerate(self.rulers)]
        return np.stack(columns, axis=1)

    def holds(self, row: Floats) -> bool:
        """Say whether a setting is on the axes."""
        try:
            self.units(row[None])
        except ParameterError:
            return False
        return True

    def places(self, settings: Floats) -> Integers:
        """Return settings in whole steps of 2^-PLACE_BITS."""
        return to_places(self.units(settings))

    def setting(self, point: Sequence[float] | Sequence[Fraction] | Floats) -> dict[str, float]:
        """Return the setting at a point of the unit cube."""
        return {
            ruler.name: _tidy(ruler.value(float(unit)))
            for ruler, unit in zip(self.rulers, point, strict=True)
        }

    def row(self, setting: Mapping[str, Any]) -> Floats:
        """Return a setting as a row of values."""
        return np.array([float(setting[name]) for name in self.names])

    def as_mapping(self) -> list[dict[str, Any]]:
        """Return plain values that say the same."""
        return [{**asdict(ruler), "listed": list(ruler.listed)} for ruler in self.rulers]

    @classmethod
    def read(cls, mapping: Sequence[Mapping[str, Any]]) -> "Frame":
        """Read what `as_mapping` wrote."""
        return cls(
            tuple(
                Ruler(
                    str(axis["name"]),
                    float(axis["low"]),
                    float(axis["high"]),
                    axis["log"] is True,
                    tuple(map(float, axis["listed"])),
                )
                for axis in mapping
            )
        )


def mean_of(total: Integers) -> list[Fraction]:
    """Return the mean of points as parts of each axis, rounded nowhere.

    The total is a sum in whole steps for each axis, and last how many were added up.

    Example:
        >>> mean_of(np.array([2 << PLACE_BITS, 3]))
        [Fraction(2, 3)]
    """
    *sums, count = total.tolist()
    if count <= 0:
        raise ParameterError("no client kept a setting, so there is nothing to combine")
    return [Fraction(part, count << PLACE_BITS) for part in sums]


def to_places(units: Floats) -> Integers:
    """Return parts of an axis, 0 to 1, in whole steps."""
    return np.rint(units * (1 << PLACE_BITS)).astype(np.int64)


def _tidy(value: float) -> float:
    """Drop digits beyond those that a place is held to."""
    return float(f"{value:.6g}")

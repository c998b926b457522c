"""Where on an axis good candidates can be expected: public knowledge that a decoder weighs.

A learning rate has two ends. Below some value nothing is learnt, above another training
diverges, and both lie at absolute values: 10⁻⁵ is small and 10 is large for nearly any model.
Whoever makes a space may say where an axis works (`Axis.works`); for a learning rate that
says nothing the usual values are tried. A window never excludes: it is one prior among several,
the flat one included, and the tally decides between them.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from urna.space import Axis, AxisKind, Value

__all__ = ["Window", "is_rate", "windows_of"]

Array = npt.NDArray[np.float64]

_LOWS = (None, 1e-4, 1e-3, 1e-2)
_HIGHS = (None, 0.1, 2.0)
"""Where learning rates begin and cease to work."""
_INSIDE, _SHARPNESS = 0.5, 0.35  # steps of the axis: an edge lies beyond the last good value
_ALIKE = 0.1  # windows that differ less are one
_RATE = re.compile(
    r"(?!(min|max|final|end|warmup|log)[_\-. ])"
    r"(.*[_\-./ ])?(lr0?|learning[_\-. ]?rate([_\-. ]init)?|eta0?)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One idea of where an axis works."""

    expected: Array
    """How much is expected of each value, 1 where it works and 0 where it does not."""
    weight: float
    """How probable it is before a tally is seen."""


def is_rate(name: str, kind: AxisKind) -> bool:
    """Tell whether an axis is a learning rate: by its name and a logarithmic scale.

    Example:
        >>> is_rate("client_lr", AxisKind.LOG), is_rate("client_lr", AxisKind.LINEAR)
        (True, False)
    """
    return kind is AxisKind.LOG and _RATE.fullmatch(name) is not None


def windows_of(name: str, axis: Axis, values: Sequence[Value]) -> list[Window]:
    """Return the windows of an axis, the flat one first.

    Each end has no edge with a probability of one half, or one of the edges that are tried.

    Args:
        name: Of the axis.
        axis: Says the kind and perhaps where it works.
        values: Where to evaluate: the axis's values, or those of listed candidates.

    Example:
        >>> axis = Axis.log([1e-6, 1e-4, 1e-2, 1.0, 100.0], works=(1e-4, 1.0))
        >>> for window in windows_of("c", axis, axis.values):
        ...     print(window.expected.round().astype(int), window.weight)
        [1 1 1 1 1] 0.25
        [1 1 1 1 0] 0.25
        [0 1 1 1 1] 0.25
        [0 1 1 1 0] 0.25
    """
    lows: Sequence[float | None]
    highs: Sequence[float | None]
    if axis.works is not None:
        lows, highs = ((None, bound) for bound in axis.works)
    elif is_rate(name, axis.kind):
        lows, highs = _LOWS, _HIGHS
    else:
        lows, highs = (None,), (None,)
    flat = np.ones(len(values))
    if axis.kind not in (AxisKind.LOG, AxisKind.LINEAR):
        return [Window(flat, 1.0)]
    scale = np.log if axis.kind is AxisKind.LOG else np.asarray
    whole = scale([float(value) for value in axis.values])
    step = np.ptp(whole) / max(len(whole) - 1, 1)
    if not (np.isfinite(step) and step > 0):
        return [Window(flat, 1.0)]
    places = scale([float(value) for value in values])
    found: list[Window] = []
    for (low, often), (high, common) in itertools.product(_weighed(lows), _weighed(highs)):
        window = flat
        if low is not None:
            window = window * _above((places - scale(low)) / step)
        if high is not None:
            window = window * _above((scale(high) - places) / step)
        same = [i for i, one in enumerate(found) if np.abs(window - one.expected).max() <= _ALIKE]
        if same:
            one = found[same[0]]
            found[same[0]] = Window(one.expected, one.weight + often * common)
        elif window.max() > 0.5:
            found.append(Window(window, often * common))
    total = sum(window.weight for window in found)
    return [Window(window.expected, window.weight / total) for window in found]


def _weighed(edges: Sequence[float | None]) -> list[tuple[float | None, float]]:
    """Return no edge first, with half of the weight, then each of the others."""
    others = [edge for edge in dict.fromkeys(edges) if edge is not None]
    if not others:
        return [(None, 1.0)]
    return [(None, 0.5), *((edge, 0.5 / len(others)) for edge in others)]


def _above(steps: Array) -> Array:
    """Return about one from the edge on, about zero a step before it."""
    return np.asarray(expit((steps + _INSIDE) / _SHARPNESS))

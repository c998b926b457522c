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

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from urna.space import Axis, AxisKind, Value

__all__ = ["is_rate", "windows_of"]

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


def is_rate(name: str, kind: AxisKind) -> bool:
    """Tell whether an axis is a learning rate: by its name and a logarithmic scale.

    Example:
        >>> is_rate("client_lr", AxisKind.LOG), is_rate("client_lr", AxisKind.LINEAR)
        (True, False)
    """
    return kind is AxisKind.LOG and _RATE.fullmatch(name) is not None


def windows_of(name: str, axis: Axis, values: Sequence[Value]) -> list[Array]:
    """Return how much is expected of each value under each window, the flat one first.

    Args:
        name: Of the axis.
        axis: Says the kind and perhaps where it works.
        values: Where to evaluate: the axis's values, or those of listed candidates.

    Example:
        >>> axis = Axis.log([1e-6, 1e-4, 1e-2, 1.0, 100.0], works=(1e-4, 1.0))
        >>> [window.round().astype(int).tolist() for window in windows_of("c", axis, axis.values)]
        [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [0, 1, 1, 1, 1], [0, 1, 1, 1, 0]]
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
    found = [flat]
    if axis.kind not in (AxisKind.LOG, AxisKind.LINEAR):
        return found
    scale = np.log if axis.kind is AxisKind.LOG else np.asarray
    whole = scale([float(value) for value in axis.values])
    step = np.ptp(whole) / max(len(whole) - 1, 1)
    if not (np.isfinite(step) and step > 0):
        return found
    places = scale([float(value) for value in values])
    for low, high in itertools.product(dict.fromkeys(lows), dict.fromkeys(highs)):
        window = flat
        if low is not None:
            window = window * _above((places - scale(low)) / step)
        if high is not None:
            window = window * _above((scale(high) - places) / step)
        if window.max() > 0.5 and all(np.abs(window - one).max() > _ALIKE for one in found):
            found.append(window)
    return found


def _above(steps: Array) -> Array:
    """Return about one from the edge on, about zero a step before it."""
    return np.asarray(expit((steps + _INSIDE) / _SHARPNESS))

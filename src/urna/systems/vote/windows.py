"""Where on an axis good candidates can be expected: public knowledge that a decoder weighs.

A learning rate has two ends: below some value nothing is learnt, above another training
diverges, and both lie at absolute values for nearly any model. Other hyperparameters are as well
known: a support vector machine with C = 10⁻⁴ is a constant. Whoever makes a space may say where
an axis works (`Axis.works`); else its name is looked up in a short table. A window never
excludes: it is one prior among several, the flat one included, and the tally decides between
them. What the table holds was chosen on models trained on synthetic data
(docs/decisions/0039-what-everybody-knows.md).
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from urna.space import Axis, AxisKind, Value

Array = npt.NDArray[np.float64]
Edges = tuple[float, ...]

_INSIDE, _SHARPNESS = 0.5, 0.35  # steps of the axis: an edge lies beyond the last good value
_ALIKE = 0.1  # windows that differ less are one
_LONGEST = 100  # characters of a name that somebody knows
_HOLDS = 0.5  # what a window expects at least of some candidate
_LOG = (AxisKind.LOG,)
_NUMBERS = (AxisKind.LOG, AxisKind.LINEAR, AxisKind.ORDINAL)


@dataclass(frozen=True, slots=True)
class _Known:
    """What everybody knows of hyperparameters of some names, on axes of some kinds."""

    names: str
    """Pattern of the last word of a name."""
    kinds: tuple[AxisKind, ...]
    lows: Edges = ()
    """Where values may begin to work."""
    highs: Edges = ()
    """Where they may cease to."""
    reach: float = 0.0
    """Times a low edge that an axis must reach: whoever lets it end before knows better."""
    unless: str = ""
    """Pattern of names that mean something else."""


_ENDS = r"(?!(.*[_\-./ ])?(min|max|final|end|warmup|log)[_\-./ ])"  # of schedules, or logarithms
_KNOWN = (
    # Linear models trained by SGD: what is large depends on the features, which may have any scale.
    _Known(
        r"(.*[_\- ])?(?i:eta0)",
        _LOG,
        lows=(1e-6, 1e-4, 1e-2),
        highs=(1e-6, 1e-4, 0.1, 2.0),
        unless=_ENDS,
    ),
    _Known(
        r"(.*[_\- ])?(?i:lr0?|learning[_\-. ]?rate([_\-. ]init)?|eta)",
        _LOG,
        lows=(1e-4, 1e-3, 1e-2),
        highs=(0.1, 2.0),
        reach=30.0,  # rates up to 10⁻³ are for fine-tuning
        unless=_ENDS,
    ),
    _Known("C", _LOG, lows=(0.1, 10.0)),  # one over a penalty
    _Known("gamma", _LOG, lows=(1e-4, 1e-2), highs=(0.1, 1.0)),  # of a kernel
    _Known(
        "(reg_)?(alpha|lambda)|lambda_(l[12])?|l[12](_reg(ularization)?)?|(.*_)?weight_decay",
        _LOG,
        highs=(0.1, 10.0),
    ),
    _Known("min_samples_leaf", _NUMBERS, highs=(3.0, 8.0)),
    _Known("max_features|colsample_bytree|feature_fraction", _NUMBERS, lows=(0.15, 0.4)),
    _Known("n_estimators|num_boost_round", _NUMBERS, lows=(10.0, 30.0)),
    _Known("n_neighbors", _NUMBERS, highs=(8.0, 16.0)),
)
"""The first that matches counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One idea of where an axis works."""

    expected: Array
    """How much is expected of each value, 1 where it works and 0 where it does not."""
    weight: float
    """How probable it is before a tally is seen."""


def usual_edges(name: str, axis: Axis) -> tuple[Edges, Edges]:
    """Return where axes of a name may begin and cease to work; nothing of names nobody knows."""
    if len(name) > _LONGEST:  # a server may announce any: nobody waits for a pattern
        return (), ()
    for known in _KNOWN:
        pattern = rf"{known.unless}(.*(__|[./]))?({known.names})"
        if axis.kind in known.kinds and axis.takes_bounds and re.fullmatch(pattern, name):
            most = max(float(value) for value in axis.values)
            return tuple(low for low in known.lows if known.reach * low <= most), known.highs
    return (), ()


def windows_of(name: str, axis: Axis, values: Sequence[Value]) -> list[Window]:
    """Return the windows of an axis, the flat one first, at values of it or of listed candidates.

    Each end has no edge with a probability of one half, or one of the edges that are tried.

    Example:
        >>> axis = Axis.log([1e-6, 1e-4, 1e-2, 1.0, 100.0], works=(1e-4, 1.0))
        >>> for window in windows_of("c", axis, axis.values):
        ...     print(window.expected.round().astype(int), window.weight)
        [1 1 1 1 1] 0.25
        [1 1 1 1 0] 0.25
        [0 1 1 1 1] 0.25
        [0 1 1 1 0] 0.25
    """
    if axis.works is None:
        lows, highs = usual_edges(name, axis)
    else:
        lows, highs = (() if bound is None else (bound,) for bound in axis.works)
    flat = np.ones(len(values))
    place = _places(axis) if lows or highs else None
    if place is None:
        return [Window(flat, 1.0)]
    places = place(values)
    found = []
    for (low, often), (high, common) in itertools.product(_weighed(lows), _weighed(highs)):
        window = flat
        if low is not None:
            window = window * _above(places - place([low]))
        if high is not None:
            window = window * _above(place([high]) - places)
        found.append(Window(window, often * common))
    return merged(found)


def merged(windows: Iterable[Window]) -> list[Window]:
    """Return windows that differ, without those in which no candidate lies; weights are one again.

    All are at the same candidates. The first is kept whatever it holds.
    """
    found: list[Window] = []
    for window in windows:
        apart = [np.abs(window.expected - one.expected).max() for one in found]
        if apart and min(apart) <= _ALIKE:
            place = int(np.argmin(apart))
            one = found[place]
            found[place] = Window(one.expected, one.weight + window.weight)
        elif window.expected.max() > _HOLDS or not found:
            found.append(window)
    total = sum(window.weight for window in found)
    return [Window(window.expected, window.weight / total) for window in found]


def _places(axis: Axis) -> Callable[[Sequence[Value]], Array] | None:
    """Return what places numbers on an axis, in steps of it; None where numbers have no place."""
    if not axis.takes_bounds:
        return None
    if axis.kind is AxisKind.ORDINAL:
        numbers = np.sort(np.array(axis.values, dtype=np.float64))
        ranks = np.arange(len(numbers), dtype=np.float64)
        return lambda some: np.interp(
            np.array(some, dtype=np.float64), numbers, ranks, left=-1.0, right=len(numbers)
        )
    scale = np.log if axis.kind is AxisKind.LOG else np.asarray

    def scaled(some: Sequence[Value]) -> Array:
        return np.asarray(scale(np.array(some, dtype=np.float64)) / 2)  # no difference overflows

    whole = scaled(axis.values)
    step = np.ptp(whole) / max(len(whole) - 1, 1)
    if not (np.isfinite(step) and step > 0):
        return None
    first = whole.min()
    return lambda some: np.asarray((scaled(some) - first) / step)


def _weighed(edges: Edges) -> list[tuple[float | None, float]]:
    """Return no edge first, with half of the weight, then each of those that are tried."""
    if not edges:
        return [(None, 1.0)]
    return [(None, 0.5), *((edge, 0.5 / len(edges)) for edge in edges)]


def _above(steps: Array) -> Array:
    """Return about one from the edge on, about zero a step before it."""
    return np.asarray(expit((steps + _INSIDE) / _SHARPNESS))

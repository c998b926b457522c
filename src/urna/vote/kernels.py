"""Gaussian-process priors over a space of candidates, ready to be compared.

Good candidates are neighbours: a learning rate next to a good one is seldom bad. How far that
reaches differs from axis to axis and from task to task, so there is one prior for each
combination of ranges, and a decoder weighs them by how well they explain the tally. A learning
rate has a direction as well: below some value nothing is learnt and nobody votes. Where that
begins is unknown too, so there are priors for several values. All of this depends on the public
space alone.
"""

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from urna.space import AxisKind, Space, Value

__all__ = ["Family", "families", "is_rate", "unrelated"]

Array = npt.NDArray[np.float64]

RANGES = ((), (3.0,), (1.0, 4.0), (0.8, 2.0, 8.0), (0.7, 1.5, 4.0, 12.0))
"""By how many an axis gets: over how many of its steps votes stay alike."""

ONSETS = (0.15, 0.3, 0.45)
"""Up to which part of a learning rate's axis nothing is learnt, besides nowhere."""
_SHARPNESS = 0.5  # steps over which learning sets in
_DECADES = 3.0  # a shorter axis of rates may well be good at its small end
_RATE = re.compile(
    r"(?!(min|max|final|end|warmup|log)[_\-. ])"
    r"(.*[_\-./ ])?(lr0?|learning[_\-. ]?rate([_\-. ]init)?|eta0?)",
    re.IGNORECASE,
)

_MOST_ENTRIES = 1 << 19  # of all priors' eigenvalues together
_MOST_COMBINATIONS = 256
_MOST_WORK = 4e10  # floating-point operations for decompositions, some seconds


def _squared_exponential(steps: Array, reach: float) -> Array:
    return np.asarray(np.exp(-0.5 * (steps / reach) ** 2))


def _exponential(steps: Array, reach: float) -> Array:
    return np.asarray(np.exp(-steps / reach))


_SHAPES: tuple[Callable[[Array, float], Array], ...] = (_squared_exponential, _exponential)


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Correlation matrices of one shape, by their eigenvectors and eigenvalues.

    On a full grid each matrix is a Kronecker product of one small matrix per axis and is
    never written out; elsewhere there is a single axis, the candidates themselves.
    """

    vectors: tuple[Array, ...]
    """For each axis, shape (ranges, places, places)."""
    values: Array
    """Shape (priors, candidates)."""

    def project(self, votes: Array) -> Array:
        """Return the coordinates of `votes` in each prior's eigenvectors, as `values` is."""
        spread, before = votes[None], 1
        for vectors in self.vectors:
            _, places, _ = vectors.shape
            grid = spread.reshape(len(spread), before, places, -1)
            turned = np.einsum("rjk,cbja->crbka", vectors, grid)
            spread = turned.reshape(-1, votes.size)
            before *= places
        return np.asarray(spread)

    def restore(self, coordinates: Array) -> Array:
        """Return the sum over all priors of the vectors with these coordinates.

        Args:
            coordinates: As `values`, or several such one after the other.

        Returns:
            One vector for each set of coordinates.
        """
        spread, size, after = coordinates, coordinates.shape[-1], 1
        for vectors in reversed(self.vectors):
            ranges, places, _ = vectors.shape
            grid = spread.reshape(-1, ranges, size // places // after, places, after)
            spread = np.einsum("rjk,crbka->cbja", vectors, grid)
            after *= places
        return np.asarray(spread.reshape(-1, size))

    def member(self, prior: int) -> "Family":
        """Return one of the priors alone."""
        ranges = [len(vectors) for vectors in self.vectors]
        places = np.unravel_index(prior, ranges) if ranges else ()
        chosen = zip(self.vectors, places, strict=True)
        return Family(
            tuple(vectors[place : place + 1] for vectors, place in chosen),
            self.values[prior : prior + 1],
        )


def unrelated(candidates: int) -> Family:
    """Return the one prior under which neighbours say nothing about each other."""
    return Family((), np.ones((1, candidates)))


@functools.lru_cache(maxsize=4)
def families(space: Space) -> tuple[Family, ...]:
    """Return the structured priors of a space: for each shape, all ranges of all axes.

    A learning rate's axis has priors without and with a part where nothing is learnt. Spaces of
    many axes or candidates get fewer ranges per axis, and no onsets where there is no room for
    them. Spaces too large to decompose get none, and so do those of which nothing is known but
    names.
    """
    named = [(name, axis) for name, axis in space.axes.items() if len(axis.values) > 1]
    if not named or (len(named) == 1 and named[0][1].kind is AxisKind.CATEGORICAL):
        return ()  # nobody is anybody's neighbour
    values: list[Sequence[Value]]
    if space.chosen is None:
        values = [axis.values for _, axis in named]
    else:
        values = [[candidate[name] for candidate in space] for name, _ in named]
    rates = [
        is_rate(name, axis.kind, each) for (name, axis), each in zip(named, values, strict=True)
    ]
    most = _most(space, rates)
    if most < 1:
        rates = [False] * len(named)
        most = _most(space, rates)
    if most < 1:
        return ()
    ranges = _ranges(len(named), most)
    if space.chosen is None:
        steps = [axis.steps() for _, axis in named]
    else:
        every = dict(zip(space.axes, space.distances(), strict=True))
        steps = [every[name] for name, _ in named]
    onsets = [
        _onsets(each, step) if rate else []
        for rate, each, step in zip(rates, values, steps, strict=True)
    ]
    build = _grid if space.chosen is None else _listed
    return tuple(
        build([_correlations(shape, *axis) for axis in zip(steps, ranges, onsets, strict=True)])
        for shape in _SHAPES
    )


def _most(space: Space, rates: Sequence[bool]) -> int:
    """Return how many combinations of ranges there is time and memory for."""
    variants: int = (1 + len(ONSETS)) ** sum(rates)
    if space.chosen is not None:
        work = 10.0 * len(space) ** 3 * len(_SHAPES) * variants
        room = min(int(_MOST_WORK / work), (1 << 26) // len(space) ** 2 // variants)
        return min(room, max(_MOST_COMBINATIONS // variants, 1))
    axes = [axis for axis in space.axes.values() if len(axis.values) > 1]
    longest = max(
        len(axis.values) ** 3 * (1 + len(ONSETS) * rate)
        for axis, rate in zip(axes, rates, strict=True)
    )
    if 10.0 * longest * len(RANGES) * len(_SHAPES) > _MOST_WORK:
        return 0
    return min(_MOST_COMBINATIONS, _MOST_ENTRIES // len(space) // variants)


def is_rate(name: str, kind: AxisKind, values: Sequence[Value]) -> bool:
    """Tell whether an axis is a learning rate whose small end can be expected to learn nothing.

    It has a rate's name and a logarithmic scale, and the candidates span three decades or more.

    Example:
        >>> wide, narrow = (1e-5, 1e-1), (1e-2, 1e-1)
        >>> is_rate("client_lr", AxisKind.LOG, wide), is_rate("client_lr", AxisKind.LOG, narrow)
        (True, False)
    """
    if kind is not AxisKind.LOG or _RATE.fullmatch(name) is None:
        return False
    logs = [math.log10(float(value)) for value in values]
    return max(logs) - min(logs) >= _DECADES


def _onsets(values: Sequence[Value], steps: Array) -> list[Array]:
    """Return, for each onset, how much candidates can learn: nothing below it, all above."""
    above = steps[int(np.argmin([float(value) for value in values]))]
    learnt = [expit((above - part * above.max()) / _SHARPNESS) for part in ONSETS]
    return [window / math.sqrt(np.mean(window**2)) for window in learnt]


def _correlations(
    shape: Callable[[Array, float], Array],
    steps: Array,
    reaches: Sequence[float],
    onsets: Sequence[Array],
) -> Array:
    """Return the matrices of one axis: all ranges, without and with each onset."""
    plain = np.stack([shape(steps, reach) for reach in reaches])
    return np.concatenate([plain, *(plain * np.outer(window, window) for window in onsets)])


def _ranges(axes: int, most: int) -> list[tuple[float, ...]]:
    """Return each axis's ranges, as many as leave at most `most` combinations."""
    counts = [1] * axes
    for count in range(2, len(RANGES)):
        for axis in range(axes):
            if math.prod(counts) // counts[axis] * count <= most:
                counts[axis] = count
    return [RANGES[count] for count in counts]


def _grid(matrices: Sequence[Array]) -> Family:
    values, vectors = np.ones((1, 1)), []
    for each in matrices:
        value, vector = np.linalg.eigh(each)
        grown = np.einsum("cb,rk->crbk", values, np.maximum(value, 0.0))
        values = grown.reshape(len(values) * len(each), -1)
        vectors.append(vector)
    return Family(tuple(vectors), values)


def _listed(matrices: Sequence[Array]) -> Family:
    every = [functools.reduce(np.multiply, some) for some in itertools.product(*matrices)]
    value, vector = np.linalg.eigh(np.stack(every))
    return Family((vector,), np.maximum(value, 0.0))

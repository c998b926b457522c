"""Gaussian-process priors over a space of candidates, ready to be compared.

Good candidates are neighbours: a learning rate next to a good one is seldom bad. How far that
reaches differs from axis to axis and from task to task, so there is one prior for each
combination of ranges, and a decoder weighs them by how well they explain the tally. All of
this depends on the public space alone.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.space import AxisKind, Space

__all__ = ["Family", "families", "unrelated"]

Array = npt.NDArray[np.float64]

RANGES = ((), (3.0,), (1.0, 4.0), (0.8, 2.0, 8.0), (0.7, 1.5, 4.0, 12.0))
"""By how many an axis gets: over how many of its steps votes stay alike."""

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


@functools.lru_cache(maxsize=16)
def families(space: Space) -> tuple[Family, ...]:
    """Return the structured priors of a space: for each shape, all ranges of all axes.

    Spaces of many axes or candidates get fewer ranges per axis. Spaces too large to decompose
    get none, and so do those of which nothing is known but names.
    """
    named = list(space.axes.values())
    axes = [i for i, axis in enumerate(named) if len(axis.values) > 1]
    if not axes or (len(axes) == 1 and named[axes[0]].kind is AxisKind.CATEGORICAL):
        return ()  # nobody is anybody's neighbour
    if space.chosen is None:
        longest = max(len(named[i].values) for i in axes)
        if 10.0 * longest**3 * len(RANGES) * len(_SHAPES) > _MOST_WORK:
            return ()
        ranges = _ranges(len(axes), min(_MOST_COMBINATIONS, _MOST_ENTRIES // len(space)))
        each = [named[i].steps() for i in axes]
        return tuple(_grid(shape, each, ranges) for shape in _SHAPES)
    work = 10.0 * len(space) ** 3 * len(_SHAPES)
    most = min(_MOST_COMBINATIONS, int(_MOST_WORK / work), (1 << 26) // len(space) ** 2)
    if most < 1:
        return ()
    steps = space.distances()[axes]
    return tuple(_listed(shape, steps, _ranges(len(axes), most)) for shape in _SHAPES)


def _ranges(axes: int, most: int) -> list[tuple[float, ...]]:
    """Return each axis's ranges, as many as leave at most `most` combinations."""
    counts = [1] * axes
    for count in range(2, len(RANGES)):
        for axis in range(axes):
            if math.prod(counts) // counts[axis] * count <= most:
                counts[axis] = count
    return [RANGES[count] for count in counts]


def _grid(
    shape: Callable[[Array, float], Array],
    steps: Sequence[Array],
    ranges: Sequence[tuple[float, ...]],
) -> Family:
    values, vectors = np.ones((1, 1)), []
    for step, reaches in zip(steps, ranges, strict=True):
        value, vector = np.linalg.eigh(np.stack([shape(step, reach) for reach in reaches]))
        grown = np.einsum("cb,rk->crbk", values, np.maximum(value, 0.0))
        values = grown.reshape(len(values) * len(reaches), -1)
        vectors.append(vector)
    return Family(tuple(vectors), values)


def _listed(
    shape: Callable[[Array, float], Array], steps: Array, ranges: Sequence[tuple[float, ...]]
) -> Family:
    matrices = [
        functools.reduce(np.multiply, map(shape, steps, reaches))
        for reaches in itertools.product(*ranges)
    ]
    value, vector = np.linalg.eigh(np.stack(matrices))
    return Family((vector,), np.maximum(value, 0.0))

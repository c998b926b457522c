"""A grid of cells over the settings: count, find the dense cells, merge them into clusters.

Federated DBSCAN (Marino 2022, as PrivTuna uses it). Who knows which cells are dense knows
everything here that clients have in common: cells, moves and clusters follow from the mask.
"""

import functools
import itertools
import math
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import PLACE_BITS, Places

__all__ = ["Grid", "Mask"]

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

_MOST_CELLS = 16_384


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal cells over the unit cube; the last of each axis may stick out.

    Args:
        axes: Dimensions.
        cell: Length of a cell, as a part of an axis. PrivTuna's is .15: 49 cells on two axes.

    Example:
        >>> grid = Grid(axes=2)
        >>> grid.per_axis, grid.size
        (7, 49)
    """

    axes: int
    cell: float = 0.15

    def __post_init__(self) -> None:
        if self.axes < 1 or not 0.001 <= self.cell <= 1:
            raise ParameterError(
                f"a grid has one axis or more and cells of 0.001 to 1, got {self.axes} axes and "
                f"cells of {self.cell}"
            )
        if self.size > _MOST_CELLS:
            raise ParameterError(
                f"{self.axes} axes with cells of {self.cell:g} make {self.size:,} cells; at most "
                f"{_MOST_CELLS:,} are counted. Take larger cells or fewer axes."
            )

    @property
    def per_axis(self) -> int:
        """Cells along one axis."""
        return math.ceil(1 / Fraction(repr(self.cell)))

    @property
    def size(self) -> int:
        """Cells in all."""
        return int(self.per_axis**self.axes)

    @property
    def most_clusters(self) -> int:
        """Clusters there can be at most: cells that do not touch, as on a chessboard."""
        return -(-self.size // 2)

    def cells(self, places: Places) -> Indices:
        """Return the number of each point's cell."""
        rows = np.minimum(places // self._edge, self.per_axis - 1)
        return np.asarray(np.ravel_multi_index(tuple(rows.T), self._shape), dtype=np.int64)

    def occupied(self, places: Places) -> Indices:
        """Return 1 for each cell that holds a point, however many, and 0 for the others."""
        found = np.zeros(self.size, dtype=np.int64)
        found[self.cells(places)] = 1
        return found

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """Return a cell's place along each axis."""
        return tuple(map(int, np.unravel_index(cell, self._shape)))

    def clusters(self, dense: Mask) -> Indices:
        """Return the cluster of each cell: dense cells that touch are one; −1 where sparse.

        Clusters are numbered by their first cell. Cells touch along a face, not at a corner.
        """
        labels = np.full(self.size, -1, dtype=np.int64)
        number = 0
        for first in np.flatnonzero(dense).tolist():
            if labels[first] >= 0:
                continue
            labels[first] = number
            waiting = deque([first])
            while waiting:
                for beside in _beside(self, waiting.popleft()):
                    if dense[beside] and labels[beside] < 0:
                        labels[beside] = number
                        waiting.append(beside)
            number += 1
        return labels

    def assigned(self, places: Places, dense: Mask) -> Indices:
        """Return the dense cell each point counts for; −1 for those that count for none.

        A point of a sparse cell moves to the closest dense cell beside its own, by the distance
        to that cell's middle; where two are equally close, to the one of the lower number.
        """
        own = self.cells(places)
        found = np.where(dense[own], own, -1)
        for point in np.flatnonzero(found < 0).tolist():
            near = [cell for cell in _beside(self, int(own[point])) if dense[cell]]
            if near:
                found[point] = min(near, key=lambda cell: (self._away(places[point], cell), cell))
        return found

    def _away(self, place: Places, cell: int) -> int:
        """Return the squared distance to a cell's middle, in quarter steps squared."""
        middle = (2 * np.array(self.coordinates(cell)) + 1) * self._edge
        return sum((2 * int(p) - int(m)) ** 2 for p, m in zip(place, middle, strict=True))

    @property
    def _edge(self) -> int:
        """Length of a cell in steps."""
        return round(self.cell * (1 << PLACE_BITS))

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.per_axis,) * self.axes


@functools.lru_cache(maxsize=1 << 15)
def _beside(grid: Grid, cell: int) -> tuple[int, ...]:
    """Return the cells that share a face with one, lowest number first."""
    here = grid.coordinates(cell)
    found = []
    for axis, step in itertools.product(range(grid.axes), (-1, 1)):
        there = list(here)
        there[axis] += step
        if 0 <= there[axis] < grid.per_axis:
            found.append(int(np.ravel_multi_index(there, (grid.per_axis,) * grid.axes)))
    return tuple(sorted(found))

"""Density clusters counted in cells: federated DBSCAN (Marino 2022, as PrivTuna uses it).

A grid is laid over the settings: count, find the dense cells, merge them into clusters. Who knows
which cells are dense knows everything that clients have in common: cells, moves and clusters
follow from the mask. What a client puts in and what is read from the totals are whole numbers and
stand here, once: under encryption they are the same vectors, so results agree to the bit.
"""

import functools
import itertools
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import PLACE_BITS, Frame, Integers, mean_of, to_places
from urna.systems.combine.searches import KeepingRule, LocalSearch, Searches
from urna.systems.combine.strategies import Cluster, Combined

Mask = npt.NDArray[np.bool_]

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

    def cells(self, places: Integers) -> Integers:
        """Return the number of each point's cell."""
        rows = np.minimum(places // self._edge, self.per_axis - 1)
        return np.asarray(np.ravel_multi_index(tuple(rows.T), self._shape), dtype=np.int64)

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """Return a cell's place along each axis."""
        return tuple(map(int, np.unravel_index(cell, self._shape)))

    def clusters(self, dense: Mask) -> Integers:
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

    def assigned(self, places: Integers, dense: Mask) -> Integers:
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

    def _away(self, place: Integers, cell: int) -> int:
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


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """One client's kept settings in whole steps, and their scores likewise."""

    places: Integers = field(repr=False)
    scores: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class Clustering(KeepingRule):
    """What everybody agrees on for federated DBSCAN. All of it is public.

    A cell is dense where `min_points` clients have a setting. A client counts once per cell, so
    a dense cell, and with it every cluster, holds settings of at least so many clients.

    Args:
        frame: The axes.
        cell: Length of a cell, as a part of an axis.
    """

    name: ClassVar[str] = "federated dbscan"
    frame: Frame
    cell: float = 0.15

    def __post_init__(self) -> None:
        if not 1 <= self.min_points <= 64:
            raise ParameterError(f"1 to 64 clients make a cell dense, got {self.min_points}")
        if not 1 <= self.most <= 10_000:
            raise ParameterError(f"a client keeps 1 to 10,000 settings, got {self.most}")
        _ = self.grid

    @property
    def grid(self) -> Grid:
        """The grid over the axes."""
        return Grid(len(self.frame.rulers), self.cell)

    @property
    def row(self) -> int:
        """Entries for one cluster: a sum per axis, the sum of scores, and the count."""
        return len(self.frame.rulers) + 2

    def points(self, search: LocalSearch) -> Points:
        """Return what a client keeps. Scores are accuracies: below 0 and above 1 are the ends."""
        kept = self.kept(search)
        scores = to_places(np.clip(kept.scores, 0.0, 1.0))
        return Points(self.frame.places(kept.settings), scores)

    def occupied(self, points: Points) -> Integers:
        """Stage 1, client: 1 for each cell that holds a setting of its own, 0 for the others."""
        found = np.zeros(self.grid.size, dtype=np.int64)
        found[self.grid.cells(points.places)] = 1
        return found

    def sums(self, points: Points, dense: Mask) -> Integers:
        """Stage 3, client: its sums for every cluster, one row each.

        Points of sparse cells move to the closest dense cell beside them, or are dropped.

        Guarantee:
            A point of a dense cell counts for that cell's cluster. So if the mask comes from the
            occupied cells of the same clients, the total of every row holds settings of at
            least `min_points` clients.
        """
        labels = self.grid.clusters(dense)
        rows = np.zeros((int(labels.max(initial=-1)) + 1, self.row), dtype=np.int64)
        if len(points) and len(rows):
            cells = self.grid.assigned(points.places, dense)
            inside = cells >= 0
            parts = np.column_stack(
                [points.places, points.scores, np.ones(len(points), dtype=np.int64)]
            )
            np.add.at(rows, labels[cells[inside]], parts[inside])
        return rows

    def read(self, dense: Mask, totals: Integers) -> Combined:
        """Stage 4: the mean of every cluster; the one of best mean score is the result."""
        labels = self.grid.clusters(dense)
        found = []
        for number, row in enumerate(totals.tolist()):
            *sums, score, count = row
            if count <= 0:
                continue
            cells = tuple(self.grid.coordinates(int(c)) for c in np.flatnonzero(labels == number))
            mean = Fraction(score, count)
            setting = self.frame.setting(mean_of(np.array([*sums, count])))
            cluster = Cluster(setting, float(mean / (1 << PLACE_BITS)), count, cells)
            found.append((-mean, -count, number, cluster))
        if not found:
            raise ParameterError(
                f"no cell of length {self.cell:g} holds settings of {self.min_points} clients or "
                "more. Lower min_points, take larger cells, or let clients keep more"
            )
        found.sort(key=lambda each: each[:3])
        clusters = tuple(each[-1] for each in found)
        return Combined(clusters[0].setting, clusters)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"frame": self.frame.as_mapping(), "cell": self.cell, **self.rule}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Clustering":
        """Read what `as_mapping` wrote."""
        rule = {n: type(usual)(mapping[n]) for n, usual in KeepingRule().rule.items()}
        return cls(Frame.read(mapping["frame"]), float(mapping["cell"]), **rule)


@dataclass(frozen=True, slots=True)
class FederatedDbscan(KeepingRule):
    """Federated DBSCAN with everything in the clear: what the encrypted one must equal."""

    name: ClassVar[str] = "federated dbscan"
    cell: float = 0.15

    def agreed(self, frame: Frame) -> Clustering:
        """Return what the parties agree on."""
        return Clustering(frame, self.cell, **self.rule)

    def combine(self, searches: Searches) -> Combined:
        """Return the centre of the best cluster."""
        agreed = self.agreed(searches.frame)
        clients = [agreed.points(client) for client in searches.clients]
        dense = np.sum([agreed.occupied(points) for points in clients], axis=0) >= self.min_points
        sums = [agreed.sums(points, dense) for points in clients]
        combined = agreed.read(dense, np.sum(sums, axis=0))
        order = {cell: n for n, c in enumerate(combined.clusters) for cell in c.cells}
        labels = []
        for points in clients:
            cells = agreed.grid.assigned(points.places, dense).tolist() if len(points) else []
            labels.append(tuple(order[agreed.grid.coordinates(c)] if c >= 0 else -1 for c in cells))
        return Combined(combined.setting, combined.clusters, tuple(labels))

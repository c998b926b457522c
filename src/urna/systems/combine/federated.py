"""Combinations that are sums of clients' integer vectors: the mean, and density clusters.

What a client puts in and what is read from the totals stand here, once. In the clear the totals
are added up by anybody (`FederatedDbscan`, and `Mean`); under encryption and with noise they
are the same vectors (`urna.systems.combine.encrypted`, `urna.systems.combine.private`), so
results agree to the bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import PLACE_BITS, Frame, Places, mean_of, to_places
from urna.systems.combine.grid import Grid, Mask
from urna.systems.combine.searches import LocalSearch, Searches, keep_best, keep_good
from urna.systems.combine.strategies import Cluster, Combined

__all__ = ["Averaging", "Clustering", "FederatedDbscan", "Points"]

Integers = npt.NDArray[np.int64]

_WHOLE = 1 << PLACE_BITS


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """One client's kept settings in whole steps, and their scores likewise."""

    places: Places = field(repr=False)
    scores: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, slots=True)
class Averaging:
    """What everybody agrees on for a mean. All of it is public.

    Args:
        frame: The axes.
        share: Which part of its settings a client keeps; the one best by default.
        most: How many it keeps at most.
    """

    frame: Frame
    share: float | None = None
    most: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 10_000:
            raise ParameterError(f"a client keeps 1 to 10,000 settings, got {self.most}")

    @property
    def dimension(self) -> int:
        """Entries of a client's vector: one sum per axis, and a count."""
        return len(self.frame.rulers) + 1

    def vector(self, search: LocalSearch) -> Integers:
        """Return a client's sums and its count.

        Raises:
            ParameterError: It would keep more settings than agreed.
        """
        kept = keep_best(search, self.share)
        if (count := round(kept.weights.sum())) > self.most:
            raise ParameterError(
                f"a client would keep {count} settings; {self.most} were agreed on"
            )
        return kept.sums(self.frame)

    def read(self, total: Integers) -> Combined:
        """Return the mean of everybody's sums and counts."""
        return Combined(self.frame.setting(mean_of(total)))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"frame": self.frame.as_mapping(), "share": self.share, "most": self.most}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Averaging":
        """Read what `as_mapping` wrote."""
        share = mapping["share"]
        frame = Frame.read(mapping["frame"])
        return cls(frame, None if share is None else float(share), int(mapping["most"]))


@dataclass(frozen=True, slots=True)
class Clustering:
    """What everybody agrees on for federated DBSCAN. All of it is public.

    Args:
        frame: The axes.
        cell: Length of a cell, as a part of an axis.
        min_points: Clients with a setting in a cell that make it dense. A client counts once
            per cell, so a dense cell, and with it every cluster, holds settings of at least so
            many clients.
        tolerance: Clients keep what is within this part of their best score.
        most: How many settings a client keeps at most.
        least: A client whose best score is lower keeps nothing.
    """

    frame: Frame
    cell: float = 0.15
    min_points: int = 4
    tolerance: float = 0.15
    most: int = 10
    least: float = 0.0

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
    def most_cells(self) -> int:
        """Cells that one client's settings lie in at most."""
        return min(self.most, self.grid.size)

    @property
    def row(self) -> int:
        """Entries for one cluster: a sum per axis, the sum of scores, and the count."""
        return len(self.frame.rulers) + 2

    def points(self, search: LocalSearch) -> Points:
        """Return what a client keeps. Scores are accuracies: below 0 and above 1 are the ends."""
        kept = keep_good(search, tolerance=self.tolerance, most=self.most, least=self.least)
        scores = to_places(np.clip(kept.scores, 0.0, 1.0))
        return Points(self.frame.places(kept.settings), scores)

    def occupied(self, points: Points) -> Integers:
        """Stage 1, client: 1 for each cell that holds a setting of its own, 0 for the others."""
        if not len(points):
            return np.zeros(self.grid.size, dtype=np.int64)
        return self.grid.occupied(points.places)

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
        """Stage 4: the mean of every cluster; the one of best mean score is the result.

        Raises:
            ParameterError: No cell is dense.
        """
        labels = self.grid.clusters(dense)
        found = []
        for number, row in enumerate(totals.tolist()):
            *sums, score, count = row
            if count <= 0:
                continue
            cells = tuple(self.grid.coordinates(int(c)) for c in np.flatnonzero(labels == number))
            mean = Fraction(score, count)
            setting = self.frame.setting([Fraction(part, count * _WHOLE) for part in sums])
            cluster = Cluster(setting, float(mean / _WHOLE), count, cells)
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
        return {
            "frame": self.frame.as_mapping(),
            "cell": self.cell,
            "min_points": self.min_points,
            "tolerance": self.tolerance,
            "most": self.most,
            "least": self.least,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Clustering":
        """Read what `as_mapping` wrote."""
        return cls(
            Frame.read(mapping["frame"]),
            float(mapping["cell"]),
            int(mapping["min_points"]),
            float(mapping["tolerance"]),
            int(mapping["most"]),
            float(mapping["least"]),
        )


@dataclass(frozen=True, slots=True)
class FederatedDbscan:
    """Federated DBSCAN with everything in the clear: what the encrypted one must equal.

    Args:
        cell: Length of a cell, as a part of an axis.
        min_points: Clients with a setting in a cell that make it dense.
        tolerance: Clients keep what is within this part of their best score.
        most: How many settings a client keeps at most.
        least: A client whose best score is lower keeps nothing.
    """

    name: ClassVar[str] = "federated dbscan"
    cell: float = 0.15
    min_points: int = 4
    tolerance: float = 0.15
    most: int = 10
    least: float = 0.0

    def agreed(self, frame: Frame) -> Clustering:
        """Return what the parties agree on."""
        return Clustering(frame, self.cell, self.min_points, self.tolerance, self.most, self.least)

    def combine(self, searches: Searches) -> Combined:
        """Return the centre of the best cluster."""
        agreed = self.agreed(searches.frame)
        clients = [agreed.points(c) for c in searches.clients]
        dense = _total([agreed.occupied(points) for points in clients]) >= self.min_points
        combined = agreed.read(dense, _total([agreed.sums(points, dense) for points in clients]))
        order = {cell: n for n, c in enumerate(combined.clusters) for cell in c.cells}
        labels = []
        for points in clients:
            cells = agreed.grid.assigned(points.places, dense).tolist() if len(points) else []
            labels.append(tuple(order[agreed.grid.coordinates(c)] if c >= 0 else -1 for c in cells))
        return Combined(combined.setting, combined.clusters, tuple(labels))


def _total(vectors: Sequence[Integers]) -> Integers:
    return np.asarray(np.sum(vectors, axis=0))

"""Density clusters with differential privacy: two noisy sums under one budget.

The first counts the clients with a setting in each cell; cells of enough clients that stand out of
the noise are dense. In the second each client gives, for every cluster of dense cells, its share of
settings there, their place within the cluster and their score. The noise of both is fixed before
the first, with room for as many clusters as there can be.

A noisy mean or a private vote found better settings at every epsilon that was tried
(`docs/decisions/0071-no-clusters-with-noise.md`), so no command offers this.

Both kinds of vectors have entries that cannot be negative, and that nearly halves how far two of
them can be apart: ‖u − v‖² = ‖u‖² + ‖v‖² − 2u·v.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Sensitivity, Unit, parts_of
from urna.randomness import OsSecrets, SecretSource
from urna.systems.combine import (
    Clustering,
    LocalSearch,
)
from urna.systems.combine.cells import Mask, Points
from urna.systems.combine.frame import PLACE_BITS, Floats, Integers
from urna.systems.combine.strategies import Cluster, Combined
from urna.tally import (
    Contribution,
    SecureAggregation,
    Summation,
    SumRange,
    Terms,
    in_units,
    plan_tally,
    to_grid,
)

__all__ = [
    "FIRST_SHARE",
    "UNITS",
    "ClusterShares",
    "Presence",
    "cluster_vector",
    "dense_cells",
    "densest",
    "private_dbscan",
    "read_clusters",
]

FIRST_SHARE = 0.5
"""Part of the budget, as a share of μ², that finds the dense cells; the rest is for the sums."""

UNITS = 256
"""Whole steps of a share of one."""

_SURE = 2.0  # standard deviations of noise by which a cell or cluster must stand out
_WHOLE = 1 << PLACE_BITS


def private_dbscan(
    clients: Sequence[LocalSearch],
    agreed: Clustering,
    *,
    budget: Budget,
    summation: Summation | None = None,
    secrets: SecretSource | None = None,
) -> Combined:
    """Return the best density cluster of clients' settings with differential privacy.

    Guarantee:
        Both sums together are (epsilon, delta)-DP for the budget, where one client's search is
        replaced, towards everybody who learns no more than the summation reveals.
    """
    terms = Terms.of(len(clients), budget)
    adding, source = summation or SecureAggregation(), secrets or OsSecrets()
    first, second = parts_of(budget, [FIRST_SHARE, 1 - FIRST_SHARE])
    points = [agreed.points(client) for client in clients]
    grid = agreed.grid

    def summed(
        part: Budget, valid: Contribution, vector: Callable[[Points], Integers]
    ) -> tuple[Floats, float]:
        plan = plan_tally(terms.costing(part), valid, removes_excess=adding.removes_excess)
        parts = {client: to_grid(vector(some), plan) for client, some in enumerate(points)}
        total = adding.tally(parts, plan, source).total
        return np.asarray(in_units(total, plan), dtype=np.float64), plan.most_noise_std

    counts, noise = summed(first, Presence(grid.size, min(agreed.most, grid.size)), agreed.occupied)
    dense = dense_cells(agreed, counts, noise)
    shares = ClusterShares(grid.most_clusters, grid.axes, UNITS)
    sums, noise = summed(second, shares, lambda some: cluster_vector(agreed, some, dense))
    found = read_clusters(agreed, dense, sums / UNITS, noise / UNITS)
    return found or densest(agreed, counts, dense)


@dataclass(frozen=True, slots=True)
class Presence:
    """A 1 for each cell that a client is in, and zeros: it counts once per cell.

    Guarantee:
        Replacing a client moves a sum by at most √min(2·most, cells) in L2, leaving one out by
        at most √most.

        Proof. Two such vectors differ by ±1 where just one of them is 1: in at most `most` cells
        for each of them, and in no more cells than there are.

    Args:
        cells: How many cells there are.
        most: How many of them one client is in at most.
    """

    cells: int
    most: int

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.cells, self.most)):
            raise ParameterError(f"cells and most are positive integers, got {self}")
        if self.most > self.cells:
            raise ParameterError(f"a client is in at most {self.cells} cells, got {self.most}")

    @property
    def dimension(self) -> int:
        """How many entries the vector has."""
        return self.cells

    @property
    def reach(self) -> int:
        """Largest magnitude of an entry."""
        return 1

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one client moves the sum."""
        _check_unit(adjacency)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Sensitivity(self.most, self.most)
        return self.whole_client()

    def whole_client(self) -> Sensitivity:
        """Return how far one whole client moves the sum."""
        differing = min(2 * self.most, self.cells)
        return Sensitivity(differing, differing)

    def range_of(self, clients: int) -> SumRange:
        """Return the box of all sums."""
        return SumRange(0, clients, 0, clients * self.most)

    def check(self, vector: Integers) -> None:
        """Raise ParameterError unless this is a valid contribution."""
        inside = 0 <= int(vector.min(initial=0)) <= int(vector.max(initial=0)) <= 1
        if not inside or int(vector.sum()) > self.most:
            raise ParameterError(f"entries are 0 or 1, and at most {self.most} of them are 1")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "presence", "cells": self.cells, "most": self.most}


@dataclass(frozen=True, slots=True)
class ClusterShares:
    """For every cluster a row of places, a score, and the client's share of settings in it.

    A share s is not negative, the row's other entries are at most s/2, and all shares
    together are at most `whole`.

    Guarantee:
        Replacing a client moves a sum by at most √max(2(1 + r²), 4r²)·whole, where
        r² = (axes + 1)/4; leaving one out by at most √(1 + r²)·whole.

        Proof. Let a_j and b_j be the shares of two vectors, in parts of `whole`. Row j differs
        in its share by a_j − b_j and in the others by at most r(a_j + b_j) in L2. Summed,
        Σ(a_j − b_j)² + r²(a_j + b_j)² = (1 + r²)(Σa² + Σb²) + 2(r² − 1)Σab, and Σa², Σb² ≤ 1. If
        r² ≤ 1 the last term is at most 0; else 2Σab ≤ Σa² + Σb², which makes it 2r²(Σa² + Σb²).

    Args:
        clusters: Rows.
        axes: Places in a row.
        whole: What all shares of a client add up to at most; even.
    """

    clusters: int
    axes: int
    whole: int

    def __post_init__(self) -> None:
        if min(self.clusters, self.axes) < 1 or self.whole < 2 or self.whole % 2:
            raise ParameterError(f"clusters, axes and an even whole are positive, got {self}")

    @property
    def row(self) -> int:
        """Entries of a row."""
        return self.axes + 2

    @property
    def dimension(self) -> int:
        """How many entries the vector has."""
        return self.clusters * self.row

    @property
    def reach(self) -> int:
        """Largest magnitude of an entry."""
        return self.whole

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one client moves the sum."""
        _check_unit(adjacency)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Sensitivity((self.whole // 2) ** 2 * (self.axes + 5), self.dimension)
        return self.whole_client()

    def whole_client(self) -> Sensitivity:
        """Return how far one whole client moves the sum."""
        quarters = max(2 * (self.axes + 5), 4 * (self.axes + 1))
        return Sensitivity((self.whole // 2) ** 2 * quarters, self.dimension)

    def range_of(self, clients: int) -> SumRange:
        """Return the box of all sums."""
        half = clients * self.whole // 2
        sides = half * (self.axes + 1)
        return SumRange(-half, 2 * half, -sides, 2 * half + sides)

    def check(self, vector: Integers) -> None:
        """Raise ParameterError unless this is a valid contribution."""
        rows = vector.reshape(self.clusters, self.row)
        shares = rows[:, -1]
        if int(shares.min()) < 0 or int(shares.sum()) > self.whole:
            raise ParameterError(f"shares are not negative and add up to at most {self.whole}")
        if (2 * np.abs(rows[:, :-1]) > shares[:, None]).any():
            raise ParameterError("places and scores of a cluster are at most half its share")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "kind": "cluster shares",
            "clusters": self.clusters,
            "axes": self.axes,
            "whole": self.whole,
        }


def _check_unit(adjacency: Adjacency) -> None:
    if adjacency.unit is not Unit.CLIENT:
        raise ParameterError("combined searches protect clients; nothing is known of records")


def dense_cells(agreed: Clustering, counts: Floats, noise: float) -> Mask:
    """Return the cells whose noisy count of clients is enough and stands out of the noise.

    Where no cell stands out, the fullest one is dense.
    """
    dense: Mask = counts >= max(agreed.min_points, _SURE * noise)
    if not dense.any():
        dense[int(np.argmax(counts))] = True
    return dense


def cluster_vector(agreed: Clustering, points: Points, dense: Mask) -> Integers:
    """Return a client's part of every cluster: place in it, score, and share, in whole steps.

    Shares add up to at most one; places are relative to the cluster's own box.
    """
    labels = agreed.grid.clusters(dense)
    rows = np.zeros((int(labels.max(initial=-1)) + 1, agreed.row))
    places, scores = points.places, points.scores
    if len(points):
        cells = agreed.grid.assigned(places, dense)
        for number in range(len(rows)):
            inside = (cells >= 0) & (labels[cells] == number)
            if inside.any():
                middle, size = _box(agreed, np.flatnonzero(labels == number))
                offset = ((places[inside] / _WHOLE - middle) / size).clip(-0.5, 0.5).mean(axis=0)
                score = scores[inside].mean() / _WHOLE - 0.5
                share = inside.sum() / len(scores)
                rows[number] = share * np.array([*offset, score, 1.0])
    vector = np.zeros(agreed.grid.most_clusters * agreed.row, dtype=np.int64)
    # Towards zero: shares stay within the whole, and halves within their share.
    vector[: rows.size] = np.trunc(rows.reshape(-1) * UNITS * (1 - 1e-12)).astype(np.int64)
    return vector


def read_clusters(agreed: Clustering, dense: Mask, sums: Floats, noise: float) -> Combined | None:
    """Return the clusters whose share stands out of the noise, the best mean score first."""
    labels = agreed.grid.clusters(dense)
    found = []
    for number in range(int(labels.max(initial=-1)) + 1):
        *offset, score, share = sums[number * agreed.row : (number + 1) * agreed.row].tolist()
        if share < max(_SURE * noise, 1 / UNITS):
            continue
        middle, size = _box(agreed, np.flatnonzero(labels == number))
        inside = np.clip(np.array(offset) / share, -0.5, 0.5)
        point = np.clip(middle + inside * size, 0.0, 1.0)
        cells = tuple(agreed.grid.coordinates(int(c)) for c in np.flatnonzero(labels == number))
        mean = min(max(score / share + 0.5, 0.0), 1.0)
        found.append(Cluster(agreed.frame.setting(point), mean, share, cells))
    if not found:
        return None
    found.sort(key=lambda cluster: (-cluster.score, -cluster.points))
    return Combined(found[0].setting, tuple(found))


def densest(agreed: Clustering, counts: Floats, dense: Mask) -> Combined:
    """Return the fullest cluster, at the mean of its cells by their counts; no score is known."""
    labels = agreed.grid.clusters(dense)
    found = []
    for number in range(int(labels.max(initial=-1)) + 1):
        cells = np.flatnonzero(labels == number)
        full = np.maximum(counts[cells], 1e-9)
        middles = np.array([_box(agreed, cells[[place]])[0] for place in range(len(cells))])
        point = np.clip(full @ middles / full.sum(), 0.0, 1.0)
        where = tuple(agreed.grid.coordinates(int(cell)) for cell in cells)
        found.append(Cluster(agreed.frame.setting(point), math.nan, float(full.sum()), where))
    found.sort(key=lambda cluster: -cluster.points)
    return Combined(found[0].setting, tuple(found))


def _box(agreed: Clustering, cells: Integers) -> tuple[Floats, Floats]:
    """Return middle and size of the box around some cells, within the cube."""
    corners = np.array([agreed.grid.coordinates(int(cell)) for cell in cells])
    low = corners.min(axis=0) * agreed.cell
    high = np.minimum((corners.max(axis=0) + 1) * agreed.cell, 1.0)
    return (low + high) / 2, high - low

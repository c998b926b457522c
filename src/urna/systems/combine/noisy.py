"""A client's vectors for private sums of settings, and what is read from the noisy sums."""

import math

import numpy as np

from urna.systems.combine.federated import Averaging, Clustering, Integers, Points
from urna.systems.combine.frame import PLACE_BITS, Floats
from urna.systems.combine.grid import Mask
from urna.systems.combine.searches import LocalSearch, keep_best
from urna.systems.combine.strategies import Cluster, Combined

__all__ = [
    "UNITS",
    "cluster_vector",
    "dense_cells",
    "densest",
    "mean_vector",
    "read_clusters",
]

UNITS = 256
"""Whole steps of a share of one."""

_SURE = 2.0  # standard deviations of noise by which a cell or cluster must stand out
_WHOLE = 1 << PLACE_BITS


def mean_vector(agreed: Averaging, search: LocalSearch) -> Integers:
    """Return a client's mean setting as a point of the cube around the middle of the axes."""
    kept = keep_best(search, agreed.share)
    if not len(kept):
        return np.zeros(len(agreed.frame.rulers), dtype=np.int64)
    mean = kept.weights @ agreed.frame.units(kept.settings) / kept.weights.sum()
    return np.asarray(np.rint((mean - 0.5) * UNITS), dtype=np.int64)


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

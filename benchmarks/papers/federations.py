"""A federation's own search, beside its clients': what combinations are judged by."""

import csv
import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from urna.systems.combine import LocalSearch, Searches

__all__ = ["candidates", "federated_search"]

FEDERATED = "-1"
"""The client number of the federated grid search in the authors' table."""


def federated_search(path: Path, where: Mapping[str, str], axes: Sequence[str]) -> LocalSearch:
    """Return what the federation found with each setting, from a table in .csv.gz.

    It has no training accuracy of its own: it is judged by the other.

    Args:
        path: The table.
        where: Columns and the numbers or texts that rows must have there.
        axes: The hyperparameters.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["client"] == FEDERATED and all(_same(row[k], v) for k, v in where.items())
        ]
    settings = np.array([[float(row[name]) for name in axes] for row in rows])
    scores = np.array([float(row["accuracy"] or math.nan) for row in rows])
    return LocalSearch(settings, scores)


def candidates(searches: Searches) -> npt.NDArray[np.float64]:
    """Return all settings that some client tried, once each, in order."""
    return np.unique(np.concatenate([client.settings for client in searches.clients]), axis=0)


def _same(found: str, wanted: str) -> bool:
    try:
        return float(found) == float(wanted)
    except ValueError:
        return found == wanted

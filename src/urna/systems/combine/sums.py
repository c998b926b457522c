"""The private sums a combination is made of, each as public facts that clients and server share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.privacy import (
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    compose,
)
from urna.systems.combine.contributions import ClusterShares, Presence
from urna.systems.combine.federated import Averaging, Clustering, Integers
from urna.systems.combine.frame import Floats
from urna.systems.combine.grid import Mask
from urna.systems.combine.noisy import UNITS, cluster_vector, mean_vector
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.strategies import Combined
from urna.tally import BoundedVector, Contribution, TallyPlan, Terms, plan_tally

__all__ = ["KIND", "SettingsSum", "mean_from", "read_agreed", "together"]

KIND = "settings"
"""What announcements and policies call such sums."""


@dataclass(frozen=True, slots=True)
class SettingsSum:
    """One private sum over clients' searches: of a mean, of cells, or of clusters.

    Args:
        agreed: What is combined.
        dense: For the sums of clusters, the cells that the first sum found dense.
    """

    agreed: Averaging | Clustering
    dense: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.dense is None:
            return
        if not isinstance(self.agreed, Clustering):
            raise ParameterError("a mean has no dense cells")
        cells = self.agreed.grid.size
        if not self.dense or sorted(set(self.dense)) != list(self.dense):
            raise ParameterError("dense cells are named once each, in order")
        if not 0 <= self.dense[0] <= self.dense[-1] < cells:
            raise ParameterError(f"cells are numbered below {cells}")

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return KIND

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        if isinstance(self.agreed, Averaging):
            return "mean of settings"
        return "clients counted in cells" if self.dense is None else "sums of clusters"

    @property
    def contribution(self) -> Contribution:
        """What a valid vector is."""
        if isinstance(self.agreed, Averaging):
            axes = len(self.agreed.frame.rulers)
            return BoundedVector(axes, norm_squared=axes * (UNITS // 2) ** 2, most=UNITS // 2)
        grid = self.agreed.grid
        if self.dense is None:
            return Presence(grid.size, self.agreed.most_cells)
        # As many clusters as there can be: the noise is fixed before they are known.
        return ClusterShares(grid.most_clusters, grid.axes, UNITS)

    @property
    def mask(self) -> Mask:
        """The dense cells, as a mask over all."""
        if not isinstance(self.agreed, Clustering) or self.dense is None:
            raise ParameterError("this sum is not over dense cells")
        mask = np.zeros(self.agreed.grid.size, dtype=np.bool_)
        mask[list(self.dense)] = True
        return mask

    def after(self, dense: Mask) -> "SettingsSum":
        """Return the sum that follows once dense cells are known."""
        return SettingsSum(self.agreed, tuple(np.flatnonzero(dense).tolist()))

    def vector(self, search: LocalSearch) -> Integers:
        """Return what a client puts in, in whole steps."""
        if isinstance(self.agreed, Averaging):
            return mean_vector(self.agreed, search)
        points = self.agreed.points(search)
        if self.dense is None:
            return self.agreed.occupied(points)
        return cluster_vector(self.agreed, points, self.mask)

    def plan(self, terms: Terms, rounds: int = 1) -> TallyPlan:
        """Return the plan of the sum. There is one round."""
        if rounds != 1:
            raise ParameterError("a sum of settings has one round")
        return plan_tally(terms, self.contribution)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        of = "mean" if isinstance(self.agreed, Averaging) else "clusters"
        dense = None if self.dense is None else list(self.dense)
        return {"of": of, "agreed": self.agreed.as_mapping(), "dense": dense}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "SettingsSum":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: It is something else.
        """
        dense = mapping["dense"]
        cells = None if dense is None else tuple(int(cell) for cell in dense)
        return cls(read_agreed(mapping["of"], mapping["agreed"]), cells)

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many entries the vector has, without making anything large."""
        return SettingsSum.read(mapping).contribution.dimension


def read_agreed(of: str, mapping: Mapping[str, Any]) -> Averaging | Clustering:
    """Read what was agreed on.

    Raises:
        ParameterError: It is neither a mean nor clusters.
    """
    if of == "mean":
        return Averaging.from_mapping(mapping)
    if of == "clusters":
        return Clustering.from_mapping(mapping)
    raise ParameterError("a sum of settings is of a mean or of clusters")


def mean_from(agreed: Averaging, sums: Floats, count: int) -> Combined:
    """Return the mean that a noisy sum over so many clients gives."""
    point = np.clip(sums / (UNITS * count) + 0.5, 0.0, 1.0)
    return Combined(agreed.frame.setting(point))


def together(
    terms: Terms, plans: Sequence[TallyPlan], last: PrivacyStatement, private: bool
) -> PrivacyStatement:
    """Return what several released sums cost together.

    Args:
        terms: What all of them share; its budget's delta counts.
        plans: Their plans.
        last: What the last one said of itself.
        private: Whether all randomness was secret.
    """
    events: list[Release] = [plan.release or NonPrivateRelease("no noise") for plan in plans]
    spent = compose(events, terms.budget.delta)
    several = (f"Epsilon is that of {len(plans)} sums together",) if len(plans) > 1 else ()
    return PrivacyStatement(
        spent.epsilon if private else math.inf,
        terms.budget.delta,
        terms.adjacency,
        spent.accountant if private else "none",
        (*last.caveats, *several),
    )

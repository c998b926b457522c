"""What a client may put into private sums of settings, and so how far anybody can move them.

Both kinds have entries that cannot be negative, and that nearly halves how far two vectors
can be apart: ‖u − v‖² = ‖u‖² + ‖v‖² − 2u·v.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.privacy import Adjacency, Sensitivity, Unit
from urna.systems.combine.federated import Integers
from urna.tally import SumRange

__all__ = ["ClusterShares", "Presence"]


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

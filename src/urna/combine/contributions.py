"""What a client may put into private sums of settings, and so how far anybody can move them.

Both kinds have entries that cannot be negative, and that nearly halves how far two vectors
can be apart: ‖u − v‖² = ‖u‖² + ‖v‖² − 2u·v.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.combine.federated import Integers
from urna.errors import ParameterError
from urna.privacy import Adjacency, Move, Unit
from urna.tally import SumRange

__all__ = ["ClusterShares", "Weights"]


@dataclass(frozen=True, slots=True)
class Weights:
    """A vector of non-negative integers of bounded L2 norm: how a client's mass is spread.

    Guarantee:
        Replacing a client moves a sum by at most √2·norm, leaving one out by at most norm.

    Args:
        dimension: How many entries.
        norm: Largest L2 norm of one client's vector.
    """

    dimension: int
    norm: int

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.dimension, self.norm)):
            raise ParameterError(f"dimension and norm are positive integers, got {self}")

    @property
    def reach(self) -> int:
        """Largest magnitude of an entry."""
        return self.norm

    def move(self, adjacency: Adjacency) -> Move:
        """Return how far one client moves the sum."""
        _check_unit(adjacency)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Move(self.norm**2, self.dimension)
        return self.whole_client()

    def whole_client(self) -> Move:
        """Return how far one whole client moves the sum."""
        return Move(2 * self.norm**2, self.dimension)

    def range_of(self, clients: int) -> SumRange:
        """Return the box of all sums; ‖x‖₁ ≤ √dimension·‖x‖₂ bounds their total."""
        total = clients * math.isqrt(self.dimension * self.norm**2)
        return SumRange(0, clients * self.norm, 0, total)

    def check(self, vector: Integers) -> None:
        """Raise ParameterError unless this is a valid contribution."""
        inside = 0 <= int(vector.min(initial=0)) <= int(vector.max(initial=0)) <= self.norm
        if not inside or int(vector @ vector) > self.norm**2:
            raise ParameterError(
                f"entries are not negative and have an L2 norm of at most {self.norm}"
            )

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "weights", "dimension": self.dimension, "norm": self.norm}


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

    def move(self, adjacency: Adjacency) -> Move:
        """Return how far one client moves the sum."""
        _check_unit(adjacency)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Move((self.whole // 2) ** 2 * (self.axes + 5), self.dimension)
        return self.whole_client()

    def whole_client(self) -> Move:
        """Return how far one whole client moves the sum."""
        quarters = max(2 * (self.axes + 5), 4 * (self.axes + 1))
        return Move((self.whole // 2) ** 2 * quarters, self.dimension)

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

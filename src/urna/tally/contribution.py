"""What a client may put into a sum, and so how far anybody can move it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import numpy as np

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Sensitivity, Unit


@dataclass(frozen=True, slots=True)
class SumRange:
    """Where the exact sum of valid contributions lies, in units, before noise."""

    low: int
    high: int
    """Of every entry."""
    total_low: int
    total_high: int
    """Of the sum of all entries."""


class Contribution(Protocol):
    """What a valid vector is. Everything in it is public and fixed before anybody contributes."""

    @property
    def dimension(self) -> int:
        """How many entries the vector has."""
        ...

    @property
    def reach(self) -> int:
        """Largest magnitude of an entry."""
        ...

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one protected unit may move the sum.

        Raises:
            ParameterError: Nothing is known for this relation.
        """
        ...

    def whole_client(self) -> Sensitivity | None:
        """Return how far one whole client may move the sum; None where nothing bounds it."""
        ...

    def range_of(self, clients: int) -> SumRange:
        """Return where the exact sum of so many valid contributions lies."""
        ...

    def check(self, vector: IntVector) -> None:
        """Raise ParameterError unless this is a valid contribution."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same, for announcements and results."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BoundedVector:
    """A vector of signed integers whose L2 norm is bounded.

    Args:
        dimension: How many entries.
        norm_squared: Largest squared L2 norm of one client's vector.
        record_squared: Largest squared L2 distance between two vectors of a client that
            differ in one record. Without it single records are not promised anything. Who
            names it has proven it of the way vectors are computed: no check can see it.
        removed_squared: Largest squared L2 distance between two vectors of a client one of which
            lacks a record of the other, where that is proven.
        most: Largest magnitude of one entry, where it is known to be less than the norm.
        client_squared: Largest squared L2 distance between any two clients' vectors, where it
            is proven to be less than twice the norm.
        beyond: Probability, over coins that no data enter, that two vectors are further apart
            than `record_squared`, `removed_squared` and `client_squared` say.
    """

    dimension: int
    norm_squared: int
    record_squared: int | None = None
    most: int | None = None
    client_squared: int | None = None
    beyond: float = 0.0
    removed_squared: int | None = None

    def __post_init__(self) -> None:
        known = [self.dimension, self.norm_squared, self.record_squared, self.most]
        known += [self.client_squared, self.removed_squared]
        if any(type(n) is not int or n < 1 for n in known if n is not None):
            raise ParameterError(f"dimension and norms are positive integers, got {self}")

    @property
    def reach(self) -> int:
        """Largest magnitude of an entry."""
        norm = math.isqrt(self.norm_squared)
        return norm if self.most is None else min(norm, self.most)

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one unit moves the sum: ‖u‖ where it is left out, ‖u − v‖ ≤ 2·norm."""
        if adjacency.unit is Unit.RECORD:
            replaced = adjacency is Adjacency.REPLACE_ONE_RECORD
            squared = self.record_squared if replaced else self.removed_squared
            if squared is None:
                raise ParameterError(
                    "nothing is known of how far one record moves such a vector under "
                    f"{adjacency}; ask for a relation about clients"
                )
            return Sensitivity(squared, self.dimension, self.beyond)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Sensitivity(self.norm_squared, self.dimension)
        return self.whole_client()

    def whole_client(self) -> Sensitivity:
        """Return how far one whole client moves the sum."""
        if self.client_squared is not None:
            return Sensitivity(self.client_squared, self.dimension, self.beyond)
        return Sensitivity(4 * self.norm_squared, self.dimension)

    def range_of(self, clients: int) -> SumRange:
        """Return the box of all sums; ‖x‖₁ ≤ √dimension·‖x‖₂ bounds their total."""
        most = clients * self.reach
        total = clients * math.isqrt(self.dimension * self.norm_squared)
        return SumRange(-most, most, -total, total)

    def check(self, vector: IntVector) -> None:
        """Raise ParameterError unless the norm is within its bound, computed exactly."""
        # Not by np.abs: of the least integer of a width there is none.
        most = max(int(vector.max(initial=0)), -int(vector.min(initial=0)))
        if most > self.reach:
            raise ParameterError(f"an entry of a vector is at most {self.reach} in magnitude")
        squared = _squared(vector, most)
        if squared > self.norm_squared:
            raise ParameterError(
                f"the squared norm of a vector is at most {self.norm_squared:,}, got {squared:,}"
            )

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "bounded vector", **asdict(self)}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "BoundedVector":
        """Read what `as_mapping` wrote."""
        known = {each.name: mapping[each.name] for each in fields(cls)}
        return cls(**known | {"beyond": float(mapping["beyond"])})


def _squared(vector: IntVector, most: int) -> int:
    """Return the squared norm of integers of any width, no larger than `most`, exactly."""
    if most >= 1 << 31:  # two such squares overflow 64 bits
        return sum(int(entry) ** 2 for entry in vector)
    size = (1 << 62) // max(1, most * most)
    wide = (vector[at : at + size].astype(np.int64) for at in range(0, len(vector), size))
    return sum(int(piece @ piece) for piece in wide)

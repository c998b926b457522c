"""Pooled moments: the least-squares classifier of all data together, from one private sum."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.systems.average.learners import Solved, Vector, check_spec
from urna.systems.average.moments import moments_length, moments_of, unpack
from urna.systems.average.schema import Schema
from urna.systems.average.sensitivity import class_moments_square, value_moments_square
from urna.systems.average.shrink import RIDGE, denoise, solve
from urna.tally import Encoding

__all__ = ["WEIGHT", "Moments"]

WEIGHT = 1.2
"""What cross moments are multiplied by: chosen on MNIST (projected), Adult and digits."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Every client's part of XᵀX and XᵀY; the sum of all gives the ridge regression of all data.

    Nothing is trained at clients and nothing is averaged: labels may be skewed and clients of
    any size. There is no Λ, no R and no step size; the ridge follows from the known noise.

    Guarantee:
        One record moves a client's vector by at most `record_move`, exactly the farthest two
        records' moments can be apart; `group` records by that many times as much. Where whole
        clients are protected each sends the *mean* of its records' moments. Means are
        combinations of single records' moments and zero, and two such combinations are no
        further apart than two of the points: any two clients differ by at most the move of one
        record. Sums are scaled down to the norm of `points` rows' moments at most, and those
        of two clients may be nearly opposite: they differ by at most twice that norm.

    Args:
        schema: What the tables hold; classes or a span of targets.
        unit: What is protected.
        points: Most rows of a client that count in full; sums over more are scaled down.
        weight: w, what cross moments are multiplied by.
        group: Υ, records of one client that are protected together.
        ridge: What is added to the diagonal; from the noise by default. No data may choose it.

    Raises:
        ParameterError: This cannot be.
    """

    schema: Schema
    unit: Unit
    points: int
    weight: float = WEIGHT
    group: int = 1
    ridge: float | None = None

    def __post_init__(self) -> None:
        check_spec(self.unit, self.group, self.points)
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ParameterError(f"the blocks' weight is finite and positive, got {self.weight}")
        if self.ridge is not None and not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise ParameterError(f"a ridge is finite and at least 0, got {self.ridge}")

    @property
    def kind(self) -> str:
        """Its name."""
        return "moments"

    @property
    def dimension(self) -> int:
        """Numbers that a client sends."""
        return moments_length(self.schema.width, self.schema.outputs)

    @property
    def record_sensitivity(self) -> float:
        """How far one record moves a client's sums."""
        lowest = self.schema.rows.lowest
        if self.schema.classes is None:
            return math.sqrt(value_moments_square(self.weight, lowest=lowest))
        return math.sqrt(class_moments_square(self.weight, len(self.schema.classes), lowest=lowest))

    @property
    def _record_norm(self) -> float:
        return math.sqrt(1 + self.weight**2 * self.schema.target_square)

    def describe(self) -> str:
        """Say in a few words what it is."""
        what = "classifier" if self.schema.classes is not None else "regression"
        return f"pooled moments: the ridge {what} of all records, from {self.dimension:,} sums"

    def encoding(self, excess: float) -> Encoding:
        """Return how a client's vector becomes integers."""
        if self.unit is Unit.CLIENT:
            return Encoding.fine(
                self.dimension,
                self._record_norm,
                excess=excess,
                client_sensitivity=self.record_sensitivity,
            )
        most = max(self.points, self.group)
        return Encoding.fine(
            self.dimension,
            most * self._record_norm,
            excess=excess,
            record_sensitivity=self.group * self.record_sensitivity,
            client_sensitivity=2 * most * self._record_norm,
        )

    def vectors(
        self, clients: Sequence[Samples], *, device: str | None = None
    ) -> Iterator[tuple[int, Vector]]:
        """Yield every client's moments: sums, or means where whole clients are protected."""
        del device  # a product of matrices; reading the rows takes longer
        for place, samples in enumerate(clients):
            prepared = self.schema.prepare(samples, group=self.group)
            vector = moments_of(prepared, self.schema, self.weight)
            if self.unit is Unit.CLIENT:
                vector /= max(len(prepared.rows), 1)
            yield place, vector

    def solved(self, total: Vector, *, clients: int, std: float) -> Solved:
        """Return the ridge regression behind the noisy moments."""
        del clients
        square, cross = unpack(total, self.schema.width, self.schema.outputs, self.weight)
        weights = solve(square, cross, std=std, ridge=self.ridge)
        found = denoise(square, std)
        ridge = RIDGE * std * math.sqrt(len(square)) if self.ridge is None else self.ridge
        facts = {"ridge": ridge, "spikes": found.spikes, "weight": float(square.trace())}
        return Solved(weights, std, facts)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "kind": self.kind,
            "schema": self.schema.as_mapping(),
            "unit": str(self.unit),
            "points": self.points,
            "weight": self.weight,
            "group": self.group,
            "ridge": self.ridge,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Moments":
        """Read what `as_mapping` wrote."""
        return cls(
            Schema.read(mapping["schema"]),
            Unit(mapping["unit"]),
            mapping["points"],
            float(mapping["weight"]),
            mapping["group"],
            None if mapping["ridge"] is None else float(mapping["ridge"]),
        )

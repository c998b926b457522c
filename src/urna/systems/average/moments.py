"""Pooled moments: the least-squares model of all data together, from one private sum.

What a client sends is the upper triangle of XᵀX, off-diagonal entries times √2 so that its norm is
the matrix's, and then w·XᵀY. Rows stand on a grid, so the sums are exact; they are weighted once
at the end.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.systems.average.learners import Solved, Vector, check_spec
from urna.systems.average.schema import Matrix, PreparedRows, Schema
from urna.systems.average.shrink import RIDGE, denoise, solve
from urna.tally import Encoding

WEIGHT = 1.2
"""What cross moments are multiplied by: chosen on MNIST (projected), Adult and digits."""

_STRIP = 1 << 14  # rows that are multiplied at a time


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

    def vectors(self, clients: Sequence[Samples]) -> Iterator[tuple[int, Vector]]:
        """Yield every client's moments: sums, or means where whole clients are protected."""
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
        return Solved(weights, facts)

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


def moments_length(width: int, outputs: int) -> int:
    """Return how many numbers a client sends.

    Example:
        >>> moments_length(256, 10)
        35456
    """
    return width * (width + 1) // 2 + width * outputs


def moments_of(prepared: PreparedRows, schema: Schema, weight: float) -> Vector:
    """Return a client's moments, summed over its records.

    Guarantee:
        The sum of one fixed vector for each record: (xxᵀ, w·xyᵀ) of its row and target. Sums
        are exact before they are weighted: entries of rows are multiples of 2^-16, so
        products are multiples of 2^-32, and 2^20 of them fit into a float64 to the last bit.
    """
    width, rows = schema.width, prepared.rows
    square = np.zeros((width, width))
    cross = np.zeros((width, schema.outputs))
    for start in range(0, len(rows), _STRIP):
        some = rows[start : start + _STRIP]
        square += some.T @ some
        cross += some.T @ _columns(prepared.targets[start : start + _STRIP], schema)
    if schema.classes is not None:  # sums by class; centring them is one subtraction
        cross -= cross.sum(axis=1, keepdims=True) / schema.outputs
    return pack(square, cross, weight)


def pack(square: Matrix, cross: Matrix, weight: float) -> Vector:
    """Return moments as one vector whose norm is that of (square, w·cross)."""
    places, scales = _triangle(len(square))
    packed = np.empty(len(places) + cross.size)
    np.multiply(square.reshape(-1)[places], scales, out=packed[: len(places)])
    np.multiply(cross.reshape(-1), weight, out=packed[len(places) :])
    return packed


def unpack(vector: Vector, width: int, outputs: int, weight: float) -> tuple[Matrix, Matrix]:
    """Return what `pack` packed: the whole symmetric matrix, and the cross moments."""
    if vector.shape != (moments_length(width, outputs),):
        raise ParameterError(
            f"moments of {width} entries and {outputs} outputs are "
            f"{moments_length(width, outputs):,} numbers, got {vector.shape}"
        )
    places, scales = _triangle(width)
    square = np.zeros((width, width))
    square.reshape(-1)[places] = vector[: len(places)] / scales
    square += np.triu(square, 1).T
    return square, vector[len(places) :].reshape(width, outputs) / weight


def _columns(targets: npt.NDArray[np.int64] | Matrix, schema: Schema) -> Matrix:
    """Return targets as columns: one-hot, not yet centred, or the values."""
    if schema.classes is None:
        return np.asarray(targets, dtype=np.float64)[:, None]
    return np.asarray(np.eye(schema.outputs)[targets.astype(np.int64)])


@functools.lru_cache(maxsize=2)
def _triangle(width: int) -> tuple[npt.NDArray[np.intp], Matrix]:
    """Return where the upper triangle stands in a flat matrix, and what it is multiplied by."""
    rows, columns = np.triu_indices(width)
    return rows * width + columns, np.where(rows == columns, 1.0, math.sqrt(2))


def class_moments_square(weight: float, classes: int, *, lowest: float = -1.0) -> float:
    """Return the squared move of (xxᵀ, w·xyᵀ) when one record is replaced, y centred one-hot.

    Guarantee:
        For rows x, z of norm at most 1 with x·z = c and classes a, b the squared distance is
        ‖x‖⁴ + ‖z‖⁴ − 2c² + w²(q‖x‖² + q‖z‖² − 2ck), with q = 1 − 1/K, k = q if a = b and −1/K
        otherwise. It grows with both norms at fixed c, so it is at most
        h(c) = 2 − 2c² + w²(2q − 2ck), and unit rows of every c in [−1, 1] exist: the maximum
        over c and k is exact. It is at c = −w²k/2, cut to where c may lie. A record that adds
        nothing is a row of norm 0: 1 + w²q, which counts where c cannot be 0.

    Args:
        weight: w, what the second block is multiplied by.
        classes: K.
        lowest: Smallest c of two rows: 0 where features are not negative.

    Example:
        >>> [round(class_moments_square(w, 10), 3) for w in (0.5, 1.0, 2.0, 4.0)]
        [2.475, 4.205, 14.4, 57.6]
    """
    q, w2 = 1 - 1 / classes, weight**2
    return max(1 + w2 * q, *(_highest(w2, 2 * q, k, lowest) for k in (q, -1 / classes)))


def value_moments_square(weight: float, *, lowest: float = -1.0) -> float:
    """Return the squared move of (xxᵀ, w·xy) when one record is replaced, |y| at most 1.

    Guarantee:
        As for classes, with ‖xy − zy'‖² = y²‖x‖² + y'²‖z‖² − 2c·yy', which is convex in y and
        in y' and so largest at ±1: h(c) = 2 − 2c² + w²(2 − 2ck) with k = ±1.

    Example:
        >>> value_moments_square(1.0)
        4.5
    """
    w2 = weight**2
    return max(1 + w2, *(_highest(w2, 2.0, k, lowest) for k in (1.0, -1.0)))


def _highest(w2: float, square: float, k: float, lowest: float) -> float:
    """Return the maximum of 2 − 2c² + w²(square − 2ck) over c in [lowest, 1]."""
    if not -1 <= lowest <= 1:
        raise ParameterError(f"an inner product of unit rows lies in -1..1, got {lowest}")
    c = min(1.0, max(lowest, -w2 * k / 2))
    return 2 - 2 * c * c + w2 * (square - 2 * c * k)

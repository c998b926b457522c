"""Pooled moments: the least-squares model of all data together, from one private sum.

What a client sends is the upper triangle of XᵀX, off-diagonal entries times √2 so that its norm is
the matrix's, and then w·XᵀY. Rows stand on a grid, so the sums are exact; they are weighted once
at the end.

What is read from the noisy sum is computed from the release and public facts. The noisy second
moments are the true ones plus a symmetric matrix of independent noise of known size. Three things
are known to help against it, and cost nothing:

- Large eigenvalues stand out of the noise, are too large by a known amount, and their vectors are
  off by a known angle (a spiked Wigner matrix; Benaych-Georges & Nadakuditi 2011). They are kept,
  shrunk by what minimises the error in Frobenius norm.
- The rest is nearly diagonal where features are nearly uncorrelated, as principal components of
  public data are on private ones. Off-diagonal entries are shrunk by the ratio of their own
  variance to that and the noise's; how large the former is, is read from all of them together
  (empirical Bayes). The diagonal is drawn towards its mean alike (James & Stein).
- A ridge of the size of the noise's own spectrum is added.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.systems.average.schema import (
    Matrix,
    PreparedRows,
    Schema,
    Solved,
    Vector,
    check_spec,
    plain_learner,
    read_fields,
)
from urna.tally import Encoding

WEIGHT = 1.2
"""What cross moments are multiplied by: chosen on MNIST (projected), Adult and digits."""

_STRIP = 1 << 14  # rows that are multiplied at a time

RIDGE = 0.7
"""Ridge over sd·√width. This, the edge and the blocks' weight were chosen on MNIST (projected),
Adult and digits; no model of the benchmark's features was looked at for them."""

_EDGE = 1.1  # an eigenvalue counts as signal this far beyond where noise alone ends
_FLOOR = 0.02  # least diagonal entry, as a part of their mean
_TAUS = np.logspace(-6, 0, 61)  # variances of off-diagonal entries tried, relative


@dataclass(frozen=True, slots=True)
class Moments:
    """Every client's part of XᵀX and XᵀY; the sum of all gives the ridge regression of all data.

    Nothing is trained at clients and nothing is averaged: labels may be skewed and clients of
    any size. There is no Λ, no R and no step size; the ridge follows from the known noise.

    Guarantee:
        One record moves a client's vector by at most `record_sensitivity`, exactly the farthest two
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
    """

    kind: ClassVar[str] = "moments"
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
    def dimension(self) -> int:
        """Numbers that a client sends."""
        return moments_length(self.schema.width, self.schema.outputs)

    @property
    def record_sensitivity(self) -> float:
        """How far one record moves a client's sums."""
        classes, lowest = self.schema.classes, self.schema.rows.lowest
        count = None if classes is None else len(classes)
        return math.sqrt(move_square(self.weight, count, lowest=lowest))

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
        noisy, cross = unpack(total, self.schema.width, self.schema.outputs, self.weight)
        found, square, ridge = denoise(noisy, std), noisy, self.ridge
        if ridge is None:
            square, ridge = found.square, RIDGE * std * math.sqrt(len(noisy))
        facts = {"ridge": ridge, "spikes": found.spikes, "weight": float(noisy.trace())}
        return Solved(solve(square, cross, ridge), facts)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return plain_learner(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Moments":
        """Read what `as_mapping` wrote."""
        return cls(**read_fields(cls, mapping, unit=Unit))


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


def move_square(weight: float, classes: int | None, *, lowest: float = -1.0) -> float:
    """Return the squared move of (xxᵀ, w·xyᵀ) when one record is replaced.

    Guarantee:
        Of classes y is centred one-hot. For rows x, z of norm at most 1 with x·z = c and classes
        a, b the squared distance is ‖x‖⁴ + ‖z‖⁴ − 2c² + w²(q‖x‖² + q‖z‖² − 2ck), with
        q = 1 − 1/K, k = q if a = b and −1/K otherwise. It grows with both norms at fixed c, so it
        is at most h(c) = 2 − 2c² + w²(2q − 2ck), and unit rows of every c in [−1, 1] exist: the
        maximum over c and k is exact. It is at c = −w²k/2, cut to where c may lie. A record that
        adds nothing is a row of norm 0: 1 + w²q, which counts where c cannot be 0.

        Of values, |y| at most 1, ‖xy − zy'‖² = y²‖x‖² + y'²‖z‖² − 2c·yy' is convex in y and
        in y' and so largest at ±1: the same with q = 1 and k = ±1.

    Args:
        weight: w, what the second block is multiplied by.
        classes: K; None for values.
        lowest: Smallest c of two rows: 0 where features are not negative.

    Example:
        >>> [round(move_square(w, 10), 3) for w in (0.5, 1.0, 2.0, 4.0)], move_square(1.0, None)
        ([2.475, 4.205, 14.4, 57.6], 4.5)
    """
    if not -1 <= lowest <= 1:
        raise ParameterError(f"an inner product of unit rows lies in -1..1, got {lowest}")
    w2, q, other = weight**2, 1.0, -1.0
    if classes is not None:
        q, other = 1 - 1 / classes, -1 / classes
    moves = [1 + w2 * q]
    for k in (q, other):
        c = min(1.0, max(lowest, -w2 * k / 2))
        moves.append(2 - 2 * c * c + w2 * (2 * q - 2 * c * k))
    return max(moves)


class Denoised(NamedTuple):
    """Second moments with what could be told from noise kept."""

    square: Matrix
    spikes: int
    """Directions that stand out of the noise."""


def solve(square: Matrix, cross: Matrix, ridge: float) -> Matrix:
    """Return the weights (width, outputs) of the ridge regression behind XᵀX and XᵀY."""
    values, vectors = np.linalg.eigh(square)
    # Directions that no row has, or that noise made negative, are left to the ridge; without
    # one they are left out.
    least = 1e-10 * max(float(values[-1]), 1e-300)
    curved = np.maximum(values, 0.0) + ridge
    inverse = np.where(curved > least, 1 / np.maximum(curved, least), 0.0)
    return np.asarray((vectors * inverse) @ (vectors.T @ cross))


def denoise(square: Matrix, std: float) -> Denoised:
    """Return second moments with known noise shrunk away.

    Args:
        square: Noisy XᵀX.
        std: Standard deviation of the noise in a diagonal entry; off-diagonal ones have 1/√2 of it.
    """
    width = len(square)
    if std <= 0 or width < 2:
        return Denoised(square, width)
    spiked, spikes = _spikes(square, std)
    rest = square - spiked
    diagonal = _towards_mean(np.diag(rest), std)
    scales = np.outer(diagonal, diagonal)
    tau = _likeliest(rest, scales, std)
    kept = tau * scales / (tau * scales + std**2 / 2)
    shrunk = rest * kept
    np.fill_diagonal(shrunk, diagonal)
    return Denoised(shrunk + spiked, spikes)


def _spikes(square: Matrix, std: float) -> tuple[Matrix, int]:
    """Return the part of the matrix that stands out of the noise, and its rank.

    Noise of variance σ² per off-diagonal entry has eigenvalues up to 2σ√p. A true eigenvalue
    θ > σ√p shows at λ = θ + σ²p/θ, and its vector with squared cosine 1 − σ²p/θ².
    """
    values, vectors = np.linalg.eigh(square)
    spread = std**2 / 2 * len(square)
    beyond = values > _EDGE * 2 * math.sqrt(spread)
    true = (values[beyond] + np.sqrt(values[beyond] ** 2 - 4 * spread)) / 2
    shrunk = true * (1 - spread / true**2)
    return np.asarray((vectors[:, beyond] * shrunk) @ vectors[:, beyond].T), int(beyond.sum())


def _towards_mean(diagonal: Matrix, std: float) -> Matrix:
    mean, variance = float(diagonal.mean()), float(diagonal.var())
    if mean <= 0:  # nothing but noise
        return np.full(len(diagonal), std)
    trust = max(0.0, 1 - std**2 / max(variance, 1e-300))
    return np.maximum(mean + trust * (diagonal - mean), _FLOOR * mean)


def _likeliest(rest: Matrix, scales: Matrix, std: float) -> float:
    """Return the τ² under which entries of variance τ²·dᵢdⱼ + noise are most probable."""
    upper = np.triu_indices(len(rest), 1)
    squares, products, noise = rest[upper] ** 2, scales[upper], std**2 / 2
    fits = [
        float(np.sum(np.log(tau * products + noise) + squares / (tau * products + noise)))
        for tau in _TAUS
    ]
    return float(_TAUS[int(np.argmin(fits))])

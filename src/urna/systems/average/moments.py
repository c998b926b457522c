"""Second moments of rows and targets: what a client sends where nothing is trained at clients.

The vector is the upper triangle of XᵀX, off-diagonal entries times √2 so that its norm is the
matrix's, and then w·XᵀY. Rows stand on a grid, so the sums are exact; they are weighted once at
the end.
"""

import functools
import math

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.average.rows import Matrix
from urna.systems.average.schema import PreparedRows, Schema

__all__ = ["moments_length", "moments_of", "pack", "unpack"]

_STRIP = 1 << 14  # rows that are multiplied at a time


def moments_length(width: int, outputs: int) -> int:
    """Return how many numbers a client sends.

    Example:
        >>> moments_length(256, 10)
        35456
    """
    return width * (width + 1) // 2 + width * outputs


def moments_of(prepared: PreparedRows, schema: Schema, weight: float) -> npt.NDArray[np.float64]:
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


def pack(square: Matrix, cross: Matrix, weight: float) -> npt.NDArray[np.float64]:
    """Return moments as one vector whose norm is that of (square, w·cross)."""
    places, scales = _triangle(len(square))
    packed = np.empty(len(places) + cross.size)
    np.multiply(square.reshape(-1)[places], scales, out=packed[: len(places)])
    np.multiply(cross.reshape(-1), weight, out=packed[len(places) :])
    return packed


def unpack(
    vector: npt.NDArray[np.float64], width: int, outputs: int, weight: float
) -> tuple[Matrix, Matrix]:
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

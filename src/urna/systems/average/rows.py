"""How a record's features become a row of bounded norm: a public rule, the same for everybody.

Rows stand on a grid of 2^-16. Products of two entries are then whole multiples of 2^-32, and
sums of them are exact in float64 for up to two million records: what one record adds to a
client's sums is a fixed vector, whatever stands beside it and in whatever order it is added.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.randomness import derive_seed, expand

__all__ = ["GRID", "MOST_RECORDS", "Matrix", "RowRule"]

GRID = 1 << 16
"""Steps of an entry per unit."""

MOST_RECORDS = 1 << 20
"""Records of one client up to which sums of products are exact, with room to spare."""

Matrix = npt.NDArray[np.float64]

_HAIR = 1 - 1e-12  # so that rounding of floats cannot pass the norm
_SEED = bytes(32)
_LONGEST_ROW = 1e9  # squares of longer rows could overflow, and failing is something data decide


@dataclass(frozen=True, slots=True)
class RowRule:
    """What is done to the features of every record, of clients and of those who predict.

    Guarantee:
        A row's norm is at most 1, in exact arithmetic, and depends on its own record alone. A
        record with a feature that is not finite becomes a row of zeros, which adds nothing.

    Args:
        clip: c, the norm that rows are scaled to. Rows are returned in units of c.
        unit: Whether every row is scaled to norm c (all rows then weigh the same). Otherwise
            only longer ones are clipped, as in the paper.
        intercept: A constant put in front. With `unit` it is a part of the norm, below 1;
            otherwise it stands beside the features before they are clipped (1 in the paper).
        nonnegative: Whether negative features are set to zero. Rows of features that never
            are negative cannot point away from each other, which makes noise a little smaller.
        projected: Project features onto so many random directions first, all public.
        seed: Public seed of the directions.

    Raises:
        ParameterError: The rule cannot be.

    Example:
        >>> RowRule().rows(np.array([[3.0, 4.0], [np.nan, 1.0]])).round(3)
        array([[0.6, 0.8],
               [0. , 0. ]])
    """

    clip: float = 1.0
    unit: bool = True
    intercept: float = 0.0
    nonnegative: bool = False
    projected: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 / _LONGEST_ROW <= self.clip <= _LONGEST_ROW:
            raise ParameterError(
                f"rows are clipped to a norm between 1e-09 and 1e+09, got {self.clip}"
            )
        most = 1.0 if self.unit else math.inf
        if not 0 <= self.intercept < most:
            raise ParameterError(
                f"the intercept is at least 0{' and below 1' if self.unit else ''}, got "
                f"{self.intercept}"
            )
        if self.projected is not None and (type(self.projected) is not int or self.projected < 1):
            raise ParameterError(f"features are projected onto 1 direction or more, got {self}")
        if type(self.seed) is not int or self.seed < 0:
            raise ParameterError(f"the seed is a whole number of at least 0, got {self.seed}")

    def width(self, features: int) -> int:
        """Return how many entries a row has, made from so many features."""
        return (self.projected or features) + (1 if self.intercept else 0)

    @property
    def lowest(self) -> float:
        """Smallest inner product of two rows that are not zero, rounded down."""
        if not self.unit:
            return 0.0 if self.nonnegative else -1.0
        constant = self.intercept**2
        return max(-1.0, constant - (0.0 if self.nonnegative else 1 - constant) - 4 / GRID)

    def rows(self, features: npt.NDArray[Any]) -> Matrix:
        """Return the rows of records, in units of `clip` and on the grid."""
        given = np.asarray(features, dtype=np.float64)
        if given.ndim != 2:
            raise ParameterError(f"features are a matrix, one row each, got shape {given.shape}")
        finite = np.asarray(np.isfinite(given).all(axis=1))
        made = np.where(finite[:, None], given, 0.0)
        if self.projected is not None:
            # Shrunk first, so that no product overflows; a row's own largest entry alone decides.
            made /= np.maximum(np.abs(made).max(axis=1, keepdims=True, initial=0.0) / 1e100, 1.0)
            made = made @ _directions(made.shape[1], self.projected, self.seed)
        if self.nonnegative:
            np.maximum(made, 0.0, out=made)
        made = self._bounded(made)
        made[~finite] = 0.0
        return np.trunc(made * GRID) / GRID

    def _bounded(self, made: Matrix) -> Matrix:
        if self.intercept and not self.unit:
            made = np.column_stack([np.full(len(made), self.intercept), made])
        largest = np.abs(made).max(axis=1, keepdims=True, initial=0.0)
        shrunk = np.divide(made, largest, out=np.zeros_like(made), where=largest > 0)
        norm = np.sqrt(np.square(shrunk).sum(axis=1, keepdims=True))  # of shrunk rows: no overflow
        room = math.sqrt(1 - self.intercept**2) if self.unit else 1.0
        direction = np.divide(shrunk, norm, out=np.zeros_like(made), where=norm > 0)
        if self.unit:
            made = direction * (room * _HAIR)
            if self.intercept:
                made = np.column_stack([np.full(len(made), self.intercept * _HAIR), made])
            return made
        with np.errstate(over="ignore"):
            length = np.minimum(norm * largest / self.clip, 1.0)
        return np.asarray(direction * (length * _HAIR))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return asdict(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "RowRule":
        """Read what `as_mapping` wrote."""
        return cls(**mapping)


@functools.lru_cache(maxsize=4)
def _directions(features: int, projected: int, seed: int) -> Matrix:
    """Return random signs over √projected: a projection that keeps norms on average."""
    count = features * projected
    label = b"directions %d %d %d" % (seed, features, projected)
    packed = np.frombuffer(expand(derive_seed(_SEED, label), (count + 7) // 8), dtype=np.uint8)
    signs = 1.0 - 2.0 * np.unpackbits(packed)[:count]
    made = signs.reshape(features, projected) / math.sqrt(projected)
    made.setflags(write=False)
    return np.asarray(made)

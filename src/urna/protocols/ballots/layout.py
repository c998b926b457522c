"""What a verified ballot holds, as bits: a level for each candidate."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector

MOST_BITS = 1 << 16
"""Bits of the largest ballot."""


@dataclass(frozen=True, slots=True)
class BallotLayout:
    """A vector of levels.

    Args:
        candidates: Entries of the vector.
        levels: Largest level; each entry is in 0..levels.

    Example:
        >>> BallotLayout(candidates=200).bits  # two of each level
        400
    """

    candidates: int
    levels: int = 3

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.candidates, self.levels)):
            raise ParameterError(f"candidates and levels are positive integers, got {self}")
        if self.bits > MOST_BITS or self.levels > 1 << 16:
            raise ParameterError(
                f"a ballot of at most {MOST_BITS} bits is provided for, got {self}"
            )

    @property
    def weights(self) -> tuple[int, ...]:
        """What the bits of one level count: powers of two, the last less, `levels` in all."""
        rest = tuple(1 << place for place in range(self.levels.bit_length() - 1))
        return (*rest, self.levels - sum(rest))

    @property
    def bits(self) -> int:
        """Bits of a ballot."""
        return self.candidates * len(self.weights)

    def check(self, ballot: IntVector) -> None:
        """Raise ParameterError unless this is a valid ballot."""
        if ballot.shape != (self.candidates,) or ballot.dtype.kind not in "iu":
            raise ParameterError(
                f"a ballot is {self.candidates} integers, got {ballot.dtype} of {ballot.shape}"
            )
        low, high = int(ballot.min()), int(ballot.max())
        if low < 0 or high > self.levels:
            raise ParameterError(f"levels lie in 0..{self.levels}, got {low}..{high}")

    def encode(self, ballot: IntVector) -> npt.NDArray[np.uint8]:
        """Return a valid ballot as bits.

        Raises:
            ParameterError: It is no valid ballot. Nothing is sent.
        """
        self.check(ballot)
        values, weights = np.asarray(ballot, dtype=np.int64), self.weights
        top = values > sum(weights[:-1])
        rest = values - top * weights[-1]
        low = [rest >> place & 1 for place in range(len(weights) - 1)]
        return np.stack([*low, top.astype(np.int64)], axis=1).astype(np.uint8).ravel()

    def levels_of(self, bits: npt.NDArray[np.integer], modulus: int) -> IntVector:
        """Return what bits of levels, or sums or shares of such, say of each candidate."""
        weights = np.array(self.weights, dtype=object)
        columns = bits.astype(object).reshape(self.candidates, -1)
        return np.asarray((columns * weights).sum(axis=1) % modulus, dtype=np.int64)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {"candidates": self.candidates, "levels": self.levels}

"""What a verified ballot holds, as bits: levels, what is left of a limit, and coins."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Move

__all__ = ["MOST_BITS", "Bits", "Layout"]

Bits = npt.NDArray[np.uint8]

MOST_BITS = 1 << 16
"""Bits of the largest ballot."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A vector of levels, with a bound on their sum if wanted, and coins for noise.

    Args:
        candidates: Entries of the vector.
        levels: Largest level; each entry is in 0..levels.
        limit: Most that the entries of one ballot add up to; None for no such bound.
        coins: What each of an entry's coins counts in the noise, the smallest first.

    Example:
        >>> Layout(candidates=200, coins=(1, 4)).bits  # two of the level, two coins
        800
    """

    candidates: int
    levels: int = 3
    limit: int | None = None
    coins: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        counts = (self.candidates, self.levels, *self.coins)
        if any(type(n) is not int or n < 1 for n in counts):
            raise ParameterError(f"candidates, levels and coins are positive integers, got {self}")
        limit = 1 if self.limit is None else self.limit
        if type(limit) is not int or not 1 <= limit <= self.candidates * self.levels:
            raise ParameterError(
                f"a limit lies in 1..{self.candidates * self.levels}, the sum of all levels; got "
                f"{self.limit}"
            )
        if self.bits > MOST_BITS or self.levels > 1 << 16 or max((0, *self.coins)) > 1 << 20:
            raise ParameterError(
                f"a ballot of at most {MOST_BITS} bits is provided for, got {self}"
            )

    @property
    def level_weights(self) -> tuple[int, ...]:
        """What the bits of one level count."""
        return _weights(self.levels)

    @property
    def rest_weights(self) -> tuple[int, ...]:
        """What the bits count that say how far a ballot stays below the limit."""
        return () if self.limit is None else _weights(self.limit)

    @property
    def level_bits(self) -> int:
        """Bits of all levels; they come first."""
        return self.candidates * len(self.level_weights)

    @property
    def coin_bits(self) -> int:
        """Bits of all coins; they come last, those of one weight together."""
        return self.candidates * len(self.coins)

    @property
    def bits(self) -> int:
        """Bits of a ballot."""
        return self.level_bits + len(self.rest_weights) + self.coin_bits

    @property
    def sum_weights(self) -> npt.NDArray[np.uint64]:
        """What each bit counts towards the limit: levels and the rest make it up exactly."""
        levels = np.tile(np.array(self.level_weights, dtype=np.uint64), self.candidates)
        rest = np.array(self.rest_weights, dtype=np.uint64)
        return np.concatenate([levels, rest, np.zeros(self.coin_bits, dtype=np.uint64)])

    @property
    def noise_reach(self) -> int:
        """Largest magnitude of one client's noise, in half levels."""
        return sum(self.coins)

    @property
    def noise_variance(self) -> int:
        """Variance of one client's noise, in half levels squared."""
        return sum(weight**2 for weight in self.coins)

    @property
    def move(self) -> Move:
        """How far replacing one ballot moves the sum, in levels.

        Without a limit every entry may move by `levels`. With one, u and v of two ballots have
        entries in 0..levels that add up to at most the limit B: a convex function of u is
        largest where as many entries as possible are full, so ‖u‖² ≤ ⌊B/L⌋·L² + (B mod L)², and
        ‖u − v‖² ≤ ‖u‖² + ‖v‖² because the entries of both are not negative.
        """
        everything = Move(self.candidates * self.levels**2, self.candidates)
        if self.limit is None:
            return everything
        full, rest = divmod(self.limit, self.levels)
        squared = 2 * (full * self.levels**2 + rest**2)
        moved = min(2 * self.limit, self.candidates)
        return Move(min(squared, everything.l2_squared), moved)

    def check(self, ballot: IntVector) -> None:
        """Raise ParameterError unless this is a valid ballot."""
        if ballot.shape != (self.candidates,) or ballot.dtype.kind not in "iu":
            raise ParameterError(
                f"a ballot is {self.candidates} integers, got {ballot.dtype} of {ballot.shape}"
            )
        low, high = int(ballot.min()), int(ballot.max())
        if low < 0 or high > self.levels:
            raise ParameterError(f"levels lie in 0..{self.levels}, got {low}..{high}")
        if self.limit is not None and int(ballot.sum()) > self.limit:
            raise ParameterError(f"levels add up to at most {self.limit}, got {int(ballot.sum())}")

    def encode(self, ballot: IntVector, coins: Bits) -> Bits:
        """Return a valid ballot and its coins as bits.

        Raises:
            ParameterError: It is no valid ballot. Nothing is sent.
        """
        self.check(ballot)
        if coins.shape != (self.coin_bits,):
            raise ParameterError(f"a ballot has {self.coin_bits} coins, got {coins.shape}")
        parts = [_digits(np.asarray(ballot, dtype=np.int64), self.levels).ravel()]
        if self.limit is not None:
            rest = np.array([self.limit - int(ballot.sum())])
            parts.append(_digits(rest, self.limit).ravel())
        return np.concatenate([*parts, coins]).astype(np.uint8)

    def levels_of(self, bits: npt.NDArray[np.integer], modulus: int) -> IntVector:
        """Return what bits of levels, or sums or shares of such, say of each candidate."""
        weights = np.array(self.level_weights, dtype=object)
        columns = bits[: self.level_bits].astype(object).reshape(self.candidates, -1)
        return np.asarray((columns * weights).sum(axis=1) % modulus, dtype=np.int64)

    def noise_of(self, coins: npt.NDArray[np.integer], modulus: int) -> IntVector:
        """Return what signed sums of coins, or shares of such, say of each candidate."""
        columns = coins.astype(object).reshape(len(self.coins), self.candidates)
        weights = np.array(self.coins, dtype=object)[:, None]
        return np.asarray((columns * weights).sum(axis=0) % modulus, dtype=np.int64)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "candidates": self.candidates,
            "levels": self.levels,
            "limit": self.limit,
            "coins": list(self.coins),
        }


def _weights(most: int) -> tuple[int, ...]:
    """Return weights of bits that add up to exactly 0..most: powers of two, the last less."""
    rest = tuple(1 << place for place in range(most.bit_length() - 1))
    return (*rest, most - sum(rest))


def _digits(values: IntVector, most: int) -> Bits:
    """Return the bits of integers in 0..most, a row each."""
    weights = _weights(most)
    top = values > sum(weights[:-1])
    rest = values - top * weights[-1]
    low = [rest >> place & 1 for place in range(len(weights) - 1)]
    return np.stack([*low, top.astype(np.int64)], axis=1).astype(np.uint8)


def enough_room(layout: Layout, clients: int, modulus: int) -> bool:
    """Say whether twice a sum of levels, and its noise, stay below half the modulus."""
    reach = clients * (2 * layout.levels + layout.noise_reach)
    return math.ceil(reach) < modulus // 2

"""Draw integers from a symmetric distribution held as a table of integer weights.

The table is computed in exact integer arithmetic, so it is the same on every platform and
under every version of NumPy, and so is what is drawn from a seed: a server that is given the
seed of a noise component removes exactly what the client added.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from urna.privacy.distributions import DRAW_BITS
from urna.randomness import KeyStream, derive_seed, little_endian

__all__ = ["IntVector", "Table"]

IntVector = npt.NDArray[np.int64]

_BATCH = 1 << 17  # numbers drawn at a time: the intermediate arrays stay in the cache
_MOST_GUIDE_BITS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A symmetric integer distribution, ready for drawing.

    A draw is a 128-bit uniform number U looked up in the cumulative weights: the draw is the
    number of boundaries at or below U, less `reach`. The first 32 bits of U come from the
    seed's own stream and nearly always decide; the other 96 are expanded, from a second
    stream and in the order they are needed, only where they do not.

    Guarantee:
        Each draw differs from the distribution aimed at by at most `error` in total
        variation.

    Assumes:
        The key stream of the seed is uniform (AES-256 as a pseudo-random function).
    """

    reach: int
    """Largest magnitude that can be drawn."""
    error: float
    """Bound on the total variation between one draw and the distribution aimed at."""
    _high: npt.NDArray[np.uint64] = field(repr=False)
    _low: npt.NDArray[np.uint64] = field(repr=False)
    _guide: npt.NDArray[np.signedinteger] = field(repr=False)

    @classmethod
    def of(cls, half: Sequence[int], error: float) -> "Table":
        """Build a table from integer weights of 0, 1, 2, …, mirrored for the negatives.

        Args:
            half: Positive weights of 0, 1, …, reach, proportional to the probabilities.
            error: Bound on the error of one draw in total variation, `2^-DRAW_BITS` for each
                boundary included.
        """
        reach = len(half) - 1
        weights = [*half[:0:-1], *half]
        total = sum(weights)
        bounds = [(c << DRAW_BITS) // total for c in accumulate(weights[:-1])]
        high = np.array([b >> 64 for b in bounds], dtype=np.uint64)
        low = np.array([b & (1 << 64) - 1 for b in bounds], dtype=np.uint64)
        bits = min(_MOST_GUIDE_BITS, math.ceil(math.log2(256 * len(weights))))
        # A guide cell that no boundary cuts holds the answer, a cut one a mark.
        cells = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        first = np.searchsorted(high, cells, side="left")
        after = np.searchsorted(high, cells | np.uint64((1 << 64 - bits) - 1), side="right")
        kind = np.int16 if reach < np.iinfo(np.int16).max else np.int32
        guide = np.where(first == after, first - reach, np.iinfo(kind).max)
        return cls(reach, error, high, low, guide.astype(kind))

    def draw(self, seed: bytes, count: int) -> IntVector:
        """Return `count` independent draws, a function of the seed alone.

        Fewer draws from the same seed are the first of more.
        """
        drawn = np.empty(count, dtype=np.int64)
        for start, piece in self.pieces(seed, count):
            drawn[start : start + len(piece)] = piece
        return drawn

    def pieces(self, seed: bytes, count: int) -> Iterator[tuple[int, IntVector]]:
        """Yield the draws of a seed in pieces, each with its place; a piece is used up at once."""
        stream, more = KeyStream(seed), _MoreBits(seed)
        size = max(1, min(_BATCH, count))
        room = np.empty(4 * size, dtype=np.uint8)
        drawn, cells = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        shift, mark = self._cell_shift(), np.iinfo(self._guide.dtype).max
        for start in range(0, count, size):
            some = min(size, count - start)
            stream.fill(room[: 4 * some])
            batch = little_endian(room[: 4 * some], 32)
            np.right_shift(batch, shift, out=cells[:some], casting="unsafe")
            found = self._guide.take(cells[:some])
            drawn[:some] = found
            cut = np.flatnonzero(found == mark)
            if len(cut):
                drawn[cut] = self._look_up(batch[cut].astype(np.uint64), more.take(len(cut)))
            yield start, drawn[:some]

    def draw_sums(self, seeds: Sequence[bytes], count: int) -> Iterator[tuple[int, IntVector]]:
        """Yield the sum of `draw(seed, count)` over the seeds, in pieces, each with its place.

        Short draws of many seeds are looked up together: that is most of their time.
        """
        together = _BATCH // max(1, count)
        if together >= 2:
            yield 0, self._short_sum(seeds, count, together)
            return
        drawing = [self.pieces(seed, count) for seed in seeds]
        for parts in zip(*drawing, strict=True):
            (start, total), *others = parts  # a piece is ours until the next is asked for
            for _, piece in others:
                total += piece
            yield start, total

    def _short_sum(self, seeds: Sequence[bytes], count: int, together: int) -> IntVector:
        total = np.zeros(count, dtype=np.int64)
        shift, mark = self._cell_shift(), np.iinfo(self._guide.dtype).max
        for start in range(0, len(seeds), together):
            some = seeds[start : start + together]
            room = np.empty((len(some), 4 * count), dtype=np.uint8)
            for seed, row in zip(some, room, strict=True):
                KeyStream(seed).fill(row)
            batch = little_endian(room.reshape(-1), 32)
            drawn = self._guide.take((batch >> shift).astype(np.int64)).astype(np.int64)
            cut = np.flatnonzero(drawn == mark)
            rows, needed = np.unique(cut // max(1, count), return_counts=True)
            more = [
                _MoreBits(some[row]).take(many)
                for row, many in zip(rows.tolist(), needed.tolist(), strict=True)
            ]
            if more:
                drawn[cut] = self._look_up(batch[cut].astype(np.uint64), np.concatenate(more))
            total += drawn.reshape(len(some), count).sum(axis=0)
        return total

    def _cell_shift(self) -> np.uint32:
        return np.uint32(32 - (len(self._guide) - 1).bit_length())

    def _look_up(self, words: npt.NDArray[np.uint64], more: npt.NDArray[np.uint64]) -> IntVector:
        high = words << np.uint64(32) | more[:, 0]
        low = more[:, 1] << np.uint64(32) | more[:, 2]
        index = np.searchsorted(self._high, high, side="left")
        # A boundary with the same high word is passed if its low word is at or below ours.
        ties = (index < len(self._high)) & (self._high.take(index, mode="clip") == high)
        for tie in np.flatnonzero(ties).tolist():  # about never
            at = int(index[tie])
            while at < len(self._high) and self._high[at] == high[tie]:
                if self._low[at] > low[tie]:
                    break
                at += 1
            index[tie] = at
        return np.asarray(index - self.reach, dtype=np.int64)


class _MoreBits:
    """The 96 more bits of those draws of a seed that need them, in order."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._stream: KeyStream | None = None

    def take(self, count: int) -> npt.NDArray[np.uint64]:
        """Return three more 32-bit words for each of `count` draws."""
        if self._stream is None:  # short draws often need none
            self._stream = KeyStream(derive_seed(self._seed, b"more bits"))
        room = np.empty(12 * count, dtype=np.uint8)
        self._stream.fill(room)
        return little_endian(room, 32).astype(np.uint64).reshape(-1, 3)

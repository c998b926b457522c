"""Draw integers from a symmetric distribution held as a table of integer weights.

The table is computed in exact integer arithmetic, so it is the same on every platform and
under every version of NumPy, and so is what is drawn from a seed: a server that is given the
seed of a noise component removes exactly what the client added.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from urna.privacy import distributions
from urna.privacy.distributions import DRAW_BITS, Distribution
from urna.randomness import KeyStream, derive_seed, little_endian

__all__ = ["DISCRETE_GAUSSIAN", "FAMILIES", "SKELLAM", "IntVector", "Noise", "Table"]

IntVector = npt.NDArray[np.int64]

_BATCH = 1 << 16  # numbers drawn at a time: the intermediate arrays stay in the cache
_MARK = np.iinfo(np.int32).min  # of a cell that several boundaries cut
_MARKED = -(1 << 30)  # no draw is as low
_WIDE = 1 << 15  # weights beyond which cells are made finer


@dataclass(frozen=True, slots=True)
class Table:
    """A symmetric integer distribution, ready for drawing.

    A draw is a 128-bit uniform number U looked up in the cumulative weights: the draw is the
    number of boundaries at or below U, less `reach`. The first 32 bits of U come from the
    seed's own stream and decide unless a boundary begins with the very same 32 bits; the
    other 96 are expanded, from a second stream and in the order they are needed, only then.

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
    _tops: npt.NDArray[np.uint32] = field(repr=False)
    """The first 32 bits of every boundary."""
    _first: npt.NDArray[np.int32] = field(repr=False)
    """For every cell, a range of first bits: what is drawn below the boundary in it."""
    _edge: npt.NDArray[np.uint32] = field(repr=False)
    """The first bits of the one boundary in a cell; the largest number if there is none."""

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
        tops = (high >> np.uint64(32)).astype(np.uint32)
        # As fine as the cache allows: a wide distribution has many boundaries to tell apart.
        bits = 16 if len(weights) <= _WIDE else 18
        cells = np.arange(1 << bits, dtype=np.uint64) << np.uint64(32 - bits)
        last = cells | np.uint64((1 << 32 - bits) - 1)
        before = np.searchsorted(tops, cells.astype(np.uint32), side="left")
        within = np.searchsorted(tops, last.astype(np.uint32), side="right") - before
        edges = np.append(tops, np.uint32(0)).take(before)
        return cls(
            reach,
            error,
            high,
            low,
            tops,
            np.where(within > 1, _MARK, before - reach).astype(np.int32),
            np.where(within == 1, edges, np.iinfo(np.uint32).max).astype(np.uint32),
        )

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
        desk = _Desk(size)
        for start in range(0, count, size):
            some = min(size, count - start)
            stream.fill(room[: 4 * some])
            words = little_endian(room[: 4 * some], 32)
            drawn, ties = self._decided(words, desk)
            if len(ties):
                drawn[ties] = self._look_up(words[ties], more.take(len(ties)))
            yield start, drawn

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
        desk = _Desk(min(together, len(seeds)) * count)
        for start in range(0, len(seeds), together):
            some = seeds[start : start + together]
            room = np.empty((len(some), 4 * count), dtype=np.uint8)
            for seed, row in zip(some, room, strict=True):
                KeyStream(seed).fill(row)
            words = little_endian(room.reshape(-1), 32)
            drawn, ties = self._decided(words, desk)
            rows, needed = np.unique(ties // max(1, count), return_counts=True)
            more = [
                _MoreBits(some[row]).take(many)
                for row, many in zip(rows.tolist(), needed.tolist(), strict=True)
            ]
            if more:
                drawn[ties] = self._look_up(words[ties], np.concatenate(more))
            total += drawn.reshape(len(some), count).sum(axis=0)
        return total

    def _decided(
        self, words: npt.NDArray[np.uint32], desk: "_Desk"
    ) -> tuple[IntVector, npt.NDArray[np.intp]]:
        """Return what the first bits decide, and the places of those they do not decide."""
        cells, found, edge, above, drawn = desk.cut(len(words))
        np.right_shift(words, self._cell_shift(), out=cells, casting="unsafe")
        self._first.take(cells, out=found, mode="clip")
        self._edge.take(cells, out=edge, mode="clip")
        np.greater(words, edge, out=above)
        np.add(found, above, out=found, casting="unsafe")
        np.equal(words, edge, out=above)
        odd = np.flatnonzero(np.logical_or(above, found < _MARKED, out=above))
        if not len(odd):
            drawn[:] = found
            return drawn, odd
        some = words[odd]
        place = np.searchsorted(self._tops, some, side="left")
        found[odd] = place - self.reach
        drawn[:] = found
        tied = (place < len(self._tops)) & (self._tops.take(place, mode="clip") == some)
        return drawn, odd[tied]

    def _cell_shift(self) -> np.uint32:
        return np.uint32(32 - (len(self._first) - 1).bit_length())

    def _look_up(self, first: npt.NDArray[np.uint32], more: npt.NDArray[np.uint64]) -> IntVector:
        high = first.astype(np.uint64) << np.uint64(32) | more[:, 0]
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


@dataclass(frozen=True, slots=True)
class Noise:
    """Integer noise that is drawn from exactly the weights the accounting prices.

    Example:
        >>> from fractions import Fraction
        >>> SKELLAM.table(Fraction(9)).draw(bytes(32), 4)
        array([ 0,  0, -4,  0])
    """

    distribution: Distribution

    @property
    def name(self) -> str:
        """The family's name in plans, ledgers and messages."""
        return self.distribution.name

    def table(self, variance: Fraction) -> Table:
        """Return the table that draws noise of this variance, in grid steps squared."""
        return _table(self.distribution, variance)


@functools.lru_cache(maxsize=64, typed=True)
def _table(distribution: Distribution, variance: Fraction) -> Table:
    return Table.of(*distribution.half_weights(variance))


SKELLAM = Noise(distributions.SKELLAM)
DISCRETE_GAUSSIAN = Noise(distributions.DISCRETE_GAUSSIAN)
FAMILIES = {family.name: family for family in (SKELLAM, DISCRETE_GAUSSIAN)}


class _Desk:
    """Room for the intermediate arrays of one batch, used again for the next."""

    def __init__(self, size: int) -> None:
        self._cells = np.empty(size, dtype=np.int64)
        self._found = np.empty(size, dtype=np.int32)
        self._edge = np.empty(size, dtype=np.uint32)
        self._above = np.empty(size, dtype=np.bool_)
        self._drawn = np.empty(size, dtype=np.int64)

    def cut(
        self, count: int
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int32],
        npt.NDArray[np.uint32],
        npt.NDArray[np.bool_],
        IntVector,
    ]:
        """Return the first `count` places of each."""
        return (
            self._cells[:count],
            self._found[:count],
            self._edge[:count],
            self._above[:count],
            self._drawn[:count],
        )


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

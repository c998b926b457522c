"""A small prime field, many elements at a time, and the cubic in which proofs are queried.

Elements are unsigned 64-bit integers below the modulus, which has at most 32 bits: products fit,
and long sums of products are taken exactly in double precision (`products`). A query is an
irreducible cubic m(X): a polynomial modulo m is its value at a root t of m, which lies outside
the field. Working modulo m instead of with t needs no arithmetic of the extension field but
multiplication.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.randomness import KeyStream, expand_words, little_endian

Elements = npt.NDArray[np.uint64]

_PIECE = 8  # bits of the right factor that are multiplied at a time
_LONGEST = 1 << (53 - 32 - _PIECE)  # so many products of 32 and 8 bits add up exactly
_ROWS = 512  # at a time: what is converted stays in the cache


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo a prime of at most 32 bits that is 1 modulo 3.

    Args:
        modulus: The prime q.
        generator: Of all that can be inverted. It is no cube, so X³ − generator is irreducible.
    """

    modulus: int
    generator: int

    def __post_init__(self) -> None:
        if not 4 < self.modulus <= 1 << 32 or self.modulus % 3 != 1:
            raise ParameterError(
                f"the modulus is a prime of at most 32 bits, 1 modulo 3; got {self.modulus}"
            )

    def elements(self, values: npt.ArrayLike) -> Elements:
        """Return integers, negative ones too, as elements."""
        return (np.asarray(values, dtype=np.int64) % self.modulus).astype(np.uint64)

    def powers(self, base: int, count: int) -> Elements:
        """Return the first powers of an element, from 1 on."""
        listed, power = [], 1
        for _ in range(count):
            listed.append(power)
            power = power * base % self.modulus
        return np.array(listed, dtype=np.uint64)

    def inverses(self, values: Elements) -> Elements:
        """Return the inverses of elements that are not zero, by Fermat."""
        found, power = np.ones_like(values), values
        for bit in bin(self.modulus - 2)[:1:-1]:
            if bit == "1":
                found = found * power % self.modulus
            power = power * power % self.modulus
        return found

    def root(self, order: int) -> int:
        """Return an element of this order."""
        if (self.modulus - 1) % order:
            raise ParameterError(f"{order} does not divide {self.modulus} - 1")
        return pow(self.generator, (self.modulus - 1) // order, self.modulus)

    def products(self, rows: npt.NDArray[np.unsignedinteger], columns: Elements) -> Elements:
        """Return the matrix product of elements, exactly.

        The right factor is cut into pieces of 8 bits: 2^13 products of 32 and 8 bits stay below
        2^53, so double precision adds them up without rounding, in any order.
        """
        length, width = columns.shape
        result = np.zeros((len(rows), width), dtype=np.uint64)
        shifts = range(0, 32, _PIECE)
        mask = np.uint64((1 << _PIECE) - 1)
        for start in range(0, length, _LONGEST):
            part = columns[start : start + _LONGEST]
            pieces = np.hstack([(part >> np.uint64(s) & mask).astype(np.float64) for s in shifts])
            for row in range(0, len(rows), _ROWS):
                block = rows[row : row + _ROWS, start : start + _LONGEST].astype(np.float64)
                sums = (block @ pieces).astype(np.uint64) % self.modulus
                for place, shift in enumerate(shifts):
                    piece = sums[:, place * width : (place + 1) * width]
                    result[row : row + _ROWS] += (piece << np.uint64(shift)) % self.modulus
        return result % self.modulus

    def uniform(self, seeds: Sequence[bytes], count: int) -> npt.NDArray[np.uint32]:
        """Expand each seed to a row of `count` uniform elements.

        Words of a seed's key stream that are too large are skipped, so that no element is
        more likely than another.
        """
        limit = (1 << 32) // self.modulus * self.modulus
        spare = 24 + count // 256
        room = np.empty((len(seeds), 4 * (count + spare)), dtype=np.uint8)
        for seed, row in zip(seeds, room, strict=True):
            KeyStream(seed).fill(row)
        words = little_endian(room.reshape(-1), 32).reshape(len(seeds), count + spare)
        if limit == 1 << 32:
            return np.asarray(words[:, :count] % self.modulus, dtype=np.uint32)
        found = words[:, :count].copy()
        for bad in np.flatnonzero((found >= limit).any(axis=1)).tolist():
            good, more = words[bad][words[bad] < limit], spare
            while len(good) < count:  # about never
                more *= 2
                again = expand_words(seeds[bad], count + more, 32)
                good = again[again < limit]
            found[bad] = good[:count]
        return np.asarray(found % self.modulus, dtype=np.uint32)

    def query(self, seed: bytes) -> "Cubic":
        """Return the cubic of a uniform point outside the field, drawn from a seed."""
        count = 3
        while True:
            for point in self.uniform([seed], count)[0].reshape(-1, 3).tolist():
                if point[1] or point[2]:
                    return Cubic.of(self, (point[0], point[1], point[2]))
            count += 3  # it lay in the field: once in q² times


FAST = Field((1 << 32) - (1 << 20) + 1, 19)
"""The field of Urna's own proofs. Its order minus one is 2²⁰·3²·5·7·13."""


@dataclass(frozen=True, slots=True)
class Cubic:
    """Polynomials modulo an irreducible cubic X³ + c₂X² + c₁X + c₀.

    Elements have three coefficients, the last axis of an array: of 1, X and X².
    """

    field: Field
    low: tuple[int, int, int]
    """c₀, c₁, c₂."""

    @classmethod
    def of(cls, field: Field, point: tuple[int, int, int]) -> "Cubic":
        """Return the minimal polynomial of a + b·θ + c·θ² with θ³ = generator.

        Its coefficients are the elementary symmetric functions of the three conjugates. It is
        irreducible because the point's degree divides three and is not one.

        Raises:
            ParameterError: The point lies in the field itself.
        """
        q, g = field.modulus, field.generator
        a, b, c = point
        if b % q == 0 and c % q == 0:
            raise ParameterError("a query point must lie outside the field: it would open a ballot")
        norm = a**3 + g * b**3 + g * g * c**3 - 3 * g * a * b * c
        return cls(field, (-norm % q, (3 * a * a - 3 * g * b * c) % q, -3 * a % q))

    def times(self, left: Elements, right: Elements) -> Elements:
        """Return products of elements, place by place."""
        q = self.field.modulus
        c0, c1, c2 = self.low
        made = np.zeros((*np.broadcast_shapes(left.shape, right.shape)[:-1], 5), dtype=np.uint64)
        for i in range(3):
            for j in range(3):
                made[..., i + j] += left[..., i] * right[..., j] % q
        made %= q
        for high in (4, 3):  # X³ = −c₂X² − c₁X − c₀
            top = made[..., high]
            for place, c in ((high - 3, c0), (high - 2, c1), (high - 1, c2)):
                made[..., place] = (made[..., place] + top * np.uint64(-c % q)) % q
        return made[..., :3].copy()

    def power(self, exponent: int) -> Elements:
        """Return X to this power."""
        found = np.array([1, 0, 0], dtype=np.uint64)
        base = np.array([0, 1, 0], dtype=np.uint64)
        while exponent:
            if exponent & 1:
                found = self.times(found, base)
            base, exponent = self.times(base, base), exponent >> 1
        return found

    def one_over(self, points: Elements) -> Elements:
        """Return 1/(X − a) for each a of the field.

        (X − a)·Q(X) = m(X) − m(a) = −m(a) for Q = X² + (a + c₂)X + (a² + c₂a + c₁), and m(a) is
        not zero because m has no root in the field.
        """
        q = self.field.modulus
        c0, c1, c2 = (np.uint64(c) for c in self.low)
        first = (points + c2) % q
        second = (first * points + c1) % q
        value = (second * points + c0) % q
        scale = self.field.inverses((q - value) % q)
        quotient = np.stack([second, first, np.ones_like(points)], axis=-1)
        return np.asarray(quotient * scale[..., None] % q)

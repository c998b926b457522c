"""Real vectors as integers of bounded norm, and back.

After the distributed Skellam mechanism (Agarwal, Kairouz & Liu 2021): clip, rotate, scale, round.
The rotation is public (random signs and a Walsh–Hadamard transform, block by block); it spreads
what stands in few entries, so that no entry needs a wide ring and errors spread evenly. Every
client rounds with coins of its own, and keeps them secret. Where it is known how far one record
or one client moves a vector, what counts is how far the *rounded* vectors are apart under the
same coins: hardly further than the vectors themselves.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.randomness import SEED_BYTES, KeyStream, SecretSource, derive_seed, expand, little_endian
from urna.tally.contribution import BoundedVector

Reals = npt.NDArray[np.floating[Any]]

_LARGEST_BLOCK = 1 << 16  # entries that are rotated together: a block and its coins stay in cache
_REDRAWN = 1e-9  # how often rounding is done again because the norm came out too large
_COIN_BITS = 32
_BEYOND = 1e-20  # how probably coins move two vectors further apart than is accounted for
_FLOATS = 1e-6  # what float64 may add to a move, as a part of it
_LONGEST = 1e8  # norm over move up to which it does not


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a real vector of bounded L2 norm becomes integers.

    Guarantee:
        `encode` returns integers whose squared norm is at most `contribution.norm_squared`,
        whatever it is given; what is not finite becomes nothing at all. Two vectors of a
        client that differ by at most `record_move` in L2 give integers that differ by at most
        √`record_squared` but with probability 1e-20 over the client's coins; likewise any two
        vectors at most `client_move` apart, and √`client_squared`.

        Proof of the norm. Clipping and rotating keep the norm at most C = `clip_norm`; scaling
        makes it sC. Rounding moves each of D entries by less than 1, and by independent,
        centred errors, so the squared norm is at most (sC + √D)² always, and at most
        s²C² + D/4 + √(2·ln(1/β))·(sC + √D/2) but with probability β (Kairouz, Liu & Steinke
        2021, Proposition 22). Vectors that miss the smaller bound are rounded again with
        fresh coins; not where a move is named: then the larger bound stands, so that coins
        never depend on data.

        Proof of the moves. Clipping is a projection and rotating an isometry: two vectors at a
        distance r are at most T = sr apart before rounding, by t_i = k_i + f_i in entry i (k_i
        whole). Entry i is rounded to ⌊x + u_i⌋ with a coin u_i that no data enter; under the
        same coins two entries end k_i or k_i + 1 apart, the latter with probability f_i. The
        squared distance is Σk_i² + Σ(2k_i + 1)·b_i with independent b_i of mean f_i. Its mean
        is Σt_i² + Σf_i(1 − f_i) ≤ T² + D/4, and as Σ(2k_i + 1)² ≤ (2T + √D)² it exceeds it by
        (2T + √D)·√(ln(1/β)/2) with probability at most β (Hoeffding). Given the coins both runs
        differ by a fixed vector; `SumRelease.cost` says why that suffices. Coins of 32 bits and
        float64 are covered by a millionth more T.

    Assumes:
        What is encoded under a move is finite whatever the records hold: a vector with an
        entry that is not becomes zeros, which may be far from what it was.

    Args:
        dimension: Entries of the real vector.
        clip_norm: C, the norm that longer vectors are scaled down to.
        steps: s, grid steps per unit.
        seed: 32 public bytes of the rotation; None for no rotation.
        record_sensitivity: How far one record may move a client's vector, where that is proven.
        client_sensitivity: How far any two clients' vectors are apart, where that is proven.

    Example:
        >>> from urna.randomness import ScriptedSecrets
        >>> encoding = Encoding(3, clip_norm=1.0, steps=1000.0)
        >>> encoding.encode(np.array([0.5, -0.25, 0.0]), ScriptedSecrets(b"a"))
        array([ 500, -250,    0])
    """

    dimension: int
    clip_norm: float
    steps: float
    seed: bytes | None = field(default=None, repr=False)
    record_sensitivity: float | None = None
    client_sensitivity: float | None = None

    def __post_init__(self) -> None:
        if type(self.dimension) is not int or self.dimension < 1:
            raise ParameterError(f"a vector has at least one entry, got {self.dimension}")
        for name, value in (("clip_norm", self.clip_norm), ("steps", self.steps)):
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name} must be finite and positive, got {value}")
        if self.seed is not None and len(self.seed) != SEED_BYTES:
            raise ParameterError(f"the rotation's seed has {SEED_BYTES} bytes")
        for sensitivity in self._moves:
            if not (
                math.isfinite(sensitivity)
                and sensitivity > 0
                and self.clip_norm <= _LONGEST * sensitivity
            ):
                raise ParameterError(
                    f"a move is positive and at least a {_LONGEST:.0e}th of the norm "
                    f"{self.clip_norm:g}, got {sensitivity:g}"
                )

    @classmethod
    def fine(
        cls,
        dimension: int,
        clip_norm: float,
        *,
        seed: bytes | None = None,
        excess: float = 0.002,
        record_sensitivity: float | None = None,
        client_sensitivity: float | None = None,
    ) -> "Encoding":
        """Return an encoding whose rounding costs at most `excess` of the noise.

        Rounding adds at most about D/4 to the squared norm that noise is made for: (sC)², or
        (s·r)² where r is how far one record or one client moves a vector.
        """
        rough = cls(dimension, clip_norm, 1.0, seed, record_sensitivity, client_sensitivity)
        moves, length = rough._moves, rough.length
        reach = min(moves, default=clip_norm)
        # ‖rounded‖² ≤ s²r²(1 + 2·excess): solve D/4 + u(sr + √D/2) = 2·excess·s²r².
        beta = _BEYOND if moves else _REDRAWN
        root, u = math.sqrt(length), math.sqrt(2 * math.log(1 / beta))
        a, b, c = 2 * excess, -u, -(length / 4 + u * root / 2)
        return replace(rough, steps=(-b + math.sqrt(b * b - 4 * a * c)) / (2 * a) / reach)

    @property
    def block(self) -> int:
        """Entries that are rotated together, a power of two."""
        if self.seed is None:
            return 1
        return min(_LARGEST_BLOCK, 1 << (self.dimension - 1).bit_length())

    @property
    def length(self) -> int:
        """Entries of the integer vector: whole blocks."""
        return -(-self.dimension // self.block) * self.block

    @property
    def contribution(self) -> BoundedVector:
        """What a valid integer vector is."""
        root, reach = math.sqrt(self.length), self.steps * self.clip_norm
        always = math.ceil((reach + root) ** 2 * (1 + _FLOATS))
        if not self._moves:
            return BoundedVector(self.length, min(always, self._mostly(reach, _REDRAWN)))
        record, client = (
            None if sensitivity is None else self.apart(sensitivity)
            for sensitivity in (self.record_sensitivity, self.client_sensitivity)
        )
        return BoundedVector(self.length, always, record, client_squared=client, beyond=_BEYOND)

    def apart(self, sensitivity: float) -> int:
        """Bound the squared distance of rounded vectors at most so far apart, but for 1e-20."""
        return self._mostly(self.steps * sensitivity * (1 + _FLOATS), _BEYOND)

    def encode(self, vector: Reals, secrets: SecretSource) -> IntVector:
        """Clip, rotate, scale and round a client's vector.

        A vector with an entry that is not finite, or of another length, becomes zeros: a
        client that failed contributes nothing, and nobody can tell.

        Args:
            vector: `dimension` numbers.
            secrets: Where the coins come from.
        """
        whole = np.zeros(self.length, dtype=np.int64)
        if vector.shape != (self.dimension,):
            return whole
        # In float64 and piece by piece, so that no square overflows and no copy is made.
        largest = float(np.abs(vector).max(initial=0.0))
        if not math.isfinite(largest) or largest == 0:
            return whole
        norm = largest * math.sqrt(sum(_squared(piece / largest) for piece in self._pieces(vector)))
        # A hair below, so that rounding of floats cannot pass the bound.
        factor = self.steps * min(1.0, self.clip_norm / norm) * (1 - 1e-9)
        allowed = self.contribution.norm_squared
        while True:
            stream = KeyStream(secrets.take(SEED_BYTES))
            squared = 0.0
            for number, piece in enumerate(self._pieces(vector)):
                rounded = _round(self._rotated(piece * factor, number), stream)
                squared += _squared(rounded)
                start = number * self._piece
                whole[start : start + len(rounded)] = rounded
            if squared <= allowed or self._moves:
                return whole

    def decode(self, total: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Turn a sum of integer vectors back into real numbers: the sum of the clipped vectors."""
        if total.shape != (self.length,):
            raise ParameterError(f"a sum has {self.length} entries, got {total.shape}")
        real = np.empty(self.dimension)
        for number, start in enumerate(range(0, self.length, self._piece)):
            piece = total[start : start + self._piece] / self.steps
            real[start : start + self._piece] = self._back(piece, number)[: self.dimension - start]
        return real

    def error(self, clients: int, noise_variance: Fraction) -> float:
        """Return the standard deviation of one decoded entry: noise, and clients' rounding."""
        return math.sqrt(float(noise_variance) + clients / 4) / self.steps

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same; all of it is public."""
        return {
            "dimension": self.dimension,
            "clip_norm": self.clip_norm,
            "steps": self.steps,
            "seed": None if self.seed is None else self.seed.hex(),
            "record_move": self.record_sensitivity,
            "client_move": self.client_sensitivity,
        }

    @classmethod
    def read(cls, mapping: dict[str, Any]) -> "Encoding":
        """Read what `as_mapping` wrote."""
        seed = None if mapping["seed"] is None else bytes.fromhex(mapping["seed"])
        norm, steps = float(mapping["clip_norm"]), float(mapping["steps"])
        moves = mapping["record_move"], mapping["client_move"]
        return cls(mapping["dimension"], norm, steps, seed, *moves)

    @property
    def _moves(self) -> list[float]:
        given = (self.record_sensitivity, self.client_sensitivity)
        return [sensitivity for sensitivity in given if sensitivity is not None]

    def _mostly(self, reach: float, beta: float) -> int:
        """Bound the squared norm of what was `reach` long and is rounded, but for `beta`."""
        tail = math.sqrt(2 * math.log(1 / beta)) * (reach + math.sqrt(self.length) / 2)
        return math.ceil(reach**2 + self.length / 4 + tail)

    @property
    def _piece(self) -> int:
        """Entries that are worked on at a time: whole blocks."""
        return max(self.block, _LARGEST_BLOCK)

    def _pieces(self, vector: Reals) -> Iterator[npt.NDArray[np.float64]]:
        for start in range(0, self.length, self._piece):
            size = min(self._piece, self.length - start)
            piece = np.zeros(size)
            given = vector[start : start + size]
            piece[: len(given)] = given
            yield piece

    def _rotated(self, piece: npt.NDArray[np.float64], number: int) -> npt.NDArray[np.float64]:
        if self.seed is None:
            return piece
        return _hadamard(piece * _signs(self.seed, number, len(piece)), self.block)

    def _back(self, piece: npt.NDArray[np.float64], number: int) -> npt.NDArray[np.float64]:
        if self.seed is None:
            return piece
        return _hadamard(piece, self.block) * _signs(self.seed, number, len(piece))


def _squared(values: npt.NDArray[np.float64]) -> float:
    """Return the squared norm, in one thread: BLAS would start several for a short product."""
    return float(np.square(values).sum())


def _round(values: npt.NDArray[np.float64], stream: KeyStream) -> npt.NDArray[np.float64]:
    """Round each number up as probably as its fraction says, to 2^-32, and else down."""
    room = np.empty(_COIN_BITS // 8 * len(values), dtype=np.uint8)
    stream.fill(room)
    low = np.floor(values)
    coins = little_endian(room, _COIN_BITS)
    return np.asarray(low + (coins < (values - low) * 2.0**_COIN_BITS), dtype=np.float64)


def _signs(seed: bytes, number: int, count: int) -> npt.NDArray[np.float64]:
    packed = np.frombuffer(
        expand(derive_seed(seed, b"signs %d" % number), (count + 7) // 8), dtype=np.uint8
    )
    return np.asarray(1.0 - 2.0 * np.unpackbits(packed)[:count], dtype=np.float64)


def _hadamard(values: npt.NDArray[np.float64], block: int) -> npt.NDArray[np.float64]:
    """Return the orthonormal Walsh–Hadamard transform of every block; it is its own inverse.

    H of 2^k is a Kronecker product of small ones, so it is a few products with a matrix of at
    most 64 rows.
    """
    bits = block.bit_length() - 1
    table = values.reshape(-1, block)
    rows = len(table)
    left = bits
    while left:
        some = min(left, 6)
        # The innermost `some` bits, then rotate the axes so that the next come last. In strips of
        # few rows, for which OpenBLAS starts no threads: they would cost more than they gain.
        strip = math.gcd(32, table.size >> some)
        product = table.reshape(-1, strip, 1 << some) @ _small_hadamard(some)
        table = product.reshape(rows, -1, 1 << some).transpose(0, 2, 1).reshape(rows, -1)
        left -= some
    return np.ascontiguousarray(table).reshape(-1)


@functools.lru_cache(maxsize=8)
def _small_hadamard(bits: int) -> npt.NDArray[np.float64]:
    matrix = np.ones((1, 1))
    for _ in range(bits):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(1 << bits)

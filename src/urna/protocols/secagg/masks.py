"""Masks over the whole ring, from full 32-byte seeds."""

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.randomness import KeyStream, little_endian

Words = npt.NDArray[np.unsignedinteger]

_PIECE = 1 << 18  # bytes of mask made at a time: they stay in the cache


def zeros(count: int, bits: int) -> Words:
    """Return zeros of the ring modulo 2^bits."""
    return np.zeros(count, dtype=f"u{bits // 8}")


def add_mask(total: Words, seed: bytes) -> None:
    """Add the mask of a seed to `total`, in place and in pieces.

    Guarantee:
        Every residue of the ring is equally likely in every entry: a ring of 16, 32 or 64
        bits is covered by whole words of the stream (AES-256 as a pseudo-random function).
    """
    _pass_over(total, seed, np.add)


def subtract_mask(total: Words, seed: bytes) -> None:
    """Subtract the mask of a seed from `total`, in place."""
    _pass_over(total, seed, np.subtract)


def _pass_over(total: Words, seed: bytes, operation: np.ufunc) -> None:
    stream, bits = KeyStream(seed), 8 * total.itemsize
    room = np.empty(min(_PIECE, total.nbytes), dtype=np.uint8)
    step = len(room) // total.itemsize
    for start in range(0, total.size, max(step, 1)):
        piece = total[start : start + step]
        stream.fill(room[: piece.nbytes])
        operation(piece, little_endian(room[: piece.nbytes], bits), out=piece)


def residues(vector: IntVector, bits: int) -> Words:
    """Return the residues of signed integers modulo 2^bits.

    Raises:
        ParameterError: An entry does not fit the ring: it would come back as another one.
    """
    largest = 1 << (bits - 1)
    if vector.size and not -largest <= int(vector.min()) <= int(vector.max()) < largest:
        raise ParameterError(
            f"entries must lie in [-2^{bits - 1}, 2^{bits - 1}) to be summed modulo 2^{bits}; "
            "use a larger ring"
        )
    return wrapped(vector, bits)


def wrapped(vector: IntVector, bits: int) -> Words:
    """Return integers modulo 2^bits, however large they are. Noise may wrap; votes may not."""
    return vector.astype(np.int64, copy=False).view(np.uint64).astype(f"u{bits // 8}")


def centred(words: Words) -> IntVector:
    """Return the representatives of residues in [−2^(bits−1), 2^(bits−1))."""
    return words.view(f"i{words.itemsize}").astype(np.int64)

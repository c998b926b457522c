"""Residues as bytes: as few whole bytes as a prime needs, strict on the way back."""

import math

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.he.ntt import Residues

__all__ = ["pack", "packed_bytes", "unpack"]


def packed_bytes(primes: tuple[int, ...], length: int, rows: int = 1) -> int:
    """Return how many bytes `rows` polynomials take.

    Example:
        >>> packed_bytes((17, 2**33 + 1, 2**41 + 1), 10)
        150
    """
    return rows * length * sum(4 + _high_bytes(prime) for prime in primes)


def pack(residues: Residues, primes: tuple[int, ...]) -> bytes:
    """Return residues of shape (…, primes, length) as bytes.

    Row by row: the low 32 bits of all residues, then, where the prime is larger, the next 8 or
    16 bits of all of them; little-endian.
    """
    pieces = []
    for place in np.ndindex(*residues.shape[:-1]):
        row = residues[place]
        pieces.append(row.astype("<u4").tobytes())
        if high := _high_bytes(primes[place[-1]]):
            pieces.append((row >> 32).astype(f"<u{high}").tobytes())
    return b"".join(pieces)


def unpack(
    data: memoryview, primes: tuple[int, ...], shape: tuple[int, ...], length: int
) -> Residues:
    """Return residues of shape (*shape, primes, length) from exactly as many bytes as they take.

    Raises:
        ProtocolError: The bytes are too few or too many, or a residue is not below its prime.
    """
    if len(data) != packed_bytes(primes, length, math.prod(shape)):
        raise ProtocolError(f"{len(data)} bytes are not the polynomials that are expected here")
    residues = np.empty((*shape, len(primes), length), dtype=np.int64)
    at = 0
    for place in np.ndindex(*residues.shape[:-1]):
        prime = primes[place[-1]]
        row = residues[place]
        row[:] = np.frombuffer(data, dtype="<u4", count=length, offset=at)
        at += 4 * length
        if high := _high_bytes(prime):
            top = np.frombuffer(data, dtype=f"<u{high}", count=length, offset=at)
            row |= top.astype(np.int64) << 32
            at += high * length
        if int(row.max(initial=0)) >= prime:
            raise ProtocolError("a residue is not reduced modulo its prime")
    return residues


def _high_bytes(prime: int) -> int:
    """Bytes beyond the low four, for residues below a prime of at most 48 bits."""
    return max(0, -(-((prime - 1).bit_length() - 32) // 8))

"""TurboSHAKE128 (RFC 9861), of one message or of many of the same length at once.

Python's `hashlib` does not have it. The permutation below is written once: on integers it hashes
one message, on arrays of 64-bit lanes it hashes as many as the arrays are long.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["turboshake128"]

_RATE = 168  # bytes
_MASK = (1 << 64) - 1
_TOGETHER = 2048  # messages whose lanes stay in the cache
_FEW = 8  # messages from which on arrays are faster

_ROUNDS = (  # the last twelve of Keccak-f[1600]
    0x000000008000808B,
    0x800000000000008B,
    0x8000000000008089,
    0x8000000000008003,
    0x8000000000008002,
    0x8000000000000080,
    0x000000000000800A,
    0x800000008000000A,
    0x8000000080008081,
    0x8000000000008080,
    0x0000000080000001,
    0x8000000080008008,
)
# Lane x + 5y is turned by so many bits and goes to y + 5·(2x + 3y).
_TURNS = (
    0,
    1,
    62,
    28,
    27,
    36,
    44,
    6,
    55,
    20,
    3,
    10,
    43,
    25,
    39,
    41,
    45,
    15,
    21,
    8,
    18,
    2,
    61,
    56,
    14,
)
_PLACES = tuple((i // 5) + 5 * ((2 * (i % 5) + 3 * (i // 5)) % 5) for i in range(25))


def turboshake128(messages: Sequence[bytes], domain: int, count: int) -> list[bytes]:
    """Return the first `count` bytes of each message's output stream.

    Args:
        messages: All of one length.
        domain: The domain separation byte, 1 to 127.
        count: How many bytes.

    Example:
        >>> turboshake128([b""], 0x1F, 8)[0].hex()
        '1e415f1c5983aff2'
    """
    if len({len(message) for message in messages}) > 1:
        raise ValueError("messages hashed together have one length")
    if len(messages) < _FEW:
        return [_one(message, domain, count) for message in messages]
    found = []
    for start in range(0, len(messages), _TOGETHER):
        found += _many(messages[start : start + _TOGETHER], domain, count)
    return found


def _padded(message: bytes, domain: int) -> bytes:
    blocks = len(message) // _RATE + 1
    padded = bytearray(message.ljust(blocks * _RATE, b"\0"))
    padded[len(message)] = domain
    padded[-1] ^= 0x80
    return bytes(padded)


def _one(message: bytes, domain: int, count: int) -> bytes:
    padded, lanes = _padded(message, domain), [0] * 25
    for start in range(0, len(padded), _RATE):
        for place in range(_RATE // 8):
            at = start + 8 * place
            lanes[place] ^= int.from_bytes(padded[at : at + 8], "little")
        lanes = _permuted(lanes)
    out = bytearray()
    while True:
        out += b"".join(lane.to_bytes(8, "little") for lane in lanes[: _RATE // 8])
        if len(out) >= count:
            return bytes(out[:count])
        lanes = _permuted(lanes)


def _many(messages: Sequence[bytes], domain: int, count: int) -> list[bytes]:
    rows = len(messages)
    joined = b"".join(_padded(message, domain) for message in messages)
    blocks = np.frombuffer(joined, dtype="<u8").reshape(rows, -1, _RATE // 8)
    lanes = list(np.zeros((25, rows), dtype=np.uint64))
    for block in blocks.astype(np.uint64).transpose(1, 2, 0):
        for place, words in enumerate(block):
            lanes[place] = lanes[place] ^ words
        lanes = _permuted(lanes)
    out = np.empty((rows, -(-count // _RATE), _RATE // 8), dtype="<u8")
    for place in range(out.shape[1]):
        out[:, place] = np.stack(lanes[: _RATE // 8], axis=1)
        if place + 1 < out.shape[1]:
            lanes = _permuted(lanes)
    return [row.tobytes()[:count] for row in out]


def _permuted(lanes: list[Any]) -> list[Any]:
    """Return Keccak-p[1600, 12] of 25 lanes, each an integer or an array of them."""
    a = lanes
    for constant in _ROUNDS:
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        turned = [(v << 1 | v >> 63) & _MASK for v in c]
        d = [c[x - 1] ^ turned[(x + 1) % 5] for x in range(5)]
        b: list[Any] = [None] * 25
        for i, (turn, place) in enumerate(zip(_TURNS, _PLACES, strict=True)):
            v = a[i] ^ d[i % 5]
            b[place] = (v << turn | v >> 64 - turn) & _MASK if turn else v
        a = [
            b[y + x] ^ (~b[y + (x + 1) % 5] & b[y + (x + 2) % 5])
            for y in range(0, 25, 5)
            for x in range(5)
        ]
        a[0] = a[0] ^ constant
    return a

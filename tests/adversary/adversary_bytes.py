"""Bytes that differ from a letter in a few places."""

import numpy as np

__all__ = ["mutated"]


def mutated(data: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """Return bytes that differ from a letter in a few places."""
    wrong = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        start, size = int(rng.integers(0, max(1, len(wrong)))), int(rng.integers(1, 40))
        match int(rng.integers(6)):
            case 0 if wrong:
                wrong[start] ^= 1 << int(rng.integers(8))
            case 1:
                wrong[start : start + size] = b""
            case 2:
                wrong[start:start] = rng.bytes(size)
            case 3:
                wrong[start : start + size] = rng.bytes(size)
            case 4 if others:
                other = others[int(rng.integers(len(others)))]
                wrong[start : start + size] = other[start : start + size]
            case _:
                wrong[start : start + size] = bytes([int(rng.choice([0, 255]))]) * size
    return bytes(wrong)

"""What every protocol asks of a public key of X25519."""

__all__ = ["PRIME", "canonical"]

PRIME = 2**255 - 19
"""Coordinates are residues modulo this prime."""


def canonical(public: bytes) -> bool:
    """Say whether a public key is written as X25519 writes it: below p, with the top bit clear.

    X25519 ignores the top bit and reduces modulo p, so other bytes stand for the same key. Bytes
    of keys may be compared once this holds.
    """
    return int.from_bytes(public, "little") < PRIME

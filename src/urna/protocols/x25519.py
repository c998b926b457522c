"""What every protocol asks of X25519: keys written in one way, and values that stay secret."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from urna.errors import ProtocolError

PRIME = 2**255 - 19
"""Coordinates are residues modulo this prime."""


def canonical(public: bytes) -> bool:
    """Say whether a public key is written as X25519 writes it: below p, with the top bit clear.

    X25519 ignores the top bit and reduces modulo p, so other bytes stand for the same key. Bytes
    of keys may be compared once this holds.
    """
    return int.from_bytes(public, "little") < PRIME


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the value that only the holder of the other private key also computes.

    Raises:
        ProtocolError: The key is written in another way than X25519 writes it, or the value would
            be public.
    """
    if not canonical(public):
        raise ProtocolError("a public key is not written as X25519 writes it")
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a point of small order: the value would be public
        raise ProtocolError("a public key is not a valid X25519 key") from error

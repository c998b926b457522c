"""Evidence: a client shows the server that a neighbour sent it bad shares, and nothing more.

What a neighbour encrypted to it, only the two of them can read. To be believed, the client shows
the one Diffie–Hellman value it has in common with that neighbour, with a proof that it is the
right one: a proof that two discrete logarithms are equal (Chaum & Pedersen 1992, made
non-interactive after Fiat & Shamir), on the curve of X25519. With it the server decrypts that one
bundle and sees for itself.

Guarantee:
    The server learns what the neighbour can read already: the bundles between the two. If
    the complaint is true the neighbour deviates; if it is false the client does. So of two
    honest clients nothing is ever shown.

Assumes:
    The client was given the bundle as its neighbour sent it. An honest-but-curious server
    does so, over a channel that alters nothing; against a dishonest one the bundle is signed, and
    nothing is shown without it. Where such a channel fails nobody is blamed (the complaint is
    signed together with what it answers), but the bundles between two honest clients are shown:
    each of the two then counts as one colluding neighbour of the other.

Arithmetic is in Python's integers, on extended coordinates (Hisil et al. 2008); it takes some
milliseconds and not constant time. The secret it is computed with is that of one round, in which
this client takes no further part, and serves for nothing but these bundles.
"""

import hashlib
from dataclasses import dataclass

from urna.errors import ProtocolError
from urna.protocols.x25519 import PRIME
from urna.randomness import SEED_BYTES, SecretSource

PROOF_BYTES = 4 * 32
"""Length of a proof: the shared point, its own key's point, a challenge and a response."""

_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, PRIME) % PRIME
_A = 486662
_ROOT = pow(2, (PRIME - 1) // 4, PRIME)  # a square root of −1
_BASE_Y = 4 * pow(5, -1, PRIME) % PRIME
_SMALL_ORDER = frozenset(
    {
        0,
        1,
        PRIME - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)
"""Coordinates of the points of order 1, 2, 4 and 8 on the curve and its twist (RFC 7748, 6)."""
_SMALL_ORDER_Y = frozenset(
    (u - 1) * pow(u + 1, -1, PRIME) % PRIME for u in _SMALL_ORDER - {PRIME - 1}
) | {1}
"""The same points as Ed25519 writes them, without their sign."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of the twisted Edwards curve −x² + y² = 1 + d·x²·y²."""

    x: int
    y: int
    z: int
    t: int

    def plus(self, other: "_Point") -> "_Point":
        a = (self.y - self.x) * (other.y - other.x) % PRIME
        b = (self.y + self.x) * (other.y + other.x) % PRIME
        c, d = 2 * _D * self.t * other.t % PRIME, 2 * self.z * other.z % PRIME
        e, f, g, h = b - a, d - c, d + c, b + a
        return _Point(e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME)

    def times(self, scalar: int) -> "_Point":
        result, power = _ZERO, self
        while scalar:
            if scalar & 1:
                result = result.plus(power)
            power, scalar = power.plus(power), scalar >> 1
        return result

    def minus(self, other: "_Point") -> "_Point":
        return self.plus(_Point(-other.x % PRIME, other.y, other.z, -other.t % PRIME))

    def packed(self) -> bytes:
        inverse = pow(self.z, -1, PRIME)
        x, y = self.x * inverse % PRIME, self.y * inverse % PRIME
        return (y | (x & 1) << 255).to_bytes(32, "little")

    def montgomery(self) -> bytes:
        """Return the coordinate that X25519 computes with."""
        return ((self.z + self.y) * pow(self.z - self.y, -1, PRIME) % PRIME).to_bytes(32, "little")

    def in_group(self) -> bool:
        """Say whether it lies in the subgroup of prime order, and is not zero."""
        end = self.times(_ORDER)
        return end.x % PRIME == 0 and (end.y - end.z) % PRIME == 0 and self.x % PRIME != 0


_ZERO = _Point(0, 1, 1, 0)


def small_order(public: bytes) -> bool:
    """Say whether everybody knows what this key has in common with any other.

    The server asks before it passes a key on.
    """
    return int.from_bytes(public, "little") % 2**255 % PRIME in _SMALL_ORDER


def signs(public: bytes) -> bool:
    """Say whether 32 bytes may be an Ed25519 key: below p, and not of small order.

    Under a key of small order a signature can fit many messages.
    """
    y = int.from_bytes(public, "little") % 2**255
    return y < PRIME and y not in _SMALL_ORDER_Y


def on_curve(public: bytes) -> bool:
    """Say whether a public key is one that X25519 makes.

    Half of all strings of 32 bytes are. With another, nothing can be proven, so whoever
    advertised it is to blame for any dispute about it.
    """
    u = int.from_bytes(public, "little") % 2**255 % PRIME
    # Euler's criterion for u³ + A·u² + u.
    return pow(u * (u * (u + _A) + 1) % PRIME, (PRIME - 1) // 2, PRIME) == 1


def prove(private: bytes, peer: bytes, context: bytes, source: SecretSource) -> bytes:
    """Prove which value this private key has in common with a peer's public key.

    Args:
        private: This client's channel key of the round, as X25519 takes it.
        peer: The peer's public channel key.
        context: What the proof is bound to: the round and both numbers.
        source: Where the proof's own secret comes from.
    """
    # X25519 clamps: a multiple of eight, so that small-order parts of a key vanish.
    scalar = int.from_bytes(private, "little") & ~7 & (2**255 - 1) & ~(1 << 255) | 1 << 254
    eighth = scalar >> 3
    base, other = _base().times(8), _lifted(peer).times(8)
    own, shared = base.times(eighth), other.times(eighth)
    nonce = int.from_bytes(source.take(2 * SEED_BYTES), "little") % _ORDER
    challenge = _challenge(context, own, other, shared, base.times(nonce), other.times(nonce))
    response = (nonce + challenge * eighth) % _ORDER
    return b"".join(
        [
            shared.packed(),
            own.packed(),
            challenge.to_bytes(32, "little"),
            response.to_bytes(32, "little"),
        ]
    )


def verified(proof: bytes, own: bytes, peer: bytes, context: bytes) -> bytes | None:
    """Return the common value that a proof shows, or None if it shows nothing.

    The owner of the channel key `own` proves what it has in common with `peer`.
    """
    if len(proof) != PROOF_BYTES:
        return None
    try:
        shared, claimed = _unpacked(proof[:32]), _unpacked(proof[32:64])
        other = _lifted(peer).times(8)
    except ProtocolError:
        return None
    known = (int.from_bytes(own, "little") % 2**255 % PRIME).to_bytes(32, "little")
    if not (shared.in_group() and claimed.in_group()) or claimed.montgomery() != known:
        return None
    challenge = int.from_bytes(proof[64:96], "little")
    response = int.from_bytes(proof[96:], "little")
    if response >= _ORDER or challenge >= _ORDER:
        return None
    first = _base().times(8 * response).minus(claimed.times(challenge))
    second = other.times(response).minus(shared.times(challenge))
    if _challenge(context, claimed, other, shared, first, second) != challenge:
        return None
    return shared.montgomery()


def _base() -> _Point:
    return _from_y(_BASE_Y, 0)


def _lifted(public: bytes) -> _Point:
    """Return one of the two points of an X25519 key."""
    u = int.from_bytes(public, "little") % 2**255 % PRIME
    if u == PRIME - 1:
        raise ProtocolError("a public key has a small order")
    return _from_y((u - 1) * pow(u + 1, -1, PRIME) % PRIME, 0)


def _unpacked(packed: bytes) -> _Point:
    number = int.from_bytes(packed, "little")
    y = number & (2**255 - 1)
    if y >= PRIME:
        raise ProtocolError("a point is not written as it should be")
    return _from_y(y, number >> 255)


def _from_y(y: int, sign: int) -> _Point:
    squared = (y * y - 1) * pow(_D * y * y + 1, -1, PRIME) % PRIME
    x = pow(squared, (PRIME + 3) // 8, PRIME)
    if (x * x - squared) % PRIME:
        x = x * _ROOT % PRIME
    if (x * x - squared) % PRIME:
        raise ProtocolError("a public key is on no point of the curve")
    if x & 1 != sign:
        x = -x % PRIME
    return _Point(x, y, 1, x * y % PRIME)


def _challenge(context: bytes, *points: _Point) -> int:
    packed = b"".join(point.packed() for point in points)
    digest = hashlib.sha512(b"urna secagg evidence\0" + context + packed).digest()
    return int.from_bytes(digest, "little") % _ORDER

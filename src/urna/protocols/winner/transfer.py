"""Oblivious transfer: the leader gets the labels of its own bits, and the helper learns no bit.

128 base transfers after Chou & Orlandi (2015) on P-256, extended after Ishai, Kilian, Nissim &
Petrank (2003). The extension's secret is the offset between a wire's two labels, so the extension
gives labels at once.

Two checks stop a party that cheats here. The leader refuses a base transfer whose two seeds could
coincide, because equal seeds would send its bits in the clear. The helper checks that all columns
belong to one choice of bits (Keller, Orsini & Scholl 2015, with the universal hash that Roy 2022
proves), because other columns could show the leader the offset.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from urna.errors import Exposing, ProtocolError
from urna.protocols.winner.circuit import Bits
from urna.protocols.winner.garble import LABEL_BYTES, Labels, read_labels
from urna.randomness import SecretSource, expand

COLUMNS = 8 * LABEL_BYTES
"""Base transfers: one for each bit of the offset."""
CHECK_ROWS = 128
"""Bits of the check. The leader can try columns offline until a hash suits it: each try passes with
probability 2^−128."""
POINT_BYTES = 33

_CURVE = ec.SECP256R1()
_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _key_of(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """Return a private key from 48 secret bytes: within 2^−128 of uniform."""
    return ec.derive_private_key(1 + int.from_bytes(secret, "big") % (_ORDER - 1), _CURVE)


_KEY_SECRET = 48


def _encoded(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def _point(data: bytes) -> ec.EllipticCurvePublicKey:
    """Return the point of an encoding; one that is not on the curve is refused."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, data)
    except ValueError as error:
        raise ProtocolError("a transfer holds what is no point of the curve") from error


_COINCIDE = "two points of a transfer coincide"


def _sum(
    a: ec.EllipticCurvePublicKey, b: ec.EllipticCurvePublicKey, *, minus: bool = False
) -> ec.EllipticCurvePublicKey:
    """Return a + b, or a − b: `cryptography` multiplies points and does not add them."""
    one, other = a.public_numbers(), b.public_numbers()
    y = -other.y % _PRIME if minus else other.y
    if one.x == other.x:
        # Equal or opposite. Parties that follow the protocol meet it with a chance of 2^−256.
        raise Exposing(_COINCIDE)
    slope = (y - one.y) * pow(other.x - one.x, -1, _PRIME) % _PRIME
    x = (slope * slope - one.x - other.x) % _PRIME
    return ec.EllipticCurvePublicNumbers(
        x, (slope * (one.x - x) - one.y) % _PRIME, _CURVE
    ).public_key()


def _seed(
    session: bytes, place: int, branch: int, offer: bytes, answer: bytes, point: bytes, x: bytes
) -> bytes:
    """Return the seed of one branch of a base transfer.

    The shared point is the product of the leader's secret with `point`, which is the answer for
    branch 0 and the answer less the offer for branch 1. ECDH gives its x-coordinate alone. The
    offer and both coordinates of `point` determine the whole of it, so all of these are hashed.
    """
    where = session + place.to_bytes(2, "big") + bytes([branch])
    return hashlib.sha256(b"urna base transfer 2\0" + where + offer + answer + point + x).digest()


@dataclass(frozen=True, slots=True)
class BaseSender:
    """The leader's half of the base transfers: it will know two seeds of each."""

    secret: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def of(cls, source: SecretSource) -> "BaseSender":
        """Draw a fresh key."""
        return cls(_key_of(source.take(_KEY_SECRET)))

    @property
    def offer(self) -> bytes:
        """What the helper is sent."""
        return _encoded(self.secret.public_key())

    def shared_key(self, point: bytes) -> bytes:
        """Return the key that the helper, who sent this point, derives as well."""
        return self.secret.exchange(ec.ECDH(), _point(point))

    def seeds(self, session: bytes, answers: bytes) -> list[tuple[bytes, bytes]]:
        """Return both seeds of each transfer.

        Guarantee:
            The helper computes at most one seed of each pair (Chou & Orlandi 2015), and no two
            seeds are hashes of the same text.

        Raises:
            Exposing: An answer is not on the curve or not written as its points are, it is the
                offer or its opposite, or it is half the offer, for which both products have the
                same x-coordinate.
        """
        offer, public = self.offer, self.secret.public_key()
        found = []
        for place in range(COLUMNS):
            answer = answers[POINT_BYTES * place : POINT_BYTES * (place + 1)]
            try:
                point = _point(answer)
            except ProtocolError as error:
                raise Exposing(str(error)) from error
            less = _sum(point, public, minus=True)
            if less.public_numbers().x == point.public_numbers().x:
                raise Exposing(_COINCIDE)
            zero, one = (
                _seed(
                    session,
                    place,
                    branch,
                    offer,
                    answer,
                    _encoded(each),
                    self.secret.exchange(ec.ECDH(), each),
                )
                for branch, each in enumerate((point, less))
            )
            found.append((zero, one))
        return found


@dataclass(frozen=True, slots=True)
class BaseReceiver:
    """The helper's half: of each transfer it knows the seed that a bit of its offset names."""

    answers: bytes
    seeds: list[bytes] = field(repr=False)
    point: bytes
    """Of a key for authenticating messages."""
    shared_key: bytes = field(repr=False)

    @classmethod
    def of(
        cls, session: bytes, offer: bytes, offset: Labels, source: SecretSource
    ) -> "BaseReceiver":
        """Answer an offer.

        Raises:
            ProtocolError: It is no point.
        """
        offered = _point(offer)
        bits = np.unpackbits(offset.astype("<u8").view(np.uint8), bitorder="little")
        answers, seeds = [], []
        for place, bit in enumerate(bits.tolist()):
            key = _key_of(source.take(_KEY_SECRET))
            pair = (key.public_key(), _sum(key.public_key(), offered))  # both, whatever the bit
            answer = _encoded(pair[bit])
            answers.append(answer)
            shared = key.exchange(ec.ECDH(), offered)
            # Less the offer where its bit is 1, the answer is the helper's own point either way.
            own = _encoded(key.public_key())
            seeds.append(_seed(session, place, bit, offer, answer, own, shared))
        common = _key_of(source.take(_KEY_SECRET))
        point, shared = _encoded(common.public_key()), common.exchange(ec.ECDH(), offered)
        return cls(b"".join(answers), seeds, point, shared)


def columns_bytes(count: int) -> int:
    """Return how long each column of an extension to so many transfers is."""
    return (count + CHECK_ROWS + 7) // 8


@dataclass(frozen=True, slots=True)
class Extended:
    """What the leader sends to extend the base transfers, and the labels it gets."""

    columns: bytes
    check: bytes
    labels: Labels = field(repr=False)
    """One for each of its bits."""


def extend(
    transcript: bytes, seeds: list[tuple[bytes, bytes]], bits: Bits, source: SecretSource
) -> Extended:
    """Leader: extend the base transfers to all of its bits.

    Args:
        transcript: Session and digest of all messages so far; the check is drawn from them too.
        seeds: Both of each base transfer.
        bits: The leader's choices.
        source: Where the random bits of the last rows come from.
    """
    size = columns_bytes(len(bits))
    chosen = np.frombuffer(source.take(size), dtype=np.uint8).copy()  # the last rows stay random
    packed = np.packbits(bits, bitorder="little")
    if rest := len(bits) % 8:
        high = chosen[len(packed) - 1] & np.uint8(0xFF << rest & 0xFF)
        packed[-1] |= high
    chosen[: len(packed)] = packed
    first = np.frombuffer(b"".join(expand(zero, size) for zero, _ in seeds), dtype=np.uint8)
    other = np.frombuffer(b"".join(expand(one, size) for _, one in seeds), dtype=np.uint8)
    held = first.reshape(COLUMNS, size)
    columns = (held ^ other.reshape(COLUMNS, size) ^ chosen).tobytes()
    rows = _transposed(held)
    rule = _Rule.of(transcript, columns, 8 * size)
    return Extended(columns, rule.of_bits(chosen) + rule.of_rows(rows).tobytes(), rows[: len(bits)])


def receive_extension(
    transcript: bytes,
    seeds: list[bytes],
    offset: Labels,
    columns: bytes,
    check: bytes,
    count: int,
) -> Labels:
    """Helper: return the label of 0 for each of the leader's bits.

    Guarantee:
        Columns that belong to no one choice of bits pass the check with probability 2^−128 for
        each try, also where the leader tries offline, but for guesses of bits of the offset: each
        guess is right at even odds, and a wrong one is refused.

    Raises:
        ProtocolError: The columns are not those of one choice of bits.
    """
    size = columns_bytes(count)
    sent = np.frombuffer(columns, dtype=np.uint8).reshape(COLUMNS, size)
    own = np.frombuffer(b"".join(expand(seed, size) for seed in seeds), dtype=np.uint8)
    bits = np.unpackbits(offset.astype("<u8").view(np.uint8), bitorder="little")
    rows = _transposed(own.reshape(COLUMNS, size) ^ (sent * bits[:, None]))
    rule = _Rule.of(transcript, columns, 8 * size)
    words = CHECK_ROWS // 8
    chosen = np.unpackbits(np.frombuffer(check[:words], dtype=np.uint8), bitorder="little")
    expected = read_labels(check[words:]) ^ (chosen.astype(np.uint64)[:, None] * offset)
    if not hmac.compare_digest(rule.of_rows(rows).tobytes(), expected.tobytes()):
        raise ProtocolError(
            "the leader's transfers do not belong to one choice of bits; nothing was garbled"
        )
    return rows[:count]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A random linear map of all rows to `CHECK_ROWS`, drawn after the columns are fixed.

    The last rows, whose bits are random and used for nothing else, are added as they are: so the
    image of the leader's bits says nothing about the others.
    """

    bytes_of_rows: npt.NDArray[np.uint8]
    """Shape (rows, CHECK_ROWS / 8): which images a row is added to."""

    @classmethod
    def of(cls, transcript: bytes, columns: bytes, rows: int) -> "_Rule":
        """Draw it from all that was sent before the check, as a random oracle."""
        text = hashlib.sha256(b"urna transfer check 2\0" + transcript)
        text.update(columns)
        seed = text.digest()
        words = CHECK_ROWS // 8
        drawn = np.frombuffer(expand(seed, rows * words), dtype=np.uint8).reshape(rows, words)
        drawn = drawn.copy()
        drawn[-CHECK_ROWS:] = np.packbits(np.eye(CHECK_ROWS, dtype=np.uint8), 1, bitorder="little")
        return cls(drawn)

    def of_bits(self, packed: npt.NDArray[np.uint8]) -> bytes:
        """Return the image of bits."""
        bits = np.unpackbits(packed, bitorder="little")
        image = np.bitwise_xor.reduce(self.bytes_of_rows[bits == 1], axis=0)
        return bytes(image.tolist())

    def of_rows(self, rows: Labels) -> Labels:
        """Return the image of labels.

        Eight images at a time: rows are added up by which of the eight they belong to, 256 sums,
        and each image is the sum of half of those.
        """
        images = []
        for group in self.bytes_of_rows.T:
            order = np.argsort(group, kind="stable")
            values, starts = np.unique(group[order], return_index=True)
            sums = np.bitwise_xor.reduceat(rows.take(order, axis=0), starts, axis=0)
            for bit in range(8):
                images.append(np.bitwise_xor.reduce(sums[(values >> bit) & 1 == 1], axis=0))
        return np.array(images, dtype=np.uint64).astype("<u8")


def _transposed(columns: npt.NDArray[np.uint8]) -> Labels:
    """Return the rows of a bit matrix given by its columns, as labels.

    Blocks of eight by eight bits are turned within one word (Warren, Hacker's Delight, 7-3).
    """
    size = columns.shape[1]
    blocks = np.ascontiguousarray(columns.reshape(COLUMNS // 8, 8, size).transpose(2, 0, 1))
    words = blocks.view("<u8")[..., 0].astype(np.uint64)
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        moved = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
        words ^= moved ^ (moved << np.uint64(shift))
    rows = words.astype("<u8").view(np.uint8).reshape(size, COLUMNS // 8, 8).transpose(0, 2, 1)
    return read_labels(np.ascontiguousarray(rows).tobytes())

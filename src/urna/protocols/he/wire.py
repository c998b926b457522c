"""Messages as bytes: versioned, length-prefixed, strict.

A message is `URHE`, one byte of version, one of kind, the length of the body (8 bytes), and the
body, which begins with the session's id, the parameters' digest, the exchange and the sender (or
`ffffffff`, the server). Numbers are big-endian, residues as `packing` has them, lists in the
parties' order. There is one encoding for a message and one message for an encoding: anything
else, trailing bytes included, is refused. Every length follows from the parameters and is
checked before anything is allocated.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from urna.errors import ProtocolError
from urna.protocols.he.messages import (
    ChannelBook,
    ChannelKey,
    Ciphertext,
    DecryptionRequest,
    DecryptionShare,
    EncryptedShareBox,
    EncryptedShares,
    KeyShare,
    KeySum,
    Message,
    RelinearisationKey,
    RelinearisationShare,
)
from urna.protocols.he.noise import NoiseBound
from urna.protocols.he.ntt import Residues
from urna.protocols.he.packing import pack, packed_bytes, unpack
from urna.protocols.he.session import PartyId, Session
from urna.protocols.he.threshold import TAG_BYTES

__all__ = ["VERSION", "decode", "encode", "largest_message"]

VERSION: Final = 3

_MAGIC = b"URHE"
_HEAD = len(_MAGIC) + 2 + 8
_DIGEST = 32
_SERVER = 0xFFFFFFFF
_ERROR_BYTES = 128  # a noise bound is below the modulus, which has at most 868 bits

Kind = TypeVar("Kind", bound=Message)


def largest_message(session: Session) -> int:
    """Return the length no message of a session exceeds."""
    parameters = session.parameters
    wide = parameters.chain + parameters.special
    keys = packed_bytes(wide, parameters.degree, 2 * len(parameters.digits) + 2)
    shares = parameters.parties * (
        4 + TAG_BYTES + packed_bytes(parameters.chain, parameters.degree)
    )
    helpers = 4 * parameters.parties + _DIGEST * parameters.parties
    return (
        _HEAD
        + 512
        + max(keys, shares if parameters.threshold < parameters.parties else 0)
        + helpers
    )


def encode(message: Message, session: Session, *, sender: PartyId | None = None) -> bytes:
    """Return the one encoding of a message.

    Args:
        message: What to say.
        session: The session it belongs to.
        sender: The party that says it; left out for the server. Messages that name their party
            must be sent by it.
    """
    kind = _KINDS[type(message)]
    named = getattr(message, "party", None)
    if not isinstance(message, EncryptedShareBox) and named is not None and named != sender:
        raise ProtocolError(f"a message of party {named} cannot be sent by {sender}")
    parts = [
        session.identifier,
        session.parameters.digest,
        bytes([_EXCHANGE[kind]]),
        (_SERVER if sender is None else sender).to_bytes(4, "big"),
        *_WRITERS[kind](message, session),
    ]
    length = sum(map(len, parts))
    return b"".join([_MAGIC, bytes([VERSION, kind]), length.to_bytes(8, "big"), *parts])


def decode(
    data: bytes, session: Session, kind: type[Kind], *, sender: PartyId | None = None
) -> Kind:
    """Return the message of an encoding.

    Args:
        data: What arrived.
        session: The session it must belong to.
        kind: The type of message that is expected.
        sender: The party it must be from; left out for the server.

    Raises:
        ProtocolError: The bytes are not the encoding of such a message.
    """
    if not _HEAD <= len(data) <= largest_message(session):
        raise ProtocolError(
            f"a message of this session has {_HEAD} to {largest_message(session)} bytes, "
            f"got {len(data)}"
        )
    if data[:4] != _MAGIC:
        raise ProtocolError("these bytes are not a message of threshold encryption")
    if data[4] != VERSION:
        raise ProtocolError(f"message version {VERSION} is spoken here, got {data[4]}")
    expected = _KINDS[kind]
    if data[5] != expected:
        raise ProtocolError(f"a {kind.__name__} is expected here, got kind {data[5]}")
    if int.from_bytes(data[6:_HEAD], "big") != len(data) - _HEAD:
        raise ProtocolError("the message is shorter or longer than its head says")
    body = _Body(data, session)
    if body.take(_DIGEST) != session.identifier:
        raise ProtocolError("the message belongs to another session")
    if body.take(_DIGEST) != session.parameters.digest:
        raise ProtocolError("the message belongs to other parameters")
    if body.number(1) != _EXCHANGE[expected]:
        raise ProtocolError("the message belongs to another exchange")
    if body.number(4) != (_SERVER if sender is None else sender):
        raise ProtocolError("the message is from another sender")
    message: Kind = _READERS[expected](body, sender)
    body.end()
    return message


class _Body:
    """Reads a body from front to back; every length is checked before it is used."""

    def __init__(self, data: bytes, session: Session) -> None:
        self.session, self.parameters = session, session.parameters
        self._data, self._at = memoryview(data), _HEAD

    def take(self, count: int) -> bytes:
        return bytes(self._pass(count))

    def number(self, size: int) -> int:
        return int.from_bytes(self._pass(size), "big")

    def party(self) -> PartyId:
        party = self.number(4)
        if party >= self.parameters.parties:
            raise ProtocolError(f"parties are numbered below {self.parameters.parties}")
        return party

    def level(self) -> int:
        level = self.number(1)
        if level > self.parameters.depth:
            raise ProtocolError(f"levels are 0 to {self.parameters.depth}, got {level}")
        return level

    def noise(self) -> NoiseBound:
        level, error = self.level(), self.number(_ERROR_BYTES)
        if error >= math.prod(self.parameters.primes(level)):
            raise ProtocolError("a noise bound is below the level's modulus")
        return NoiseBound(level, error)

    def polynomials(self, primes: tuple[int, ...], *shape: int, length: int = 0) -> Residues:
        length = length or self.parameters.degree
        size = packed_bytes(primes, length, math.prod(shape))
        return unpack(self._pass(size), primes, shape, length)

    def relinearisation(self) -> Residues | None:
        parameters = self.parameters
        if not parameters.levels:
            return None
        wide = parameters.chain + parameters.special
        return self.polynomials(wide, 2, len(parameters.digits))

    def bundles(self) -> Mapping[PartyId, bytes]:
        parameters = self.parameters
        size = TAG_BYTES + packed_bytes(parameters.chain, parameters.degree)
        if parameters.threshold == parameters.parties:
            raise ProtocolError("no secrets are shared where all parties decrypt")
        return {party: self.take(size) for party in range(parameters.parties)}

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("the message has trailing bytes")

    def _pass(self, count: int) -> memoryview:
        if count > len(self._data) - self._at:
            raise ProtocolError("the message ends too early")
        start = self._at
        self._at += count
        return self._data[start : self._at]


def _named(sender: PartyId | None) -> PartyId:
    if sender is None:
        raise ProtocolError("this message comes from a party")
    return sender


def _wide(session: Session) -> tuple[int, ...]:
    return session.parameters.chain + session.parameters.special


def _noise_bytes(noise: NoiseBound) -> bytes:
    return bytes([noise.level]) + noise.error.to_bytes(_ERROR_BYTES, "big")


def _bound(found: bytes, session: Session) -> bytes:
    """Return the session's binding, which a message to be written must carry."""
    if found != session.binding:
        raise ProtocolError("the message belongs to another session or other parameters")
    return found


def _write_keys(message: KeyShare | KeySum, session: Session) -> list[bytes]:
    _bound(message.session, session)
    hidden = message.relinearisation
    pieces = [pack(message.public, session.parameters.chain)]
    return pieces if hidden is None else [*pieces, pack(hidden, _wide(session))]


def _read_key_share(body: _Body, sender: PartyId | None) -> KeyShare:
    public = body.polynomials(body.parameters.chain)
    return KeyShare(body.session.binding, _named(sender), public, body.relinearisation())


def _read_key_sum(body: _Body, _: PartyId | None) -> KeySum:
    public = body.polynomials(body.parameters.chain)
    return KeySum(body.session.binding, public, body.relinearisation())


def _write_relinearisation_share(message: RelinearisationShare, session: Session) -> list[bytes]:
    _bound(message.session, session)
    return [pack(message.parts, _wide(session))]


def _read_relinearisation_share(body: _Body, sender: PartyId | None) -> RelinearisationShare:
    parts = body.polynomials(_wide(body.session), len(body.parameters.digits))
    return RelinearisationShare(body.session.binding, _named(sender), parts)


def _write_relinearisation_key(message: RelinearisationKey, session: Session) -> list[bytes]:
    return [message.key, pack(message.parts, _wide(session))]


def _read_relinearisation_key(body: _Body, _: PartyId | None) -> RelinearisationKey:
    key, parts = body.take(_DIGEST), body.relinearisation()
    if parts is None:
        raise ProtocolError("nothing is multiplied under these parameters")
    return RelinearisationKey(key, parts)


def _write_ciphertext(message: Ciphertext, session: Session) -> list[bytes]:
    primes = session.parameters.primes(message.level)
    return [message.key, _noise_bytes(message.noise), pack(message.parts, primes)]


def _read_ciphertext(body: _Body, _: PartyId | None) -> Ciphertext:
    key, noise = body.take(_DIGEST), body.noise()
    return Ciphertext(key, noise, body.polynomials(body.parameters.primes(noise.level), 2))


def _write_request(message: DecryptionRequest, session: Session) -> list[bytes]:
    helpers = sorted(message.helpers)
    return [
        message.key,
        _noise_bytes(message.noise),
        *(party.to_bytes(4, "big") for party in helpers),
        pack(message.second, session.parameters.primes(message.noise.level)),
    ]


def _read_request(body: _Body, _: PartyId | None) -> DecryptionRequest:
    key, noise = body.take(_DIGEST), body.noise()
    helpers = [body.party() for _ in range(body.parameters.threshold)]
    if helpers != sorted(set(helpers)):
        raise ProtocolError("helpers are listed once each, in order")
    second = body.polynomials(body.parameters.primes(noise.level))
    return DecryptionRequest(key, noise, frozenset(helpers), second)


def _write_decryption_share(message: DecryptionShare, session: Session) -> list[bytes]:
    primes = session.parameters.primes(message.level)
    return [message.key, message.request, bytes([message.level]), pack(message.residues, primes)]


def _read_decryption_share(body: _Body, sender: PartyId | None) -> DecryptionShare:
    key, request, level = body.take(_DIGEST), body.take(_DIGEST), body.level()
    primes = body.parameters.primes(level)
    residues = body.polynomials(primes, length=body.parameters.width)
    return DecryptionShare(key, request, level, _named(sender), residues)


def _write_channel_key(message: ChannelKey, session: Session) -> list[bytes]:
    _bound(message.session, session)
    return [message.key]


def _read_channel_key(body: _Body, sender: PartyId | None) -> ChannelKey:
    return ChannelKey(body.session.binding, _named(sender), body.take(_DIGEST))


def _write_channel_book(message: ChannelBook, session: Session) -> list[bytes]:
    _bound(message.session, session)
    return list(message.keys)


def _read_channel_book(body: _Body, _: PartyId | None) -> ChannelBook:
    keys = tuple(body.take(_DIGEST) for _ in range(body.parameters.parties))
    return ChannelBook(body.session.binding, keys)


def _write_sealed_shares(message: EncryptedShares, session: Session) -> list[bytes]:
    _bound(message.session, session)
    return [message.bundles[party] for party in range(session.parameters.parties)]


def _read_sealed_shares(body: _Body, sender: PartyId | None) -> EncryptedShares:
    return EncryptedShares(body.session.binding, _named(sender), body.bundles())


def _write_share_box(message: EncryptedShareBox, session: Session) -> list[bytes]:
    _bound(message.session, session)
    bundles = [message.bundles[party] for party in range(session.parameters.parties)]
    return [message.party.to_bytes(4, "big"), *bundles]


def _read_share_box(body: _Body, _: PartyId | None) -> EncryptedShareBox:
    return EncryptedShareBox(body.session.binding, body.party(), body.bundles())


_KINDS: dict[type, int] = {
    ChannelKey: 1,
    ChannelBook: 2,
    KeyShare: 3,
    KeySum: 4,
    RelinearisationShare: 5,
    RelinearisationKey: 6,
    EncryptedShares: 7,
    EncryptedShareBox: 8,
    Ciphertext: 9,
    DecryptionRequest: 10,
    DecryptionShare: 11,
}
# Channels, first and second exchange of the key, shares of the secret, inputs, results.
_EXCHANGE = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3, 9: 4, 10: 5, 11: 5}
_WRITERS: dict[int, Callable[..., list[bytes]]] = {
    1: _write_channel_key,
    2: _write_channel_book,
    3: _write_keys,
    4: _write_keys,
    5: _write_relinearisation_share,
    6: _write_relinearisation_key,
    7: _write_sealed_shares,
    8: _write_share_box,
    9: _write_ciphertext,
    10: _write_request,
    11: _write_decryption_share,
}
_READERS: dict[int, Callable[..., Any]] = {
    1: _read_channel_key,
    2: _read_channel_book,
    3: _read_key_share,
    4: _read_key_sum,
    5: _read_relinearisation_share,
    6: _read_relinearisation_key,
    7: _read_sealed_shares,
    8: _read_share_box,
    9: _read_ciphertext,
    10: _read_request,
    11: _read_decryption_share,
}

"""Messages as bytes: versioned, length-prefixed, strict.

A message is `URHE`, one byte of version, one of kind, the length of the body (8 bytes), and the
body, which begins with the session's id, the parameters' digest, the exchange and the sender (or
`ffffffff`, the server). Numbers are big-endian, polynomials as `pack` writes them, lists in the
parties' order. There is one encoding for a message and one message for an encoding: anything
else, trailing bytes included, is refused. Every length follows from the parameters and is
checked before anything is allocated.
"""

import math
from collections.abc import Mapping
from typing import Final, TypeVar

import numpy as np

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
    PartyId,
    RelinearisationKey,
    RelinearisationShare,
    Session,
)
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.plan import NoiseBound
from urna.protocols.wire import DIGEST, Form, MessageForm, Reader

VERSION: Final = 3

_MAGIC = b"URHE"
_HEAD = len(_MAGIC) + 2 + 8
_DIGEST_BYTES = 32
_SERVER = 0xFFFFFFFF
_ERROR_BYTES = 128  # a noise bound is below the modulus, which has at most 868 bits
_TAG_BYTES = 16  # of a sealed share

Kind = TypeVar("Kind", bound=Message)


def encode(message: Message, session: Session, *, sender: PartyId | None = None) -> bytes:
    """Return the one encoding of a message; the server, no party, sends where none is named."""
    form = _OF_TYPE[type(message)]
    _check_sender(form.kind, sender)
    opening = b"".join(
        [
            session.identifier,
            session.parameters.digest,
            bytes([_EXCHANGES[form.number]]),
            (_SERVER if sender is None else sender).to_bytes(4, "big"),
        ]
    )
    fields = form.write(message, session.parameters)
    length = (len(opening) + len(fields)).to_bytes(8, "big")
    return b"".join([_MAGIC, bytes([VERSION, form.number]), length, opening, fields])


def decode(
    data: bytes, session: Session, kind: type[Kind], *, sender: PartyId | None = None
) -> Kind:
    """Return the message of this kind and from this sender, a party or else the server.

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
        raise ProtocolError(f"this is message version {VERSION}, got {data[4]}")
    expected = _OF_TYPE[kind]
    if data[5] != expected.number:
        raise ProtocolError(f"a {kind.__name__} is expected here, got kind {data[5]}")
    if int.from_bytes(data[6:_HEAD], "big") != len(data) - _HEAD:
        raise ProtocolError("the message is shorter or longer than its head states")
    body = _Body(data, session.parameters)
    if body.take(_DIGEST_BYTES) != session.identifier:
        raise ProtocolError("the message belongs to another session")
    if body.take(_DIGEST_BYTES) != session.parameters.digest:
        raise ProtocolError("the message belongs to other parameters")
    if body.number(1) != _EXCHANGES[expected.number]:
        raise ProtocolError("the message belongs to another exchange")
    if body.number(4) != (_SERVER if sender is None else sender):
        raise ProtocolError("the message is from another sender")
    _check_sender(kind, sender)
    message: Kind = expected.read(body)
    body.end()
    return message


def largest_message(session: Session) -> int:
    """Return the length no message of a session exceeds."""
    parameters = session.parameters
    wide = parameters.chain + parameters.special
    keys = packed_bytes(wide, parameters.degree, 2 * len(parameters.digits) + 2)
    shares = parameters.parties * (
        4 + _TAG_BYTES + packed_bytes(parameters.chain, parameters.degree)
    )
    helpers = (4 + _DIGEST_BYTES) * parameters.parties
    shared = parameters.threshold < parameters.parties
    return _HEAD + 512 + max(keys, shares if shared else 0) + helpers


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


class _Body(Reader):
    """The body of a message."""

    def __init__(self, data: bytes, parameters: Parameters) -> None:
        super().__init__(data, _HEAD)
        self.parameters, self.primes = parameters, parameters.chain

    def party(self) -> PartyId:
        party = self.number(4)
        if party >= self.parameters.parties:
            raise ProtocolError(f"parties are numbered below {self.parameters.parties}")
        return party

    def level(self) -> int:
        level = self.number(1)
        if level > self.parameters.depth:
            raise ProtocolError(f"levels are 0 to {self.parameters.depth}, got {level}")
        self.primes = self.parameters.primes(level)
        return level

    def noise(self) -> NoiseBound:
        level, error = self.level(), self.number(_ERROR_BYTES)
        if error >= math.prod(self.primes):
            raise ProtocolError("a noise bound is below the level's modulus")
        return NoiseBound(level, error)

    def helpers(self) -> frozenset[PartyId]:
        helpers = [self.party() for _ in range(self.parameters.threshold)]
        if helpers != sorted(set(helpers)):
            raise ProtocolError("helpers are listed once each, in order")
        return frozenset(helpers)

    def polynomials(self, *shape: int, length: int = 0) -> Residues:
        """Read polynomials of the level that was read before, or of the highest."""
        length = length or self.parameters.degree
        size = packed_bytes(self.primes, length, math.prod(shape))
        return unpack(self.view(size), self.primes, shape, length)

    def wide(self, *shape: int) -> Residues:
        """Read a part of the relinearisation key for each digit."""
        if not self.parameters.levels:
            raise ProtocolError("nothing is multiplied under these parameters")
        self.primes = self.parameters.chain + self.parameters.special
        return self.polynomials(*shape, len(self.parameters.digits))

    def bundles(self) -> Mapping[PartyId, bytes]:
        parameters = self.parameters
        size = _TAG_BYTES + packed_bytes(parameters.chain, parameters.degree)
        if parameters.threshold == parameters.parties:
            raise ProtocolError("no secrets are shared where all parties decrypt")
        return {party: self.take(size) for party in range(parameters.parties)}


def _polynomials(*shape: int) -> Form:
    return Form(
        lambda value, parameters: pack(value, parameters.chain[: value.shape[-2]]),
        lambda body: body.polynomials(*shape),
    )


def _wide(*shape: int) -> Form:
    return Form(
        lambda value, parameters: pack(value, parameters.chain + parameters.special),
        lambda body: body.wide(*shape),
    )


_PARTY = Form(lambda party, _: party.to_bytes(4, "big"), _Body.party)
_LEVEL = Form(lambda level, _: bytes([level]), _Body.level)
_NOISE = Form(
    lambda noise, _: bytes([noise.level]) + noise.error.to_bytes(_ERROR_BYTES, "big"), _Body.noise
)
_HELPERS = Form(
    lambda helpers, _: b"".join(party.to_bytes(4, "big") for party in sorted(helpers)),
    _Body.helpers,
)
_OPENED = Form(_polynomials().write, lambda body: body.polynomials(length=body.parameters.width))
_RELINEARISATION = Form(
    lambda value, parameters: b"" if value is None else _wide(2).write(value, parameters),
    lambda body: body.wide(2) if body.parameters.levels else None,
)
_KEYS = Form(
    lambda keys, _: b"".join(keys),
    lambda body: tuple(body.take(_DIGEST_BYTES) for _ in range(body.parameters.parties)),
)
_BUNDLES = Form(
    lambda bundles, parameters: b"".join(bundles[party] for party in range(parameters.parties)),
    _Body.bundles,
)
_KEY_FORMS = (_polynomials(), _RELINEARISATION)
_FORMS = (
    MessageForm.of(1, ChannelKey, DIGEST),
    MessageForm.of(2, ChannelBook, _KEYS),
    MessageForm.of(3, KeyShare, *_KEY_FORMS),
    MessageForm.of(4, KeySum, *_KEY_FORMS),
    MessageForm.of(5, RelinearisationShare, _wide()),
    MessageForm.of(6, RelinearisationKey, DIGEST, _wide(2)),
    MessageForm.of(7, EncryptedShares, _BUNDLES),
    MessageForm.of(8, EncryptedShareBox, _PARTY, _BUNDLES),
    MessageForm.of(9, Ciphertext, DIGEST, _NOISE, _polynomials(2)),
    MessageForm.of(10, DecryptionRequest, DIGEST, _NOISE, _HELPERS, _polynomials()),
    MessageForm.of(11, DecryptionShare, DIGEST, DIGEST, _LEVEL, _OPENED),
)
_OF_TYPE = {form.kind: form for form in _FORMS}
_EXCHANGES = dict(enumerate((0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5), start=1))
"""By number: 0 channels, 1 and 2 the joint key, 3 shares of secrets, 4 inputs, 5 results."""
_OF_PARTIES = (ChannelKey, KeyShare, RelinearisationShare, EncryptedShares, DecryptionShare)


def _check_sender(kind: type, sender: PartyId | None) -> None:
    if kind in _OF_PARTIES and sender is None:
        raise ProtocolError("this message comes from a party")

"""What leader and helper tell each other, and all messages as bytes: versioned and strict.

A message is `URNV`, one byte of version, one byte of kind and the fields in order. Numbers are
big-endian, lists are sorted by client and hold each client once. All lengths follow from the
statement; anything else, trailing bytes included, is refused.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

from urna.errors import Altered, ProtocolError
from urna.protocols.ballots.report import Part, PublicParameters, Report, VouchedStatement
from urna.protocols.secagg.keys import SIGNATURE_BYTES, KeyPair, seal, unseal
from urna.protocols.secagg.messages import ClientId
from urna.randomness import SEED_BYTES

VERSION: Final = 2

_MAGIC = b"URNV"
_DIGEST = 32
_TAG = 16
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Batch:
    """Leader to helper: the helper's parts of all reports that the leader could open."""

    digest: bytes
    """Of the statement."""
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """Helper to leader: whom it refuses, and its answers for the others, in order."""

    batch: bytes
    refused: Mapping[ClientId, str]
    answers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Leader to helper: its own answers, and who is accepted."""

    batch: bytes
    answers: tuple[bytes, ...]
    accepted: tuple[ClientId, ...]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Helper to leader: it accepts the same reports, and holds its share of their sum."""

    batch: bytes


Letter = Batch | Answers | Verdict | Confirmation
"""What leader and helper tell each other."""

Message = Report | Letter

_Letter = TypeVar("_Letter", Batch, Answers, Verdict, Confirmation)
_LETTER = b"urna verified letter\0"


def batch_digest(who: int, digest: bytes, parts: Sequence[Part]) -> bytes:
    """Return what names a batch: the statement, and what each client of it signed and how."""
    named = hashlib.sha256(b"urna verified batch\0" + digest)
    for part in parts:
        named.update(part.signed(who, digest) + part.signature)
    return named.digest()


def encode(message: Message) -> bytes:
    """Return the one encoding of a message."""
    fields: list[bytes]
    match message:
        case Report():
            fields = [_number(message.client), message.ephemeral]
            fields += [message.leader_box, message.helper_box, message.signature]
        case Batch():
            fields = [message.digest, _number(len(message.parts))]
            fields += map(_part, message.parts)
        case Answers():
            fields = [message.batch, _number(len(message.refused))]
            for client, reason in sorted(message.refused.items()):
                fields += [_number(client), _text(reason)]
            fields += [_number(len(message.answers)), *message.answers]
        case Verdict():
            fields = [message.batch, _number(len(message.answers))]
            fields += [*message.answers, _number(len(message.accepted))]
            fields += map(_number, message.accepted)
        case Confirmation():
            fields = [message.batch]
    return b"".join([_MAGIC, bytes([VERSION, _KINDS[type(message)]]), *fields])


def decode(data: bytes, statement: PublicParameters) -> Message:
    """Read one message.

    Raises:
        ProtocolError: It is none.
    """
    reader = _Reader(data)
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise ProtocolError("this is no message of a verified count")
    version, kind = reader.take(1)[0], reader.take(1)[0]
    if version != VERSION:
        raise ProtocolError(f"messages have version {VERSION}, got {version}")
    if kind not in _READERS:
        raise ProtocolError(f"no message is of kind {kind}")
    found = _READERS[kind](reader, statement)
    reader.end()
    return found


def encode_announcement(announcement: VouchedStatement) -> bytes:
    """Return an announcement as bytes."""
    return announcement.signature + announcement.statement.encode()


def decode_announcement(data: bytes) -> VouchedStatement:
    """Read an announcement; whether its signature is right is for its reader to check."""
    if len(data) < SIGNATURE_BYTES:
        raise ProtocolError("an announcement is a signature and a statement")
    return VouchedStatement(PublicParameters.read(data[SIGNATURE_BYTES:]), data[:SIGNATURE_BYTES])


def seal_letter(message: Letter, statement: PublicParameters, pair: KeyPair, peer: bytes) -> bytes:
    """Encrypt a letter between leader and helper, so that nobody reads or alters it.

    There is one letter of a kind in a count, so a key is used once.

    Args:
        message: The letter.
        statement: What was announced.
        pair: The sender's key for this count.
        peer: The recipient's public key.
    """
    kind, digest = _KINDS[type(message)], statement.digest
    key = pair.agree(peer, digest, _LETTER + bytes([kind]), SEED_BYTES)
    return seal(key, encode(message), digest, kind, kind)


def open_letter(
    data: bytes, wanted: type[_Letter], statement: PublicParameters, pair: KeyPair, peer: bytes
) -> _Letter:
    """Decrypt and read a letter between leader and helper.

    Raises:
        Altered: It is not the other's, or not of this kind and count. Nobody is to blame.
        ProtocolError: The other wrote what is no such letter.
    """
    kind, digest = _KINDS[wanted], statement.digest
    key = pair.agree(peer, digest, _LETTER + bytes([kind]), SEED_BYTES)
    plain = unseal(key, data, digest, kind, kind)
    if plain is None:
        raise Altered(
            f"no {wanted.__name__.lower()} of the other came: what came was altered, or is not "
            "its own"
        )
    found = decode(plain, statement)
    if not isinstance(found, wanted):
        raise ProtocolError(f"expected {wanted.__name__}, got {type(found).__name__}")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise ProtocolError("a message is too short")
        return self._data[start : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def count(self, statement: PublicParameters) -> int:
        found = self.number()
        if found > statement.plan.clients:
            raise ProtocolError(f"{found} entries for {statement.plan.clients} clients")
        return found

    def text(self) -> str:
        size = self.take(1)[0]
        try:
            found = self.take(size).decode("ascii")
        except UnicodeDecodeError as error:
            raise ProtocolError("a reason is written in ASCII") from error
        if not found.isprintable() or size > _LONGEST_REASON:
            raise ProtocolError(f"a reason has at most {_LONGEST_REASON} printable characters")
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("a message is too long")


def _read_report(reader: _Reader, statement: PublicParameters) -> Report:
    leader, helper, _ = statement.plan.codec.sizes
    return Report(
        reader.number(),
        reader.take(32),
        reader.take(leader + _TAG),
        reader.take(helper + _TAG),
        reader.take(SIGNATURE_BYTES),
    )


def _read_batch(reader: _Reader, statement: PublicParameters) -> Batch:
    _, helper, _ = statement.plan.codec.sizes
    digest = reader.take(_DIGEST)
    parts = tuple(
        Part(
            reader.number(),
            reader.take(32),
            reader.take(helper + _TAG),
            reader.take(_DIGEST),
            reader.take(SIGNATURE_BYTES),
        )
        for _ in range(reader.count(statement))
    )
    _check_order([part.client for part in parts])
    return Batch(digest, parts)


def _read_answers(reader: _Reader, statement: PublicParameters) -> Answers:
    batch = reader.take(_DIGEST)
    refused = [(reader.number(), reader.text()) for _ in range(reader.count(statement))]
    _check_order([client for client, _ in refused])
    _, _, size = statement.plan.codec.sizes
    answers = tuple(reader.take(size) for _ in range(reader.count(statement)))
    return Answers(batch, dict(refused), answers)


def _read_verdict(reader: _Reader, statement: PublicParameters) -> Verdict:
    batch = reader.take(_DIGEST)
    _, _, size = statement.plan.codec.sizes
    answers = tuple(reader.take(size) for _ in range(reader.count(statement)))
    accepted = tuple(reader.number() for _ in range(reader.count(statement)))
    _check_order(accepted)
    return Verdict(batch, answers, accepted)


def _read_confirmation(reader: _Reader, statement: PublicParameters) -> Confirmation:
    del statement
    return Confirmation(reader.take(_DIGEST))


def _check_order(clients: Sequence[ClientId]) -> None:
    if any(one >= other for one, other in pairwise(clients)):
        raise ProtocolError("clients are listed in order, each once")


def _part(part: Part) -> bytes:
    fields = (part.ephemeral, part.box, part.other, part.signature)
    return _number(part.client) + b"".join(fields)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(value: str) -> bytes:
    encoded = value.encode("ascii", "replace")[:_LONGEST_REASON]
    return bytes([len(encoded)]) + encoded


_KINDS: Mapping[type, int] = {Report: 1, Batch: 2, Answers: 3, Verdict: 4, Confirmation: 5}
_READERS: Mapping[int, Callable[[_Reader, PublicParameters], Message]] = {
    1: _read_report,
    2: _read_batch,
    3: _read_answers,
    4: _read_verdict,
    5: _read_confirmation,
}

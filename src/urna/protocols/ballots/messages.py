"""What leader and helper tell each other, and all messages as bytes: versioned and strict.

A message is `URNV`, one byte of version, one byte of kind and the fields in order. Numbers are
big-endian, lists are sorted by client and hold each client once. All lengths follow from the
statement; anything else, trailing bytes included, is refused.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

from urna.errors import Altered, ProtocolError
from urna.protocols.ballots.codec import HELPER, LEADER
from urna.protocols.ballots.report import Part, PublicParameters, Report, VouchedStatement
from urna.protocols.secagg.keys import SIGNATURE_BYTES, KeyPair, seal, unseal
from urna.protocols.secagg.messages import ClientId
from urna.protocols.wire import DIGEST, Form, MessageForm, Reader, fixed, number
from urna.randomness import SEED_BYTES

VERSION: Final = 2

_MAGIC = b"URNV"
_HEAD = len(_MAGIC) + 2
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
    form = _FORMS[type(message)]
    return _MAGIC + bytes([VERSION, form.number]) + form.write(message, None)


def decode(data: bytes, statement: PublicParameters) -> Message:
    """Read one message.

    Raises:
        ProtocolError: It is none.
    """
    if data[:4] != _MAGIC or len(data) < _HEAD:
        raise ProtocolError("this is no message of a verified count")
    if data[4] != VERSION:
        raise ProtocolError(f"messages have version {VERSION}, got {data[4]}")
    form = next((form for form in _FORMS.values() if form.number == data[5]), None)
    if form is None:
        raise ProtocolError(f"no message is of kind {data[5]}")
    body = _Body(data, statement)
    found: Message = form.read(body)
    body.end()
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

    There is one letter of a kind in a count, so a key is used once. `pair` is the sender's for this
    count, `peer` the recipient's public key.
    """
    kind, digest = _FORMS[type(message)].number, statement.digest
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
    kind, digest = _FORMS[wanted].number, statement.digest
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


class _Body(Reader):
    """The fields of a message."""

    def __init__(self, data: bytes, statement: PublicParameters) -> None:
        super().__init__(data, _HEAD)
        self.plan = statement.plan

    def text(self) -> str:
        size = self.number(1)
        try:
            found = self.take(size).decode("ascii")
        except UnicodeDecodeError as error:
            raise ProtocolError("a reason is written in ASCII") from error
        if not found.isprintable() or size > _LONGEST_REASON:
            raise ProtocolError(f"a reason has at most {_LONGEST_REASON} printable characters")
        return found


def _text(value: str) -> bytes:
    encoded = value.encode("ascii", "replace")[:_LONGEST_REASON]
    return bytes([len(encoded)]) + encoded


def _several(each: Form | MessageForm, client: Callable[[Any], ClientId] | None = None) -> Form:
    """Return a field of several things; in the order of the clients they are of, where named."""

    def write(things: Sequence[Any], public: None) -> bytes:
        return _NUMBER.write(len(things), public) + b"".join(each.write(x, public) for x in things)

    def read(body: _Body) -> tuple[Any, ...]:
        found = tuple(each.read(body) for _ in range(body.count(body.plan.clients, "entries")))
        if client is not None and any(client(a) >= client(b) for a, b in pairwise(found)):
            raise ProtocolError("clients are listed in order, each once")
        return found

    return Form(write, read)


def _share(of: int, more: int = 0) -> Form:
    """Return a field as long as a share of the leader, of the helper, or an answer."""
    return Form(lambda share, _: share, lambda body: body.take(body.plan.codec.sizes[of] + more))


_NUMBER, _SIGNATURE = number(4), fixed(SIGNATURE_BYTES)
_LEADERS, _HELPERS, _ANSWER = _share(LEADER, _TAG), _share(HELPER, _TAG), _share(2)
_PART = MessageForm.of(0, Part, _NUMBER, DIGEST, _HELPERS, DIGEST, _SIGNATURE)
_REASON = Form(
    lambda refusal, public: _NUMBER.write(refusal[0], public) + _text(refusal[1]),
    lambda body: (body.number(4), body.text()),
)
_REASONS = _several(_REASON, lambda refusal: refusal[0])
_REFUSED = Form(
    lambda refused, public: _REASONS.write(sorted(refused.items()), public),
    lambda body: dict(_REASONS.read(body)),
)
_FORMS = {
    Report: MessageForm.of(1, Report, _NUMBER, DIGEST, _LEADERS, _HELPERS, _SIGNATURE),
    Batch: MessageForm.of(2, Batch, DIGEST, _several(_PART, lambda part: part.client)),
    Answers: MessageForm.of(3, Answers, DIGEST, _REFUSED, _several(_ANSWER)),
    Verdict: MessageForm.of(4, Verdict, DIGEST, _several(_ANSWER), _several(_NUMBER, lambda c: c)),
    Confirmation: MessageForm.of(5, Confirmation, DIGEST),
}

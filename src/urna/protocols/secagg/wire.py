"""Messages as bytes: versioned, length-prefixed, strict.

A message is `URNA`, one byte of version, one byte of kind, the length of the body (4 bytes,
big-endian) and the body: the fields of `_FORMS`. Numbers are big-endian, maps are sorted by
client and hold each client once, lists of clients are bitmaps. There is one encoding for a message
and one message for an encoding: anything else, trailing bytes included, is refused. All lengths
follow from the plan and are checked before anything is allocated.

A client with an identity key sends its signature (64 bytes) behind each message but a refusal:
`keys.sign_reply`.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.secagg.evidence import PROOF_BYTES
from urna.protocols.secagg.keys import SIGNATURE_BYTES
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    ClientId,
    Complaint,
    Invitation,
    KeyBook,
    MaskedVector,
    Message,
    Parts,
    Receipt,
    Refusal,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    Void,
)
from urna.protocols.secagg.plan import Plan
from urna.protocols.secagg.shares import partial_size
from urna.protocols.wire import DIGEST, Form, MessageForm, Reader, fixed, number

VERSION: Final = 3

_MAGIC = b"URNA"
_HEAD = len(_MAGIC) + 2 + 4
_DIGEST = 32
_LONGEST_REASON = 1000


def largest_message(plan: Plan) -> int:
    """Return the length no message of a round exceeds."""
    per_peer = 4 + max(plan.bundle_bytes, 5 + _DIGEST * 3 + SIGNATURE_BYTES)
    lists = 2 * ((plan.clients + 7) // 8) + (4 + SIGNATURE_BYTES) * plan.clients
    body = 256 + per_peer * plan.neighbours + plan.vector_bytes + lists + _LONGEST_REASON
    return _HEAD + body + _DIGEST * plan.secrets


def encode(message: Message, plan: Plan) -> bytes:
    """Return the one encoding of a message."""
    form = _OF_TYPE[type(message)]
    body = form.write(message, plan)
    return _MAGIC + bytes([VERSION, form.number]) + len(body).to_bytes(4, "big") + body


def encode_each(
    messages: Mapping[ClientId, Message], plan: Plan
) -> Iterator[tuple[ClientId, bytes]]:
    """Yield each client and the encoding of its message; one message for all is packed once."""
    previous: tuple[Message, bytes] | None = None
    for client, message in messages.items():
        if previous is None or message is not previous[0]:
            previous = message, encode(message, plan)
        yield client, previous[1]


def decode(data: bytes, plan: Plan) -> Message:
    """Return the message of an encoding.

    Raises:
        ProtocolError: The bytes are not the encoding of a message of this plan.
    """
    if not _HEAD <= len(data) <= largest_message(plan):
        raise ProtocolError(
            f"a message of this plan has {_HEAD} to {largest_message(plan)} bytes, got {len(data)}"
        )
    if data[:4] != _MAGIC:
        raise ProtocolError("these bytes are not a message of a secure sum")
    if data[4] != VERSION:
        raise ProtocolError(f"message version {VERSION} is spoken here, got {data[4]}")
    form = _OF_NUMBER.get(data[5])
    if form is None:
        raise ProtocolError(f"unknown kind of message: {data[5]}")
    if int.from_bytes(data[6:_HEAD], "big") != len(data) - _HEAD:
        raise ProtocolError("the message is shorter or longer than its head says")
    body = _Body(data, plan)
    message: Message = form.read(body)
    body.end()
    return message


def kind_of(data: bytes) -> type | None:
    """Return the kind of message that bytes are said to be, which need not be true."""
    form = _OF_NUMBER.get(data[5]) if len(data) > 5 else None
    return None if form is None else form.kind


def without_signature(data: bytes) -> bytes:
    """Return a client's message alone, for who cannot check the signature behind it."""
    end = _HEAD + int.from_bytes(data[6:_HEAD], "big")
    return data[:end] if len(data) == end + SIGNATURE_BYTES else data


class _Body(Reader):
    """The body of a message."""

    def __init__(self, data: bytes, plan: Plan) -> None:
        super().__init__(data, _HEAD)
        self.plan = plan

    def client(self) -> ClientId:
        client = self.number(4)
        if client >= self.plan.clients:
            raise ProtocolError(f"clients are numbered below {self.plan.clients}, got {client}")
        return client

    def clients(self) -> frozenset[ClientId]:
        """Read a bitmap."""
        size = (self.plan.clients + 7) // 8
        bits = np.unpackbits(np.frombuffer(self.view(size), dtype=np.uint8), bitorder="little")
        found = np.flatnonzero(bits)
        if found.size and found[-1] >= self.plan.clients:
            raise ProtocolError("a list names clients beyond the plan")
        return frozenset(found.tolist())

    def parts(self, sizes: Sequence[int], most: int) -> Parts:
        """Read a map from clients to byte strings of one size, which must be allowed."""
        count = self.count(most, "clients in a map")
        size = self.number(4)
        if size not in sizes or (not count and size != sizes[0]):
            raise ProtocolError(f"parts of {size} bytes are not expected here")
        clients = np.frombuffer(self.view(4 * count), dtype=">u4").astype(np.int64)
        rows = np.frombuffer(self.view(count * size), dtype=np.uint8).reshape(count, size)
        parts = Parts(clients, rows)
        if count and clients[-1] >= self.plan.clients:
            raise ProtocolError(f"clients are numbered below {self.plan.clients}")
        return parts

    def book(self) -> tuple[Advertisement, ...]:
        count = self.count(self.plan.neighbours, "neighbours")
        entries = tuple(_ADVERTISEMENT.read(self) for _ in range(count))
        listed = [entry.client for entry in entries]
        if any(a >= b for a, b in itertools.pairwise(listed)):
            raise ProtocolError("the clients of a key book must ascend")
        return entries

    def reason(self) -> str:
        packed = self.take(self.count(_LONGEST_REASON, "bytes of reason"))
        try:
            return packed.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("the reason of a refusal is not text") from error


def _write_clients(clients: frozenset[ClientId], plan: Plan) -> bytes:
    bits = np.zeros((plan.clients + 7) // 8 * 8, dtype=np.uint8)
    bits[list(clients)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


@functools.lru_cache(maxsize=1 << 14)
def _packed(entry: Advertisement) -> bytes:
    """Return an entry of key books: it stands in as many as its sender has neighbours."""
    return _ADVERTISEMENT.write(entry, None)


def _write_book(entries: tuple[Advertisement, ...], _: Plan) -> bytes:
    return len(entries).to_bytes(4, "big") + b"".join(map(_packed, entries))


def _write_reason(text: str, _: Plan) -> bytes:
    # A cut in the middle of a character would not decode: drop what is left of it.
    reason = text.encode()[:_LONGEST_REASON].decode(errors="ignore").encode()
    return len(reason).to_bytes(4, "big") + reason


def _parts(
    sizes: Callable[[Plan], Sequence[int]], most: Callable[[Plan], int], *, checked: bool = True
) -> Form:
    """Return a field of parts: which sizes they may have, and of how many clients they are."""

    def write(parts: Parts, plan: Plan) -> bytes:
        allowed = sizes(plan)
        size = parts.size if parts else allowed[0]
        if checked and size not in allowed:
            raise ProtocolError(f"all parts must have {allowed[0]} bytes")
        head = len(parts).to_bytes(4, "big") + size.to_bytes(4, "big")
        return b"".join([head, parts.clients.astype(">u4").tobytes(), parts.rows.tobytes()])

    return Form(write, lambda body: body.parts(sizes(body.plan), most(body.plan)))


def _optional(size: int, what: str) -> Form:
    """Return a field that is there in full or not at all."""

    def read(body: _Body) -> bytes:
        length = body.number(1)
        if length not in (0, size):
            raise ProtocolError(f"a {what} has {size} bytes or is left out, got {length}")
        return body.take(length)

    return Form(lambda value, _: bytes([len(value)]) + value, read)


def _neighbours(plan: Plan) -> int:
    return plan.neighbours


_CLIENT = Form(lambda client, _: client.to_bytes(4, "big"), _Body.client)
_CLIENTS = Form(_write_clients, _Body.clients)
_SIGNED = _optional(SIGNATURE_BYTES, "signature")
_BUNDLES = _parts(lambda plan: (plan.bundle_bytes,), _neighbours)
_SIGNATURES = _parts(lambda _: (SIGNATURE_BYTES,), lambda plan: plan.clients)
_SHARES = _parts(
    lambda plan: [partial_size(count, plan.secrets) for count in range(1, plan.secrets)],
    _neighbours,
    checked=False,  # by who reads it: what a client shows is its own affair
)
_ONE_SHARE = _parts(lambda plan: (partial_size(1, plan.secrets),), _neighbours, checked=False)
_COMMITMENTS = Form(
    lambda listed, _: b"".join(listed),
    lambda body: tuple(body.take(_DIGEST) for _ in range(body.plan.secrets - 1)),
)
_VECTOR = Form(lambda words, _: words, lambda body: body.take(body.plan.vector_bytes))
_ADVERTISEMENT = MessageForm.of(2, Advertisement, DIGEST, _CLIENT, DIGEST, DIGEST, _SIGNED)
_FORMS = (
    MessageForm.of(1, Invitation, number(8), DIGEST, DIGEST),
    _ADVERTISEMENT,
    MessageForm.of(3, KeyBook, DIGEST, Form(_write_book, _Body.book)),
    MessageForm.of(4, SealedShares, DIGEST, _CLIENT, _COMMITMENTS, _BUNDLES),
    MessageForm.of(5, ShareBox, DIGEST, _BUNDLES),
    MessageForm.of(6, MaskedVector, DIGEST, _CLIENT, DIGEST, _VECTOR),
    MessageForm.of(7, AgreeRequest, DIGEST, _CLIENTS, _CLIENTS),
    MessageForm.of(8, Agreement, DIGEST, _CLIENT, fixed(SIGNATURE_BYTES)),
    MessageForm.of(9, UnmaskRequest, DIGEST, _CLIENTS, _CLIENTS, _SIGNATURES),
    MessageForm.of(10, UnmaskReply, DIGEST, _CLIENT, _SHARES, _ONE_SHARE),
    MessageForm.of(11, Refusal, _CLIENT, Form(_write_reason, _Body.reason)),
    MessageForm.of(12, Complaint, DIGEST, _CLIENT, _CLIENT, _optional(PROOF_BYTES, "proof")),
    MessageForm.of(13, Void, DIGEST),
    MessageForm.of(14, Receipt, DIGEST, _CLIENT, _SIGNED),
)
_OF_TYPE = {form.kind: form for form in _FORMS}
_OF_NUMBER = {form.number: form for form in _FORMS}

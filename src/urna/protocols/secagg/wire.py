"""Messages as bytes: versioned, length-prefixed, strict.

A message is `URNA`, one byte of version, one byte of kind, the length of the body (4 bytes,
big-endian) and the body. Numbers are big-endian, maps are sorted by client and hold each client
once, lists of clients are bitmaps. There is one encoding for a message and one message for an
encoding: anything else, trailing bytes included, is refused. All lengths follow from the plan
and are checked before anything is allocated.

A client with an identity key sends its signature (64 bytes) behind each message but a refusal:
`keys.sign_reply`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from urna.errors import ProtocolError
from urna.protocols.secagg.bundles import partial_size
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
    Receipt,
    Refusal,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    Void,
)
from urna.protocols.secagg.parts import Parts
from urna.protocols.secagg.plan import Plan
from urna.randomness import SEED_BYTES

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
    kind = _KINDS[type(message)]
    return _with_head(kind, _WRITERS[kind](message, plan))


def encode_each(
    messages: Mapping[ClientId, Message], plan: Plan
) -> Iterator[tuple[ClientId, bytes]]:
    """Yield each client and the encoding of its message, for a server's whole stage.

    What many messages share is packed once: one message for all, or an advertisement, which
    stands in as many key books as its sender has neighbours.
    """
    # By identity: `messages` keeps what is shared alive while this runs.
    entries: dict[int, bytes] = {}
    previous: tuple[Message, bytes] | None = None
    for client, message in messages.items():
        if previous is None or message is not previous[0]:
            if isinstance(message, KeyBook):
                data = _with_head(_KINDS[KeyBook], _pack_key_book(message, entries, plan))
            else:
                data = encode(message, plan)
            previous = message, data
        yield client, previous[1]


def _with_head(kind: int, body: bytes) -> bytes:
    return _MAGIC + bytes([VERSION, kind]) + len(body).to_bytes(4, "big") + body


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
    reader = _READERS.get(data[5])
    if reader is None:
        raise ProtocolError(f"unknown kind of message: {data[5]}")
    if int.from_bytes(data[6:_HEAD], "big") != len(data) - _HEAD:
        raise ProtocolError("the message is shorter or longer than its head says")
    body = _Body(data, plan)
    message = reader(body)
    body.end()
    return message


def kind_of(data: bytes) -> type | None:
    """Return the kind of message that bytes are said to be, which need not be true."""
    return _TYPES.get(data[5]) if len(data) > 5 else None


def without_signature(data: bytes) -> bytes:
    """Return a client's message alone, for who cannot check the signature behind it."""
    end = _HEAD + int.from_bytes(data[6:_HEAD], "big")
    return data[:end] if len(data) == end + SIGNATURE_BYTES else data


class _Body:
    """Reads a body from front to back; every length is checked before it is used."""

    def __init__(self, data: bytes, plan: Plan) -> None:
        self.plan = plan
        self._data, self._at = data, _HEAD

    def take(self, count: int) -> bytes:
        start = self._pass(count)
        return self._data[start : self._at]

    def rows(self, count: int, size: int) -> npt.NDArray[np.uint8]:
        """Read byte strings of one size where they lie: a copy would be most of the work."""
        start = self._pass(count * size)
        found = np.frombuffer(memoryview(self._data)[start : self._at], dtype=np.uint8)
        return found.reshape(count, size)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def client(self) -> ClientId:
        client = self.number(4)
        if client >= self.plan.clients:
            raise ProtocolError(f"clients are numbered below {self.plan.clients}, got {client}")
        return client

    def count(self, most: int, what: str) -> int:
        count = self.number(4)
        if count > most:
            raise ProtocolError(f"at most {most} {what} are expected, got {count}")
        return count

    def clients(self) -> frozenset[ClientId]:
        """Read a bitmap."""
        size = (self.plan.clients + 7) // 8
        bits = np.unpackbits(np.frombuffer(self.take(size), dtype=np.uint8), bitorder="little")
        found = np.flatnonzero(bits)
        if found.size and found[-1] >= self.plan.clients:
            raise ProtocolError("a list names clients beyond the plan")
        return frozenset(found.tolist())

    def parts(self, sizes: tuple[int, ...], most: int) -> Parts:
        """Read a map from clients to byte strings of one size, which must be allowed."""
        count = self.count(most, "clients in a map")
        size = self.number(4)
        if size not in sizes or (not count and size != sizes[0]):
            raise ProtocolError(f"parts of {size} bytes are not expected here")
        clients = np.frombuffer(self.take(4 * count), dtype=">u4").astype(np.int64)
        parts = Parts(clients, self.rows(count, size))
        if count and clients[-1] >= self.plan.clients:
            raise ProtocolError(f"clients are numbered below {self.plan.clients}")
        return parts

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError("the message has trailing bytes")

    def _pass(self, count: int) -> int:
        """Move on by some bytes; return where they begin."""
        start = self._at
        if count > len(self._data) - start:
            raise ProtocolError("the message ends too early")
        self._at += count
        return start


def _write_clients(clients: frozenset[ClientId], plan: Plan) -> bytes:
    bits = np.zeros((plan.clients + 7) // 8 * 8, dtype=np.uint8)
    bits[list(clients)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _write_parts(parts: Parts, size: int) -> bytes:
    if len(parts) and parts.size != size:
        raise ProtocolError(f"all parts must have {size} bytes")
    head = len(parts).to_bytes(4, "big") + size.to_bytes(4, "big")
    return b"".join([head, parts.clients.astype(">u4").tobytes(), parts.rows.tobytes()])


def _write_invitation(message: Invitation, _: Plan) -> bytes:
    return message.number.to_bytes(8, "big") + message.coin + message.plan_digest


def _read_invitation(body: _Body) -> Invitation:
    return Invitation(body.number(8), body.take(SEED_BYTES), body.take(_DIGEST))


def _write_advertisement(message: Advertisement, _: Plan) -> bytes:
    return b"".join(
        [
            message.round_id,
            message.client.to_bytes(4, "big"),
            message.channel_key,
            message.mask_key,
            bytes([len(message.signature)]),
            message.signature,
        ]
    )


def _read_advertisement(body: _Body) -> Advertisement:
    # One piece for the four fixed fields: key books hold many of these.
    fixed = body.take(2 * SEED_BYTES + _DIGEST + 4)
    client = int.from_bytes(fixed[_DIGEST : _DIGEST + 4], "big")
    if client >= body.plan.clients:
        raise ProtocolError(f"clients are numbered below {body.plan.clients}, got {client}")
    keys = fixed[_DIGEST + 4 :]
    signature = body.take(_signature_length(body))
    return Advertisement(fixed[:_DIGEST], client, keys[:SEED_BYTES], keys[SEED_BYTES:], signature)


def _write_key_book(message: KeyBook, plan: Plan) -> bytes:
    return _pack_key_book(message, {}, plan)


def _pack_key_book(message: KeyBook, packed: dict[int, bytes], plan: Plan) -> bytes:
    """Return the body; `packed` keeps the entries' bodies by identity from book to book."""
    listed = message.advertisements
    for entry in listed:
        if id(entry) not in packed:
            packed[id(entry)] = _write_advertisement(entry, plan)
    entries = b"".join([packed[id(entry)] for entry in listed])
    return message.round_id + len(listed).to_bytes(4, "big") + entries


def _read_key_book(body: _Body) -> KeyBook:
    round_id = body.take(_DIGEST)
    count = body.count(body.plan.neighbours, "neighbours")
    entries = tuple(_read_advertisement(body) for _ in range(count))
    listed = [entry.client for entry in entries]
    if any(a >= b for a, b in itertools.pairwise(listed)):
        raise ProtocolError("the clients of a key book must ascend")
    return KeyBook(round_id, entries)


def _write_sealed_shares(message: SealedShares, plan: Plan) -> bytes:
    return b"".join(
        [
            message.round_id,
            message.client.to_bytes(4, "big"),
            *message.commitments,
            _write_parts(message.bundles, plan.bundle_bytes),
        ]
    )


def _read_sealed_shares(body: _Body) -> SealedShares:
    plan = body.plan
    round_id, client = body.take(_DIGEST), body.client()
    commitments = tuple(body.take(_DIGEST) for _ in range(plan.secrets - 1))
    bundles = body.parts((plan.bundle_bytes,), plan.neighbours)
    return SealedShares(round_id, client, commitments, bundles)


def _write_share_box(message: ShareBox, plan: Plan) -> bytes:
    return message.round_id + _write_parts(message.bundles, plan.bundle_bytes)


def _read_share_box(body: _Body) -> ShareBox:
    return ShareBox(body.take(_DIGEST), body.parts((body.plan.bundle_bytes,), body.plan.neighbours))


def _write_masked_vector(message: MaskedVector, _: Plan) -> bytes:
    client = message.client.to_bytes(4, "big")
    return message.round_id + client + message.peers_digest + message.words


def _read_masked_vector(body: _Body) -> MaskedVector:
    start = body.take(_DIGEST), body.client(), body.take(_DIGEST)
    return MaskedVector(*start, body.take(body.plan.vector_bytes))


def _write_agree_request(message: AgreeRequest, plan: Plan) -> bytes:
    lists = _write_clients(message.survivors, plan) + _write_clients(message.dropped, plan)
    return message.round_id + lists


def _read_agree_request(body: _Body) -> AgreeRequest:
    return AgreeRequest(body.take(_DIGEST), body.clients(), body.clients())


def _write_agreement(message: Agreement, _: Plan) -> bytes:
    return message.round_id + message.client.to_bytes(4, "big") + message.signature


def _read_agreement(body: _Body) -> Agreement:
    return Agreement(body.take(_DIGEST), body.client(), body.take(SIGNATURE_BYTES))


def _write_unmask_request(message: UnmaskRequest, plan: Plan) -> bytes:
    lists = _write_clients(message.survivors, plan) + _write_clients(message.dropped, plan)
    return message.round_id + lists + _write_parts(message.signatures, SIGNATURE_BYTES)


def _read_unmask_request(body: _Body) -> UnmaskRequest:
    return UnmaskRequest(
        body.take(_DIGEST),
        body.clients(),
        body.clients(),
        body.parts((SIGNATURE_BYTES,), body.plan.clients),
    )


def _write_unmask_reply(message: UnmaskReply, plan: Plan) -> bytes:
    least = partial_size(1, plan.secrets)
    sizes = [parts.size if parts else least for parts in (message.survivors, message.dropped)]
    return b"".join(
        [
            message.round_id,
            message.client.to_bytes(4, "big"),
            _write_parts(message.survivors, sizes[0]),
            _write_parts(message.dropped, sizes[1]),
        ]
    )


def _read_unmask_reply(body: _Body) -> UnmaskReply:
    plan = body.plan
    sizes = tuple(partial_size(count, plan.secrets) for count in range(1, plan.secrets))
    return UnmaskReply(
        body.take(_DIGEST),
        body.client(),
        body.parts(sizes, plan.neighbours),
        body.parts(sizes[:1], plan.neighbours),
    )


def _write_complaint(message: Complaint, _: Plan) -> bytes:
    ends = message.client.to_bytes(4, "big") + message.against.to_bytes(4, "big")
    return message.round_id + ends + bytes([len(message.proof)]) + message.proof


def _read_complaint(body: _Body) -> Complaint:
    round_id, client, against = body.take(_DIGEST), body.client(), body.client()
    length = body.number(1)
    if length not in (0, PROOF_BYTES):
        raise ProtocolError(f"a proof has {PROOF_BYTES} bytes or is left out, got {length}")
    return Complaint(round_id, client, against, body.take(length))


def _write_void(message: Void, _: Plan) -> bytes:
    return message.round_id


def _read_void(body: _Body) -> Void:
    return Void(body.take(_DIGEST))


def _write_receipt(message: Receipt, _: Plan) -> bytes:
    head = message.round_id + message.client.to_bytes(4, "big")
    return head + bytes([len(message.signature)]) + message.signature


def _read_receipt(body: _Body) -> Receipt:
    round_id, client = body.take(_DIGEST), body.client()
    return Receipt(round_id, client, body.take(_signature_length(body)))


def _signature_length(body: _Body) -> int:
    length = body.number(1)
    if length not in (0, SIGNATURE_BYTES):
        raise ProtocolError(f"a signature has {SIGNATURE_BYTES} bytes or is left out, got {length}")
    return length


def _write_refusal(message: Refusal, _: Plan) -> bytes:
    reason = message.reason.encode()[:_LONGEST_REASON]
    # A cut in the middle of a character would not decode: drop what is left of it.
    reason = reason.decode(errors="ignore").encode()
    return message.client.to_bytes(4, "big") + len(reason).to_bytes(4, "big") + reason


def _read_refusal(body: _Body) -> Refusal:
    client = body.client()
    packed = body.take(body.count(_LONGEST_REASON, "bytes of reason"))
    try:
        return Refusal(client, packed.decode())
    except UnicodeDecodeError as error:
        raise ProtocolError("the reason of a refusal is not text") from error


_KINDS: dict[type, int] = {
    Invitation: 1,
    Advertisement: 2,
    KeyBook: 3,
    SealedShares: 4,
    ShareBox: 5,
    MaskedVector: 6,
    AgreeRequest: 7,
    Agreement: 8,
    UnmaskRequest: 9,
    UnmaskReply: 10,
    Refusal: 11,
    Complaint: 12,
    Void: 13,
    Receipt: 14,
}
_TYPES = {number: kind for kind, number in _KINDS.items()}
_WRITERS: dict[int, Callable[..., bytes]] = {
    1: _write_invitation,
    2: _write_advertisement,
    3: _write_key_book,
    4: _write_sealed_shares,
    5: _write_share_box,
    6: _write_masked_vector,
    7: _write_agree_request,
    8: _write_agreement,
    9: _write_unmask_request,
    10: _write_unmask_reply,
    11: _write_refusal,
    12: _write_complaint,
    13: _write_void,
    14: _write_receipt,
}
_READERS: dict[int, Callable[[_Body], Message]] = {
    1: _read_invitation,
    2: _read_advertisement,
    3: _read_key_book,
    4: _read_sealed_shares,
    5: _read_share_box,
    6: _read_masked_vector,
    7: _read_agree_request,
    8: _read_agreement,
    9: _read_unmask_request,
    10: _read_unmask_reply,
    11: _read_refusal,
    12: _read_complaint,
    13: _read_void,
    14: _read_receipt,
}

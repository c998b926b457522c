"""Messages between leader and helper as bytes: versioned, of known length, strict.

A message is `URNH`, one byte of version, one byte of stage, the session (32 bytes), the digest of
the message before it (32 bytes), the parts of its stage one after the other, and an HMAC of all of
this. How long each part is follows from the circuit and is checked before anything is read. There
is one encoding for a message: anything else is refused, and so is a message of another session,
of another stage, or one that answers another message than the last.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from urna.errors import Altered, ProtocolError
from urna.protocols.winner.circuit import Circuit
from urna.protocols.winner.garble import LABEL_BYTES, TABLE_BYTES
from urna.protocols.winner.transfer import CHECK_ROWS, COLUMNS, POINT_BYTES, columns_bytes
from urna.randomness import SEED_BYTES

VERSION: Final = 2

_MAGIC = b"URNH"
_DIGEST = 32
_HEAD = len(_MAGIC) + 2 + 2 * _DIGEST


class CircuitStage(IntEnum):
    """The messages, in their order."""

    OFFER = 1
    """Leader: a point."""
    ANSWER = 2
    """Helper: a point for a common key, and one for each base transfer."""
    TRANSFER = 3
    """Leader: the columns of the extension, and their check."""
    GARBLED = 4
    """Helper: the seed of its labels, the tables, and digests of the outputs' labels."""
    OPENING = 5
    """Leader: the label of each output."""


def session_of(circuit: Circuit, context: bytes) -> bytes:
    """Return the id of the one session of this circuit in this context."""
    return hashlib.sha256(b"urna hidden session 2\0" + circuit.digest + context).digest()


def _sizes(stage: CircuitStage, circuit: Circuit) -> tuple[int, ...]:
    match stage:
        case CircuitStage.OFFER:
            return (POINT_BYTES,)
        case CircuitStage.ANSWER:
            return POINT_BYTES, COLUMNS * POINT_BYTES
        case CircuitStage.TRANSFER:
            bits = circuit.share_bits + circuit.coin_bits
            return COLUMNS * columns_bytes(bits), CHECK_ROWS // 8 + CHECK_ROWS * LABEL_BYTES
        case CircuitStage.GARBLED:
            return SEED_BYTES, circuit.ands * TABLE_BYTES, circuit.outputs * 2 * LABEL_BYTES
        case CircuitStage.OPENING:
            return (circuit.outputs * LABEL_BYTES,)


def message_bytes(stage: CircuitStage, circuit: Circuit) -> int:
    """Return how long a stage's message is."""
    return _HEAD + sum(_sizes(stage, circuit)) + _DIGEST


def digest_of(message: bytes) -> bytes:
    """Return what the next message names this one by."""
    return hashlib.sha256(b"urna hidden message\0" + message).digest()


def encode(
    stage: CircuitStage,
    circuit: Circuit,
    session: bytes,
    previous: bytes,
    key: bytes,
    *parts: bytes,
) -> bytes:
    """Return the encoding of a message that answers the `previous` one, if there is one.

    `key` is what only the two of them know; nothing, for the first message.
    """
    if tuple(map(len, parts)) != _sizes(stage, circuit):
        raise ProtocolError(f"the parts of {stage.name} do not have the lengths of this circuit")
    head = _MAGIC + bytes([VERSION, stage]) + session + digest_of(previous)
    text = b"".join([head, *parts])
    return text + _tag(key, text)


def decode(
    data: bytes, stage: CircuitStage, circuit: Circuit, session: bytes, previous: bytes
) -> list[bytes]:
    """Return a message's parts; `authenticate` it as soon as there is a key.

    Raises:
        ProtocolError: These bytes are not the encoding of this stage's message in this session.
    """
    expected = message_bytes(stage, circuit)
    if len(data) != expected:
        raise ProtocolError(f"{stage.name} has {expected} bytes in this circuit, got {len(data)}")
    if data[:4] != _MAGIC:
        raise ProtocolError("these bytes are not a message of a private selection")
    if data[4] != VERSION:
        raise ProtocolError(f"message version {VERSION} is spoken here, got {data[4]}")
    if data[5] != stage:
        raise ProtocolError(f"stage {stage} ({stage.name}) is expected, got {data[5]}")
    if data[6 : 6 + _DIGEST] != session:
        raise ProtocolError("the message belongs to another session")
    if data[6 + _DIGEST : _HEAD] != digest_of(previous):
        raise ProtocolError("the message answers another one than the last")
    parts, start = [], _HEAD
    for size in _sizes(stage, circuit):
        parts.append(data[start : start + size])
        start += size
    return parts


@dataclass(frozen=True, slots=True)
class Turn:
    """What a party knows between two messages: the session, and what it sent last."""

    circuit: Circuit
    session: bytes
    sent: bytes = field(repr=False)

    def write(self, stage: CircuitStage, previous: bytes, key: bytes, *parts: bytes) -> bytes:
        """Return the answer to the message before."""
        return encode(stage, self.circuit, self.session, previous, key, *parts)

    def read(self, stage: CircuitStage, data: bytes, key: bytes) -> list[bytes]:
        """Return the parts of the answer to what was sent.

        Raises:
            Altered: It is not what the other wrote.
            ProtocolError: It is not the encoding of this stage's message.
        """
        authenticate(data, key)
        return decode(data, stage, self.circuit, self.session, self.sent)


def authenticate(data: bytes, key: bytes) -> None:
    """Refuse a message that was not made with this key.

    Raises:
        Altered: It was altered on the way, or made by somebody else.
    """
    if not hmac.compare_digest(data[-_DIGEST:], _tag(key, data[:-_DIGEST])):
        raise Altered("the message was altered on its way")


def _tag(key: bytes, text: bytes) -> bytes:
    return hmac.digest(b"urna hidden tag\0" + key, text, "sha256")

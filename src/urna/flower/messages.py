"""The records that travel: one letter per stage and node, one reply. Translates, no more."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.metadata import Metadata

from urna.errors import ProtocolError

ACTION = "urna"
"""Messages of private sums have the type `query.urna`."""

_RECORD = "urna"
_LONGEST_REASON = 500


class Kind(StrEnum):
    """What a letter is about."""

    ANNOUNCE = "announce"
    """Would you take part?"""
    BEGIN = "begin"
    """A round begins: compute what you put in, and answer the invitation."""
    STAGE = "stage"
    """The protocol's next message."""
    HELP = "help"
    """To a helper, last of all: garble what finds the winner, or give a count up."""
    END = "end"
    """The round is over, and this is how; forget what you hold of it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """Server to node."""

    kind: Kind
    body: bytes = b""
    """The protocol's bytes, or the transcript at the end."""
    announcement: bytes = b""
    signature: bytes = b""
    """The server's, over the announcement, where it has a key."""
    client: int = -1
    """The node's number among those who take part."""
    number: int = -1
    """The round's number in its series, from one."""
    inputs: bytes = field(default=b"", repr=False)
    """What the round starts from, such as a model; the round's coin is bound to it."""
    resumes: bool = False
    """Whether a server that was killed may ask for the same again: the node then keeps its
    latest answer until the round ends."""
    beside: bytes = field(default=b"", repr=False)
    """What travels with the protocol's bytes: a leader's part in finding the winner."""

    def as_records(self) -> RecordDict:
        """Return the letter as Flower carries it."""
        return _written(self, always=("kind",))

    @classmethod
    def read(cls, records: RecordDict) -> Self:
        """Read a letter."""
        values = _values(records)
        try:
            kind = Kind(values.get("kind", ""))
        except ValueError as error:
            raise ProtocolError("this node does not know this kind of letter") from error
        return cls(**_plain(cls, values) | {"kind": kind})

    @property
    def digest(self) -> bytes:
        """A digest of what is asked: the same for a letter that comes again."""
        hashed = hashlib.sha256(f"{self.kind} {self.client} {self.number}".encode())
        for part in (self.body, self.announcement, self.inputs, self.beside):
            hashed.update(len(part).to_bytes(8, "big") + part)
        return hashed.digest()


@dataclass(frozen=True, slots=True)
class Reply:
    """Node to server: it would take part, or the protocol's bytes, or why not."""

    body: bytes = field(default=b"", repr=False)
    refused: str = ""
    name: str = ""
    proof: bytes = b""
    """The node's signature at the gathering, where it has an identity key."""
    private: bool = True
    """Whether the node's randomness is secret: not so in scripted tests."""
    keeps: bool = False
    """Whether the node keeps transcripts, and so asks for one."""
    beside: bytes = field(default=b"", repr=False)
    """What travels with the protocol's answer: a helper's answer to an offer."""
    trace: str = field(default="", repr=False)
    """What the node's own code raised: of a simulated node, and of no other."""

    @classmethod
    def refusal(cls, reason: str, trace: str = "") -> Self:
        """Return the answer of a node that does not take part."""
        return cls(refused=reason[:_LONGEST_REASON] or "no reason given", trace=trace)

    def as_records(self) -> RecordDict:
        """Return the reply as Flower carries it."""
        return _written(self, always=("private", "keeps"))

    @classmethod
    def read(cls, records: RecordDict) -> Self:
        """Read a reply."""
        values = _values(records)
        # Who says nothing of it has no secret randomness.
        return cls(**{"private": False} | _plain(cls, values))


def message_of(
    content: RecordDict,
    kind: str,
    *,
    to: int = 1,
    run: int = 0,
    group: str = "",
    ttl: float = 3600.0,
) -> Message:
    """Return a message as people's own functions and strategies get it, which nobody sent."""
    metadata = Metadata(
        run_id=run,
        message_id="",
        src_node_id=1,
        dst_node_id=to,
        reply_to_message_id="",
        group_id=group,
        created_at=time.time(),
        ttl=ttl,
        message_type=kind,
    )
    return Message(content=content, metadata=metadata)  # type: ignore[call-overload,no-any-return]


def _values(records: RecordDict) -> Mapping[str, Any]:
    if _RECORD not in records or not isinstance(records[_RECORD], ConfigRecord):
        raise ProtocolError("the message holds no record of Urna's")
    return cast(Mapping[str, Any], records[_RECORD])


def _written(message: Letter | Reply, always: tuple[str, ...]) -> RecordDict:
    """Return a message's fields as one record; those that say nothing are left out."""
    values = {}
    for one in fields(message):
        value = getattr(message, one.name)
        if one.name in always or value != one.default:
            values[one.name] = str(value) if isinstance(value, Kind) else value
    return RecordDict({_RECORD: ConfigRecord(values)})


def _plain(kind: type[Letter | Reply], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are of their own type; what is of another says nothing."""
    found = {}
    for one in fields(kind):
        value = values.get(one.name)
        if type(value) is type(one.default):
            long = isinstance(value, str) and one.name != "trace"
            found[one.name] = _shown(str(value)) if long else value
    return found


def _shown(text: str) -> str:
    """Return what a node wrote as it may stand in a log."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST_REASON])

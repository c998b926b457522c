"""The records that travel: one letter per stage and node, one reply. Translates, no more."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.metadata import Metadata

from urna.errors import ProtocolError

__all__ = ["ACTION", "Kind", "Letter", "Reply", "message_of"]

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
        values: dict[str, Any] = {"kind": str(self.kind)}
        for name in ("body", "announcement", "signature", "inputs", "beside"):
            if value := getattr(self, name):
                values[name] = value
        for name in ("client", "number"):
            if (place := getattr(self, name)) >= 0:
                values[name] = place
        if self.resumes:
            values["resumes"] = True
        return RecordDict({_RECORD: ConfigRecord(values)})

    @classmethod
    def read(cls, records: RecordDict) -> Self:
        """Read a letter.

        Raises:
            ProtocolError: It is none.
        """
        values = _values(records)
        try:
            kind = Kind(values.get("kind", ""))
        except ValueError as error:
            raise ProtocolError("this node does not know this kind of letter") from error
        return cls(
            kind,
            _bytes(values, "body"),
            _bytes(values, "announcement"),
            _bytes(values, "signature"),
            _number(values, "client"),
            _number(values, "number"),
            _bytes(values, "inputs"),
            values.get("resumes") is True,
            _bytes(values, "beside"),
        )

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
    def ready(cls, name: str, proof: bytes, *, private: bool, keeps: bool) -> Self:
        """Return the answer of a node that would take part."""
        return cls(name=name, proof=proof, private=private, keeps=keeps)

    @classmethod
    def done(cls) -> Self:
        """Return the answer of a node that was told how a round ended."""
        return cls()

    @classmethod
    def letter(cls, body: bytes) -> Self:
        """Return the protocol's answer."""
        return cls(body=body)

    @classmethod
    def refusal(cls, reason: str, trace: str = "") -> Self:
        """Return the answer of a node that does not take part."""
        return cls(refused=reason[:_LONGEST_REASON] or "no reason given", trace=trace)

    def as_records(self) -> RecordDict:
        """Return the reply as Flower carries it."""
        values: dict[str, Any] = {"private": self.private, "keeps": self.keeps}
        for name in ("body", "refused", "name", "proof", "beside", "trace"):
            if value := getattr(self, name):
                values[name] = value
        return RecordDict({_RECORD: ConfigRecord(values)})

    @classmethod
    def read(cls, records: RecordDict) -> Self:
        """Read a reply.

        Raises:
            ProtocolError: It is none.
        """
        values = _values(records)
        return cls(
            _bytes(values, "body"),
            _text(values, "refused"),
            _text(values, "name"),
            _bytes(values, "proof"),
            values.get("private") is True,
            values.get("keeps") is True,
            _bytes(values, "beside"),
            str(values.get("trace", "")),
        )


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


def _bytes(values: Mapping[str, Any], name: str) -> bytes:
    value = values.get(name, b"")
    return value if isinstance(value, bytes) else b""


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, "")
    short = value[:_LONGEST_REASON] if isinstance(value, str) else ""
    return "".join(sign if sign.isprintable() else "?" for sign in short)


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name, -1)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1

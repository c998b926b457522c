"""What a node keeps between two messages, in the state Flower keeps for a series of runs.

The state lives in the memory of the node's own SuperNode. It holds secrets: the contribution
until it is sent, the round's keys and shares, and in a series that a killed server may take up
again the latest answer. It is wiped when the round ends or is refused, and what is older than a
day is not used any more; a node that restarts has lost it and answers no more.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context

from urna.errors import ProtocolError
from urna.noise import IntVector

__all__ = ["Memory", "answered", "forget", "keep", "recall"]

_PLACE = "urna"
_OLDEST = 86_400.0  # seconds


@dataclass(frozen=True, slots=True)
class Memory:
    """One round's state, without what the node's own files say."""

    announcement: bytes
    client: int
    number: int
    """The round's number in its series."""
    inputs_digest: bytes
    vector: IntVector | None = field(repr=False)
    """The contribution in grid steps, until it is sent."""
    taken: int
    """Bytes already taken from a scripted source."""
    state: bytes = field(repr=False)
    """The protocol's state, frozen (`secagg.freeze`); empty when its last stage was answered."""
    resumes: bool = False
    """Whether the server may ask for the latest answer again."""
    asked: bytes = b""
    """Digest of the letter that was answered last, where it may come again."""
    answer: bytes = field(default=b"", repr=False)
    """The answer to it: the same bytes for the same letter tell nothing new."""


def keep(context: Context, memory: Memory) -> None:
    """Put a round's state into the node's context."""
    vector = b"" if memory.vector is None else memory.vector.astype("<i8").tobytes()
    context.state[_PLACE] = ConfigRecord(
        {
            "announcement": memory.announcement,
            "client": memory.client,
            "number": memory.number,
            "inputs_digest": memory.inputs_digest,
            "vector": vector,
            "sent": memory.vector is None,
            "taken": memory.taken,
            "state": memory.state,
            "resumes": memory.resumes,
            "asked": memory.asked,
            "answer": memory.answer,
            "since": time.time(),
        }
    )


def recall(context: Context) -> Memory:
    """Return the round's state.

    Raises:
        ProtocolError: There is none: the node was restarted, or the round is over.
    """
    if _PLACE not in context.state:
        raise ProtocolError("this node holds no state of a round: it was restarted, or it is done")
    record = cast(Mapping[str, Any], context.state[_PLACE])
    if time.time() - record["since"] > _OLDEST:
        forget(context)
        raise ProtocolError("what this node held of a round is too old")
    vector = None if record["sent"] else np.frombuffer(record["vector"], "<i8").astype(np.int64)
    return Memory(
        record["announcement"],
        record["client"],
        record["number"],
        record["inputs_digest"],
        vector,
        record["taken"],
        record["state"],
        record["resumes"],
        record["asked"],
        record["answer"],
    )


def answered(context: Context, asked: bytes) -> bytes:
    """Return the answer to a letter that was the last one answered; empty for any other."""
    if _PLACE not in context.state:
        return b""
    memory = recall(context)
    return memory.answer if memory.asked == asked else b""


def forget(context: Context) -> None:
    """Wipe the round's state."""
    if _PLACE in context.state:
        del context.state[_PLACE]

"""What a node keeps between two messages, in the state Flower keeps for a series of runs.

The state lives in the memory of the node's own SuperNode. It holds secrets: the contribution
until it is sent, the round's keys and shares, and in a series that a killed server may take up
again the latest answer. It is wiped when the round ends or is refused, and what is older than a
day is not used any more; a node that restarts has lost it and answers no more.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context

from urna.errors import ProtocolError
from urna.flower.accounts import LARGEST_SKEW
from urna.noise import IntVector

__all__ = ["Memory", "answered", "forget", "keep", "recall", "store", "stored"]

_PLACE = "urna"


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


def store(context: Context, place: str, values: Mapping[str, Any]) -> None:
    """Put a round's state into the node's context; since when is said by who stores it again."""
    context.state[place] = ConfigRecord({"since": time.time(), **values})


def stored(context: Context, place: str) -> dict[str, Any]:
    """Return what `store` put there.

    It is forgotten long before the claims of its answers are: no answer is given twice.
    """
    if place not in context.state:
        raise ProtocolError("this node holds no state of a round: it was restarted, or it is done")
    values = dict(cast(Mapping[str, Any], context.state[place]))
    if time.time() - values["since"] > LARGEST_SKEW:
        forget(context, place)
        raise ProtocolError("what this node held of a round is too old")
    return values


def forget(context: Context, place: str = _PLACE) -> None:
    """Wipe the round's state."""
    if place in context.state:
        del context.state[place]


def keep(context: Context, memory: Memory) -> None:
    """Put the state of a round of private sums into the node's context."""
    values = {one.name: getattr(memory, one.name) for one in fields(memory)}
    vector = b"" if memory.vector is None else memory.vector.astype("<i8").tobytes()
    store(context, _PLACE, values | {"vector": vector, "sent": memory.vector is None})


def recall(context: Context) -> Memory:
    """Return the state of a round of private sums."""
    values = stored(context, _PLACE)
    del values["since"]
    vector, sent = values.pop("vector"), values.pop("sent")
    numbers = None if sent else np.frombuffer(vector, "<i8").astype(np.int64)
    return Memory(vector=numbers, **values)


def answered(context: Context, asked: bytes) -> bytes:
    """Return the answer to a letter that was the last one answered; empty for any other."""
    if _PLACE not in context.state:
        return b""
    memory = recall(context)
    return memory.answer if memory.asked == asked else b""

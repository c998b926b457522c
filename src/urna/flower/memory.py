"""What a node keeps between two stages, in the state Flower keeps for a series of runs.

The state lives in the memory of the node's own SuperNode. It is written as plain values, one
record, and holds secrets: the ballot until it is sent, the round's keys and shares. It is wiped
when the round ends or is refused; a node that restarts has lost it and answers no more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context

from urna.errors import ProtocolError
from urna.noise import IntVector
from urna.randomness import SEED_BYTES
from urna.secagg import ClientState, Member
from urna.secagg.client import Advertised, Agreed, Finished, Masked, Shared
from urna.secagg.keys import KeyPair
from urna.secagg.parts import Parts

__all__ = ["Memory", "forget", "keep", "recall"]

_PLACE = "urna"

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """One round's state, without what the node's own files say."""

    announcement: bytes
    client: int
    latest_round: int
    ballot: IntVector | None = field(repr=False)
    """The encoded ballot, until it is sent."""
    taken: int
    """Bytes already taken from a scripted source."""
    state: Values = field(repr=False)

    @classmethod
    def of(
        cls,
        announcement: bytes,
        member: Member,
        ballot: IntVector,
        taken: int,
        state: ClientState,
    ) -> "Memory":
        """Return what to keep; of a state that has sent its vector, no ballot."""
        sent = isinstance(state, Masked | Agreed)
        return cls(
            announcement,
            member.client,
            member.latest_round,
            None if sent else ballot,
            taken,
            _written(state),
        )

    def client_state(self, member: Member) -> ClientState:
        """Return where the session stood."""
        return _read(self.state, member)


def keep(context: Context, memory: Memory) -> None:
    """Put a round's state into the node's context."""
    ballot = b"" if memory.ballot is None else memory.ballot.astype("<i8").tobytes()
    context.state[_PLACE] = ConfigRecord(
        {
            "announcement": memory.announcement,
            "client": memory.client,
            "latest_round": memory.latest_round,
            "ballot": ballot,
            "sent": memory.ballot is None,
            "taken": memory.taken,
            **{f"state.{name}": value for name, value in memory.state.items()},
        }
    )


def recall(context: Context) -> Memory:
    """Return the round's state.

    Raises:
        ProtocolError: There is none: the node was restarted, or the round is over.
    """
    if _PLACE not in context.state:
        raise ProtocolError("this node holds no state of a vote: it was restarted, or it is done")
    record = cast(Mapping[str, Any], context.state[_PLACE])
    ballot = None if record["sent"] else np.frombuffer(record["ballot"], "<i8").astype(np.int64)
    return Memory(
        record["announcement"],
        record["client"],
        record["latest_round"],
        ballot,
        record["taken"],
        {k.removeprefix("state."): v for k, v in record.items() if k.startswith("state.")},
    )


def forget(context: Context) -> None:
    """Wipe the round's state."""
    if _PLACE in context.state:
        del context.state[_PLACE]


def _written(state: ClientState) -> Values:
    match state:
        case Advertised():
            return {
                "kind": "advertised",
                "round_id": state.round_id,
                "round_number": state.round_number,
                "neighbours": list(state.neighbours),
                "channel_private": state.channel_pair.private,
                "mask_private": state.mask_pair.private,
            }
        case Shared():
            return {
                "kind": "shared",
                "round_id": state.round_id,
                "neighbours": sorted(state.neighbours),
                "mask_private": state.mask_pair.private,
                **_table("mask_keys", state.mask_keys),
                **_table("receiving_keys", state.receiving_keys),
                "self_mask_seed": state.self_mask_seed,
                "noise_seeds": list(state.noise_seeds),
            }
        case Masked():
            return {
                "kind": "masked",
                "round_id": state.round_id,
                "neighbours": sorted(state.neighbours),
                **_table("bundles", state.bundles),
            }
        case Agreed():
            return {**_written(state.held), "kind": "agreed", "digest": state.digest}
        case Member() | Finished():
            raise ProtocolError("a round that has not begun or is over has no state to keep")


def _read(values: Values, member: Member) -> ClientState:
    round_id, neighbours = values["round_id"], values["neighbours"]
    match values["kind"]:
        case "advertised":
            return Advertised(
                member,
                round_id,
                values["round_number"],
                tuple(neighbours),
                KeyPair.of(values["channel_private"]),
                KeyPair.of(values["mask_private"]),
            )
        case "shared":
            return Shared(
                member,
                round_id,
                frozenset(neighbours),
                KeyPair.of(values["mask_private"]),
                _mapping("mask_keys", values),
                _mapping("receiving_keys", values),
                values["self_mask_seed"],
                tuple(values["noise_seeds"]),
            )
        case _:
            size = SEED_BYTES * member.plan.secrets
            bundles = Parts.of(_mapping("bundles", values), size)
            masked = Masked(member, round_id, frozenset(neighbours), bundles)
            return Agreed(masked, values["digest"]) if values["kind"] == "agreed" else masked


def _table(name: str, mapping: Mapping[int, bytes]) -> Values:
    # Two lists: a record holds no mappings. An empty list of bytes would lose its type.
    return {f"{name}.of": list(mapping), f"{name}.is": list(mapping.values())}


def _mapping(name: str, values: Values) -> dict[int, bytes]:
    owners: Sequence[int] = values[f"{name}.of"]
    entries: Iterable[bytes] = values[f"{name}.is"]
    return dict(zip(owners, entries, strict=True))

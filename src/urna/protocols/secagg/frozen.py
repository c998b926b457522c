"""A client's state between two stages as bytes, for where no process lives that long.

The bytes hold secrets: keys, seeds, shares. Keep them where only the client can read them, use
them once, and delete them when the round is over.
"""

from collections.abc import Iterable

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.secagg.client import (
    Advertised,
    Agreed,
    Complained,
    Finished,
    Masked,
    Member,
    Shared,
)
from urna.protocols.secagg.keys import KeyPair
from urna.protocols.secagg.parts import Parts
from urna.protocols.secagg.session import ClientState
from urna.randomness import SEED_BYTES

_ADVERTISED, _SHARED, _MASKED, _AGREED, _COMPLAINED = b"A", b"S", b"M", b"G", b"C"


def freeze(state: ClientState) -> bytes:
    """Write a state down, without what the member knows by its own means.

    Raises:
        ProtocolError: The round has not begun, or it is over: there is nothing to keep.
    """
    match state:
        case Advertised():
            number = state.round_number.to_bytes(8, "big")
            pairs = (state.channel_pair.private, state.mask_pair.private)
            return _packed(_ADVERTISED, state.round_id, number, _ids(state.neighbours), *pairs)
        case Shared():
            peers = sorted(state.mask_keys)
            tables = (state.channel_keys, state.mask_keys, state.receiving_keys)
            return _packed(
                _SHARED,
                state.round_id,
                _ids(state.neighbours),
                state.channel_pair.private,
                state.mask_pair.private,
                _ids(peers),
                *(b"".join(table[peer] for peer in peers) for table in tables),
                state.self_mask_seed,
                b"".join(state.noise_seeds),
            )
        case Masked():
            bundles = state.bundles
            ids = (_ids(state.neighbours), _ids(bundles.clients.tolist()))
            return _packed(_MASKED, state.round_id, *ids, bundles.rows.tobytes())
        case Agreed():
            return _packed(_AGREED, state.digest, freeze(state.held))
        case Complained():
            return _packed(_COMPLAINED, state.round_id)
        case Member() | Finished():
            raise ProtocolError("a round that has not begun or is over has no state to keep")


def thaw(data: bytes, member: Member) -> ClientState:
    """Read what `freeze` wrote.

    Raises:
        ProtocolError: It is no state of a round.
    """
    try:
        kind, *fields = _unpacked(data)
        return _thawed(kind, fields, member)
    except (ValueError, IndexError, OverflowError) as error:
        raise ProtocolError("what was kept of a round cannot be read") from error


def _thawed(kind: bytes, fields: list[bytes], member: Member) -> ClientState:
    if kind == _ADVERTISED:
        round_id, number, neighbours, channel, mask = fields
        pairs = KeyPair.of(channel), KeyPair.of(mask)
        return Advertised(
            member, round_id, int.from_bytes(number, "big"), tuple(_read_ids(neighbours)), *pairs
        )
    if kind == _SHARED:
        round_id, neighbours, channel, mask, peers, *tables, seed, noise = fields
        ids = _read_ids(peers)
        first, second, third = (dict(zip(ids, _cut(t), strict=True)) for t in tables)
        return Shared(
            member,
            round_id,
            frozenset(_read_ids(neighbours)),
            KeyPair.of(channel),
            KeyPair.of(mask),
            first,
            second,
            third,
            seed,
            tuple(_cut(noise)),
        )
    if kind == _MASKED:
        round_id, neighbours, owners, rows = fields
        size = SEED_BYTES * member.plan.secrets
        bundles = Parts(
            np.array(_read_ids(owners), dtype=np.int64),
            np.frombuffer(rows, dtype=np.uint8).reshape(-1, size),
        )
        return Masked(member, round_id, frozenset(_read_ids(neighbours)), bundles)
    if kind == _AGREED:
        digest, inner = fields
        held = thaw(inner, member)
        if isinstance(held, Masked):
            return Agreed(held, digest)
    if kind == _COMPLAINED:
        (round_id,) = fields
        return Complained(member, round_id)
    raise ProtocolError("what was kept of a round cannot be read")


def _packed(*fields: bytes) -> bytes:
    return b"".join(part for field in fields for part in (len(field).to_bytes(4, "big"), field))


def _unpacked(data: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data):
            raise ValueError("a field ends too early")
        fields.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


def _ids(clients: Iterable[int]) -> bytes:
    return np.array(sorted(clients), dtype=">u4").tobytes()


def _read_ids(packed: bytes) -> list[int]:
    found: list[int] = np.frombuffer(packed, dtype=">u4").tolist()
    return found


def _cut(packed: bytes) -> list[bytes]:
    return [packed[at : at + SEED_BYTES] for at in range(0, len(packed), SEED_BYTES)]

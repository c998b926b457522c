"""A client's state between two stages as bytes, for where no process lives that long.

The bytes hold secrets: keys, seeds, shares. Keep them where only the client can read them, use
them once, and delete them when the round is over.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.secagg.client import Advertised, Agreed, Complained, Masked, Member, Shared
from urna.protocols.secagg.keys import KeyPair
from urna.protocols.secagg.parts import Parts
from urna.protocols.secagg.session import ClientState
from urna.randomness import SEED_BYTES

_AGREED = b"G"


def freeze(state: ClientState) -> bytes:
    """Write a state down, without what the member knows by its own means.

    Raises:
        ProtocolError: The round has not begun, or it is over: there is nothing to keep.
    """
    if isinstance(state, Agreed):
        return _AGREED + state.digest + freeze(state.held)
    for mark, (kind, forms) in _STATES.items():
        if isinstance(state, kind):
            names = [field.name for field in dataclasses.fields(kind)[1:]]
            written = [f.write(getattr(state, name)) for name, f in zip(names, forms, strict=True)]
            sized = (len(field).to_bytes(4, "big") + field for field in written)
            return mark + b"".join(sized)
    raise ProtocolError("a round that has not begun or is over has no state to keep")


def thaw(data: bytes, member: Member) -> ClientState:
    """Read what `freeze` wrote.

    Raises:
        ProtocolError: It is no state of a round.
    """
    mark, rest = data[:1], data[1:]
    try:
        if mark == _AGREED:
            held = thaw(rest[SEED_BYTES:], member)
            if isinstance(held, Masked):
                return Agreed(held, rest[:SEED_BYTES])
        elif mark in _STATES:
            kind, forms = _STATES[mark]
            fields = zip(forms, _cut_sized(rest), strict=True)
            state: ClientState = kind(member, *[form.read(field) for form, field in fields])
            if isinstance(state, Masked) and state.bundles.size != SEED_BYTES * member.plan.secrets:
                raise ValueError("a bundle holds a share of each secret")
            return state
    except (ValueError, OverflowError) as error:
        raise ProtocolError("what was kept of a round cannot be read") from error
    raise ProtocolError("what was kept of a round cannot be read")


def _cut_sized(data: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data):
            raise ValueError("a field ends too early")
        fields.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


class _Form(NamedTuple):
    """How a field of a state is written and read."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def _ids(clients: Iterable[int]) -> bytes:
    return np.array(sorted(clients), dtype=">u4").tobytes()


def _read_ids(packed: bytes) -> list[int]:
    found: list[int] = np.frombuffer(packed, dtype=">u4").tolist()
    return found


def _write_parts(parts: Parts) -> bytes:
    return len(parts).to_bytes(4, "big") + _ids(parts) + parts.rows.tobytes()


def _read_parts(packed: bytes) -> Parts:
    rows = 4 + 4 * int.from_bytes(packed[:4], "big")
    clients = np.array(_read_ids(packed[4:rows]), dtype=np.int64)
    return Parts(clients, np.frombuffer(packed[rows:], dtype=np.uint8).reshape(len(clients), -1))


def _cut(packed: bytes) -> tuple[bytes, ...]:
    return tuple(packed[at : at + SEED_BYTES] for at in range(0, len(packed), SEED_BYTES))


_BYTES = _Form(bytes, bytes)
_NUMBER = _Form(lambda number: number.to_bytes(8, "big"), int.from_bytes)
_IDS = _Form(_ids, lambda packed: tuple(_read_ids(packed)))
_SET = _Form(_ids, lambda packed: frozenset(_read_ids(packed)))
_PAIR = _Form(lambda pair: pair.private, KeyPair.of)
_KEYS = _Form(
    lambda keys: _write_parts(Parts.of(keys, SEED_BYTES)),
    lambda packed: dict(_read_parts(packed).pairs()),
)
_SEEDS = _Form(b"".join, _cut)
_PARTS = _Form(_write_parts, _read_parts)
_STATES: dict[bytes, tuple[type, tuple[_Form, ...]]] = {
    b"A": (Advertised, (_BYTES, _NUMBER, _IDS, _PAIR, _PAIR)),
    b"S": (Shared, (_BYTES, _SET, _PAIR, _PAIR, _KEYS, _KEYS, _KEYS, _BYTES, _SEEDS)),
    b"M": (Masked, (_BYTES, _SET, _PARTS)),
    b"C": (Complained, (_BYTES,)),
}
"""How each state is written: the forms of its fields behind the member, in their order."""

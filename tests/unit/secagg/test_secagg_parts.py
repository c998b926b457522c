"""Parts in one block: they read like a mapping, cannot be wrong, and turn around without loss."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ProtocolError
from urna.protocols import secagg
from urna.protocols.secagg.messages import Parts, ShareBox, turned
from urna.protocols.secagg.wire import decode, encode

PLAN = secagg.plan(clients=20, dimension=3, dropouts=4)
SIZE = PLAN.bundle_bytes
ROUND = b"r" * 32
CLIENTS = st.sets(st.integers(0, PLAN.clients - 1), max_size=PLAN.neighbours)


@st.composite
def maps(draw: st.DrawFn, size: int = SIZE) -> dict[int, bytes]:
    """Byte strings of one length for some clients, in any order."""
    clients = draw(st.permutations(sorted(draw(CLIENTS))))
    return {c: draw(st.binary(min_size=size, max_size=size)) for c in clients}


def rows(*texts: bytes) -> np.ndarray:
    return np.array([list(text) for text in texts], dtype=np.uint8)


@settings(deadline=None)
@given(maps())
def test_parts_read_like_the_mapping_they_were_made_of(mapping: dict[int, bytes]) -> None:
    parts = Parts.of(mapping, SIZE)
    assert dict(parts) == mapping == dict(parts.pairs())
    assert list(parts) == sorted(mapping)
    assert (len(parts), parts.size) == (len(mapping), SIZE)
    for client in range(-1, PLAN.clients + 1):
        assert (client in parts) == (client in mapping)
        assert parts.get(client) == mapping.get(client)


@settings(deadline=None)
@given(maps())
def test_parts_come_back_from_the_wire(mapping: dict[int, bytes]) -> None:
    data = encode(ShareBox(ROUND, Parts.of(mapping, SIZE)), PLAN)
    found = decode(data, PLAN)
    assert isinstance(found, ShareBox)
    assert dict(found.bundles) == mapping
    assert encode(found, PLAN) == data


@settings(deadline=None)
@given(maps(), st.data())
def test_other_clients_on_the_wire_are_refused_or_other_parts(
    mapping: dict[int, bytes], data: st.DataObject
) -> None:
    sent = encode(ShareBox(ROUND, Parts.of(mapping, SIZE)), PLAN)
    others = data.draw(
        st.lists(st.integers(0, PLAN.clients), min_size=len(mapping), max_size=len(mapping))
    )
    start = 10 + len(ROUND) + 8  # after the head, the round and the two lengths
    ids = b"".join(client.to_bytes(4, "big") for client in others)
    altered = sent[:start] + ids + sent[start + len(ids) :]
    if others == sorted(set(others)) and PLAN.clients not in others:
        found = decode(altered, PLAN)
        assert isinstance(found, ShareBox)
        assert list(found.bundles) == others
    else:
        with pytest.raises(ProtocolError, match=r"ascend|below 20"):
            decode(altered, PLAN)


@settings(deadline=None)
@given(maps(), st.integers(1, 2 * SIZE).filter(lambda size: size != SIZE))
def test_parts_of_another_length_are_refused(mapping: dict[int, bytes], size: int) -> None:
    sent = encode(ShareBox(ROUND, Parts.of(mapping, SIZE)), PLAN)
    place = 10 + len(ROUND) + 4
    with pytest.raises(ProtocolError, match="not expected here"):
        decode(sent[:place] + size.to_bytes(4, "big") + sent[place + 4 :], PLAN)


@pytest.mark.parametrize(
    ("clients", "block"),
    [
        ([2, 1], rows(b"ab", b"cd")),
        ([1, 1], rows(b"ab", b"cd")),
        ([-1, 1], rows(b"ab", b"cd")),
        ([1, 2, 3], rows(b"ab", b"cd")),
        ([1, 2], np.zeros((2, 0), dtype=np.uint8)),
        ([1, 2], np.zeros(2, dtype=np.uint8)),
    ],
    ids=["wrong order", "twice", "below zero", "too few rows", "nothing in them", "no rows"],
)
def test_parts_that_are_none_are_refused(clients: list[int], block: np.ndarray) -> None:
    with pytest.raises(ProtocolError, match=r"a map must|of a map"):
        Parts(np.array(clients), block)


def test_parts_of_different_lengths_are_not_packed() -> None:
    with pytest.raises(ProtocolError, match="all parts must have 2 bytes"):
        Parts.of({1: b"ab", 2: b"c"}, 2)


def test_parts_do_not_change_and_are_not_printed() -> None:
    block = rows(b"secret")
    parts = Parts(np.array([3]), block)
    with pytest.raises(ValueError, match="read-only"):
        parts.rows[0, 0] = 0
    with pytest.raises(ValueError, match="read-only"):
        parts.clients[0] = 4
    assert "115" not in repr(parts)  # the first letter, as a number
    assert "secret" not in repr(parts)


def test_parts_are_equal_where_the_mappings_are() -> None:
    parts = Parts.of({3: b"ab"}, 2)
    assert parts == Parts.of({3: b"ab"}, 2) == {3: b"ab"}
    assert parts != Parts.of({3: b"ac"}, 2)
    assert parts != Parts.of({4: b"ab"}, 2)
    assert Parts.of({}, 2) == Parts.of({}, 3)


def by_recipient(sent: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
    """The slow and obvious way to turn parts around."""
    found: dict[int, dict[int, bytes]] = {}
    for sender, parts in sent.items():
        for recipient, part in parts.items():
            found.setdefault(recipient, {})[sender] = part
    return found


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 30), maps(size=3), max_size=8))
def test_turned_parts_are_the_same_parts_by_recipient(sent: dict[int, dict[int, bytes]]) -> None:
    packed = {sender: Parts.of(parts, 3) for sender, parts in sent.items()}
    found = turned(packed)
    assert {c: dict(parts) for c, parts in found.items()} == by_recipient(sent)
    back = {sender: parts for sender, parts in packed.items() if parts}
    assert turned(found) == back


def test_parts_of_different_lengths_are_not_turned() -> None:
    with pytest.raises(ProtocolError, match="one length"):
        turned({1: Parts.of({2: b"ab"}, 2), 2: Parts.of({1: b"a"}, 1)})
    # An empty map has no length that could differ.
    assert turned({1: Parts.of({2: b"ab"}, 2), 2: Parts.of({}, 1)}) == {2: {1: b"ab"}}

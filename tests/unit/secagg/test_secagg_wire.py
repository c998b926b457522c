"""The wire format: one encoding per message, and nothing but the protocol's own error."""

from dataclasses import fields, replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from urna.errors import ProtocolError
from urna.protocols import secagg
from urna.protocols.secagg.evidence import PROOF_BYTES
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    Complaint,
    Invitation,
    KeyBook,
    MaskedVector,
    Message,
    Parts,
    Receipt,
    Refusal,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    Void,
)
from urna.protocols.secagg.shares import partial_size
from urna.protocols.secagg.wire import VERSION, decode, encode, largest_message

PLAN = secagg.plan(
    clients=20,
    dimension=3,
    ring_bits=16,
    dropouts=4,
    noise_variance=Fraction(10),
    xnoise="approximate",
)
ROUND = b"r" * 32
ENTRY = Advertisement(ROUND, 3, b"c" * 32, b"m" * 32, b"s" * 64)
BUNDLE = b"b" * PLAN.bundle_bytes


def bundles(*clients: int) -> Parts:
    return Parts.of(dict.fromkeys(clients, BUNDLE), PLAN.bundle_bytes)


def shown(count: int, *clients: int) -> Parts:
    """Bundles of which so many shares are shown."""
    size = partial_size(count, PLAN.secrets)
    return Parts.of({client: bytes([client]) * size for client in clients}, size)


MESSAGES: list[Message] = [
    Invitation(7, b"k" * 32, PLAN.digest),
    ENTRY,
    replace(ENTRY, signature=b""),
    KeyBook(ROUND, (ENTRY, replace(ENTRY, client=4))),
    KeyBook(ROUND, ()),
    SealedShares(ROUND, 5, (b"h" * 32,) * (PLAN.secrets - 1), bundles(1, 19)),
    ShareBox(ROUND, bundles(2)),
    ShareBox(ROUND, bundles()),
    MaskedVector(ROUND, 6, b"d" * 32, b"\0\1" * 3),
    AgreeRequest(ROUND, frozenset({0, 19}), frozenset()),
    Agreement(ROUND, 6, b"s" * 64),
    UnmaskRequest(ROUND, frozenset({0, 19}), frozenset({7}), Parts.of({0: b"s" * 64}, 64)),
    UnmaskReply(ROUND, 6, shown(2, 1, 2), shown(1, 3)),
    UnmaskReply(ROUND, 6, shown(PLAN.secrets - 1, 1), shown(1, 3, 4)),
    UnmaskReply(ROUND, 6, shown(1), shown(1)),
    Refusal(6, "no: é"),
    Complaint(ROUND, 6, 5, b"p" * PROOF_BYTES),
    Complaint(ROUND, 6, 19, b""),
    Void(ROUND),
    Receipt(ROUND, 6, b"s" * 64),
    Receipt(ROUND, 6, b""),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    data = encode(message, PLAN)
    assert decode(data, PLAN) == message
    assert encode(decode(data, PLAN), PLAN) == data
    assert len(data) <= largest_message(PLAN)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_cut_or_continued_is_refused(message: Message) -> None:
    data = encode(message, PLAN)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:end], PLAN)
    with pytest.raises(ProtocolError):
        decode(data + b"\0", PLAN)
    # The same with a head that agrees with the wrong length.
    for body in (data[10:] + b"\0", data[10:-1]):
        with pytest.raises(ProtocolError):
            decode(data[:6] + len(body).to_bytes(4, "big") + body, PLAN)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_byte_altered_is_refused_or_another_message(message: Message) -> None:
    data = encode(message, PLAN)
    for place in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            wrong = bytearray(data)
            wrong[place] ^= flip
            try:
                found = decode(bytes(wrong), PLAN)
            except ProtocolError:
                continue
            assert found != message
            assert encode(found, PLAN) == bytes(wrong)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_mangled_message_raises_the_protocols_error_only(
    message: Message, data: st.DataObject
) -> None:
    body = bytearray(encode(message, PLAN)[10:])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(start, min(len(body), start + 8)))
        body[start:end] = data.draw(st.binary(max_size=8))
    kind = data.draw(st.integers(0, 16))
    mangled = b"URNA" + bytes([VERSION, kind]) + len(body).to_bytes(4, "big") + bytes(body)
    try:
        found = decode(mangled, PLAN)
    except ProtocolError:
        return
    assert encode(found, PLAN) == mangled


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b"")
@example(b"URNA\x03\x03\xff\xff\xff\xff")
def test_any_bytes_raise_the_protocols_error_only(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data, PLAN)


def test_lengths_are_checked_before_anything_is_allocated() -> None:
    # A map that claims four billion parts of four billion bytes, in 60 bytes.
    body = ROUND + b"\xff" * 8
    with pytest.raises(ProtocolError, match="at most"):
        decode(b"URNA\x03\x05" + len(body).to_bytes(4, "big") + body, PLAN)
    body = ROUND + (1).to_bytes(4, "big") + b"\xff" * 4
    with pytest.raises(ProtocolError, match="not expected here"):
        decode(b"URNA\x03\x05" + len(body).to_bytes(4, "big") + body, PLAN)
    with pytest.raises(ProtocolError, match="has 10 to"):
        decode(bytes(largest_message(PLAN) + 1), PLAN)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"URNB", "not a message"),
        (b"URNA\x01", "version 3 is spoken here, got 1"),
        (b"URNA\x03\x63", "unknown kind"),
    ],
)
def test_what_is_no_message_is_said_to_be_none(wrong: bytes, message: str) -> None:
    data = encode(MESSAGES[0], PLAN)
    with pytest.raises(ProtocolError, match=message):
        decode(wrong + data[len(wrong) :], PLAN)


def test_unsorted_and_doubled_clients_are_refused() -> None:
    data = encode(ShareBox(ROUND, bundles(2, 3)), PLAN)
    ids = (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    for other, message in (((3, 2), "ascend"), ((2, 2), "ascend"), ((2, 20), "below 20")):
        wrong = data.replace(ids, b"".join(c.to_bytes(4, "big") for c in other), 1)
        with pytest.raises(ProtocolError, match=message):
            decode(wrong, PLAN)
    book = KeyBook(ROUND, (replace(ENTRY, client=4), ENTRY))
    with pytest.raises(ProtocolError, match="ascend"):
        decode(encode(book, PLAN), PLAN)


@pytest.mark.parametrize("length", [1, 63, 65, 127, 129, 255])
@pytest.mark.parametrize(
    "message", [Complaint(ROUND, 6, 5, b""), Receipt(ROUND, 6, b"")], ids=["proof", "signature"]
)
def test_a_proof_or_a_signature_is_there_in_full_or_not_at_all(
    message: Message, length: int
) -> None:
    empty = encode(message, PLAN)
    body = empty[10:-1] + bytes([length]) + bytes(length)
    with pytest.raises(ProtocolError, match=r"has \d+ bytes or is left out"):
        decode(empty[:6] + len(body).to_bytes(4, "big") + body, PLAN)


def test_no_reply_shows_more_of_a_dropped_client_than_one_share() -> None:
    """Two would be its mask key and its self-mask seed."""
    both = UnmaskReply(ROUND, 6, shown(1), shown(2, 3))
    with pytest.raises(ProtocolError, match="not expected here"):
        decode(encode(both, PLAN), PLAN)


def test_no_reply_shows_all_of_a_survivors_bundle() -> None:
    every = UnmaskReply(ROUND, 6, shown(PLAN.secrets, 3), shown(1))
    with pytest.raises(ProtocolError, match="not expected here"):
        decode(encode(every, PLAN), PLAN)


def test_a_long_reason_is_cut() -> None:
    found = decode(encode(Refusal(1, "é" * 5_000), PLAN), PLAN)
    assert isinstance(found, Refusal)
    assert found.reason == "é" * 500


def test_parts_of_another_length_are_not_written() -> None:
    short = Parts.of({1: BUNDLE[:-1]}, PLAN.bundle_bytes - 1)
    with pytest.raises(ProtocolError, match="all parts"):
        encode(ShareBox(ROUND, short), PLAN)


def test_every_message_has_a_sample_here() -> None:
    sampled = {type(message) for message in MESSAGES}
    assert sampled == set(Message.__args__)  # type: ignore[attr-defined]
    assert all(fields(kind) for kind in sampled)

"""Oblivious transfer: the right labels, points that are none, and a leader that cheats."""

from dataclasses import replace

import numpy as np
import pytest
from cheating_helper import half_of
from cryptography.hazmat.primitives.asymmetric import ec

from urna.errors import ProtocolError
from urna.protocols.winner.garble import fresh_offset
from urna.protocols.winner.transfer import (
    CHECK_ROWS,
    COLUMNS,
    POINT_BYTES,
    BaseReceiver,
    BaseSender,
    Extended,
    _seed,
    _sum,
    extend,
    receive_extension,
)
from urna.randomness import ScriptedSecrets

SESSION = bytes(32)
TRANSCRIPT = SESSION + b"answer".ljust(32)


def base(label: bytes) -> tuple[list[tuple[bytes, bytes]], list[bytes], np.ndarray]:
    source = ScriptedSecrets(label)
    sender, offset = BaseSender.of(source), fresh_offset(source.take(16))
    receiver = BaseReceiver.of(SESSION, sender.offer, offset, source)
    assert sender.shared_key(receiver.point) == receiver.shared_key
    return sender.seeds(SESSION, receiver.answers), receiver.seeds, offset


SENT, HELD, OFFSET = base(b"base")
CHOSEN = np.unpackbits(OFFSET.astype("<u8").view(np.uint8), bitorder="little")


def test_the_helper_holds_the_seed_that_its_bit_names() -> None:
    for place, (pair, held) in enumerate(zip(SENT, HELD, strict=True)):
        assert held == pair[CHOSEN[place]]
        assert pair[0] != pair[1]
    assert 0 < CHOSEN.sum() < COLUMNS


def test_points_add_up_as_their_logarithms_do() -> None:
    def point(number: int) -> ec.EllipticCurvePublicKey:
        return ec.derive_private_key(number, ec.SECP256R1()).public_key()

    assert _sum(point(5), point(9)).public_numbers() == point(14).public_numbers()
    assert _sum(point(9), point(5), minus=True).public_numbers() == point(4).public_numbers()
    with pytest.raises(ProtocolError, match="coincide"):
        _sum(point(5), point(5))


@pytest.mark.parametrize("wrong", [bytes(POINT_BYTES), b"\x02" + b"\xff" * 32, b"\x05" * 33])
def test_what_is_no_point_is_refused(wrong: bytes) -> None:
    source = ScriptedSecrets(b"points")
    with pytest.raises(ProtocolError, match="no point"):
        BaseReceiver.of(SESSION, wrong, OFFSET, source)
    with pytest.raises(ProtocolError, match="no point"):
        BaseSender.of(source).seeds(SESSION, wrong * COLUMNS)


def test_an_answer_that_repeats_the_offer_is_refused() -> None:
    sender = BaseSender.of(ScriptedSecrets(b"echo"))
    with pytest.raises(ProtocolError, match="coincide"):
        sender.seeds(SESSION, sender.offer * COLUMNS)


@pytest.mark.parametrize("place", [0, 64, COLUMNS - 1])
def test_an_answer_that_is_half_the_offer_is_refused(place: int) -> None:
    """A = S/2 has A − S = −A: both shared points have the same x-coordinate."""
    sender = BaseSender.of(ScriptedSecrets(b"half"))
    receiver = BaseReceiver.of(SESSION, sender.offer, OFFSET, ScriptedSecrets(b"helper"))
    start, end = POINT_BYTES * place, POINT_BYTES * (place + 1)
    half = half_of(sender.offer)
    answers = receiver.answers[:start] + half + receiver.answers[end:]
    with pytest.raises(ProtocolError, match="coincide"):
        sender.seeds(SESSION, answers)


def test_a_seed_depends_on_session_place_branch_and_the_whole_point() -> None:
    fields = {
        "session": SESSION,
        "place": 3,
        "branch": 0,
        "offer": b"\2" + bytes(32),
        "answer": b"\2" + b"a" * 32,
        "point": b"\2" + b"p" * 32,
        "x": b"x" * 32,
    }
    others = {
        "session": b"s" * 32,
        "place": 4,
        "branch": 1,
        "offer": b"\3" + bytes(32),
        "answer": b"\3" + b"a" * 32,
        "point": b"\3" + b"p" * 32,  # the same x-coordinate, and the opposite point
        "x": b"y" * 32,
    }
    seeds = {_seed(**fields), *(_seed(**fields | {name: others[name]}) for name in others)}  # type: ignore[arg-type]
    assert len(seeds) == 1 + len(fields)


def extended(bits: np.ndarray, label: bytes) -> Extended:
    return extend(TRANSCRIPT, SENT, bits, ScriptedSecrets(label))


def received(made: Extended, count: int, transcript: bytes = TRANSCRIPT) -> np.ndarray:
    return receive_extension(transcript, HELD, OFFSET, made.columns, made.check, count)


@pytest.mark.parametrize("count", [1, 7, 8, 500])
def test_the_leader_gets_the_labels_of_its_bits(count: int) -> None:
    bits = np.random.default_rng(count).integers(0, 2, count).astype(np.uint8)
    made = extended(bits, b"extend")
    zeros = received(made, count)
    assert (made.labels == zeros ^ (bits.astype(np.uint64)[:, None] * OFFSET)).all()


def altered(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_leader_that_answers_columns_differently_is_refused() -> None:
    made = extended(np.zeros(300, dtype=np.uint8), b"cheat")
    size = len(made.columns) // COLUMNS
    refused = 0
    for column in range(COLUMNS):
        wrong = replace(made, columns=altered(made.columns, column * size))
        try:
            received(wrong, 300)
        except ProtocolError:
            refused += 1
    # The rule is drawn from the columns, so a wrong one spoils the check of all others as well.
    assert refused == COLUMNS


def test_the_check_has_a_row_for_each_bit_of_security_and_each_row_refuses() -> None:
    """With 64 rows a leader that tries 2^64 columns offline finds some that pass."""
    made = extended(np.ones(300, dtype=np.uint8), b"rows")
    assert CHECK_ROWS == 128
    assert len(made.check) == CHECK_ROWS // 8 + 16 * CHECK_ROWS
    for row in range(CHECK_ROWS):
        wrong = altered(made.check, CHECK_ROWS // 8 + 16 * row)
        with pytest.raises(ProtocolError, match="one choice of bits"):
            received(replace(made, check=wrong), 300)


@pytest.mark.parametrize("transcript", [b"", b"s" * 32 + TRANSCRIPT[32:], SESSION + bytes(32)])
def test_a_check_of_another_session_or_transcript_is_refused(transcript: bytes) -> None:
    made = extended(np.ones(300, dtype=np.uint8), b"bound")
    with pytest.raises(ProtocolError, match="one choice of bits"):
        received(made, 300, transcript)


def test_a_cheat_that_knows_the_rule_is_caught_by_every_bit_of_the_offset() -> None:
    """The leader alters a column and answers the check for what it sent: a guess of one bit."""
    bits = np.zeros(300, dtype=np.uint8)
    size = (300 + CHECK_ROWS + 7) // 8
    caught = []
    for column in range(16):
        seeds = [
            (zero, altered(one, 0)) if place == column else (zero, one)
            for place, (zero, one) in enumerate(SENT)
        ]
        made = extend(TRANSCRIPT, seeds, bits, ScriptedSecrets(b"guess"))
        assert len(made.columns) == COLUMNS * size
        try:
            received(made, 300)
        except ProtocolError:
            caught.append(column)
    # It passes exactly where it guessed that the offset's bit is 0: each try risks being named.
    assert caught == [column for column in range(16) if CHOSEN[column]]

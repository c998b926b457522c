"""Oblivious transfer: the right labels, points that are none, and a leader that cheats."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from urna.errors import ProtocolError
from urna.hidden.garble import fresh_offset
from urna.hidden.transfer import (
    COLUMNS,
    POINT_BYTES,
    BaseReceiver,
    BaseSender,
    _sum,
    extend,
    receive_extension,
)
from urna.randomness import ScriptedSecrets

SESSION = bytes(32)


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


@pytest.mark.parametrize("count", [1, 7, 8, 500])
def test_the_leader_gets_the_labels_of_its_bits(count: int) -> None:
    bits = np.random.default_rng(count).integers(0, 2, count).astype(np.uint8)
    made = extend(SENT, bits, ScriptedSecrets(b"extend"))
    zeros = receive_extension(HELD, OFFSET, made.columns, made.check, count)
    assert (made.labels == zeros ^ (bits.astype(np.uint64)[:, None] * OFFSET)).all()


def altered(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_leader_that_answers_columns_differently_is_refused() -> None:
    bits = np.zeros(300, dtype=np.uint8)
    made = extend(SENT, bits, ScriptedSecrets(b"cheat"))
    size = len(made.columns) // COLUMNS
    refused = 0
    for column in range(COLUMNS):
        wrong = altered(made.columns, column * size)
        try:
            receive_extension(HELD, OFFSET, wrong, made.check, 300)
        except ProtocolError:
            refused += 1
    # The rule is drawn from the columns, so a wrong one spoils the check of all others as well.
    assert refused == COLUMNS


def test_a_cheat_that_knows_the_rule_is_caught_by_every_bit_of_the_offset() -> None:
    """The leader alters a column and answers the check for what it sent: a guess of one bit."""
    bits = np.zeros(300, dtype=np.uint8)
    size = (300 + 64 + 7) // 8
    caught = []
    for column in range(16):
        seeds = [
            (zero, altered(one, 0)) if place == column else (zero, one)
            for place, (zero, one) in enumerate(SENT)
        ]
        made = extend(seeds, bits, ScriptedSecrets(b"guess"))
        assert len(made.columns) == COLUMNS * size
        try:
            receive_extension(HELD, OFFSET, made.columns, made.check, 300)
        except ProtocolError:
            caught.append(column)
    # It passes exactly where it guessed that the offset's bit is 0: each try risks being named.
    assert caught == [column for column in range(16) if CHOSEN[column]]

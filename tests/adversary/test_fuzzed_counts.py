"""Mutated letters of a verified count, many of them: only our own errors, and no wrong name."""

import sys
from pathlib import Path

import numpy as np
import pytest
from adversary_bytes import mutated

from urna.errors import ProtocolError, RoundAborted
from urna.protocols.ballots.messages import (
    decode,
    decode_announcement,
    encode,
    encode_announcement,
)
from urna.protocols.ballots.report import PublicParameters, VouchedStatement

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from verified_play import CLIENTS, LEVELS, VICTIM, exact_sum, opened, run


class Garbler:
    """Garbles the letters of one kind, or of one sender of that kind."""

    def __init__(self, rng: np.random.Generator, kind: str, sender: int | None = None) -> None:
        self._rng, self._kind, self._sender = rng, kind, sender
        self._seen: list[bytes] = []
        self.altered = False

    def __call__(self, kind: str, sender: int, data: bytes) -> list[bytes]:
        if kind != self._kind or self._sender not in (None, sender):
            self._seen.append(data)
            return [data]
        wrong = mutated(data, self._rng, self._seen)
        self.altered = wrong != data
        return [wrong]


def test_a_garbled_report_costs_its_sender_alone() -> None:
    rng = np.random.default_rng(11)
    everybody, harmed = frozenset(range(CLIENTS)), 0
    for _ in range(60):
        garbler = Garbler(rng, "report", VICTIM)
        played = run(LEVELS, tamper=garbler)
        expected = everybody - ({VICTIM} if garbler.altered else set())
        assert played.accepted == expected
        assert (set(played.lost), played.refused) == (everybody - expected, {})
        assert opened(played) == exact_sum(LEVELS, expected)
        harmed += garbler.altered
    assert harmed > 15


KINDS = ["batch", "answers", "verdict", "confirmation"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_garbled_on_its_way_ends_the_count_and_blames_no_client(kind: str) -> None:
    rng, ended = np.random.default_rng(12), 0
    for _ in range(25):
        garbler = Garbler(rng, f"sealed {kind}")
        try:
            run(LEVELS, tamper=garbler)
            assert not garbler.altered
        except RoundAborted as aborted:
            pytest.fail(f"somebody is blamed: {aborted}")
        except ProtocolError:
            ended += 1
    assert ended > 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_garbled_by_its_sender_leads_to_our_own_errors_only(kind: str) -> None:
    """A bad leader or helper can falsify; the shares still add up over those both accept."""
    rng, ended = np.random.default_rng(12), 0
    for _ in range(50):
        try:
            played = run(LEVELS, tamper=Garbler(rng, kind))
        except ProtocolError:
            ended += 1
            continue
        assert opened(played) == exact_sum(LEVELS, played.accepted)
    assert ended > 25


def letters() -> tuple[PublicParameters, dict[str, bytes]]:
    """One letter of each kind."""
    found: dict[str, bytes] = {}
    statement: list[PublicParameters] = []

    def tamper(kind: str, sender: int, data: bytes) -> list[bytes]:
        if not kind.startswith("sealed"):
            found[kind] = data
        return [data]

    played = run(LEVELS, tamper=tamper)
    statement.append(played.statement)
    return statement[0], found


def test_what_is_read_is_what_was_written_and_nothing_else_is_read() -> None:
    statement, found = letters()
    rng, others = np.random.default_rng(13), list(found.values())
    assert set(found) == {"report", "batch", "answers", "verdict", "confirmation"}
    for data in others:
        assert encode(decode(data, statement)) == data
        for _ in range(400):
            wrong = mutated(data, rng, others)
            try:
                again = decode(wrong, statement)
            except ProtocolError:
                continue
            assert encode(again) == wrong


def test_a_garbled_announcement_is_refused() -> None:
    statement, _ = letters()
    data = encode_announcement(VouchedStatement(statement, bytes(64)))
    assert encode_announcement(decode_announcement(data)) == data
    rng, refused = np.random.default_rng(14), 0
    for _ in range(1500):
        wrong = mutated(data, rng, [])
        try:
            again = decode_announcement(wrong)
        except ProtocolError:
            refused += 1
            continue
        assert encode_announcement(again) == wrong
    assert refused > 900

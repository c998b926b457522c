"""Messages between leader and helper: altered, replayed, out of order, or made up."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from urna.errors import ProtocolError
from urna.privacy import SelectionRelease
from urna.protocols.winner import (
    Circuit,
    CircuitStage,
    Opened,
    answer,
    conclude,
    garble,
    message_bytes,
    offer,
    open_winner,
    run,
    transfer,
)
from urna.protocols.winner import session as stages
from urna.protocols.winner.circuit import Bits
from urna.randomness import OsSecrets, ScriptedSecrets

CIRCUIT = Circuit(SelectionRelease(4.0, 6, 3), 5)
LEADER = np.array([3, 31, 7], dtype=np.uint64)
HELPER = np.array([2, 2, 2], dtype=np.uint64)


class Session:
    """A whole session whose states and messages are kept."""

    def __init__(self, context: bytes, label: bytes, circuit: Circuit = CIRCUIT) -> None:
        source = ScriptedSecrets(label)
        self.context, self.circuit, self.source = context, circuit, source
        self.messages: dict[CircuitStage, bytes] = {}
        self.offered, self.messages[CircuitStage.OFFER] = offer(circuit, context, source)
        self.answered, self.messages[CircuitStage.ANSWER] = answer(
            circuit, context, self.messages[CircuitStage.OFFER], source
        )
        self.transferred, self.messages[CircuitStage.TRANSFER] = transfer(
            self.offered, self.messages[CircuitStage.ANSWER], LEADER, source
        )
        self.garbled, self.messages[CircuitStage.GARBLED] = garble(
            self.answered, self.messages[CircuitStage.TRANSFER], HELPER, source
        )
        self.opened, self.messages[CircuitStage.OPENING] = open_winner(
            self.transferred, self.messages[CircuitStage.GARBLED]
        )
        self.concluded = conclude(self.garbled, self.messages[CircuitStage.OPENING])

    def receive(self, stage: CircuitStage, message: bytes) -> object:
        """Hand a message to whoever waits for this stage's."""
        source = ScriptedSecrets(b"receiver")
        match stage:
            case CircuitStage.OFFER:
                return answer(self.circuit, self.context, message, source)
            case CircuitStage.ANSWER:
                return transfer(self.offered, message, LEADER, source)
            case CircuitStage.TRANSFER:
                return garble(self.answered, message, HELPER, source)
            case CircuitStage.GARBLED:
                return open_winner(self.transferred, message)
            case CircuitStage.OPENING:
                return conclude(self.garbled, message)


HELD, OTHER = Session(b"first", b"one"), Session(b"first", b"two")
ELSEWHERE = Session(b"second", b"one")


def test_both_learn_the_same_and_lengths_are_known_beforehand() -> None:
    assert HELD.opened == HELD.concluded
    assert isinstance(HELD.opened, Opened)
    for stage, message in HELD.messages.items():
        assert len(message) == message_bytes(stage, CIRCUIT)
        HELD.receive(stage, message)


def places(stage: CircuitStage) -> list[int]:
    """Every byte of the head and the tag, and some of each part between."""
    size = len(HELD.messages[stage])
    inner = np.linspace(70, size - 33, 24).astype(int).tolist()
    return sorted({*range(0, 70, 3), 4, 5, *inner, *range(size - 32, size, 5), size - 1})


@pytest.mark.parametrize("stage", CircuitStage, ids=lambda stage: stage.name)
def test_every_altered_message_is_refused(stage: CircuitStage) -> None:
    message = HELD.messages[stage]
    for place in places(stage):
        wrong = bytearray(message)
        wrong[place] ^= 1 << (place % 8)
        with pytest.raises(ProtocolError):
            HELD.receive(stage, bytes(wrong))


@pytest.mark.parametrize("stage", CircuitStage, ids=lambda stage: stage.name)
@pytest.mark.parametrize(
    "change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b"", lambda m: m[:70]]
)
def test_a_message_of_another_length_is_refused(
    stage: CircuitStage, change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(ProtocolError, match=r"bytes|altered on its way"):
        HELD.receive(stage, change(HELD.messages[stage]))


@pytest.mark.parametrize("stage", CircuitStage, ids=lambda stage: stage.name)
def test_a_message_of_another_session_is_refused(stage: CircuitStage) -> None:
    with pytest.raises(ProtocolError, match="another session"):
        HELD.receive(stage, ELSEWHERE.messages[stage])


@pytest.mark.parametrize("stage", list(CircuitStage)[1:], ids=lambda stage: stage.name)
def test_a_message_of_an_earlier_try_is_refused(stage: CircuitStage) -> None:
    with pytest.raises(ProtocolError, match=r"answers another one|altered on its way"):
        HELD.receive(stage, OTHER.messages[stage])


@pytest.mark.parametrize(("stage", "sent"), list(itertools.permutations(CircuitStage, 2)))
def test_a_message_of_another_stage_is_refused(stage: CircuitStage, sent: CircuitStage) -> None:
    with pytest.raises(ProtocolError):
        HELD.receive(stage, HELD.messages[sent])


def test_a_helper_with_another_circuit_refuses() -> None:
    other = Circuit(SelectionRelease(8.0, 6, 3), 5)
    with pytest.raises(ProtocolError, match="another session"):
        answer(other, b"first", HELD.messages[CircuitStage.OFFER], OsSecrets())


def test_made_up_messages_are_refused_with_nothing_but_our_own_error() -> None:
    rng = np.random.default_rng(8)
    for _ in range(300):
        stage = CircuitStage(int(rng.integers(1, 6)))
        wrong = bytearray(HELD.messages[stage])
        for _ in range(int(rng.integers(1, 4))):
            start = int(rng.integers(0, len(wrong)))
            size = int(rng.integers(1, 40))
            match int(rng.integers(4)):
                case 0:
                    wrong[start : start + size] = rng.bytes(len(wrong[start : start + size]))
                case 1:
                    wrong[start : start + size] = b""
                case 2:
                    wrong[start:start] = rng.bytes(size)
                case _:
                    donor = OTHER.messages[stage]
                    wrong[start:] = donor[start:]
            wrong = wrong or bytearray(b"\0")
        if bytes(wrong) in (HELD.messages[stage], OTHER.messages[CircuitStage.OFFER]):
            continue  # an offer in the same context is one, whoever made it
        with pytest.raises(ProtocolError):
            HELD.receive(stage, bytes(wrong))


PRIME = (1 << 32) - (1 << 20) + 1
QUIET = Circuit(SelectionRelease(50.0, 2, 2), 5, PRIME)  # hardly ever any noise


@pytest.mark.parametrize("word", [32 - 12, 64 - 12, PRIME - 12, PRIME + 5, (1 << 32) - 1])
def test_a_leader_that_puts_in_any_word_moves_no_lead_by_more_than_the_vote(
    word: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbled and transferred: three votes on either side of an edge that the leader has chosen."""
    monkeypatch.setattr(stages, "check_shares", lambda _, shares: shares)
    leads = []
    for votes in range(10, 14):
        found = run(
            QUIET,
            np.array([word, 9], dtype=np.uint64),
            np.array([votes, 0], dtype=np.uint64),
            context=b"edge",
            leader_source=ScriptedSecrets(b"leader"),
            helper_source=ScriptedSecrets(b"helper"),
        ).opened
        assert found.gap is not None
        leads.append(found.gap if found.place == 0 else 1 - found.gap)
    assert max(abs(one - other) for one, other in itertools.pairwise(leads)) <= 1
    assert word < PRIME or max(leads) <= 0  # what is no residue has no vote


class Constant:
    """A party whose coins are all tails, and whose keys are its own."""

    private = True

    def __init__(self, circuit: Circuit) -> None:
        self._coins = (circuit.coin_bits + 7) // 8

    def take(self, count: int) -> bytes:
        return bytes(count) if count == self._coins else OsSecrets().take(count)


RUNS = 24  # of even chances: one party's coins alone give the same winner 24 times once in 2^23
TIED = Circuit(SelectionRelease(0.5, 2, 2, gap=False), 2)
EVEN = np.array([1, 1], dtype=np.uint64)


def winners(leader: object, helper: object) -> set[int]:
    return {
        run(
            TIED,
            EVEN,
            EVEN,
            context=b"%d" % number,
            leader_source=leader,  # type: ignore[arg-type]
            helper_source=helper,  # type: ignore[arg-type]
        ).opened.place
        for number in range(RUNS)
    }


@pytest.mark.parametrize("constant", ["leader", "helper"])
def test_one_party_with_honest_coins_is_enough(constant: str) -> None:
    tails, honest = Constant(TIED), OsSecrets()
    pair = (tails, honest) if constant == "leader" else (honest, tails)
    assert winners(*pair) == {0, 1}


@pytest.mark.parametrize("party", ["leader", "helper"])
def test_a_party_that_ignores_its_coins_is_caught(
    party: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: with the other's coins all tails, one candidate wins every time."""
    tails, honest, tossed = Constant(TIED), OsSecrets(), stages.coins_of

    def ignored(circuit: Circuit, source: object) -> Bits:
        return tossed(circuit, tails if source is honest else source)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "coins_of", ignored)
    assert len(winners(*((honest, tails) if party == "leader" else (tails, honest)))) == 1

"""Mutated messages, many of them: nothing but our own errors, and no wrong name."""

import numpy as np
import pytest
from adversary_room import CURIOUS, DISHONEST, Ended, Liar, Room, plan_for
from adversary_server import Game

from urna.errors import ProtocolError
from urna.protocols.secagg import ServerModel, server
from urna.protocols.secagg.messages import (
    Advertisement,
    MaskedVector,
    Message,
    Parts,
    Refusal,
    UnmaskRequest,
)
from urna.protocols.secagg.wire import decode, encode, without_signature

HEAD = 10


def mutated(data: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """Return bytes that differ from a message in a few places, often with a head that fits."""
    wrong = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        start = int(rng.integers(0, max(1, len(wrong))))
        match int(rng.integers(7)):
            case 0 if wrong:
                wrong[start] ^= 1 << int(rng.integers(8))
            case 1:
                wrong[start : start + int(rng.integers(1, 40))] = b""
            case 2:
                wrong[start:start] = rng.bytes(int(rng.integers(1, 40)))
            case 3:
                size = int(rng.integers(1, 40))
                wrong[start : start + size] = rng.bytes(size)
            case 4 if others:
                other = others[int(rng.integers(len(others)))]
                wrong[start:] = other[start:]
            case 5 if len(wrong) > HEAD:
                wrong[5] = int(rng.integers(0, 16))
            case 6:
                size = int(rng.integers(1, 9))
                wrong[start : start + size] = bytes([int(rng.choice([0, 255]))]) * size
            case _:
                pass
    if len(wrong) >= HEAD and rng.random() < 0.8:
        wrong[6:HEAD] = (len(wrong) - HEAD).to_bytes(4, "big")
    return bytes(wrong)


class Garbler:
    """A client that garbles one reply of a round, of a kind it does not choose itself."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._turn, self._when = rng, 0, int(rng.integers(0, 6))
        self._sent: list[bytes] = []
        self.honest: Message | None = None
        self.sent = b""

    def __call__(self, liar: Liar, request: Message, reply: Message) -> bytes:
        data = encode(reply, liar.plan)
        self._sent.append(data)
        self._turn += 1
        if self._turn - 1 != self._when:
            return data
        self.honest = reply
        self.sent = mutated(data, self._rng, self._sent)
        return self.sent


def moves_the_sum(garbler: Garbler, ended: Ended) -> bool:
    """Whether what was garbled is the vector itself, or the key its masks are made with."""
    try:
        found = decode(garbler.sent, ended.room.plan)
    except ProtocolError:
        return False
    match garbler.honest, found:
        case MaskedVector(), MaskedVector():
            return True
        case Advertisement() as one, Advertisement() as other:
            return one.mask_key != other.mask_key
    return False


def garble_replies(seed: int, model: ServerModel) -> bool:
    """Play a round in which one client garbles a reply; return whether it was named for it."""
    rng = np.random.default_rng([1, seed])
    garbler = Garbler(rng)
    liar = int(rng.integers(6))
    ended = Room(plan_for(6, model), {liar: garbler}).play()
    assert ended.faults <= {liar}
    if not moves_the_sum(garbler, ended):
        ended.check()
    return ended.faults == {liar}


def garble_requests(seed: int, model: ServerModel) -> tuple[int, int]:
    """A server garbles what it sends to some; every client answers something, and no more.

    Returns:
        How many requests were garbled, and how many of them were refused.
    """
    rng = np.random.default_rng([2, seed])
    plan = plan_for(6, model)
    game = Game(plan, colluding=frozenset({0}), label=b"fuzz %d" % seed)
    seen: list[bytes] = []
    garbled: list[Message] = []
    rate = float(rng.choice([0.02, 0.2]))

    def give(client: int, message: Message) -> Message | None:
        data = encode(message, plan)
        seen.append(data)
        if client and rng.random() < rate:
            wrong = mutated(data, rng, seen)
            answer = decode(without_signature(game.sessions[client].handle(wrong)), plan)
            garbled.append(answer)
            try:
                meant = decode(wrong, plan)
            except ProtocolError:
                assert isinstance(answer, Refusal)
                return None
            game.replies.append((client, meant, answer))
            return None
        return game.send(client, message)

    def so_far() -> tuple[int, int]:
        return len(garbled), sum(map(refused, garbled))

    for client in range(6):
        give(client, game.invitation)
    adverts = {c: r for c, m, r in game.replies if m == game.invitation and not refused(r)}
    if len(adverts) < plan.least_survivors:
        return so_far()
    game.keyed, books = server.pass_on_keys(game.invited, adverts)  # type: ignore[arg-type]
    sealed = {c: give(c, book) for c, book in books.items()}
    kept = {c: r for c, r in sealed.items() if r is not None and not refused(r)}
    if len(kept) < plan.least_survivors:
        return so_far()
    game.routed, boxes = server.pass_on_shares(game.keyed, kept)  # type: ignore[arg-type]
    for client, box in boxes.items():
        give(client, box)
    there = frozenset(game.vectors_sent) | {0}
    lists = there, frozenset(boxes) - there
    signatures: dict[int, bytes] = {}
    if model is DISHONEST:
        for client in sorted(there - {0}):
            signatures |= game.agree({client: lists}) if rng.random() > rate else {}
        signatures = game.signatures(signatures, lists)
    for client in sorted(there - {0}):
        give(client, UnmaskRequest(game.round_id, *lists, Parts.of(signatures, 64)))
    if model is DISHONEST:
        game.check()
    return so_far()


def refused(reply: Message) -> bool:
    return isinstance(reply, Refusal)


MODELS = (CURIOUS, DISHONEST)


@pytest.mark.parametrize("model", MODELS)
def test_garbled_replies_cost_their_sender_alone(model: ServerModel) -> None:
    named = sum(garble_replies(seed, model) for seed in range(60))
    assert named > 20


@pytest.mark.parametrize("model", MODELS)
def test_garbled_requests_are_refused_or_answered_as_what_they_say(model: ServerModel) -> None:
    rounds = [garble_requests(seed, model) for seed in range(40)]
    assert sum(sent for sent, _ in rounds) > 40
    assert sum(refused for _, refused in rounds) > 30


@pytest.mark.audit
@pytest.mark.parametrize("model", MODELS)
def test_ten_thousand_garbled_replies_cost_their_sender_alone(model: ServerModel) -> None:
    named = sum(garble_replies(seed, model) for seed in range(1_000, 11_000))
    assert named > 4_000


@pytest.mark.audit
@pytest.mark.parametrize("model", MODELS)
def test_five_thousand_rounds_of_garbled_requests_tell_nothing(model: ServerModel) -> None:
    rounds = [garble_requests(seed, model) for seed in range(1_000, 6_000)]
    assert sum(sent for sent, _ in rounds) > 5_000
    assert sum(refused for _, refused in rounds) > 4_000

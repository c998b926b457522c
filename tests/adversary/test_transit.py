"""A network that alters what honest clients and an honest server send each other.

With the clients' keys nobody is named and no sum is wrong: whoever's message was altered is lost.
Without them the channel is trusted: what an alteration then does is written down here as well.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from adversary_room import COIN, CURIOUS, DISHONEST, Room, plan_for

from urna.errors import RoundAborted, RoundFailed, RoundUnfinished
from urna.protocols import secagg
from urna.protocols.secagg import ServerModel, Stage
from urna.protocols.secagg.messages import KeyBook, Parts, ShareBox, UnmaskRequest
from urna.protocols.secagg.transport import Letter
from urna.protocols.secagg.wire import decode, encode

VICTIM = 2
MODELS = (CURIOUS, DISHONEST)
STAGES = (Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.AGREE, Stage.UNMASK)
Change = Callable[[int, bytes], bytes]
"""What becomes of a client's letter or reply on its way."""


class Noisy:
    """A transport that alters letters of one stage on their way to clients, or back."""

    client_seconds = own_seconds = 0.0

    def __init__(self, room: Room, stage: Stage, way: str, change: Change) -> None:
        self._inner = secagg.MemoryTransport(room.parties)
        self._stage, self._way, self._change = stage, way, change
        self.altered = 0

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> Iterator[Letter]:
        there = [self._carried(stage, "to", letter) for letter in letters]
        back = self._inner.exchange(stage, there)
        return iter([self._carried(stage, "from", letter) for letter in back])

    def _carried(self, stage: Stage, way: str, letter: Letter) -> Letter:
        client, data = letter
        if (stage, way) != (self._stage, self._way):
            return letter
        found = self._change(client, data)
        self.altered += found != data
        return client, found


def held(
    room: Room, stage: Stage, way: str, change: Change
) -> tuple[secagg.Outcome | None, RoundFailed | None]:
    """Hold a round over a network that alters something; it must have met something to alter."""
    network = Noisy(room, stage, way, change)
    outcome, failed = None, None
    try:
        outcome = secagg.conduct(room.plan, network, number=1, coin=COIN, directory=room.directory)
    except RoundFailed as error:
        failed = error
    assert network.altered
    return outcome, failed


def flip(place: float, bit: int, clients: Iterable[int] = (VICTIM,)) -> Change:
    """Turn one bit of some clients' letters, so far into each."""
    chosen = frozenset(clients)

    def change(client: int, data: bytes) -> bytes:
        if client not in chosen:
            return data
        wrong = bytearray(data)
        wrong[int(place * len(data))] ^= 1 << bit
        return bytes(wrong)

    return change


def cases() -> list[object]:
    return [
        pytest.param(stage, way, model, id=f"{way} {stage.name}, {model}")
        for model in MODELS
        for stage in STAGES
        for way in ("to", "from")
        if stage is not Stage.AGREE or model is DISHONEST
    ]


def flipped_anywhere(stage: Stage, way: str, model: ServerModel, tries: int, seed: int) -> int:
    """Turn one bit of the victim's letter at many places; return how often a sum was opened."""
    plan, rng, opened = plan_for(6, model), np.random.default_rng([seed, stage, way == "to"]), 0
    for turn in range(tries):
        place = (turn + rng.random()) / tries  # in every part of the letter
        room = Room(plan, signed=True, label=b"flip %d" % turn)
        outcome, failed = held(room, stage, way, flip(place, int(rng.integers(8))))
        found = outcome or failed
        assert found is not None
        assert dict(found.faults) == {}, "an honest client is named"
        if outcome is None:
            assert isinstance(failed, RoundAborted | RoundUnfinished)
            continue
        opened += 1
        assert outcome.lost.keys() == {VICTIM}
        np.testing.assert_array_equal(outcome.total, room.truth(outcome.survivors))
    return opened


@pytest.mark.parametrize(("stage", "way", "model"), cases())
def test_a_bit_flipped_on_the_way_spoils_no_signed_sum_and_blames_nobody(
    stage: Stage, way: str, model: ServerModel
) -> None:
    assert flipped_anywhere(stage, way, model, 6, seed=1) == 6, "the plan allows for one lost"


@pytest.mark.audit
@pytest.mark.parametrize(("stage", "way", "model"), cases())
def test_no_bit_flipped_on_the_way_spoils_a_signed_sum(
    stage: Stage, way: str, model: ServerModel
) -> None:
    assert flipped_anywhere(stage, way, model, 200, seed=2) == 200


@pytest.mark.parametrize(("stage", "way", "model"), cases())
def test_a_bit_of_everybodys_letter_ends_a_signed_round_and_blames_nobody(
    stage: Stage, way: str, model: ServerModel
) -> None:
    room = Room(plan_for(6, model), signed=True)
    outcome, failed = held(room, stage, way, flip(0.9, 3, range(6)))
    assert outcome is None
    assert failed is not None
    assert failed.faults == {}
    # Once they were asked to reveal, only receipts close the round.
    assert isinstance(failed, RoundAborted) or stage is Stage.UNMASK


# A network that knows the protocol and writes what it likes.


def shorter_book(room: Room) -> Change:
    """Hide a neighbour: its key is not in the book."""

    def change(client: int, data: bytes) -> bytes:
        book = decode(data, room.plan)
        assert isinstance(book, KeyBook)
        short = replace(book, advertisements=book.advertisements[1:])
        return encode(short, room.plan) if client == VICTIM else data

    return change


def shorter_box(room: Room) -> Change:
    """Hide a neighbour's shares: no mask is shared with it."""

    def change(client: int, data: bytes) -> bytes:
        box = decode(data, room.plan)
        assert isinstance(box, ShareBox)
        bundles = Parts(box.bundles.clients[1:], box.bundles.rows[1:])
        return encode(replace(box, bundles=bundles), room.plan) if client == VICTIM else data

    return change


def other_lists(room: Room) -> Change:
    """Ask for a survivor's mask key in place of its seed."""

    def change(client: int, data: bytes) -> bytes:
        request = decode(data, room.plan)
        assert isinstance(request, UnmaskRequest)
        gone = frozenset({room.neighbours(VICTIM)[0]})
        moved = replace(request, survivors=request.survivors - gone, dropped=request.dropped | gone)
        return encode(moved, room.plan) if client == VICTIM else data

    return change


def exchanged(room: Room) -> Change:
    """Bring the victim's reply in another client's name as well."""
    del room
    seen: list[bytes] = []

    def change(client: int, data: bytes) -> bytes:
        if client == VICTIM:
            seen.append(data)
        return seen[0] if client == VICTIM + 1 else data

    return change


KNOWING = {
    "a shorter key book": (Stage.SHARE, "to", shorter_book),
    "a shorter share box": (Stage.MASK, "to", shorter_box),
    "other lists": (Stage.UNMASK, "to", other_lists),
    "another's keys": (Stage.ADVERTISE, "from", exchanged),
    "another's shares": (Stage.SHARE, "from", exchanged),
    "another's vector": (Stage.MASK, "from", exchanged),
    "another's reply": (Stage.UNMASK, "from", exchanged),
}


@pytest.mark.parametrize("name", KNOWING)
def test_a_network_that_knows_the_protocol_has_nobody_named(name: str) -> None:
    stage, way, made = KNOWING[name]
    room = Room(plan_for(6, CURIOUS), signed=True)
    outcome, _ = held(room, stage, way, made(room))
    assert outcome is not None
    assert outcome.faults == {}
    assert outcome.lost.keys() == ({VICTIM} if way == "to" else {VICTIM + 1})
    np.testing.assert_array_equal(outcome.total, room.truth(outcome.survivors))


def test_a_reply_of_another_round_is_none() -> None:
    """Signed by the right client, and to another letter than it was sent."""
    plan, old = plan_for(6, CURIOUS), list[bytes]()
    earlier = Room(plan, signed=True, number=1)

    def note(client: int, data: bytes) -> bytes:
        old.extend([data] if client == VICTIM else [])
        return data + b"?" if client == VICTIM + 1 else data

    held(earlier, Stage.MASK, "from", note)
    later = Room(plan, signed=True, number=2)
    network = Noisy(later, Stage.MASK, "from", lambda c, data: old[0] if c == VICTIM else data)
    outcome = secagg.conduct(plan, network, number=2, coin=COIN, directory=later.directory)
    assert (outcome.faults, outcome.lost.keys()) == ({}, {VICTIM})
    np.testing.assert_array_equal(outcome.total, later.truth(outcome.survivors))


# Without keys: the channel is trusted.


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.UNMASK])
@pytest.mark.parametrize("way", ["to", "from"])
def test_without_keys_what_arrived_is_named_as_what_arrived(stage: Stage, way: str) -> None:
    plan, named = plan_for(6, CURIOUS), 0
    for turn in range(6):
        room = Room(plan, label=b"open %d" % turn)
        outcome, failed = held(room, stage, way, flip((turn + 0.5) / 6, turn))
        found = outcome or failed
        assert found is not None
        assert found.faults.keys() <= {VICTIM}, "what came in its name, and nobody else's"
        assert all(why.endswith("as it was sent or as it arrived") for why in found.faults.values())
        named += bool(found.faults)
    # Keys, share boxes and requests that were altered are refused by who gets them.
    assert named or (stage, way) != (Stage.MASK, "to")


def test_without_keys_a_flipped_bit_of_a_vector_is_in_the_sum() -> None:
    """What TLS is assumed for. With keys the same bit costs one client its place, as above."""
    room = Room(plan_for(6, CURIOUS))
    outcome, _ = held(room, Stage.MASK, "from", flip(0.999, 0))
    assert outcome is not None
    assert (outcome.faults, dict(outcome.lost)) == ({}, {})
    off = outcome.total - room.truth(outcome.survivors)
    assert np.count_nonzero(off) == 1

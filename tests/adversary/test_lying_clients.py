"""Clients that deviate: the round ends as it may, and exactly the culprit is named.

A round with one liar finishes with the exact sum of those in it, or is aborted before anything
is revealed and can be held again without the liar. A client that has dealt secrets nobody can
rebuild is noticed only when they are asked for: then the round is unfinished, it counts, and
the liar is named. What becomes of vectors is `test_spoiled_sums`.
"""

from collections.abc import Iterable

import pytest
from adversary_room import COIN, CURIOUS, DISHONEST, Ended, Liar, Room, plan_for
from adversary_tricks import DEEDS, MALFORMED, Deed, Mangling

from urna.errors import RoundAborted, RoundFailed
from urna.protocols import secagg
from urna.protocols.secagg import Outcome, ServerModel, Stage
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    MaskedVector,
    Message,
    Refusal,
    SealedShares,
    UnmaskReply,
)
from urna.protocols.secagg.transport import Letter

MODELS = (CURIOUS, DISHONEST)
STAGES = {
    Stage.ADVERTISE: Advertisement,
    Stage.SHARE: SealedShares,
    Stage.MASK: MaskedVector,
    Stage.AGREE: Agreement,
    Stage.UNMASK: UnmaskReply,
}
IN_LARGE = {
    "channel_key of small order 0",
    "channel key off the curve, then silence",
    "garbage to half",
    "another digest to last",
    "a share of its seed off the polynomial to middle",
    "a share of its key off the polynomial to middle, then silence",
    "a false complaint with real proof",
    "a wrong share of a seed of all",
}


def hold(deed: Deed, clients: int, model: ServerModel, liar: int) -> Ended:
    """Hold a round in which one client lies."""
    plan = plan_for(clients, model)
    if deed.others_vanish:  # the liar and one more may be lost
        plan = plan_for(clients, model, colluders=0, dropouts=max(2, clients // 6))
    room = Room(plan, {liar: deed.trick})
    vanish = {liar: deed.vanishes} if deed.vanishes is not None else {}
    if deed.others_vanish:
        vanish[room.neighbours(liar)[0]] = Stage.MASK
    return Room(plan, {liar: deed.trick}, vanish).play()


def check(deed: Deed, clients: int, model: ServerModel, liar: int) -> None:
    ended = hold(deed, clients, model, liar)
    assert ended.kind is deed.ending
    assert ended.faults == ({liar} if deed.named else set())
    if not deed.moves:
        ended.check()
    if ended.outcome is not None:
        assert (liar in ended.outcome.survivors) == deed.stays
        return
    again = ended.room.again_without(ended.faults).play()
    assert again.kind is Outcome
    assert again.faults == set()
    again.check()


def cases(wanted: Iterable[Deed] = DEEDS) -> list[object]:
    return [
        pytest.param(deed, model, id=f"{deed.name}, {model}")
        for deed in wanted
        for model in deed.servers
    ]


@pytest.mark.parametrize(("deed", "model"), cases())
def test_a_lie_among_six_is_harmless_or_ends_the_round(deed: Deed, model: ServerModel) -> None:
    check(deed, 6, model, liar=4)


@pytest.mark.parametrize(("deed", "model"), cases(DEEDS[1::3]))
def test_a_lie_among_nine_is_harmless_or_ends_the_round(deed: Deed, model: ServerModel) -> None:
    check(deed, 9, model, liar=8)


@pytest.mark.parametrize(("deed", "model"), cases(deed for deed in DEEDS if deed.name in IN_LARGE))
def test_a_lie_among_sixty_is_harmless_or_ends_the_round(deed: Deed, model: ServerModel) -> None:
    check(deed, 60, model, liar=37)


@pytest.mark.audit
@pytest.mark.parametrize("clients", [10, 12, 60])
@pytest.mark.parametrize(("deed", "model"), cases())
def test_a_lie_among_any_number_is_harmless_or_ends_the_round(
    deed: Deed, model: ServerModel, clients: int
) -> None:
    for liar in (1, clients - 1) if clients < 60 else (30,):
        check(deed, clients, model, liar)


@pytest.mark.parametrize("mangling", MALFORMED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_no_answer_costs_its_sender_alone(
    stage: Stage, mangling: Mangling, model: ServerModel
) -> None:
    if stage is Stage.AGREE and model is CURIOUS:
        return  # not part of that round

    def trick(liar: Liar, request: Message, reply: Message) -> Message | bytes:
        return mangling(liar, reply) if type(reply) is STAGES[stage] else reply

    ended = Room(plan_for(6, model), {2: trick}).play()
    ended.check()
    assert ended.outcome is not None
    assert ended.faults == {2}
    assert ended.outcome.lost[2].stage is stage
    assert (2 in ended.outcome.survivors) == (stage >= Stage.AGREE)


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
@pytest.mark.parametrize("model", MODELS)
def test_silence_and_refusals_cost_a_client_its_place_and_no_blame(
    stage: Stage, model: ServerModel
) -> None:
    def refuse(liar: Liar, request: Message, reply: Message) -> Message:
        wanted = type(reply) is STAGES[stage]
        return Refusal(liar.client, "I would rather not") if wanted else reply

    plan = plan_for(6, model)
    for room in (Room(plan, vanish={2: stage}), Room(plan, {2: refuse})):
        if stage is Stage.AGREE and model is CURIOUS:
            continue
        ended = room.play()
        ended.check()
        assert ended.outcome is not None
        assert ended.faults == set()
        assert ended.lost == {2}


@pytest.mark.parametrize("model", MODELS)
def test_messages_of_an_earlier_round_are_of_no_use(model: ServerModel) -> None:
    plan = plan_for(6, model)
    before = Room(plan, number=1).play()
    old = {type(said.reply): said.reply for said in before.said if said.client == 3}

    def again(kind: type) -> object:
        def trick(liar: Liar, request: Message, reply: Message) -> Message:
            found = old[type(reply)]
            assert found is not None
            return found if type(reply) is kind else reply

        return trick

    for stage, kind in STAGES.items():
        if kind not in old:
            continue
        ended = Room(plan, {3: again(kind)}, number=2).play()  # type: ignore[dict-item]
        ended.check()
        assert ended.faults == {3}, stage
        assert ended.kind is Outcome


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [SealedShares, MaskedVector, UnmaskReply])
def test_ones_own_earlier_message_counts_as_silence(kind: type, model: ServerModel) -> None:
    """A network could have repeated it, so nobody is blamed."""
    said: list[Message] = []

    def trick(liar: Liar, request: Message, reply: Message) -> Message:
        said.append(reply)
        return said[0] if type(reply) is kind else reply

    ended = Room(plan_for(6, model), {5: trick}).play()
    ended.check()
    assert ended.faults == set()
    assert ended.lost == {5}


class TwoAnswers:
    """A transport by which one client answers everything twice, the first time as it likes."""

    client_seconds = own_seconds = 0.0

    def __init__(self, room: Room, client: int, first: bytes) -> None:
        self._inner = secagg.MemoryTransport(room.parties)
        self._client, self._first = client, first

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> list[Letter]:
        back = list(self._inner.exchange(stage, letters))
        before = [(self._client, self._first)] if dict(back).get(self._client) else []
        return [*before, *back]


def test_a_right_answer_after_a_wrong_one_counts_and_the_wrong_one_is_noted() -> None:
    room = Room(plan_for(6, CURIOUS))
    outcome = secagg.conduct(room.plan, TwoAnswers(room, 3, b"nonsense"), number=1, coin=COIN)
    assert outcome.faults.keys() == {3}
    assert outcome.lost == {}
    assert outcome.total.tolist() == room.truth(range(6)).tolist()


def test_several_liars_at_once_are_all_named() -> None:
    """Each of them does no harm, or ends the round before anything is revealed."""
    by_name = {deed.name: deed.trick for deed in DEEDS}
    plan = plan_for(12, CURIOUS, colluders=3, dropouts=4)
    harmless = {
        1: by_name["a neighbour left out"],
        4: by_name["another digest of its peers"],
        7: by_name["a wrong share of a seed of all"],
        9: by_name["a share of its seed off the polynomial to middle"],
    }
    ended = Room(plan, harmless).play()
    ended.check()
    assert ended.faults == {1, 4, 7, 9}
    garbage = {2: by_name["garbage to first"], 6: by_name["another digest to all"]}
    ended = Room(plan, harmless | garbage).play()
    ended.check()
    assert ended.kind is RoundAborted
    # Who harmed nobody yet is not known yet.
    assert ended.faults == {1, 2, 6}


def test_liars_who_complain_about_each_other_are_both_out() -> None:
    """A culprit that accuses another culprit: what the server sees decides."""
    by_name = {deed.name: deed.trick for deed in DEEDS}

    def accuse(liar: Liar, request: Message, reply: Message) -> Message | bytes:
        made = by_name["garbage to all"](liar, request, reply)
        return by_name["a false complaint with no proof"](liar, request, made)  # type: ignore[arg-type]

    ended = Room(plan_for(9, CURIOUS), {3: accuse, 5: by_name["garbage to all"]}).play()
    ended.check()
    assert ended.kind is RoundAborted
    assert ended.faults == {3, 5}


def test_an_aborted_round_says_who_is_to_blame_and_can_be_held_again() -> None:
    deed = next(deed for deed in DEEDS if deed.name == "garbage to first")
    ended = hold(deed, 9, CURIOUS, liar=2)
    assert isinstance(ended.failed, RoundFailed)
    harmed = ended.room.neighbours(2)[0]
    said = f"sent client {harmed} shares that cannot be decrypted, as it was sent or as it arrived"
    assert str(ended.failed).startswith(f"client 2 {said}. Nothing was revealed")
    assert "hold the round again without it. Fault: 2: sent" in str(ended.failed)

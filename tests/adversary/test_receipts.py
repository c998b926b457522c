"""Rounds that come to nothing: receipts close them exactly where too few holders are left."""

from collections.abc import Iterable
from itertools import chain, combinations

import pytest
from adversary_room import COIN, CURIOUS, DISHONEST, Liar, Room, plan_for
from adversary_tricks import DEEDS, MALFORMED, Mangling, a_receipt

from urna.errors import RoundAborted, RoundFailed, RoundUnfinished
from urna.protocols import secagg
from urna.protocols.secagg import ServerModel, Stage
from urna.protocols.secagg.messages import Message, Receipt, Refusal, UnmaskReply, Void
from urna.protocols.secagg.plan import _most_colluding, closed, closed_for_all
from urna.protocols.secagg.transport import Letter

MODELS = (CURIOUS, DISHONEST)


def subsets(items: Iterable[int], most: int | None = None) -> Iterable[frozenset[int]]:
    listed = sorted(items)
    sizes = range((len(listed) if most is None else most) + 1)
    return map(frozenset, chain.from_iterable(combinations(listed, size) for size in sizes))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("clients", "colluders", "dropouts"),
    [(4, 0, 1), (5, 1, 1), (6, 1, 1), (7, 2, 1), (8, 1, 2), (12, 0, 2)],
)
def test_a_client_is_closed_exactly_if_fewer_than_the_threshold_can_answer(
    clients: int, colluders: int, dropouts: int, model: ServerModel
) -> None:
    """Every set of receipts and every set of colluding holders, tried.

    Who can answer holds no receipt, or colludes and keeps what it signed that it forgot.
    """
    plan = secagg.plan(
        clients=clients, dimension=1, colluders=colluders, dropouts=dropouts, server=model
    )
    holders = range(plan.neighbours)
    seen = set()
    for receipts in subsets(holders):
        could = max(
            len((set(holders) - receipts) | traitors)
            for traitors in subsets(holders, _most_colluding(plan))
        )
        assert closed(plan, holders, receipts) == (could < plan.threshold)
        seen.add(could < plan.threshold)
    # With as many colluders as shares are needed less one, only everybody's receipt closes it.
    assert seen == {True, False}


def test_receipts_of_others_change_nothing() -> None:
    plan = secagg.plan(clients=12, dimension=1, dropouts=2)
    assert not closed(plan, range(6), range(6, 12))


def test_a_sum_is_closed_once_it_is_for_more_clients_than_may_collude() -> None:
    """One of them is honest, then, and its vector stays hidden in every sum."""
    plan = secagg.plan(clients=8, dimension=1, colluders=2, dropouts=1)
    everyone = frozenset(range(8))

    def holders(stuck: int) -> list[tuple[int, frozenset[int]]]:
        """So many clients' holders all signed, the others' did not."""
        return [(c, everyone - {c} if c < stuck else frozenset({8, 9, 10})) for c in range(8)]

    found = [closed_for_all(plan, holders(stuck), everyone) for stuck in range(5)]
    assert found == [False, False, False, True, True]


class Lossy:
    """A transport that loses the request to unmask on its way to some."""

    client_seconds = own_seconds = 0.0

    def __init__(self, room: Room, unreached: frozenset[int]) -> None:
        self._inner, self._unreached = secagg.MemoryTransport(room.parties), unreached

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> list[Letter]:
        lost = self._unreached if stage is Stage.UNMASK else frozenset()
        return self._inner.exchange(stage, [(c, data) for c, data in letters if c not in lost])


def failure(room: Room, unreached: frozenset[int]) -> RoundFailed | None:
    """Hold a round in which some are not asked to unmask; return how it failed, if it did."""
    transport = Lossy(room, unreached)
    try:
        secagg.conduct(room.plan, transport, number=1, coin=COIN, directory=room.directory)
    except RoundFailed as failed:
        return failed
    return None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clients", [6, 9])
def test_an_unfinished_round_is_closed_exactly_if_enough_have_forgotten_it(
    clients: int, model: ServerModel
) -> None:
    """Whatever number of clients is asked to reveal, from none to all."""
    plan, kinds = plan_for(clients, model), []
    for unreached in range(clients + 1):
        room, away = Room(plan), frozenset(range(unreached))
        failed = failure(room, away)
        kinds.append(secagg.Outcome if failed is None else type(failed))
        answered = [len(set(room.neighbours(c)) - away) for c in range(clients)]
        if failed is None:
            assert min(answered) >= plan.threshold
            continue
        assert set(failed.receipts) == away, "all who were not asked, and nobody else"
        assert failed.faults == {}
        stuck = [many + _most_colluding(plan) < plan.threshold for many in answered]
        closed_now = sum(stuck) > plan.colluders
        assert type(failed) is (RoundAborted if closed_now else RoundUnfinished)
        assert ("nothing ever will be" in str(failed)) == closed_now
    # In this order, as fewer and fewer have answered.
    order = [secagg.Outcome, RoundUnfinished, RoundAborted]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)


@pytest.mark.parametrize("model", MODELS)
def test_silent_clients_give_no_receipts_and_leave_the_round_open(model: ServerModel) -> None:
    plan = plan_for(9, model)
    ended = Room(plan, vanish=dict.fromkeys(range(8), Stage.UNMASK)).play()
    assert ended.kind is RoundUnfinished
    assert ended.failed is not None
    assert ended.failed.receipts == {}


@pytest.mark.parametrize("mangling", [m for m in MALFORMED if m is not a_receipt])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_no_receipt_does_not_count_and_is_named(
    mangling: Mangling, model: ServerModel
) -> None:
    def trick(liar: Liar, request: Message, reply: Message) -> Message | bytes:
        return mangling(liar, reply) if isinstance(reply, Receipt) else reply

    ended = Room(plan_for(6, model), {3: trick}, dict.fromkeys(range(2), Stage.MASK)).play()
    assert isinstance(ended.failed, RoundAborted)
    assert ended.faults == {3}
    assert set(ended.failed.receipts) == {2, 4, 5}
    assert ended.lost == {0, 1}, "nobody is lost by what it says at the end"


def test_a_receipt_signed_wrongly_does_not_count_and_is_named() -> None:
    def forge(liar: Liar, request: Message, reply: Message) -> Message:
        wrong = isinstance(reply, Receipt)
        return Receipt(liar.round_id, liar.client, bytes(64)) if wrong else reply

    plan = plan_for(9, DISHONEST)
    ended = Room(plan, {7: forge}, dict.fromkeys(range(2), Stage.MASK)).play()
    assert ended.kind is RoundAborted
    assert ended.failed is not None
    assert ended.faults == {7}
    assert set(ended.failed.receipts) == set(range(2, 9)) - {7}


def deny(liar: Liar, request: Message, reply: Message) -> Message:
    """Reveal everything behind the server's back, and sign that nothing was revealed."""
    if isinstance(reply, UnmaskReply):
        return Refusal(liar.client, "not now")
    return Receipt(liar.round_id, liar.client, b"") if isinstance(request, Void) else reply


def test_a_false_receipt_of_a_colluder_closes_nothing_that_is_open() -> None:
    """Every set of clients whom the request to unmask does not reach, tried.

    A round that is called closed has an honest survivor of whose seed too few shares are out,
    the colluder's counted. Were colluders not allowed for, some would be called closed though
    every seed is known.
    """
    plan, liar, fooled = plan_for(6, CURIOUS), 5, 0
    assert (plan.threshold, plan.colluders, _most_colluding(plan)) == (3, 1, 1)
    for away in subsets(range(5)):
        room = Room(plan, {liar: deny})
        failed = failure(room, away)
        if failed is None:
            continue
        near = {c: set(room.neighbours(c)) for c in range(5)}
        hidden = [c for c in range(5) if len(near[c] - away) < plan.threshold]
        if isinstance(failed, RoundAborted):
            assert hidden
        receipts = away | {liar}
        naive = [c for c in range(6) if len(set(room.neighbours(c)) - receipts) < plan.threshold]
        fooled += bool(naive) and not hidden
    assert fooled


@pytest.mark.parametrize("model", MODELS)
def test_after_any_failure_only_clients_that_revealed_nothing_give_receipts(
    model: ServerModel,
) -> None:
    for deed in DEEDS:
        if model not in deed.servers or deed.ending is secagg.Outcome:
            continue
        vanish = {4: deed.vanishes} if deed.vanishes is not None else {}
        ended = Room(plan_for(6, model), {4: deed.trick}, vanish).play()
        assert ended.failed is not None
        revealed = {s.client for s in ended.said if isinstance(s.reply, UnmaskReply)}
        assert not revealed & set(ended.failed.receipts)

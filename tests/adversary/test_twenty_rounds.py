"""Many rounds in a row with somebody who does what it can: honest clients pay once at most.

Not among what it can do here is to put in another vector or other masks: that spoils a sum, and
nobody can tell who it was (`test_spoiled_sums`).
"""

import numpy as np
import pytest
from adversary_room import CURIOUS, DISHONEST, Room, plan_for
from adversary_tricks import DEEDS

from urna.errors import RoundAborted
from urna.protocols.secagg import Outcome, ServerModel

ROUNDS = 20


def play_series(seed: int, model: ServerModel, clients: int) -> tuple[int, int]:
    """Hold a series in which one client plays a trick in every round, until it is caught.

    Returns:
        How many sums were wanted and got, and how many rounds honest clients paid for: those
        that were opened or whose opening had begun.
    """
    rng = np.random.default_rng(seed)
    plan = plan_for(clients, model)
    known = [d for d in DEEDS if model in d.servers and not d.others_vanish and not d.moves]
    culprit = int(rng.integers(1, clients))
    banned: frozenset[int] = frozenset()
    got = paid = number = 0
    while got < ROUNDS:
        number += 1
        assert number <= ROUNDS + 2, "a culprit that ends rounds again and again"
        deed = known[int(rng.integers(len(known)))]
        absent = culprit in banned
        liars = {} if absent else {culprit: deed.trick}
        vanish = {culprit: deed.vanishes} if deed.vanishes is not None and not absent else {}
        label = b"series %d" % seed
        ended = Room(plan, liars, vanish, absent=banned, number=number, label=label).play()
        ended.check()
        if ended.kind is Outcome:
            got, paid = got + 1, paid + 1
            continue
        assert ended.faults == {culprit}, "what ended a round has a name"
        paid += ended.kind is not RoundAborted
        banned = frozenset(ended.faults)
    return got, paid


@pytest.mark.parametrize("model", [CURIOUS, DISHONEST])
def test_twenty_sums_cost_at_most_one_round_more(model: ServerModel) -> None:
    for seed in range(3):
        got, paid = play_series(seed, model, 6)
        assert got == ROUNDS
        assert paid <= ROUNDS + 1


@pytest.mark.audit
@pytest.mark.parametrize("model", [CURIOUS, DISHONEST])
@pytest.mark.parametrize("clients", [6, 9, 12])
def test_a_hundred_times_twenty_sums_cost_one_round_more_each_at_most(
    clients: int, model: ServerModel
) -> None:
    extra = [play_series(seed, model, clients)[1] - ROUNDS for seed in range(100, 200)]
    assert set(extra) == {0, 1}, "and some do cost one"

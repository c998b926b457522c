"""A complaint ends a round while other processes still hold replies to it."""

from dataclasses import dataclass

import numpy as np
import pytest
from adversary_room import COIN, CURIOUS, Room, plan_for
from adversary_tricks import DEEDS

from urna.errors import RoundAborted
from urna.protocols import secagg
from urna.protocols.secagg.transport import Party, WorkerTransport


@dataclass(frozen=True)
class Group:
    """Some clients of a room in which one lies, built where they arrive."""

    clients: frozenset[int]
    liar: int
    deed: str

    def parties(self) -> dict[int, Party]:
        trick = next(deed.trick for deed in DEEDS if deed.name == self.deed)
        room = Room(plan_for(80, CURIOUS), {self.liar: trick})
        return {client: room.parties[client] for client in self.clients}


@pytest.mark.parametrize("liar", [1, 79])
def test_only_the_culprit_is_named_whoever_else_was_about_to_answer(liar: int) -> None:
    plan = plan_for(80, CURIOUS)
    everyone = np.arange(80)
    groups = [
        Group(frozenset(part.tolist()), liar, "garbage to half")
        for part in np.array_split(everyone, 2)
    ]
    with WorkerTransport(groups) as spread, pytest.raises(RoundAborted) as aborted:
        secagg.conduct(plan, spread, number=1, coin=COIN)
    assert set(aborted.value.faults) == {liar}
    assert aborted.value.lost == {}
    # All have forgotten the round: who complained has handed out no shares either.
    assert set(aborted.value.receipts) == set(range(80))

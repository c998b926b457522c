"""A vote over Flower's messages: winners, dropouts, strangers, what is said and what is kept."""

import itertools
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from flower_grid import Node
from flower_nodes import BUDGET, DATA, OPEN, QUICK, SPACE, Near, federation, node
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from urna.errors import BudgetExceeded, ParameterError, RoundAborted
from urna.flower import Deadlines, SumProgress, poll
from urna.flower.gathering import Federation
from urna.flower.messages import Kind
from urna.flower.participant import simulated
from urna.privacy import Budget, Ledger
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.systems.vote import ArgmaxDecoder, NoisyVotes, VoteSettings, rehearse, search
from urna.tally import Run

# Letters a node gets: 0 the announcement, 1 advertise, 2 share, 3 mask, 4 unmask.
ADVERTISE, SHARE, MASK, UNMASK = 1, 2, 3, 4


def test_a_vote_over_flower_is_the_vote_in_memory_bit_for_bit() -> None:
    members = [node(number, script="same") for number in range(8)]
    over_flower = poll(
        federation(*members), SPACE, budget=BUDGET, dropout=0.25, settings=VoteSettings(votes=2)
    )
    in_memory = search(
        SPACE,
        Near(),
        [DATA[number % 3] for number in range(8)],
        budget=BUDGET,
        dropout=0.25,
        colluding=0.1,
        settings=VoteSettings(votes=2),
        run=Run(secrets=ScriptedSecrets(b"same")),
    )
    np.testing.assert_array_equal(over_flower.votes, in_memory.votes)
    assert over_flower.best == in_memory.best
    assert over_flower.standard_error == in_memory.standard_error
    assert not over_flower.privacy.private


def test_one_node_without_secrets_is_left_out_and_voids_nothing() -> None:
    members = [node(number, script="known" if number == 3 else None) for number in range(12)]
    result = poll(federation(*members), SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert result.privacy.private
    assert result.took_part == 11
    assert [why for why in result.lost.values() if "randomness is scripted" in why]


def test_ray_for_a_nodes_own_reasons_is_no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployed node that uses Ray keeps its policy and its ledger."""
    worker = SimpleNamespace(global_worker=SimpleNamespace(actors={"a": object()}))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "ray._private.worker", worker)
    assert not simulated()


def test_the_numbers_of_clients_follow_their_names_and_not_who_answers_first() -> None:
    members = [node(number, script="same") for number in range(11)]
    forwards = poll(federation(*members), SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    backwards = poll(
        federation(*reversed(members)), SPACE, budget=BUDGET, settings=VoteSettings(votes=2)
    )
    np.testing.assert_array_equal(forwards.votes, backwards.votes)


def test_a_private_vote_finds_what_the_nodes_agree_on_and_says_whom_it_trusted() -> None:
    result = poll(
        federation(*(node(number, data=lambda _: 0.4) for number in range(12))),
        SPACE,
        budget=Budget(10.0, 1e-5),
        settings=VoteSettings(votes=1),
    )
    assert result.best == {"lr": 0.4}
    assert result.privacy.private
    assert result.privacy.epsilon <= 10.0
    assert result.took_part == 12
    assert "honest-but-curious server only" in str(result.privacy)
    json.loads(result.as_json())


@pytest.mark.parametrize("fault", ["silent", "late", "crash", "restart", "5"])
@pytest.mark.parametrize("stage", [ADVERTISE, SHARE, MASK, UNMASK])
def test_a_vote_survives_a_node_lost_at_any_stage(stage: int, fault: str) -> None:
    grid = federation(*(node(n, faults={stage: fault} if n == 2 else {}) for n in range(8)))
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    kept = stage == UNMASK or (fault == "restart" and stage == ADVERTISE)
    assert result.took_part == (8 if kept else 7)
    assert result.lost.keys() == (set() if kept else {998})
    if not kept:
        assert result.lost[998].startswith("2: ")


@pytest.mark.parametrize(
    ("code", "noticed"),
    [("3", "the message to it was lost"), ("4", "its reply was lost"), ("5", "not connected")],
)
def test_a_node_that_flower_finds_gone_was_silent_and_refused_nothing(
    code: str, noticed: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether Flower's heartbeat or the stage's deadline is first: the same is said of the node."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = federation(*(node(n, faults={SHARE: code} if n == 2 else {}) for n in range(8)))
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert result.lost == {998: "2: did not answer in time (share)"}
    assert [r.message for r in caplog.records if "node 998" in r.message and noticed in r.message]
    assert grid.nodes[998].letters[-1].kind is Kind.END, "it is told, should it be back"
    absent = federation(*(node(n, faults={0: code} if n == 2 else {}) for n in range(8)))
    result = poll(
        absent,
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert result.lost == {998: "did not answer the announcement"}


def test_the_error_text_of_a_node_goes_no_further() -> None:
    def fails(_: Context) -> float:
        raise ValueError("SECRET-OF-THE-NODE")

    crash = node(1, faults={MASK: "crash"})
    grid = federation(node(0), crash, node(2, data=fails), *(node(n) for n in range(3, 8)))
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.3,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert result.lost == {999: "1: refused: its ClientApp failed (mask)"}
    assert result.took_part == 7, "a node whose data fail looks like any other"
    assert "SECRET" not in result.as_json()
    assert "ValueError" not in result.as_json()


def test_a_restarted_node_answers_no_stage_it_has_no_state_for() -> None:
    restarted = node(0, faults={UNMASK: "restart"})
    grid = federation(restarted, *(node(n) for n in range(1, 8)))
    result = poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert result.took_part == 8  # its ballot was in; its shares were not needed
    restarted = node(0, faults={MASK: "restart"})
    result = poll(
        federation(restarted, *(node(n) for n in range(1, 8))),
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    assert "holds no state" in result.lost[1000]


def test_too_many_losses_abort_the_vote_and_name_the_missing() -> None:
    grid = federation(*(node(n, faults={SHARE: "silent"} if n < 3 else {}) for n in range(8)))
    with pytest.raises(RoundAborted, match="Nothing was revealed") as aborted:
        poll(
            grid,
            SPACE,
            budget=BUDGET,
            dropout=0.25,
            settings=VoteSettings(votes=2),
            federation=Federation(deadlines=QUICK),
        )
    assert aborted.value.lost.keys() == {1000, 999, 998}
    assert all("did not answer in time" in why for why in aborted.value.lost.values())
    # Those who had state were told to forget it.
    assert all(len(member.state) == 0 for member in list(grid.nodes.values())[3:])
    assert grid.nodes[995].letters[-1].kind is Kind.END


def test_nothing_of_a_vote_stays_in_a_nodes_state() -> None:
    grid = federation(*(node(n) for n in range(6)))
    poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert all(len(member.state) == 0 for member in grid.nodes.values())


def test_the_state_between_stages_forgets_the_ballot_once_it_is_sent() -> None:
    grid = federation(*(node(n, faults={UNMASK: "silent"} if n == 0 else {}) for n in range(8)))
    seen = []
    grid.tamper = lambda message: (seen.append(dict(grid.nodes[1000].state.items())), message)[1]
    poll(
        grid,
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=QUICK),
    )
    kept = [state["urna"] for state in seen if state]
    kinds = [(chr(held["state"][0]), held["vector"], held["sent"]) for held in kept]
    order = [kind for kind, _ in itertools.groupby(kind for kind, *_ in kinds)]
    assert order == ["A", "S", "M"], "advertised, shared, masked"
    assert all(bool(vector) == (kind != "M") for kind, vector, _ in kinds)
    assert all(sent == (kind == "M") for kind, _, sent in kinds)


def test_a_plain_flower_client_is_named_and_not_a_crash() -> None:
    plain = ClientApp()

    @plain.train()
    def train(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    grid = federation(Node(plain), *(node(n) for n in range(5)))
    result = poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=2))
    assert result.took_part == 5
    assert result.lost == {1000: "refused: runs no Urna: its ClientApp does not take part in sums"}


def test_a_client_that_answers_nonsense_is_named_and_not_a_crash() -> None:
    odd = ClientApp()

    @odd.query("urna")
    def query(message: Message, context: Context) -> Message:
        message.content.pop("urna")
        return Message(message.content, reply_to=message)

    result = poll(
        federation(Node(odd), *(node(n) for n in range(5))),
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
    )
    assert result.lost == {1000: "refused: the message holds no record of Urna's"}


def test_two_nodes_of_one_name_do_not_vote_twice() -> None:
    result = poll(federation(node(7), node(7), *(node(n) for n in range(4))), SPACE, budget=BUDGET)
    assert result.took_part == 5
    assert list(result.lost.values()) == ["7: another node already has this name"]


def test_with_too_few_nodes_nothing_is_announced() -> None:
    grid = federation(node(0), node(1))
    with pytest.raises(RoundAborted, match="2 nodes are connected; the sum needs 3"):
        poll(grid, SPACE, budget=BUDGET, federation=Federation(least_clients=3, deadlines=QUICK))
    assert grid.sent == []


def test_with_too_few_willing_nodes_nothing_is_begun() -> None:
    strict = replace(OPEN, epsilon=1.0)
    grid = federation(node(0), node(1), node(2, policy=strict))
    with pytest.raises(RoundAborted, match="2 of 3 nodes take part") as aborted:
        poll(grid, SPACE, budget=BUDGET, federation=Federation(least_clients=3, deadlines=QUICK))
    assert "more privacy than this node allows" in aborted.value.lost[998]
    assert all(len(member.letters) == 1 for member in grid.nodes.values())


def test_progress_names_stages_answers_and_the_time_left() -> None:
    steps: list[SumProgress] = []
    waits = Deadlines(gather=5.0, evaluate=50.0, stage=10.0)
    poll(
        federation(*(node(n) for n in range(4))),
        SPACE,
        budget=BUDGET,
        settings=VoteSettings(votes=2),
        federation=Federation(deadlines=waits),
        run=Run(progress=steps.append),
    )
    stages = [name for name, _ in itertools.groupby(step.stage for step in steps)]
    assert stages == [
        "gathering",
        "computing and exchanging keys",
        "sharing keys",
        "sending masked vectors",
        "opening the sum",
    ]
    for stage in stages:
        own = [step for step in steps if step.stage == stage]
        assert [own[0].answered, own[-1].answered, own[-1].asked] == [0, 4, 4]
        assert own[-1].seconds_left <= own[0].seconds_left
    assert {s.seconds_left for s in steps if s.answered == 0} == {5.0, 50.0, 10.0}


def test_the_servers_own_ledger_counts_a_vote_and_not_an_aborted_one(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "server", Budget(12.0, 1e-5))
    silent = federation(*(node(n, faults={SHARE: "silent"}) for n in range(4)))
    with pytest.raises(RoundAborted):
        poll(
            silent,
            SPACE,
            budget=BUDGET,
            federation=Federation(deadlines=QUICK),
            run=Run(ledger=ledger),
        )
    assert ledger.spent().epsilon == 0
    poll(federation(*(node(n) for n in range(4))), SPACE, budget=BUDGET, run=Run(ledger=ledger))
    assert 7 < ledger.spent().epsilon <= 8
    with pytest.raises(BudgetExceeded):
        poll(federation(*(node(n) for n in range(4))), SPACE, budget=BUDGET, run=Run(ledger=ledger))


def test_a_space_that_the_decoder_cannot_read_costs_nothing(tmp_path: Path) -> None:
    class Unfit(ArgmaxDecoder):
        def winner(self, tally: NoisyVotes) -> int:
            raise MemoryError

    ledger, nodes = Ledger.open(tmp_path / "server", BUDGET), [node(n) for n in range(4)]
    with pytest.raises(MemoryError):
        poll(
            federation(*nodes),
            SPACE,
            budget=BUDGET,
            settings=VoteSettings(decoder=Unfit()),
            run=Run(ledger=ledger),
        )
    assert ledger.entries() == []


def test_wrong_settings_are_refused_before_anything_is_sent() -> None:
    grid = federation(*(node(n) for n in range(4)))
    with pytest.raises(ParameterError, match="directory"):
        poll(grid, SPACE, budget=BUDGET, server="dishonest")
    with pytest.raises(ParameterError, match="as many candidates"):
        poll(grid, SPACE, budget=BUDGET, settings=VoteSettings(votes=9))
    with pytest.raises(ParameterError, match="two clients"):
        poll(grid, SPACE, budget=BUDGET, federation=Federation(least_clients=1))
    with pytest.raises(ParameterError, match="deadlines"):
        Deadlines(stage=0)
    assert grid.sent == []
    assert OPEN.ledger is None


def test_none_and_tuples_travel_to_the_nodes_and_into_the_result() -> None:
    space = {"depth": [2, 4, None], "sizes": [(8,), (8, 16)]}
    asked: list[Any] = []

    def loss(candidate: dict[str, Any], data: float) -> float:
        asked.append((candidate["depth"], candidate["sizes"]))
        return (candidate["depth"] is not None) + len(candidate["sizes"])

    members = [node(number, objective=loss) for number in range(8)]
    result = poll(
        federation(*members), space, budget=Budget(10.0, 1e-5), settings=VoteSettings(votes=1)
    )
    assert set(asked) == {(d, s) for d in (2, 4, None) for s in ((8,), (8, 16))}
    assert result.best == {"depth": None, "sizes": (8,)}


def test_a_rehearsal_at_the_server_asks_nodes_about_its_shortlist() -> None:
    """Nodes know nothing of it; the tally is that of the same search in memory."""
    space = Space(lr=[round(0.1 * i, 1) for i in range(20)])
    rehearsal = rehearse(space, Near(), [DATA[0], DATA[1]], data="public")
    members = [node(number, script="same") for number in range(8)]
    tight = Budget(1.0, 1e-5)
    over_flower = poll(
        federation(*members), space, budget=tight, settings=VoteSettings(rehearsal=rehearsal)
    )
    in_memory = search(
        space,
        Near(),
        [DATA[number % 3] for number in range(8)],
        budget=tight,
        colluding=0.1,
        settings=VoteSettings(rehearsal=rehearsal),
        run=Run(secrets=ScriptedSecrets(b"same"), force=True),
    )
    assert len(over_flower.space) == 8
    np.testing.assert_array_equal(over_flower.votes, in_memory.votes)
    assert over_flower.best == in_memory.best
    assert over_flower.rehearsal == in_memory.rehearsal
    assert over_flower.rehearsal is not None
    with pytest.raises(ParameterError, match="this vote cannot succeed"):
        poll(federation(*members), space, budget=tight)
    with pytest.raises(ParameterError, match="rehearsal was of other candidates"):
        poll(federation(*members), SPACE, budget=tight, settings=VoteSettings(rehearsal=rehearsal))

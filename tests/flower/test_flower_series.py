"""Sums that are no votes, and series of them: one entry per node, advanced round by round."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, QUICK, app_of, federation
from flower_tricks import TRICKS, Trick
from flwr.app import Message
from grouped import grouped

from urna.errors import BudgetExceeded, ParameterError, RoundAborted
from urna.flower import (
    Call,
    Grant,
    Participant,
    Policy,
    Statistic,
    Statistics,
    Sums,
    register,
)
from urna.flower.messages import Letter
from urna.flower.rounds import Desk, add_up
from urna.noise import IntVector
from urna.privacy import Budget, Ledger, Repeated
from urna.tally import BoundedVector, Tallied, TallyPlan, Terms, in_units, plan_tally
from urna.testing import ReleaseContract

ROUNDS, SIZE = 5, 10
TOTAL = Budget(8.0, 1e-5)
SUBJECT = Statistic("devices", BoundedVector(3, 1))
GRANTS = {"statistic": Grant(most_entries=3, most_rounds=ROUNDS, names=("devices",))}
# Letters of a node: 0 the announcement, then four for each round.
MASK = 3


class TestServersLedger(ReleaseContract):
    """A sum over Flower, in the server's own ledger."""

    cap = Budget(8.001, 1e-5)

    def release(self, ledger: Ledger, entry: str, reveal: Callable[[], None]) -> None:
        def conduct(desk: Desk) -> tuple[Tallied, IntVector]:
            reveal()
            return add_up(desk)

        grid = federation(*(member(number) for number in range(SIZE)))
        sums(grid, rounds=1, conduct=conduct, ledger=ledger, entry=entry).round()


def policy(folder: Path | None, number: int, **changes: Any) -> Policy:
    base = replace(OPEN, grants=GRANTS, epsilon=8.5, delta=1e-5, **changes)
    if folder is None:
        return base
    return replace(base, forgets=False, ledger=folder / f"{number}.ledger")


def member(
    number: int,
    folder: Path | None = None,
    *,
    faults: Mapping[int, str] | None = None,
    trick: Trick | None = None,
    **changes: Any,
) -> Node:
    """Return a node that has one device: the one its number names."""
    vector = np.eye(3, dtype=np.int64)[number % 3]
    participant = Participant(
        [Statistics({"devices": lambda _: vector})], policy=policy(folder, number, **changes)
    )
    return Node(app_of(participant, trick), {"partition-id": number}, faults or {})


def sums(grid: LocalGrid, **changes: Any) -> Sums:
    asked: dict[str, Any] = {"budget": TOTAL, "rounds": ROUNDS, "dropout": 0.2, "deadlines": QUICK}
    return Sums(grid, SUBJECT, **grouped(asked | changes))


def rounds_counted(folder: Path, number: int) -> list[int | None]:
    return [entry.rounds for entry in Ledger(folder / f"{number}.ledger").entries()]


def test_a_statistic_is_summed_under_its_noise() -> None:
    held = sums(federation(*(member(n) for n in range(SIZE))), rounds=1)
    with pytest.raises(ParameterError, match="nobody was gathered yet"):
        held.announcement  # noqa: B018
    released, plan = held.round(), held.announcement.plan
    found = in_units(released.tallied.total, plan)
    assert np.abs(found - [4, 3, 3]).max() < 8 * plan.most_noise_std
    assert released.privacy.private
    assert released.privacy.epsilon <= TOTAL.epsilon
    assert len(released.tallied.accepted) == SIZE


def test_a_series_is_one_entry_in_each_ledger_advanced_round_by_round(tmp_path: Path) -> None:
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    own = Ledger.open(tmp_path / "server.ledger", Budget(8.5, 1e-5))
    held = sums(grid, ledger=own)
    announced = held.gather()
    for number in range(1, ROUNDS + 1):
        released = held.round(b"model %d" % number)
        assert [rounds_counted(tmp_path, n) for n in range(SIZE)] == [[number]] * SIZE
        assert [entry.rounds for entry in own.entries()] == [number]
        assert released.privacy.epsilon <= TOTAL.epsilon
    (entry,) = Ledger(tmp_path / "0.ledger").entries()
    assert entry.label == "statistic devices, 5 rounds"
    # All rounds together cost what the terms allow, and nearly all of it.
    assert 0.9 * TOTAL.epsilon < entry.cost.at(TOTAL.delta) <= TOTAL.epsilon
    assert released.privacy.epsilon == pytest.approx(entry.cost.at(TOTAL.delta))
    assert announced.plan.whole_epsilon <= TOTAL.epsilon
    with pytest.raises(ParameterError, match="all 5 rounds of this series were held"):
        held.round()


def test_one_round_of_a_series_costs_less_than_the_whole() -> None:
    terms = Terms.of(SIZE, TOTAL, dropout=0.2, colluding=0.1)
    series, single = SUBJECT.plan(terms, ROUNDS), SUBJECT.plan(terms, 1)
    assert series.release is not None
    together = Repeated(series.release, ROUNDS).cost().at(TOTAL.delta)
    assert 0.9 * TOTAL.epsilon < together <= TOTAL.epsilon
    assert series.release.cost().at(TOTAL.delta) < 0.5 * TOTAL.epsilon
    assert series.noise_std > math.sqrt(ROUNDS) * 0.8 * single.noise_std


def test_a_node_that_drops_out_comes_back_in_the_next_round(tmp_path: Path) -> None:
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    held = sums(grid)
    grid.nodes[997].faults = {MASK: "silent"}
    first = held.round(b"1")
    assert len(first.tallied.accepted) == SIZE - 1
    assert held.lost == {997: "3: did not answer in time (mask)"}
    second = held.round(b"2")
    assert len(second.tallied.accepted) == SIZE
    assert held.lost == {}
    assert rounds_counted(tmp_path, 3) == [2], "counted up to the latest round it took part in"
    assert rounds_counted(tmp_path, 4) == [2]


def test_inputs_are_bound_to_the_round(tmp_path: Path) -> None:
    """A node that is given another model than the others has no round in common with them."""
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    held = sums(grid)

    def tamper(message: Message) -> Message:
        letter = Letter.read(message.content)
        if message.metadata.dst_node_id == 997 and letter.inputs:
            message.content = replace(letter, inputs=b"another model").as_records()
        return message

    grid.tamper = tamper
    released = held.round(b"model")
    assert len(released.tallied.accepted) == SIZE - 1
    assert "coin is not the one this client holds" in held.lost[997]
    assert Ledger(tmp_path / "3.ledger").entries() == []


def test_every_contributor_gets_the_rounds_inputs() -> None:
    seen: list[tuple[int, bytes]] = []

    class Echo(Statistics):
        def contribute(self, call: Call) -> IntVector:
            seen.append((call.number, call.inputs))
            assert len(call.key) == 32
            return super().contribute(call)

    grid = federation(
        *(
            Node(
                app_of(
                    Participant([Echo({"devices": lambda _: [1, 0, 0]})], policy=policy(None, n))
                ),
                {"partition-id": n},
            )
            for n in range(SIZE)
        )
    )
    held = sums(grid)
    for number in (1, 2):
        held.round(b"model %d" % number)
    assert seen == [(1, b"model 1")] * SIZE + [(2, b"model 2")] * SIZE


def test_a_series_stops_when_a_ledger_is_full(tmp_path: Path) -> None:
    """Each node stops at its own cap, and the server at its own."""
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    before = Ledger.open(tmp_path / "3.ledger", Budget(8.5, 1e-5))
    plan = SUBJECT.plan(Terms.of(SIZE, Budget(6.0, 1e-5), dropout=0.2, colluding=0.1), 1)
    assert plan.release is not None
    before.charge(plan.release, label="an earlier sum")
    held = sums(grid)
    took = [len(held.round(b"%d" % n).tallied.accepted) for n in range(ROUNDS)]
    assert took[0] == SIZE
    assert took[-1] == SIZE - 1
    assert "privacy budget is too little" in held.lost[997]
    assert before.spent().epsilon <= 8.5
    own = Ledger.open(tmp_path / "server.ledger", Budget(4.0, 1e-5))
    grid = federation(*(member(n, None) for n in range(SIZE)))
    limited = sums(grid, ledger=own)
    limited.round(b"1")
    with pytest.raises(BudgetExceeded):
        limited.round(b"2")
    assert [entry.rounds for entry in own.entries()] == [1]


def test_a_round_that_came_to_nothing_is_not_counted_and_its_number_is_gone(tmp_path: Path) -> None:
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    held = sums(grid)
    held.round(b"1")
    for number in range(4):  # of ten, two may be lost
        grid.nodes[1000 - number].faults = {4 + MASK: "silent"}
    with pytest.raises(RoundAborted, match="Nothing was revealed"):
        held.round(b"2")
    assert [rounds_counted(tmp_path, n) for n in range(SIZE)] == [[1]] * SIZE
    third = held.round(b"2")
    assert len(third.tallied.accepted) == SIZE
    assert held.transcript is not None
    assert held.transcript.number == 3
    # The one that came to nothing is paid for in the end: a number stands for all up to it.
    assert [rounds_counted(tmp_path, n) for n in range(SIZE)] == [[3]] * SIZE


def test_an_old_void_round_takes_nothing_back_that_came_later(tmp_path: Path) -> None:
    """A server that keeps the end of a void round to itself, and tells it after two more."""
    grid = federation(*(member(n, tmp_path) for n in range(SIZE)))
    held = sums(grid)
    for number in range(4):
        grid.nodes[1000 - number].faults = {MASK: "silent"}
    with pytest.raises(RoundAborted):
        held.round(b"1")
    late = [m for m in grid.sent if Letter.read(m.content).kind == "end"]
    assert len(late) == SIZE
    held.round(b"2")
    held.round(b"3")
    counted = [rounds_counted(tmp_path, n) for n in range(SIZE)]
    assert counted == [[3]] * SIZE
    grid.push_messages(late)
    grid.push_messages(late)
    assert [rounds_counted(tmp_path, n) for n in range(SIZE)] == counted


def test_in_a_series_the_caller_decides_what_becomes_of_a_culprit() -> None:
    grid = federation(
        *(member(n, trick=TRICKS["garbage bundles"] if n == 3 else None) for n in range(SIZE))
    )
    held = sums(grid)
    with pytest.raises(RoundAborted) as aborted:
        held.round()
    assert aborted.value.faults.keys() == {997}
    assert held.faults.keys() == {997}


# A kind of one's own


class Doubled:
    """Two numbers, of which a plugin of somebody else knows the meaning."""

    kind = "doubled"
    label = "two numbers"

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        return plan_tally(terms, BoundedVector(2, 2), rounds=rounds)

    def as_mapping(self) -> dict[str, Any]:
        return {}


class Doubling:
    kind = "doubled"

    def check(self, call: Call) -> None:
        assert isinstance(call.announcement.subject, Doubled)

    def contribute(self, call: Call) -> IntVector:
        return np.array([1, 1])


def test_a_kind_of_subject_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urna.flower.subjects._READERS", {})
    monkeypatch.setattr("urna.flower.subjects._SIZES", {})
    register("doubled", lambda _: Doubled(), lambda _: 2)
    allowed = replace(OPEN, grants={"doubled": Grant()})
    grid = federation(
        *(
            Node(app_of(Participant([Doubling()], policy=allowed)), {"partition-id": n})
            for n in range(SIZE)
        )
    )
    held = Sums(grid, Doubled(), budget=Budget(10.0, 1e-4))
    released = held.round()
    found = in_units(released.tallied.total, held.announcement.plan)
    assert np.abs(found - SIZE).max() < 8 * held.announcement.plan.most_noise_std

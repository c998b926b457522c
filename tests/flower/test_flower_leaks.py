"""Two runs that differ in one node's data differ in its masked vector, and in the noisy sum.

Everything else that leaves a node, and everything a server says or publishes, is the same: replies
of every stage byte for byte, refusals, log lines, who took part, who was lost, the transcript. All
randomness is scripted in these runs, so that what differs is caused by data.
"""

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import (
    BUDGET,
    OPEN,
    SPACE,
    announced,
    app_of,
    ask,
    federation,
    make_keys,
    node,
)
from flower_tap import Heard, listen
from flwr.app import Context
from grouped import grouped

from urna.data import Samples
from urna.errors import ParameterError, Refused
from urna.flower import Deadlines, Grant, Participant, Statistic, Statistics, Sums, poll
from urna.flower.gathering import Federation
from urna.flower.messages import Kind, Letter
from urna.local import Losses, Progress
from urna.privacy import Adjacency, Ledger
from urna.space import Space
from urna.systems.vote import VoteSettings, plan_vote
from urna.systems.vote.fill import shard_ballots
from urna.tally import BoundedVector, Terms

VICTIM, SIZE = 1000, 8
SECRET = "patient 4711"
PATIENCE = Deadlines(gather=30.0, evaluate=2.0, stage=30.0)


@dataclass(frozen=True)
class Row:
    """One row of a node's data, and what it does to who looks at it."""

    value: float = 0.4
    label: int = 1
    does: str = ""


class ByLabel:
    """An objective as people write them: it trusts its data."""

    def losses(
        self, data: list[Row], space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        known = np.zeros(3)
        for row in data:
            known[row.label] += row.value  # a label out of range raises
            _act(row.does)
        if any(row.does == "wrong shape" for row in data):
            return np.zeros(len(space) + 1)
        if any(row.does == "no numbers" for row in data):
            return np.array(["a"] * len(space))
        middle = float("nan") if any(r.does == "nan" for r in data) else known.sum() / len(data)
        return np.array([abs(c["lr"] - middle) for c in space])


def _act(what: str) -> None:
    match what:
        case "raise":
            raise ValueError(f"cannot make sense of {SECRET}")
        case "parameter error":
            raise ParameterError(f"cannot make sense of {SECRET}")
        case "refuse":
            raise Refused(f"cannot make sense of {SECRET}")
        case "exit":
            sys.exit(SECRET)
        case "memory":
            raise MemoryError
        case "hang":
            time.sleep(60)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "print":
            print(SECRET)


GOOD = [Row(0.4), Row(0.5, 2), Row(0.3, 0)]
DATA: dict[str, list[Row]] = {
    "other good data": [Row(0.7), Row(0.7, 2)],
    "one row": [Row(0.7)],
    "no row": [],
    "a label out of range": [*GOOD, Row(label=99)],
    "an objective that raises": [*GOOD, Row(does="raise")],
    "an objective that refuses": [*GOOD, Row(does="refuse")],
    "an objective that ends its process": [*GOOD, Row(does="exit")],
    "an objective without memory": [*GOOD, Row(does="memory")],
    "losses of a wrong shape": [*GOOD, Row(does="wrong shape")],
    "losses that are no numbers": [*GOOD, Row(does="no numbers")],
    "losses that are NaN": [*GOOD, Row(does="nan")],
    "a value that is NaN": [Row(float("nan"))],
    "an objective that prints": [*GOOD, Row(does="print")],
    "an objective that hangs": [*GOOD, Row(does="hang")],
}
LOADERS = ["raise", "parameter error", "refuse", "exit", "memory", "hang"]


def loader(data: list[Row], fails: str = "") -> Callable[[Context], list[Row]]:
    def load(_: Context) -> list[Row]:
        _act(fails)
        return data

    return load


def vote(data: list[Row], fails: str = "", seconds: float = 2.0, **settings: Any) -> Heard:
    """Hold a scripted vote in which one node has these data."""
    waits = replace(PATIENCE, evaluate=seconds)
    grid = federation(
        *(
            node(
                n,
                objective=ByLabel(),
                data=loader(data if n == 0 else GOOD, fails if n == 0 else ""),
                **({"script": "leaks"} | settings),
            )
            for n in range(SIZE)
        )
    )
    return listen(
        grid,
        lambda: poll(
            grid,
            SPACE,
            budget=BUDGET,
            dropout=0.25,
            settings=VoteSettings(votes=2),
            federation=Federation(deadlines=waits),
        ),
        node=VICTIM,
    )


@functools.cache
def _good() -> Heard:
    heard = vote(GOOD)
    assert heard.outcome.took_part == SIZE
    assert len(heard.vectors) == 1
    # An announcement, the four stages of the protocol, and nothing at the end.
    kinds = [letter.kind for to, letter in heard.letters if to == VICTIM]
    assert kinds == ["announce", "begin", "stage", "stage", "stage"]
    return heard


@pytest.fixture
def good() -> Heard:
    """Return what a vote with good data gave away; it is held once."""
    return _good()


@pytest.mark.parametrize("name", DATA)
def test_a_nodes_data_change_its_masked_vector_and_nothing_else(
    name: str, good: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = vote(DATA[name])
    assert heard.all_but_the_sum() == good.all_but_the_sum()
    assert len(heard.vectors[0]) == len(good.vectors[0])
    assert heard.vectors != good.vectors, "the comparison sees what the data change"
    assert SECRET not in str(heard.all_but_the_sum())


@pytest.mark.parametrize("fails", LOADERS)
def test_a_loader_that_fails_is_not_seen_either(fails: str, good: Heard) -> None:
    heard = vote(GOOD, fails)
    assert heard.all_but_the_sum() == good.all_but_the_sum()
    assert heard.vectors != good.vectors


def test_the_same_data_change_nothing(good: Heard) -> None:
    """What the comparison rests on: scripted runs repeat, the masked vector included."""
    heard = vote(GOOD)
    assert heard.vectors == good.vectors
    assert heard.outcome.votes.tolist() == good.outcome.votes.tolist()
    assert heard.all_but_the_sum() == good.all_but_the_sum()


def test_the_comparison_would_see_a_node_that_refuses(good: Heard) -> None:
    other = vote(GOOD, policy=replace(OPEN, epsilon=1.0), script=None)
    assert other.all_but_the_sum() != good.all_but_the_sum()


@pytest.mark.apart
@pytest.mark.parametrize(
    ("where", "does"),
    [("loader", ""), ("loader", "crash"), ("loader", "hang"), ("objective", "crash"),
     ("objective", "hang")],
)  # fmt: skip
def test_what_ends_or_blocks_the_evaluating_process_is_not_seen(where: str, does: str) -> None:
    good = vote(GOOD, seconds=12.0)
    data, fails = ([*GOOD, Row(does=does)], "") if where == "objective" else (GOOD, does)
    heard = vote(data, fails, seconds=12.0)
    assert heard.all_but_the_sum() == good.all_but_the_sum()
    assert len(heard.vectors) == 1
    assert (heard.vectors == good.vectors) == (does == "" and where == "loader")


@pytest.mark.apart
def test_an_objective_that_cannot_travel_to_its_process_is_refused_and_not_silent() -> None:
    """It would abstain from every vote, whatever the data, and nobody would know why."""
    held = threading.Lock()

    def load(_: Context) -> list[Row]:
        return GOOD if held else []

    member = node(0, objective=ByLabel(), data=load)
    reply = ask(member, Letter(Kind.ANNOUNCE, announcement=announced().as_bytes()))
    assert reply.refused == "this node's objective cannot run in a process of its own"


@pytest.mark.parametrize("how", ["honest-but-curious", "dishonest"])
def test_with_secret_draws_kinds_and_lengths_are_the_same(tmp_path: Path, how: str) -> None:
    """As nodes really run: with ledgers, keys and transcripts."""
    seen = []
    for place, data in enumerate([GOOD, DATA["an objective that raises"]]):
        folder = tmp_path / str(place)
        folder.mkdir()
        make_keys(folder, SIZE)
        policies = [
            replace(
                OPEN,
                forgets=False,
                ledger=folder / f"{n}.ledger",
                key=folder / f"{n}.key",
                directory=folder / "directory.toml",
                transcripts=folder / f"{n}.kept",
            )
            for n in range(SIZE)
        ]
        grid = federation(
            *(
                node(n, objective=ByLabel(), policy=policies[n], data=loader(GOOD if n else data))
                for n in range(SIZE)
            )
        )
        heard = listen(
            grid,
            lambda grid=grid, folder=folder: poll(
                grid,
                SPACE,
                budget=BUDGET,
                server=how,
                settings=VoteSettings(votes=2),
                federation=Federation(directory=folder / "directory.toml", deadlines=PATIENCE),
            ),
            node=VICTIM,
            scripted=False,
        )
        assert heard.outcome.took_part == SIZE
        entries = Ledger(folder / "0.ledger").entries()
        lengths = {file.stat().st_size for file in (folder / "0.kept").iterdir()}
        seen.append((heard.shape(), heard.lines, len(entries), entries[0].cost, lengths))
    assert seen[0] == seen[1]


# A sum that is no vote


def statistic(compute: Callable[[Context], Any]) -> Heard:
    policy = replace(OPEN, grants={"statistic": Grant()})

    def member(number: int) -> Node:
        function = compute if number == 0 else (lambda _: [0, 1, 0])
        participant = Participant(
            [Statistics({"devices": function})], policy=policy, script="leaks"
        )
        return Node(app_of(participant), {"partition-id": number})

    grid = federation(*(member(n) for n in range(SIZE)))
    sums = Sums(
        grid,
        Statistic("devices", BoundedVector(3, 1)),
        budget=BUDGET,
        dropout=0.25,
        federation=Federation(deadlines=PATIENCE),
    )

    def act() -> Any:
        released = sums.round()
        return (sums.lost, sums.faults, released.privacy, released.tallied.accepted)

    return listen(grid, act, node=VICTIM)


def _raise(what: str) -> Callable[[Context], Any]:
    def compute(_: Context) -> Any:
        _act(what)
        return None

    return compute


@pytest.mark.parametrize(
    "compute",
    [
        *(_raise(what) for what in LOADERS),
        lambda _: None,
        lambda _: [1, 0],
        lambda _: [0.5, 0.5, 0.0],
        lambda _: [1, 1, 1],
        lambda _: [2**70, 0, 0],
        lambda _: SECRET,
        lambda _: [0, -1, 0],
    ],
    ids=[*LOADERS, "nothing", "short", "fractions", "too long", "huge", "text", "negative"],
)
def test_a_statistic_that_cannot_be_computed_is_not_seen(compute: Callable[[Context], Any]) -> None:
    good, heard = statistic(lambda _: [1, 0, 0]), statistic(compute)
    assert heard.all_but_the_sum() == good.all_but_the_sum()
    assert len(heard.vectors) == len(good.vectors) == 1
    assert heard.vectors != good.vectors


# Single records

RECORD = Adjacency.REPLACE_ONE_RECORD
SHARDS, ROWS = 4, 40
BY_RECORD = replace(OPEN, relation=RECORD, smallest_shard=5)


class Mean:
    """Candidates near the mean of the rows are good; some values do harm."""

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        for place, does in enumerate(HARM, start=1):
            if (data.features == -float(place)).any():
                _act(does)
                if does == "wrong shape":
                    return np.zeros(len(space) + 1)
        return np.array([abs(c["lr"] - data.features.mean()) for c in space])


HARM = ["raise", "parameter error", "refuse", "memory", "wrong shape"]


def records(replaced: float | None) -> Samples:
    values = np.linspace(0.1, 0.8, ROWS)
    if replaced is not None:
        values[17] = replaced
    return Samples(values.reshape(-1, 1), np.zeros(ROWS))


def by_record(replaced: float | None) -> tuple[Heard, LocalGrid]:
    def load(number: int) -> Callable[[Context], Samples]:
        return lambda _: records(replaced if number == 0 else None)

    grid = federation(
        *(
            node(n, objective=Mean(), data=load(n), policy=BY_RECORD, script="leaks")
            for n in range(SIZE)
        )
    )
    terms = {"adjacency": RECORD, "shards": SHARDS, "dropout": 0.25, "deadlines": PATIENCE}
    heard = listen(
        grid, lambda: poll(grid, SPACE, budget=BUDGET, **grouped(terms, votes=2)), node=VICTIM
    )
    return heard, grid


BAD = [*(-float(place) for place in range(1, len(HARM) + 1)), float("nan"), float("inf"), 1e308]


@pytest.mark.parametrize("value", BAD, ids=[*HARM, "nan", "inf", "large"])
def test_one_bad_record_changes_one_shards_ballot_and_nothing_that_is_seen(value: float) -> None:
    good, _ = by_record(None)
    heard, _ = by_record(value)
    assert heard.all_but_the_sum() == good.all_but_the_sum()
    assert heard.vectors != good.vectors
    terms = Terms.of(SIZE, BUDGET, adjacency=RECORD, shards=SHARDS, dropout=0.25, colluding=0.1)
    plan = plan_vote(terms, len(SPACE), VoteSettings(votes=2))
    before, after = (
        shard_ballots(
            Mean(), records(v), SPACE, plan, key=bytes(32), seed=0, smallest=5, seconds=60.0
        )
        for v in (None, value)
    )
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 1

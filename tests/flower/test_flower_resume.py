"""A server or a node that is killed: the series goes on, and every round counts once."""

import random
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, SPACE, app_of, federation, node
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from grouped import grouped

from urna.errors import LedgerError, ParameterError, RoundAborted
from urna.files import read_json
from urna.flower import (
    Deadlines,
    Grant,
    Participant,
    PrivateTraining,
    Statistic,
    Statistics,
    Sums,
    Trainer,
    poll,
)
from urna.flower.checkpoint import RoundJournal
from urna.flower.messages import Kind, Letter
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Stage
from urna.systems.vote import Reveal, VoteResult, VoteSettings
from urna.tally import BoundedVector

SIZE, ROUNDS = 6, 4
BUDGET = Budget(18.0, 1e-4)
WAITS = Deadlines(gather=30.0, evaluate=30.0, stage=30.0)
SUBJECT = Statistic("devices", BoundedVector(3, 1))
POLICY = replace(
    OPEN,
    epsilon=18.5,
    delta=1e-4,
    grants={
        "statistic": Grant(most_entries=3, most_rounds=ROUNDS),
        "update": Grant(most_entries=100, most_rounds=ROUNDS),
    },
)
TRUTH = {"bias": np.array([0.5]), "weight": np.array([[1.0, -2.0]])}


class Killed(BaseException):
    """The server's process ends here."""


class Mortal(LocalGrid):
    """A grid whose server is killed when it has sent or fetched so many times."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        super().__init__(nodes)
        self.left = 10**9
        self.calls = 0

    def _live(self) -> None:
        self.calls += 1
        self.left -= 1
        if self.left < 0:
            self.replies.clear()  # nobody can fetch what was on its way to a dead process
            raise Killed

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids: list[str] = []
        for message in messages:
            self._live()  # before each letter: some nodes got theirs, others did not
            ids += super().push_messages([message])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._live()
        # One at a time, so that a server may die between two replies.
        wanted = [name for name in message_ids if name in self.replies][:1]
        return super().pull_messages(wanted)


def learner(number: int, folder: Path, *, script: str | None = "resume") -> Node:
    """Return a node that goes half of the way to the truth, with a ledger of its own."""
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        arrays = {
            name: Array(0.5 * array.numpy() + 0.5 * TRUTH[name])
            for name, array in message.content["arrays"].items()
        }
        metrics = MetricRecord({"num-examples": 7})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    # Scripted sums have no privacy and no price: a ledger has room for none of them.
    policy = POLICY
    if script is None:
        policy = replace(POLICY, forgets=False, ledger=folder / f"{number}.ledger")
    Trainer(train, policy=policy, script=script).mount(app)
    return Node(app, {"partition-id": number}, {})


def mortal(folder: Path, script: str | None) -> Mortal:
    folder.mkdir(exist_ok=True)
    nodes = [learner(n, folder, script=script) for n in range(SIZE)]
    return Mortal(federation(*nodes).nodes)


def training(folder: Path | None, strategy: type[Any] = flower.FedAvgM, **changes: Any) -> Any:
    more = {"server_momentum": 0.5, "server_learning_rate": 0.5}
    if strategy is flower.FedAdam:
        more = {"eta": 0.3}
    asked: dict[str, Any] = {"budget": BUDGET, "clip": 4.0, "dropout": 0.25, "colluding": 0,
                             "deadlines": WAITS, "force": True, "folder": folder}  # fmt: skip
    inner = strategy(min_available_nodes=2, min_train_nodes=2, **more)
    return PrivateTraining(inner, **grouped(asked | changes))


def start() -> ArrayRecord:
    return ArrayRecord({name: Array(np.zeros_like(part)) for name, part in TRUTH.items()})


def judge(number: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"sum": float(sum(a.numpy().sum() for a in arrays.values()))})


def run_to_the_end(
    grid: Mortal, deaths: Iterable[int], strategy: type[Any], folder: Path, **changes: Any
) -> tuple[Any, Any, int]:
    """Train; the server dies after each of these numbers of calls, and is started again."""
    died = 0
    for calls in [*deaths, 10**9]:
        grid.left = calls
        wrapped = training(folder, strategy, **changes)
        try:
            result = wrapped.start(grid, start(), num_rounds=ROUNDS, evaluate_fn=judge)
        except Killed:
            died += 1
            continue
        return wrapped, result, died
    raise AssertionError("it never came to an end")


def same(one: ArrayRecord, other: ArrayRecord) -> bool:
    return all(np.array_equal(one[name].numpy(), other[name].numpy()) for name in TRUTH)


@pytest.mark.parametrize("strategy", [flower.FedAvgM, flower.FedAdam], ids=lambda s: s.__name__)
def test_a_server_killed_thirty_times_ends_with_the_same_model(
    strategy: type[Any], tmp_path: Path
) -> None:
    undisturbed = mortal(tmp_path / "nodes", "resume")
    plain, calm, _ = run_to_the_end(undisturbed, [], strategy, tmp_path / "calm")
    chance = random.Random(7)
    # Few calls each time, so that thirty deaths fall all over the run.
    longest = undisturbed.calls // 12
    deaths = [chance.randrange(longest) for _ in range(30)]
    grid = mortal(tmp_path / "nodes", "resume")
    wrapped, result, died = run_to_the_end(grid, deaths, strategy, tmp_path / "killed")
    assert died >= 20
    assert same(result.arrays, calm.arrays)
    assert [r.took_part for r in wrapped.training.history] == [SIZE] * ROUNDS
    assert len(wrapped.training.history) == len(plain.training.history)
    assert result.evaluate_metrics_serverapp == calm.evaluate_metrics_serverapp
    assert result.train_metrics_clientapp == calm.train_metrics_clientapp


@pytest.mark.parametrize("seed", range(10))
def test_wherever_the_server_is_killed_every_round_counts_once(seed: int, tmp_path: Path) -> None:
    """One death at a random moment, real randomness, caps with room for one series."""
    grid = mortal(tmp_path, None)
    own = Ledger.open(tmp_path / "server.ledger", BUDGET)
    calls = 6 + random.Random(seed).randrange(ROUNDS * 60)
    wrapped, _, died = run_to_the_end(
        grid, [calls], flower.FedAvgM, tmp_path / "series", ledger=own
    )
    assert died == 1
    assert [r.took_part for r in wrapped.training.history] == [SIZE] * ROUNDS
    for path in (tmp_path / "server.ledger", *(tmp_path / f"{n}.ledger" for n in range(SIZE))):
        (entry,) = Ledger(path).entries()
        assert entry.rounds == ROUNDS
        assert entry.cost.at(BUDGET.delta) <= BUDGET.epsilon
    assert wrapped.privacy_spent.epsilon == pytest.approx(entry.cost.at(BUDGET.delta))
    assert not any(node.state for node in grid.nodes.values()), "secrets are left on a node"


def test_a_training_that_is_over_is_not_held_again(tmp_path: Path) -> None:
    grid = mortal(tmp_path, None)
    one, result, _ = run_to_the_end(grid, [], flower.FedAvgM, tmp_path / "series")
    sent = len(grid.sent)
    again, same_result, _ = run_to_the_end(grid, [], flower.FedAvgM, tmp_path / "series")
    assert len(grid.sent) == sent
    assert same(result.arrays, same_result.arrays)
    assert again.training.history == one.training.history
    assert again.privacy_spent.epsilon == one.privacy_spent.epsilon


def test_other_settings_are_another_training(tmp_path: Path) -> None:
    grid = mortal(tmp_path, None)
    run_to_the_end(grid, [100], flower.FedAvgM, tmp_path / "series")
    with pytest.raises(ParameterError, match="other settings"):
        training(tmp_path / "series", budget=Budget(9.0, 1e-4)).start(grid, start(), ROUNDS)
    with pytest.raises(ParameterError, match="other settings"):
        training(tmp_path / "series", flower.FedAdam).start(grid, start(), ROUNDS)
    with pytest.raises(ParameterError, match="other settings"):
        training(tmp_path / "series").start(grid, start(), 1)


# Any series


def counter(number: int, folder: Path) -> Node:
    vector = np.eye(3, dtype=np.int64)[number % 3]
    policy = replace(POLICY, forgets=False, ledger=folder / f"{number}.ledger")
    participant = Participant([Statistics({"devices": lambda _: vector})], policy=policy)
    return Node(app_of(participant), {"partition-id": number}, {})


def devices(folder: Path) -> Mortal:
    return Mortal(federation(*(counter(n, folder) for n in range(SIZE))).nodes)


def series(grid: LocalGrid, folder: Path, **changes: Any) -> Sums:
    asked: dict[str, Any] = {"budget": BUDGET, "rounds": ROUNDS, "dropout": 0.4, "colluding": 0,
                             "deadlines": WAITS, "folder": folder / "series"}  # fmt: skip
    return Sums(grid, SUBJECT, **grouped(asked | changes))


def counted(folder: Path) -> list[list[int | None]]:
    files = [folder / f"{n}.ledger" for n in range(SIZE)]
    return [[entry.rounds for entry in Ledger(file).entries()] for file in files]


def test_a_sum_nobody_saw_is_read_again_and_nobody_is_asked(tmp_path: Path) -> None:
    grid = devices(tmp_path)
    first = series(grid, tmp_path)
    found = first.round(b"monday")
    sent = [Letter.read(m.content).kind for m in grid.sent]
    second = series(grid, tmp_path)
    announced = second.gather()
    assert announced == first.announcement
    assert second.number == 1
    with pytest.raises(ParameterError, match="begun with other inputs"):
        second.round(b"tuesday", number=1)
    again = second.round(b"monday")
    assert np.array_equal(again.tallied.total, found.tallied.total)
    new = [Letter.read(m.content).kind for m in grid.sent][len(sent) :]
    assert set(new) == {Kind.END}
    third = series(grid, tmp_path)
    third.gather()
    with pytest.raises(ParameterError, match="round 3 does not come after round 1"):
        third.round(b"", number=3)
    assert len(third.round(b"tuesday", number=2).tallied.accepted) == SIZE
    assert counted(tmp_path) == [[2]] * SIZE


def test_a_round_in_flight_comes_first(tmp_path: Path) -> None:
    grid = devices(tmp_path)
    held = series(grid, tmp_path)
    held.gather()
    grid.left = 40
    with pytest.raises(Killed):
        held.round(b"monday")
    grid.left = 10**9
    after = series(grid, tmp_path)
    after.gather()
    with pytest.raises(ParameterError, match="round 1 was begun and is not over"):
        after.round(b"tuesday", number=2)
    assert len(after.round(b"monday").tallied.accepted) == SIZE
    assert after.privacy.epsilon < BUDGET.epsilon


@pytest.mark.parametrize("seed", range(12))
def test_a_node_that_restarts_is_lost_in_one_round_at_most(seed: int, tmp_path: Path) -> None:
    """Killed before any of its letters: its secrets are gone, its ledger is not."""
    grid = devices(tmp_path)
    letter = 1 + random.Random(seed).randrange(ROUNDS * 5 - 1)
    grid.nodes[998].faults = {letter: "restart"}
    held = series(grid, tmp_path)
    took_part = [len(held.round(b"%d" % n).tallied.accepted) for n in range(ROUNDS)]
    between = letter % 5 in (0, 1)  # it is told the end of a round, or the beginning of one
    masked = letter % 5 == 4  # its vector was in when it forgot the rest
    assert sum(took_part) >= ROUNDS * SIZE - (0 if between or masked else 1)
    assert [rounds for (rounds,) in counted(tmp_path)] == [ROUNDS] * SIZE


def test_server_and_nodes_restart_in_the_same_round(tmp_path: Path) -> None:
    """Nodes have lost the round: it comes to nothing and stays counted, and its number is gone."""
    grid = devices(tmp_path)
    own = Ledger.open(tmp_path / "server.ledger", BUDGET)
    held = series(grid, tmp_path, ledger=own)
    held.round(b"1")
    while read_json(tmp_path / "series" / "series.json")["number"] < 2:
        grid.left = 30  # into the second round: masked vectors are on their way
        with pytest.raises(Killed):
            held.round(b"2")
    for place in list(grid.nodes):
        grid.nodes[place].state = RecordDict()
    # With new ids as well: names tell who is who.
    grid.nodes = {place + 5000: node for place, node in grid.nodes.items()}
    grid.left = 10**9
    after = series(grid, tmp_path, ledger=own)
    with pytest.raises(RoundAborted):
        after.round(b"2")
    assert [entry.rounds for entry in own.entries()] == [2], "a killed server may have a sum of it"
    assert len(after.round(b"3", number=3).tallied.accepted) == SIZE
    assert [entry.rounds for entry in own.entries()] == [3]
    assert all(rounds == 3 for (rounds,) in counted(tmp_path)), "a number stands for all before"
    assert len(after.round(b"4").tallied.accepted) == SIZE
    assert [rounds for (rounds,) in counted(tmp_path)] == [ROUNDS] * SIZE


def test_a_folder_put_back_releases_nothing_and_takes_nothing_back(tmp_path: Path) -> None:
    """Nodes refuse the round; a server that took their refusal for an abort would count less."""
    grid = devices(tmp_path)
    own = Ledger.open(tmp_path / "server.ledger", BUDGET)
    held = series(grid, tmp_path, ledger=own)
    for number in (1, 2, 3):
        held.round(b"%d" % number)
        shutil.copytree(tmp_path / "series", tmp_path / f"after {number}")
    for back in (1, 2):
        shutil.rmtree(tmp_path / "series")
        shutil.copytree(tmp_path / f"after {back}", tmp_path / "series")
        after = series(grid, tmp_path, ledger=own)
        with pytest.raises(LedgerError, match="an older copy"):
            after.round(b"%d" % (back + 1), number=back + 1)
        assert [(entry.rounds, entry.revealed) for entry in own.entries()] == [(3, 3)]
    assert counted(tmp_path) == [[3]] * SIZE


def test_a_sum_of_an_entry_that_has_one_is_not_announced(tmp_path: Path) -> None:
    grid = devices(tmp_path)
    own = Ledger.open(tmp_path / "server.ledger", BUDGET)
    once: dict[str, Any] = {"budget": BUDGET, "colluding": 0, "deadlines": WAITS, "ledger": own}
    Sums(grid, SUBJECT, **grouped(once, entry="only")).round()
    sent = len(grid.sent)
    with pytest.raises(LedgerError, match="revealed already"):
        Sums(grid, SUBJECT, **grouped(once, entry="only")).round()
    assert len(grid.sent) == sent
    assert counted(tmp_path) == [[None]] * SIZE


def test_a_node_repeats_an_answer_and_gives_no_second_one(tmp_path: Path) -> None:
    grid = devices(tmp_path)
    held = series(grid, tmp_path)
    held.gather()
    seen: dict[bytes, bytes] = {}
    grid.left = 40
    with pytest.raises(Killed):
        held.round(b"1")
    letters = [m for m in grid.sent if m.metadata.dst_node_id == 1000]
    asked = Letter.read(letters[-1].content)
    for _ in range(2):
        (name,) = LocalGrid.push_messages(grid, [_copy(letters[-1])])
        reply = grid.replies.pop(name)
        seen.setdefault(asked.digest, reply.content["urna"]["body"])
        assert reply.content["urna"]["body"] == seen[asked.digest]
    begin = next(m for m in letters if Letter.read(m.content).kind is Kind.BEGIN)
    if asked.kind is not Kind.BEGIN:
        (name,) = LocalGrid.push_messages(grid, [_copy(begin)])
        assert "before" in grid.replies.pop(name).content["urna"]["refused"]


def _copy(message: Message) -> Message:
    content = Letter.read(message.content).as_records()
    return Message(content, message.metadata.dst_node_id, message.metadata.message_type)


# The files


def test_a_journal_leaves_out_what_is_half_written(tmp_path: Path) -> None:
    coin = bytes(32)
    with RoundJournal(tmp_path, coin) as journal:
        journal.stage(Stage.ADVERTISE)
        journal.reply(3, b"three")
        journal.reply(4, b"four")
    path = tmp_path / "round.journal"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with RoundJournal(tmp_path, coin) as journal:
            replies = [reply for _, stage in journal.found for reply in stage]
            assert replies in ([], [(3, b"three")])
            journal.stage(Stage.SHARE)
        with RoundJournal(tmp_path, coin) as journal:
            assert journal.found[-1] == (Stage.SHARE, [])
    with RoundJournal(tmp_path, b"\1" * 32) as journal:
        assert journal.found == []


def test_what_is_no_series_is_refused(tmp_path: Path) -> None:
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "series.json").write_text('{"version": 1}', encoding="utf-8")
    with pytest.raises(ParameterError, match="no series of sums"):
        series(devices(tmp_path), tmp_path)


# Votes


def voters(folder: Path) -> Mortal:
    policy = replace(OPEN, forgets=False, epsilon=8.1)
    nodes = [node(n, policy=replace(policy, ledger=folder / f"{n}.ledger")) for n in range(SIZE)]
    return Mortal(federation(*nodes).nodes)


def vote(grid: Mortal, folder: Path, deaths: Iterable[int] = (), **changes: Any) -> VoteResult:
    """Vote; the server dies after each of these numbers of calls, and is started again."""
    for calls in [*deaths, 10**9]:
        grid.left = calls
        own = Ledger.open(folder / "server.ledger", Budget(8.1, 1e-4))
        with suppress(Killed):
            return poll(
                grid,
                SPACE,
                folder=folder / "vote",
                **grouped(
                    {
                        "budget": Budget(8.0, 1e-5),
                        "colluding": 0,
                        "dropout": 0.4,
                        "deadlines": WAITS,
                        "ledger": own,
                    }
                    | changes
                ),
            )
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seed", range(10))
def test_wherever_the_server_of_a_vote_is_killed_it_counts_once(seed: int, tmp_path: Path) -> None:
    """The same command goes on, every ledger has one entry, and the result stays the same."""
    grid = voters(tmp_path)
    deaths = [random.Random(seed).randrange(1, 75) for _ in range(3)]
    found = vote(grid, tmp_path, deaths)
    assert found.took_part == SIZE
    files = [tmp_path / "server.ledger", *(tmp_path / f"{n}.ledger" for n in range(SIZE))]
    assert [len(Ledger(file).entries()) for file in files] == [1] * (SIZE + 1)
    sent = len(grid.sent)
    again = vote(grid, tmp_path)
    assert (again.winner, again.entry) == (found.winner, found.entry)
    assert again.votes.tolist() == found.votes.tolist()
    assert {Letter.read(m.content).kind for m in grid.sent[sent:]} == {Kind.END}


def test_a_vote_that_came_to_nothing_begins_anew_in_the_same_folder(tmp_path: Path) -> None:
    grid = voters(tmp_path)
    for name in list(grid.nodes)[:4]:
        grid.nodes[name].faults = {1: "silent"}
    quick = Deadlines(gather=30.0, evaluate=1.0, stage=1.0)
    with pytest.raises(RoundAborted):
        vote(grid, tmp_path, deadlines=quick)
    assert not (tmp_path / "vote" / "series.json").exists()
    assert vote(grid, tmp_path).took_part == SIZE
    files = [tmp_path / "server.ledger", *(tmp_path / f"{n}.ledger" for n in range(SIZE))]
    counted = [[e for e in Ledger(file).entries() if e.rounds != 0] for file in files]
    assert [len(entries) for entries in counted] == [1] * (SIZE + 1)


def test_a_released_vote_that_cannot_be_read_back_is_not_called_void(tmp_path: Path) -> None:
    grid, kept = voters(tmp_path), tmp_path / "transcripts"
    vote(grid, tmp_path, transcripts=kept)
    sealed = {path.name: path.read_bytes() for path in kept.iterdir()}
    (tmp_path / "vote" / "round.journal").unlink()
    with pytest.raises(LedgerError, match="was revealed already"):
        vote(grid, tmp_path, transcripts=kept)
    assert (tmp_path / "vote" / "series.json").exists()
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == sealed
    (entry,) = Ledger(tmp_path / "server.ledger").entries()
    assert (entry.rounds, entry.revealed) == (1, 1)


def test_a_charge_is_not_taken_back_for_a_folder_put_back(tmp_path: Path) -> None:
    """The killed server kept its result; nodes give the one that goes on no second answer."""
    grid, kept = voters(tmp_path), list[Any]()
    own = Ledger.open(tmp_path / "server.ledger", Budget(8.1, 1e-4))

    def killed(found: VoteResult) -> None:
        kept.append(found)
        raise Killed

    grid.left = 25  # nodes have advertised their keys
    asked: dict[str, Any] = {"budget": Budget(4.5, 1e-5), "colluding": 0, "dropout": 0.4,
                             "deadlines": WAITS, "ledger": own, "force": True,
                             "folder": tmp_path / "vote"}  # fmt: skip
    with pytest.raises(Killed):
        poll(grid, SPACE, **grouped(asked))
    shutil.copytree(tmp_path / "vote", tmp_path / "copy")
    grid.left = 10**9
    with pytest.raises(Killed):
        poll(grid, SPACE, **grouped(asked | {"keep": killed}))
    shutil.rmtree(tmp_path / "vote")
    shutil.copytree(tmp_path / "copy", tmp_path / "vote")
    with pytest.raises(RoundAborted):
        poll(grid, SPACE, **grouped(asked))
    kept.append(poll(grid, SPACE, **grouped(asked)))
    counted = [entry for entry in own.entries() if entry.rounds]
    assert len(counted) == len(kept) == 2, "every result is paid for"


def test_a_vote_with_other_settings_is_another(tmp_path: Path) -> None:
    grid = voters(tmp_path)
    vote(grid, tmp_path)
    with pytest.raises(ParameterError, match="other settings"):
        vote(grid, tmp_path, budget=Budget(7.0, 1e-5))
    with pytest.raises(ParameterError, match="takes no folder"):
        vote(grid, tmp_path, settings=VoteSettings(reveal=Reveal("winner", "helper")))

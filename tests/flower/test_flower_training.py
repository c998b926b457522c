"""Training among nodes: a user's own functions and strategy, and only noisy sums leave."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="training over Flower needs Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, QUICK, federation
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.exception import PrivacyBudgetExhausted
from grouped import grouped

from urna.errors import ParameterError, ProtocolError
from urna.flower import Grant, Policy, PrivateTraining, Trainer
from urna.flower.updates import ModelLetter
from urna.privacy import Budget, Ledger
from urna.report import page
from urna.systems.train import Clip, Validation

SIZE, ROUNDS = 12, 4
TRUTH = {"bias": np.array([0.5]), "weight": np.array([[1.0, -2.0]])}
BUDGET = Budget(18.0, 1e-4)
POLICY = Policy(
    epsilon=18.5,
    delta=1e-4,
    forgets=True,
    fewest_clients=2,
    least_colluding=0,
    most_missing=99,
    grants={"update": Grant(most_entries=100, most_rounds=20)},
)

Wrong = Callable[[RecordDict], None]


def start() -> ArrayRecord:
    return ArrayRecord({name: Array(np.zeros_like(part)) for name, part in TRUTH.items()})


def node(number: int, *, wrong: Wrong | None = None, policy: Policy = POLICY) -> Node:
    """Return a node whose own function goes half of the way to the truth."""
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        assert int(message.content["config"]["server-round"]) >= 1
        arrays = {
            name: Array(0.5 * array.numpy() + 0.5 * TRUTH[name])
            for name, array in message.content["arrays"].items()
        }
        content = RecordDict(
            {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 7})}
        )
        if wrong is not None:
            wrong(content)
        return Message(content, reply_to=message)

    def evaluate(message: Message, context: Context) -> Message:
        gap = sum(
            float(np.abs(array.numpy() - TRUTH[name]).sum())
            for name, array in message.content["arrays"].items()
        )
        metrics = MetricRecord({"eval_loss": gap, "eval_acc": float(gap < 1)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    Trainer(train, evaluate, policy=policy).mount(app)
    return Node(app, {"partition-id": number}, {})


def grid_of(*nodes: Node) -> LocalGrid:
    return federation(*nodes)


def private(strategy: flower.Strategy | None = None, **changes: Any) -> PrivateTraining:
    asked: dict[str, Any] = {
        "budget": BUDGET,
        "clip": 4.0,
        "dropout": 0.25,
        "colluding": 0,
        "deadlines": QUICK,
        "force": True,
    }
    return PrivateTraining(
        strategy or flower.FedAvg(min_available_nodes=2, min_train_nodes=2),
        **grouped(asked | changes),
    )


def distance(arrays: ArrayRecord) -> float:
    return max(float(np.abs(a.numpy() - TRUTH[name]).max()) for name, a in arrays.items())


@pytest.mark.parametrize(
    "strategy",
    [flower.FedAvg, flower.FedAvgM, flower.FedAdam, flower.FedProx],
    ids=lambda kind: kind.__name__,
)
def test_the_strategy_people_have_learns_from_noisy_means(strategy: type[Any]) -> None:
    more: dict[str, Any] = {"eta": 0.3} if strategy is flower.FedAdam else {}
    if strategy is flower.FedProx:
        more = {"proximal_mu": 0.1}
    wrapped = private(strategy(min_available_nodes=2, min_train_nodes=2, **more))
    result = wrapped.start(grid_of(*(node(n) for n in range(SIZE))), start(), num_rounds=ROUNDS)
    noise = wrapped.training.history[-1].noise_std
    assert distance(result.arrays) < 2.0 + 8 * noise
    assert distance(result.arrays) < distance(start()) + 8 * noise
    assert wrapped.privacy_spent is not None
    assert 0.9 * BUDGET.epsilon < wrapped.privacy_spent.epsilon <= BUDGET.epsilon
    assert list(result.arrays) == list(TRUTH)
    assert set(result.train_metrics_clientapp) == set(range(1, ROUNDS + 1))


def test_every_node_counts_the_series_in_its_own_ledger(tmp_path: Path) -> None:
    def of(number: int) -> Policy:
        return replace(POLICY, forgets=False, ledger=tmp_path / f"{number}.ledger")

    grid = grid_of(*(node(n, policy=of(n)) for n in range(SIZE)))
    own = Ledger.open(tmp_path / "server", BUDGET)
    private(ledger=own).start(grid, start(), num_rounds=ROUNDS)
    for path in (tmp_path / "server", *(tmp_path / f"{n}.ledger" for n in range(SIZE))):
        (entry,) = Ledger(path).entries()
        assert entry.rounds == ROUNDS
        assert entry.cost.at(BUDGET.delta) <= BUDGET.epsilon
        assert "training of model, 3 parameters" in entry.label
    # The server's cap is reached: another training is refused before anybody is asked.
    with pytest.raises(PrivacyBudgetExhausted):
        private(ledger=own).start(grid, start(), num_rounds=ROUNDS)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c: c["arrays"].update({"bias": Array(np.array([math.nan]))}),
        lambda c: c["arrays"].update({"bias": Array(np.array([math.inf]))}),
        lambda c: c["arrays"].update({"bias": Array(np.zeros(5))}),
        lambda c: c["arrays"].update({"other": Array(np.zeros(5))}),
        lambda c: c.pop("arrays"),
    ],
    ids=["NaN", "infinity", "shape", "name", "nothing"],
)
def test_a_node_that_fails_contributes_nothing_and_nobody_learns_of_it(wrong: Wrong) -> None:
    nodes = [node(n, wrong=wrong if n == 0 else None) for n in range(SIZE)]
    wrapped = private()
    result = wrapped.start(grid_of(*nodes), start(), num_rounds=2)
    assert [report.took_part for report in wrapped.training.history] == [SIZE, SIZE]
    assert not wrapped.training.lost
    assert not wrapped.training.faults
    assert distance(result.arrays) < 2.0 + 8 * wrapped.training.history[-1].noise_std


def test_dropouts_leave_the_planned_noise_and_too_many_leave_a_round_out() -> None:
    grid = grid_of(*(node(n) for n in range(SIZE)))
    for number in list(grid.nodes)[:2]:
        grid.nodes[number].faults = {3: "silent"}  # the first round's masked vector
    for number in list(grid.nodes)[:8]:
        grid.nodes[number].faults = {**grid.nodes[number].faults, 6: "silent", 7: "silent"}
    wrapped = private()
    wrapped.start(grid, start(), num_rounds=ROUNDS)
    history = wrapped.training.history
    assert history[0].lost == 2
    assert len(history) < ROUNDS
    assert all(report.noise_ratio >= 1 for report in history)
    spent = wrapped.privacy_spent
    assert spent is not None
    assert spent.epsilon < BUDGET.epsilon


def test_losses_and_clips_are_tallied_privately() -> None:
    wrapped = private(
        validation=Validation(largest_loss=8.0),
        clip=Clip(0.5, 0.5),
        budget=BUDGET,
    )
    result = wrapped.start(grid_of(*(node(n) for n in range(SIZE))), start(), num_rounds=ROUNDS)
    report = wrapped.training.history[0]
    loss = float(result.evaluate_metrics_clientapp[1]["private_loss"])
    assert abs(loss - 3.5) < 8 * 8.0 * report.errors["validation loss"]
    assert wrapped.training.history[-1].clip_norm != report.clip_norm
    assert "How it learned" in page(wrapped.training, title="among nodes")


def test_a_node_without_a_grant_refuses() -> None:
    nodes = [node(n, policy=OPEN if n < 3 else POLICY) for n in range(SIZE)]
    wrapped = private()
    wrapped.start(grid_of(*nodes), start(), num_rounds=1)
    assert wrapped.training.terms.clients == SIZE - 3


def test_strategies_that_look_at_single_clients_are_refused() -> None:
    with pytest.raises(ParameterError, match="Krum may look at single clients' weights"):
        private(flower.Krum())
    with pytest.raises(ParameterError, match="nothing was trained yet"):
        private().training  # noqa: B018
    with pytest.raises(ParameterError, match="not round by round"):
        private().configure_train(1, start(), ConfigRecord(), grid_of())


@pytest.mark.parametrize(
    "data",
    [b"", b"{}\n", b"[1]\nabcd", b'{"names":["a"],"shapes":[[2]],"clip_norm":1}\n12345678'],
    ids=["empty", "no fields", "list", "fields missing"],
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="is no model"):
        ModelLetter.read(data)


def test_a_letter_survives_the_way() -> None:
    letter = ModelLetter(
        ("a", "b"), ((2,), (1, 3)), np.arange(5, dtype=np.float32), 0.5, 2.0, {"x": 1}
    )
    found = ModelLetter.read(letter.as_bytes())
    assert found.names == letter.names
    assert found.shapes == letter.shapes
    assert np.array_equal(found.weights, letter.weights)
    assert found.arrays()["b"].numpy().shape == (1, 3)
    told = replace(letter, config={"key": b"bytes"})
    with pytest.raises(ParameterError, match="travels as JSON"):
        told.as_bytes()


def test_rounds_that_count_and_give_nothing_are_in_what_was_spent(tmp_path: Path) -> None:
    grid = grid_of(*(node(n) for n in range(SIZE)))
    for number in list(grid.nodes)[:-1]:
        # Silent once the first round is being opened, and ever after.
        grid.nodes[number].faults = dict.fromkeys(range(4, 40), "silent")
    own = Ledger.open(tmp_path / "server", BUDGET)
    wrapped = private(ledger=own)
    wrapped.start(grid, start(), num_rounds=1)
    (entry,) = own.entries()
    assert wrapped.privacy_spent is not None
    assert wrapped.privacy_spent.epsilon == pytest.approx(entry.cost.at(BUDGET.delta))
    assert [bool(report.failed) for report in wrapped.training.history] == [True]


def test_a_judge_that_fails_loses_nothing_that_was_paid_for(tmp_path: Path) -> None:
    def judge(number: int, arrays: ArrayRecord) -> None:
        if number == 2:
            raise RuntimeError("no test rows")

    own = Ledger.open(tmp_path / "server", BUDGET)
    wrapped = private(ledger=own)
    with pytest.raises(RuntimeError, match="no test rows"):
        wrapped.start(
            grid_of(*(node(n) for n in range(SIZE))), start(), num_rounds=ROUNDS, evaluate_fn=judge
        )
    (entry,) = own.entries()
    assert entry.rounds == 2
    assert wrapped.privacy_spent is not None
    assert wrapped.privacy_spent.epsilon == pytest.approx(entry.cost.at(BUDGET.delta))
    assert len(wrapped.training.history) == 2

"""Any torch module as a learner: together as alone, and record by record."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="these models are torch's")

import torch
from torch import nn

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Recipe
from urna.privacy import Adjacency, Budget
from urna.randomness import ScriptedSecrets
from urna.report import page
from urna.systems.train import FedAvg, Settings, TorchLearner, Validation, fit
from urna.systems.train.card import model_card
from urna.tally import Run

RNG = np.random.default_rng(0)
CLIENTS = [
    Samples(RNG.normal(size=(rows, 6)).astype(np.float32), RNG.integers(3, size=rows))
    for rows in (12, 12, 9, 20)
]


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def test_clients_train_together_as_each_would_alone() -> None:
    learner = TorchLearner(linear, Recipe(lr=0.1, epochs=2, batch_size=4), device="cpu")
    weights = learner.first_weights(seed=0)
    together = learner.train(weights, CLIENTS, number=3, seeds=range(4))
    for place, client in enumerate(CLIENTS):
        (alone,) = learner.train(weights, [client], number=3, seeds=[place])
        assert np.allclose(together[place], alone, atol=1e-6)


def test_modules_that_gather_statistics_are_refused() -> None:
    with pytest.raises(ParameterError, match="keeps running statistics"):
        TorchLearner(lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))


@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_one_record_moves_a_clients_sum_by_twice_the_clip_at_most(clip: float) -> None:
    learner = TorchLearner(linear, device="cpu")
    weights = learner.first_weights(seed=0)
    client = CLIENTS[0]
    (whole,) = learner.record_sums(weights, [client], record_clip=clip)
    for row in range(len(client)):
        features = client.features.copy()
        features[row] = 1e3 * RNG.normal(size=6)
        other = Samples(features, client.targets)
        (moved,) = learner.record_sums(weights, [other], record_clip=clip)
        assert np.linalg.norm(moved - whole) <= 2 * clip
    # Nothing is clipped at 50, and it is what autograd says.
    if clip == 50.0:
        module = learner.module(weights)
        loss = nn.functional.cross_entropy(
            module(torch.tensor(client.features)), torch.tensor(client.targets), reduction="sum"
        )
        loss.backward()  # type: ignore[no-untyped-call]
        exact = torch.cat([p.grad.ravel() for p in module.parameters() if p.grad is not None])
        assert np.allclose(whole, -exact.numpy(), atol=1e-4)


@pytest.mark.parametrize("target", [3, -1, np.nan, 0.5], ids=["above", "below", "NaN", "between"])
def test_a_record_without_a_class_adds_nothing_and_costs_no_other(target: float) -> None:
    learner, clip = TorchLearner(linear, device="cpu"), 0.05
    weights, client = learner.first_weights(seed=0), CLIENTS[0]
    (whole,) = learner.record_sums(weights, [client], record_clip=clip)
    targets = client.targets.astype(np.int64 if isinstance(target, int) else np.float64)
    targets[5] = target
    (found,) = learner.record_sums(weights, [Samples(client.features, targets)], record_clip=clip)
    rest = client.take(np.delete(np.arange(len(client)), 5))
    (without,) = learner.record_sums(weights, [rest], record_clip=clip)
    assert np.allclose(found, without, atol=1e-7)
    assert 0 < np.linalg.norm(found - whole) <= clip


@pytest.mark.parametrize("rows", [12, 700])  # within one batch of rows, and over several
def test_all_rows_of_one_id_are_one_record(rows: int) -> None:
    learner = TorchLearner(linear, device="cpu")
    weights = learner.first_weights(seed=0)
    features = RNG.normal(size=(rows, 6)).astype(np.float32)
    targets = RNG.integers(0, 3, rows)
    ids = np.where(np.arange(rows) % 2, 7, np.arange(rows) + 100)  # every second row is of one
    sums = []
    for sign in (1, -1):
        moved = features.copy()
        moved[ids == 7] = sign * 100 * features[1]
        client = Samples(moved, np.where(ids == 7, 0, targets), ids)
        sums.append(learner.record_sums(weights, [client], record_clip=0.1)[0])
    assert 0.01 < np.linalg.norm(sums[0] - sums[1]) <= 0.2
    loose = [
        learner.record_sums(weights, [Samples(features, targets, which)], record_clip=1e6)[0]
        for which in (ids, None)
    ]
    assert np.allclose(loose[0], loose[1], atol=1e-3)  # nothing is lost where nothing is clipped


def test_records_are_protected_where_each_gradient_is_clipped() -> None:
    result = fit(
        TorchLearner(linear, device="cpu"),
        CLIENTS,
        budget=Budget(6.0, 1e-3),
        rounds=2,
        settings=Settings(optimiser=FedAvg(lr=0.1), clip=5.0, record_clip=1.0),
        adjacency=Adjacency.REPLACE_ONE_RECORD,
        run=Run(force=True),
    )
    assert result.privacy.adjacency is Adjacency.REPLACE_ONE_RECORD
    assert result.privacy.epsilon <= 6.0


def test_a_page_and_a_card_show_the_curve_and_the_privacy_block() -> None:
    result = fit(
        TorchLearner(linear, validation=0.25, device="cpu"),
        CLIENTS * 5,
        budget=Budget(6.0, 1e-3),
        rounds=4,
        settings=Settings(validation=Validation()),
        score=lambda weights: (1.0, 0.5),
        run=Run(secrets=ScriptedSecrets(b"page"), force=True),
    )
    shown = page(result, title="A <model>")
    assert "A &lt;model&gt;" in shown
    assert "How it learned" in shown
    assert "NOT PRIVATE" in shown
    card = model_card(result, title="A model", data="made-up rows")
    assert "| epsilon | infinite: NOT PRIVATE |" in card
    assert "| amplification by sampling | none |" in card
    assert "made-up rows" in card

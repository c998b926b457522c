"""Tune and train under one budget, divided by a dry run that sees no data."""

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="these models are torch's")

from torch import nn

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import Recipe
from urna.privacy import Budget, Cover
from urna.randomness import OsSecrets
from urna.study import divide, tune_and_train
from urna.study.dry_run import DryRun
from urna.train import Settings, TorchLearner

BUDGET = Budget(6.0, 1e-3)
RNG = np.random.default_rng(0)
CLIENTS = [
    Samples(RNG.normal(size=(16, 4)).astype(np.float32), RNG.integers(2, size=16))
    for _ in range(20)
]


def linear() -> nn.Module:
    return nn.Linear(4, 2)


def test_the_two_parts_are_the_whole_and_no_data_decide() -> None:
    one = divide(BUDGET, clients=50, parameters=1000, rounds=20)
    assert one == divide(BUDGET, clients=50, parameters=1000, rounds=20)
    squares = sum(Cover(part).mu ** 2 for part in (one.vote, one.train))
    assert squares <= Cover(BUDGET).mu ** 2 * (1 + 1e-9)
    assert one.part in [row[0] for row in one.tried]
    assert "<- chosen" in str(one)


def test_more_noise_never_helps_the_dry_run_much() -> None:
    dry = DryRun(60)
    quiet, loud = dry.accuracy(0.3, 0.01, 20, 0), dry.accuracy(0.3, 20.0, 20, 0)
    assert quiet > loud + 0.2


def test_the_winner_trains_the_model_within_one_budget() -> None:
    said: list[str] = []
    learner = TorchLearner(linear, Recipe(epochs=1, batch_size=8), device="cpu")
    done = tune_and_train(
        learner,
        CLIENTS,
        budget=BUDGET,
        rounds=3,
        settings=Settings(),
        secrets=OsSecrets(),
        anyway=True,
        announce=said.append,
    )
    assert done.privacy.epsilon <= BUDGET.epsilon
    assert math.isfinite(done.privacy.epsilon)
    assert done.training.privacy.epsilon < BUDGET.epsilon
    assert done.vote.privacy.epsilon < BUDGET.epsilon
    assert any(line.startswith("the vote chose lr=") for line in said)
    # A vote that was paid for is not held again.
    again = tune_and_train(
        learner, CLIENTS, budget=BUDGET, rounds=3, vote=done.vote, division=done.division,
        anyway=True,
    )  # fmt: skip
    assert again.vote is done.vote


def test_votes_protect_no_single_records() -> None:
    with pytest.raises(ParameterError, match="needs shards"):
        tune_and_train(
            TorchLearner(linear),
            CLIENTS,
            budget=BUDGET,
            rounds=2,
            settings=Settings(clip=1.0, record_clip=0.5),
        )

"""Tune and train under one budget, divided by a dry run that sees no data."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="these models are torch's")

from grouped import tuned
from torch import nn

from urna.data import Samples
from urna.errors import BudgetExceeded, ParameterError
from urna.local import Recipe
from urna.privacy import Budget, Cover, Ledger
from urna.randomness import OsSecrets
from urna.space import Axis, Space
from urna.study import Division, TrainStage, divide
from urna.study.division import DryRun, likely
from urna.systems.train import Sampling, Settings, TorchLearner
from urna.systems.vote import plan_vote
from urna.tally import Terms

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


@pytest.mark.parametrize("clients", [40, 60])
def test_a_default_vote_probably_decides_and_has_one_probability(clients: int) -> None:
    """It rises with the vote's part, and is the plan's; a vote that is a guess is not chosen."""
    divided = divide(BUDGET, clients=clients, parameters=650, rounds=20, dropout=0.1)
    chances = [chance for _, chance, _ in divided.tried]
    assert chances == sorted(chances)
    chosen = next(chance for part, chance, _ in divided.tried if part == divided.part)
    assert chosen >= 0.8
    space = Space(lr=Axis.log([0.01, 0.03, 0.1, 0.3, 1.0]))
    vote = plan_vote(Terms.of(clients, divided.vote, dropout=0.1), space)
    assert likely(vote) == pytest.approx(chosen)


def test_more_noise_never_helps_the_dry_run_much() -> None:
    dry = DryRun(60)
    quiet, loud = dry.accuracy(0.3, 0.01, 20, 0), dry.accuracy(0.3, 20.0, 20, 0)
    assert quiet > loud + 0.2


def test_the_winner_trains_the_model_within_one_budget() -> None:
    said: list[str] = []
    learner = TorchLearner(linear, Recipe(epochs=1, batch_size=8), device="cpu")
    stage = TrainStage(learner, 3)
    done = tuned(stage, CLIENTS, budget=BUDGET, say=said.append, secrets=OsSecrets(), force=True)
    assert done.privacy.epsilon <= BUDGET.epsilon
    assert math.isfinite(done.privacy.epsilon)
    assert done.result.privacy.epsilon < BUDGET.epsilon
    assert done.vote.privacy.epsilon < BUDGET.epsilon
    assert done.vote.verdict in said
    joint = "Epsilon is that of a vote on hyperparameters and of 3 rounds of training together"
    assert [each for each in done.privacy.caveats if "psilon is that" in each] == [
        f"{joint}, for the same client"
    ]
    # A vote that was paid for is not held again.
    held = {"budget": BUDGET, "vote": done.vote, "force": True}
    again = tuned(stage, CLIENTS, held, division=done.division)
    assert again.vote is done.vote
    vote, train = done.division.vote, done.division.train
    for other in (
        replace(done.division, vote=Budget(vote.epsilon / 2, vote.delta)),
        replace(done.division, vote=Budget(vote.epsilon, vote.delta / 2)),
    ):
        with pytest.raises(ParameterError, match="the vote that was held is another one"):
            tuned(stage, CLIENTS, held, division=other)
    rates = Space(lr=Axis.log([0.1, 0.2, 0.3, 0.4, 0.5]))
    with pytest.raises(ParameterError, match="the vote that was held is another one"):
        tuned(stage, CLIENTS, held, division=done.division, space=rates)
    # Nobody hides what a division that is not one costs.
    twice = replace(done.division, train=BUDGET)
    dear = tuned(stage, CLIENTS, held, division=twice)
    assert dear.privacy.epsilon > BUDGET.epsilon
    assert train.epsilon < BUDGET.epsilon


def test_nothing_is_spent_on_a_vote_whose_training_cannot_follow(tmp_path: Path) -> None:
    learner = TorchLearner(linear, Recipe(epochs=1, batch_size=8), device="cpu")
    room = Ledger.open(tmp_path / "ledger", Budget(2.0, 1e-3))
    division = Division(0.1, Budget(1.8, 1e-3), Budget(5.0, 1e-3), ())
    with pytest.raises(BudgetExceeded):
        tuned(
            TrainStage(learner, 3),
            CLIENTS,
            budget=BUDGET,
            division=division,
            ledger=room,
            force=True,
        )
    assert room.entries() == []
    hopeless = Division(0.1, Budget(1.8, 1e-3), Budget(0.5, 1e-3), ())
    wide = TorchLearner(lambda: nn.Linear(4, 4000), device="cpu")
    with pytest.raises(ParameterError, match="the noise of all rounds together"):
        tuned(TrainStage(wide, 3), CLIENTS, budget=BUDGET, division=hopeless, ledger=room)
    assert room.entries() == []


def test_a_vote_and_sampled_rounds_are_composed_by_their_losses() -> None:
    learner = TorchLearner(linear, Recipe(epochs=1, batch_size=8), device="cpu")
    done = tuned(
        TrainStage(learner, 3, Settings(sampling=Sampling.of("poisson", "0.5"))),
        CLIENTS,
        budget=BUDGET,
        division=Division(0.2, Budget(2.196, 1e-3), Budget(5.199, 1e-3), ()),
        force=True,
    )
    assert done.result.privacy.epsilon < done.privacy.epsilon <= BUDGET.epsilon


def test_votes_protect_no_single_records() -> None:
    with pytest.raises(ParameterError, match="needs shards"):
        tuned(
            TrainStage(TorchLearner(linear), 2, Settings(clip=1.0, record_clip=0.5)),
            CLIENTS,
            budget=BUDGET,
        )

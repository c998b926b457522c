"""The paper's schemes side by side: what dropouts do to epsilon, and to a training."""

import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.papers.enforcement import (
    EveryRound,
    PoissonRounds,
    Scheme,
    Study,
    noise_left,
    train_under,
)

from urna.errors import ParameterError
from urna.privacy import gaussian_epsilon
from urna.systems.train import FedAvg, FunctionLearner

TRUTH = np.array([1.0, -1.0, 0.5])
LEARNER: FunctionLearner[float] = FunctionLearner(
    np.zeros(3), lambda weights, data, seed: weights + 0.5 * (TRUTH + data - weights)
)


def study(scheme: Scheme, dropout: float = 0.4) -> Study:
    delta, rounds, epsilon = 1e-3, 10, 6.0
    multiplier = 2 * math.sqrt(rounds) / 1.43  # about epsilon 6 for all rounds
    return train_under(
        LEARNER,
        [0.01 * n for n in range(20)],
        scheme,
        noise_multiplier=multiplier,
        account=EveryRound(delta),
        epsilon=epsilon,
        clip_norm=2.0,
        rounds=rounds,
        dropout=dropout,
        optimiser=FedAvg(),
        score=lambda weights: float(np.abs(weights - TRUTH).max()),
        tail=0.2,
    )


@pytest.mark.parametrize(
    ("rate", "delta", "multiplier", "drawn", "rounds", "orig", "early"),
    [(0.1, 1e-3, 0.93412, 100, 50, 7.09, 26), (0.16, 1e-2, 1.35, 16, 150, 6.88, 114)],
    ids=["femnist", "cifar"],
)
def test_a_fifth_of_the_clients_lost_in_the_papers_settings(
    rate: float, delta: float, multiplier: float, drawn: int, rounds: int, orig: float, early: int
) -> None:
    lost, most = math.floor(drawn * 0.2), math.floor(drawn * 0.4)

    def account(scheme: Scheme) -> PoissonRounds:
        unit = noise_left(scheme, Fraction(1), clients=drawn, tolerated=most, lost=lost)
        once = PoissonRounds(rate, delta)
        once.add(float(unit) * multiplier**2)
        return once

    once = account(Scheme.ORIG)
    held = [PoissonRounds(rate, delta, spent=r * once.spent).epsilon() for r in range(rounds + 1)]
    assert held[-1] == pytest.approx(orig, abs=0.01)
    # Early stops here; published: rounds 26 and 114.
    assert max(r for r, epsilon in enumerate(held) if epsilon <= 6.0) == early
    kept = account(Scheme.PRECISE)
    kept.spent = rounds * kept.spent
    assert 0.99 * 6.0 < kept.epsilon() <= 6.0 + 1e-3


@pytest.mark.parametrize("lost", range(5))
def test_what_every_scheme_leaves(lost: int) -> None:
    left = {
        scheme: noise_left(scheme, Fraction(60), clients=10, tolerated=4, lost=lost)
        for scheme in Scheme
    }
    assert left[Scheme.NONE] == 0
    assert left[Scheme.CENTRAL] == left[Scheme.PRECISE] == 60
    assert left[Scheme.ORIG] == left[Scheme.EARLY] == 6 * (10 - lost)
    assert left[Scheme.CONSTANT] == 10 * (10 - lost) >= 60
    assert 60 <= left[Scheme.APPROXIMATE] <= 70
    with pytest.raises(ParameterError, match="may be"):
        noise_left(Scheme.ORIG, Fraction(1), clients=10, tolerated=4, lost=5)


def test_only_enforced_noise_stays_within_its_budget() -> None:
    orig, precise, early = study(Scheme.ORIG), study(Scheme.PRECISE), study(Scheme.EARLY)
    assert orig.epsilons[-1] > precise.epsilons[-1] * 1.1
    assert precise.rounds == orig.rounds == 10
    assert early.rounds < 10
    assert early.epsilons[-1] <= 6.0
    squares = 10 * 4 / (2 * math.sqrt(10) / 1.43) ** 2
    assert precise.epsilons[-1] == pytest.approx(gaussian_epsilon(math.sqrt(squares), 1e-3))
    free = study(Scheme.NONE)
    assert math.isinf(free.epsilons[-1])
    assert free.accuracies[-1] < 0.3
    assert free.as_mapping()["epsilon"] is None

"""Accuracy of private training: MNIST by its writers, CIFAR-10 by public features.

Called by `hyades.py`. Each training is one run with one seed; what is tuned are public settings.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples, Split, load, split
from urna.evaluation.enforcement import Account, EveryRound, PoissonRounds, Scheme, train_under
from urna.local import Recipe
from urna.privacy import Budget
from urna.privacy.rdp import sampled_noise_multiplier
from urna.train import FedAvgM, Settings, TorchLearner, fit, plan_training
from urna.train.models import Network

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How one budget's model is trained; nothing here comes from the clients' data."""

    rounds: int
    clip: float
    rate: float
    momentum: float = 0.9


MNIST = {1.0: Chosen(30, 0.5, 1.0), 3.0: Chosen(60, 0.5, 1.0), 6.0: Chosen(100, 0.5, 1.0)}
"""By epsilon."""


def writers(folder: Path) -> tuple[list[Samples], Samples]:
    """Return MNIST by its writers, and its test rows."""
    dataset = load("mnist", folder=folder)
    parts = split(dataset, clients=len(np.unique(dataset.writers)), how=Split.WRITER, seed=0)
    return list(parts), dataset.test


def learner_of(task: str) -> TorchLearner:
    """Return the model of a task and how a client trains it."""
    if task == "mnist":
        return TorchLearner(Network("mlp", 784, 10), Recipe(lr=0.1, epochs=1, batch_size=32))
    return TorchLearner(Network("linear", 256, 10), Recipe(lr=0.05, epochs=1, batch_size=64))


def mnist(
    folder: Path, epsilons: list[float], rounds: int | None, secure: bool
) -> dict[str, Any]:
    """Train at client level without amplification, delta 1e-3, and one without privacy."""
    parts, test = writers(folder)
    learner = learner_of("mnist")
    rows = []
    for epsilon in epsilons:
        chosen = MNIST[epsilon]
        held, budget = rounds or chosen.rounds, Budget(epsilon, 1e-3)
        settings = Settings(
            optimiser=FedAvgM(lr=chosen.rate, momentum=chosen.momentum), clip=chosen.clip, tail=0.2
        )
        planned = plan_training(
            len(parts), 25_450, budget=budget, rounds=held, settings=settings, dropout=0.2
        )
        start = time.perf_counter()
        row: dict[str, Any] = {"epsilon": epsilon, "rounds": held, "secure_sums": secure}
        if secure:
            result = fit(
                learner, parts, budget=budget, rounds=held, settings=settings, dropout=0.2,
                score=lambda w: _loss_and_right(learner, w, test),
            )  # fmt: skip
            row |= {"accuracy": result.accuracy, "achieved": result.achieved_epsilon}
        else:
            study = train_under(
                learner,
                parts,
                Scheme.PRECISE,
                noise_multiplier=planned.noise_multiplier,
                account=EveryRound(1e-3),
                epsilon=epsilon,
                clip_norm=chosen.clip,
                rounds=held,
                dropout=0.0,
                optimiser=settings.optimiser,
                tail=settings.tail,
                score=lambda w: _loss_and_right(learner, w, test)[1],
                judge_every=held,
            )
            row |= {"accuracy": study.accuracies[-1], "achieved": study.epsilons[-1]}
        rows.append(row | {"seconds": time.perf_counter() - start})
    return {"rows": rows, "accuracies": [row["accuracy"] for row in rows]}


def _loss_and_right(learner: TorchLearner, weights: Vector, test: Samples) -> tuple[float, float]:
    loss, right = learner.scores(weights, [test])[0]
    return float(loss), float(right)

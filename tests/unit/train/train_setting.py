"""A small training that several tests share: twenty clients whose means are learned."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from grouped import grouped

from urna.privacy import Budget, Ledger
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.systems.train import FedAvg, FunctionLearner, Settings, TrainResult, fit

__all__ = ["BUDGET", "CLIENTS", "LEARNER", "ROUNDS", "SETTINGS", "TRUTH", "killed", "trained"]

TRUTH = np.array([1.0, -2.0, 3.0, 0.5])
CLIENTS = [TRUTH + 0.1 * np.random.default_rng(n).normal(size=4) for n in range(20)]
BUDGET, ROUNDS = Budget(8.0, 1e-3), 6
SETTINGS = Settings(optimiser=FedAvg(), clip=2.0)


def _step(
    weights: npt.NDArray[np.float32], data: npt.NDArray[np.float64], seed: int
) -> npt.ArrayLike:
    del seed
    return weights + 0.5 * (data - weights)


LEARNER: FunctionLearner[npt.NDArray[np.float64]] = FunctionLearner(np.zeros(4), _step)


def trained(**changes: Any) -> TrainResult:
    """Train with scripted randomness, unless one says otherwise."""
    asked: dict[str, Any] = {
        "budget": BUDGET,
        "rounds": ROUNDS,
        "settings": SETTINGS,
        "secrets": ScriptedSecrets(b"training"),
    }
    learner, clients = changes.pop("learner", LEARNER), changes.pop("clients", CLIENTS)
    return fit(learner, clients, **grouped(asked | changes))


def killed(folder: str, ledger: str, rounds: str) -> None:
    """Be a process that trains, privately where there is a ledger, and is killed at any moment."""
    trained(
        rounds=int(rounds),
        folder=Path(folder),
        ledger=Ledger(ledger) if ledger else None,
        secrets=OsSecrets() if ledger else ScriptedSecrets(b"training"),
    )

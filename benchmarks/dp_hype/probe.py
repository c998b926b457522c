"""Measure ways to compute MNIST's losses, to choose one before a long run.

Every variant searches two clients of 600 rows and averages them for five rounds, all twice:
the first time records and compiles, the second is what a long run pays.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from losses import SPACE, Options, objective_for, say, synchronise
from sets import clients_of, read
from settings import Setting

from urna.local.federated import federated_averaging
from urna.local.racing import ballot_agreement

__all__ = ["probe"]

VARIANTS = {
    "float32": (Options("cuda", "float32", False, True), False),
    "float32 tf32": (Options("cuda", "float32", False, True), True),
    "bfloat16": (Options("cuda", "bfloat16", False, True), True),
    "float32 tf32 compiled": (Options("cuda", "float32", True, True), True),
    "bfloat16 compiled": (Options("cuda", "bfloat16", True, True), True),
}
CLIENTS = 2


def probe(folder: Path, device: str, limit_rows: int | None) -> None:
    """Print seconds per client and epoch for every variant, and how far ballots differ."""
    setting = Setting("mnist", 100, "iid")
    train, test = read("mnist", folder, limit_rows)
    clients = clients_of(setting, train)[:CLIENTS]
    test = test.take(np.arange(min(len(test), 1000)))
    reference: np.ndarray | None = None
    begun = time.perf_counter()
    for name, (options, tf32) in VARIANTS.items():
        here = Options(device, options.precision, options.compiled, options.graphs)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        objective = objective_for(setting, here)

        def average(objective: Any = objective) -> Any:  # noqa: ANN401
            return federated_averaging(
                objective, clients, SPACE, test, rounds=setting.rounds, seed=0
            )

        def search(objective: Any = objective) -> Any:  # noqa: ANN401
            return objective.losses_of_clients(clients, SPACE, seeds=range(CLIENTS))

        try:
            # Averaging first: its clients hold nothing back, and are the larger ones.
            first_average, _ = _timed(average, device)
            federated, scores = _timed(average, device)
            first_search, _ = _timed(search, device)
            local, losses = _timed(search, device)
        except Exception as error:  # one variant failing must not end the probe
            say(f"{name}: failed: {str(error)[:300]}")
            continue
        reference = losses if reference is None else reference
        same = ballot_agreement(reference, losses, 5)
        say(
            f"{name}: local {local / CLIENTS / setting.local_epochs * 1e3:.1f} ms and federated "
            f"{federated / CLIENTS / setting.rounds * 1e3:.1f} ms per client and epoch (first time "
            f"{first_average:.1f} + {first_search:.1f} s in all); ballots: overlap with the first "
            f"variant {same.overlap:.2f}, same first choice {same.same_first:.2f}; best federated "
            f"accuracy {np.nanmax(scores.accuracies):.3f}; "
            f"{time.perf_counter() - begun:.0f} s so far"
        )


def _timed(work: Callable[[], Any], device: str) -> tuple[float, Any]:
    synchronise(device)
    start = time.perf_counter()
    result = work()
    synchronise(device)
    return time.perf_counter() - start, result

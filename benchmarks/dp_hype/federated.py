"""Train every candidate of the authors' space by federated averaging, at a third of the work.

A client builds a fresh optimiser and schedule in each round, so the decay restarts. Then a
candidate whose learning rate is zero after its first epoch needs only that epoch of each round,
and all five decays agree in it. And a learning rate of 1e-6 or less moves nothing: those 50
candidates are one run for each momentum (Adult, trained in full, gave all of them the same test
accuracy). With batch norm, whose statistics move by themselves, only the latter holds: there a
rate that is zero after its first epoch is trained for all of them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.papers.federated import federated_averaging

from urna.data import Samples
from urna.local import BatchedObjective, Progress
from urna.local.models import authors_space
from urna.space import Space

__all__ = ["train_federated"]

SPACE = authors_space()
STILL = 1e-6
"""Learning rates up to this leave the accuracy where it was."""
RATES = sorted({lr for c in SPACE if (lr := float(c["lr"])) > STILL}, reverse=True)
MOMENTA = sorted({c["momentum"] for c in SPACE})
DECAYS = sorted({decay for c in SPACE if (decay := float(c["decay"])) > 0})


def train_federated(
    objective: BatchedObjective,
    clients: Sequence[Samples],
    test: Samples,
    *,
    rounds: int,
    local_epochs: int,
    seed: int,
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return test accuracies and test losses of all candidates of the authors' space."""
    moving = Space(lr=RATES, decay=DECAYS, momentum=MOMENTA)
    once = Space(lr=[*RATES, STILL], decay=[0.0], momentum=MOMENTA)
    enough = local_epochs if any(True for _ in objective.factory().buffers()) else 1
    found = {}
    for space, epochs, shown in ((moving, local_epochs, progress), (once, enough, None)):
        scores = federated_averaging(
            objective,
            clients,
            space,
            test,
            rounds=rounds,
            local_epochs=epochs,
            seed=seed,
            restart_decay=True,
            checkpoints=checkpoints and checkpoints / ("moving" if space is moving else "once"),
            progress=shown,
        )
        for candidate, *score in zip(space, scores.accuracies, scores.losses, strict=True):
            found[candidate["lr"], candidate.get("decay", 0.0), candidate["momentum"]] = score
    every = [
        found[c["lr"], c["decay"], c["momentum"]]
        if float(c["lr"]) > STILL
        else found[STILL, 0.0, c["momentum"]]
        for c in SPACE
    ]
    accuracies, losses = np.array(every).T
    return accuracies, losses

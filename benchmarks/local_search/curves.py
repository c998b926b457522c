"""Many races, worked out from the losses after every epoch of one search.

One full search per client gives the losses after each epoch. Every race over these candidates
follows from them: who is stopped when, whom the client then votes for, and how much training
is saved. On a CPU a finalist's loss is the full search's to the last bit, so this is what a
race would find, for many races at the price of one search. Training saved counts lanes times
epochs; times are the racing suite's matter.

MNIST takes a minute of CPU time per client. Candidates whose learning rate is below `MOVING`
are therefore not trained there: they are given the loss before training, a little less for
larger steps. In five epochs they move by less than 0.003 (seen on whole searches of two
clients). They are nobody's first choice and on no ballot of five.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.local_search import measure as base
from benchmarks.papers.agreement import ballot_agreement

from urna.data import Samples
from urna.local import BatchedObjective, SuccessiveHalving
from urna.local.models import adult_mlp
from urna.local.recipe import LaneGroup, lineages
from urna.space import Axis, Space

Row = dict[str, Any]
Array = npt.NDArray[np.float64]

MOVING = 0.01
"""Learning rates below this leave MNIST's losses where they were."""
RACES: dict[str, SuccessiveHalving] = {
    **{
        f"halving, factor {factor:g}, {finalists} finalists": SuccessiveHalving(factor, finalists)
        for factor in (2.0, 3.0, 4.0)
        for finalists in (16, 20, 24, 28)
    },
    **{
        f"halving from the second epoch, {finalists} finalists": SuccessiveHalving(
            4.0, finalists, first_epoch=2
        )
        for finalists in (16, 20, 24)
    },
}


@dataclass(frozen=True, slots=True)
class Watcher(SuccessiveHalving):
    """A race that stops nobody and keeps what it is shown."""

    finalists: int = 1
    losses: list[Array] = field(default_factory=list)

    def survivors(self, *, losses: Array, racing: Sequence[int], epoch: int) -> list[int]:
        """Keep the losses of this epoch."""
        del epoch
        self.losses.append(losses)
        return list(racing)


def record(factory: Callable[..., Any], data: Samples, seed: int, moving: float) -> Array:
    """Return a client's losses after every epoch, shape (epochs, candidates of the whole space)."""
    moved = [rate for rate in map(float, base.SPACE.axes["lr"].values) if rate >= moving]
    others = {name: axis for name, axis in base.SPACE.axes.items() if name != "lr"}
    watcher = Watcher()
    objective = BatchedObjective(factory, device="cpu", race=watcher)
    final = objective.losses(data, Space(lr=Axis.log(moved), **others), seed=seed)
    found = np.stack([*watcher.losses, final])
    untrained = BatchedObjective(factory, device="cpu", epochs=1)
    start = untrained.losses(data, Space(lr=[1e-12]), seed=seed)[0]
    still = standing_still(start, len(base.SPACE) - len(final))
    return np.concatenate([found, np.tile(still, (len(found), 1))], axis=1)


def standing_still(start: float, count: int) -> Array:
    """Return losses of the space's last `count` candidates, which hardly learn.

    Decays of one learning rate tie, as they do after the first epoch.
    """
    last = list(base.SPACE)[len(base.SPACE) - count :]
    return np.array([start - 1e-3 * float(c["lr"]) / (1 - float(c["momentum"])) for c in last])


def replay(group: LaneGroup, curves: Array, race: SuccessiveHalving) -> tuple[Array, int, int]:
    """Return a race's losses, the lanes times epochs it trained, and its finalists.

    Args:
        group: The candidates.
        curves: Losses after every epoch, shape (epochs, candidates).
        race: Who may stop early.
    """
    numbers = lineages(group.recipes)
    over = np.array([not any(r.learning_rates()[1:]) for r in group.recipes])
    curves = np.where(np.isfinite(curves), curves, np.inf)
    alive, work = list(range(len(group))), 0
    losses = np.full(len(group), np.inf)
    for epoch in range(group.epochs):
        work += len(set(numbers[alive, epoch].tolist()))
        done = [m for m in alive if over[m] or epoch == group.epochs - 1]
        losses[done] = curves[-1, done]
        alive = [m for m in alive if m not in set(done)]
        finalists = len(alive) or len(done)
        if len(alive) > race.finalists:
            alive = race.survivors(losses=curves[epoch], racing=alive, epoch=epoch)
    return losses, work, finalists


def summary(name: str, curves: Array, races: dict[str, SuccessiveHalving]) -> list[Row]:
    """Compare races with the full search they are worked out from.

    Args:
        name: What was searched.
        curves: Losses, shape (clients, epochs, candidates).
        races: The races by name.
    """
    (group,) = BatchedObjective(adult_mlp).groups(base.SPACE)
    full = np.where(np.isfinite(curves[:, -1]), curves[:, -1], np.inf)
    whole = SuccessiveHalving(finalists=len(group))
    most = replay(group, curves[0], whole)[1]
    rows = []
    for label, race in races.items():
        found = [replay(group, each, race) for each in curves]
        losses = np.stack([f[0] for f in found])
        first, five = (ballot_agreement(full, losses, votes) for votes in (1, 5))
        rows.append(
            {
                "name": f"{name}, {label}",
                "clients": len(full),
                "top1_unchanged": first.same_first,
                "ballot_of_5_unchanged": five.same_ballot,
                "ballot_of_5_overlap": five.overlap,
                "training_saved": most / float(np.mean([f[1] for f in found])),
                "mean_finalists": float(np.mean([f[2] for f in found])),
                "mean_finite": float(np.isfinite(losses).sum(axis=1).mean()),
            }
        )
    return rows


def curves_suite(folder: Path, count: int) -> list[Row]:
    """Record both data sets and work out all races."""
    sets: dict[str, tuple[Callable[..., Any], Sequence[Samples], float]] = {
        "adult": (adult_mlp, base.adult_data(folder, 100)[:count], 0.0),
        "mnist": (base.SMALL_CNN, base.pictures("mnist", folder, 100)[:count], MOVING),
    }
    rows = []
    for name, (factory, clients, moving) in sets.items():
        found = [record(factory, data, seed, moving) for seed, data in enumerate(clients)]
        rows += summary(name, np.stack(found), RACES)
    return rows

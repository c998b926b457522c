"""Federated averaging of every candidate at once: what the best possible vote would reach.

Evaluations need it (the Opt and RandGuess baselines of DP-Hype): each candidate trained by
FedAvg over all clients, judged on test rows nobody trained on. All candidates advance
together, as in a local search, and those that have agreed so far share a lane. It runs in
one process on data that a study may see; nothing here is private.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import BatchedObjective, Progress, Recordings
from urna.local.engine import Model, Weights
from urna.local.engine.batches import seeded_module
from urna.local.recipe import LaneGroup, Recipe, share_lanes
from urna.space import Space

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FederatedScores", "federated_averaging"]


@dataclass(frozen=True, slots=True, eq=False)
class FederatedScores:
    """How each candidate does when all clients train one model with it."""

    losses: npt.NDArray[np.float64]
    """Test loss of each candidate; infinite if it diverged."""
    accuracies: npt.NDArray[np.float64]
    """Share of right answers on the test rows; NaN where targets are no classes."""

    @property
    def best(self) -> int:
        """The candidate of highest accuracy, or of lowest loss where there is none."""
        if np.isnan(self.accuracies).all():
            return int(np.argmin(self.losses))
        return int(np.nanargmax(self.accuracies))


def federated_averaging(
    objective: BatchedObjective,
    clients: Sequence[Samples],
    space: Space,
    test: Samples,
    *,
    rounds: int,
    local_epochs: int = 1,
    seed: int,
    restart_decay: bool = False,
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> FederatedScores:
    """Train every candidate by FedAvg (McMahan et al. 2017) and judge it on test rows.

    In each round every client starts from the common weights with a fresh optimiser, trains
    on all its rows, and the new common weights are the mean of the clients', weighted by
    their rows; so are batch norm's statistics.

    Args:
        objective: Supplies module, loss, batch size, device and limits; its epochs, race and
            validation split are not used.
        clients: The clients' data.
        space: The candidates.
        test: Rows to judge on.
        rounds: Rounds of averaging.
        local_epochs: Passes over a client's rows per round.
        seed: Public seed of first weights and batches.
        restart_decay: Whether the learning rate starts anew in each round, as it does where
            a client builds a fresh optimiser and schedule. Otherwise it decays per epoch over
            all rounds.
        checkpoints: A folder in which every finished round is kept, and from which a run with
            the same arguments goes on; of no use to any other run.
        progress: Called with the work done, in candidates.
    """
    if rounds < 1 or local_epochs < 1 or not clients:
        raise ParameterError(
            f"averaging needs clients, rounds and epochs, got {len(clients)} clients, {rounds} "
            f"rounds and {local_epochs} epochs"
        )
    if "epochs" in space.axes:
        raise ParameterError("`epochs` cannot be an axis here: rounds decide how long is trained")
    objective = replace(objective, epochs=rounds * local_epochs)
    scores = np.full((len(space), 2), (math.inf, math.nan))
    done = 0
    for number, group in enumerate(objective.groups(space)):
        federation = _Federation(
            objective.model(group), group, clients, test, local_epochs, seed, restart_decay
        )
        path = None if checkpoints is None else checkpoints / f"group-{number}.pt"
        start = 0 if path is None else federation.restored(path)
        for finished in range(start, rounds):
            federation.round(finished)
            if path is not None:
                federation.keep(path, finished + 1)
            if progress is not None:
                progress(done + len(group) * (finished + 1) // rounds, len(space))
        done += len(group)
        scores[list(group.places)] = federation.scores
    losses, accuracies = scores.T
    return FederatedScores(np.where(np.isnan(losses), math.inf, losses), accuracies)


@dataclass(slots=True)
class _Federation:
    """One group's common weights, and the clients that train them."""

    model: Model
    group: LaneGroup
    clients: Sequence[Samples]
    test: Samples
    local_epochs: int
    seed: int
    restart_decay: bool
    scores: npt.NDArray[np.float64] = field(init=False)
    """Test loss and accuracy of every member, shape (members, 2)."""
    _weights: Weights = field(init=False)
    _lane_of: npt.NDArray[np.intp] = field(init=False)
    _alive: list[int] = field(init=False)
    _recordings: Recordings = field(init=False, default_factory=Recordings)

    def __post_init__(self) -> None:
        from urna.local.engine.stack import weights_of  # noqa: PLC0415 - imports torch

        with seeded_module(self.seed):
            first = Weights(*weights_of(self.model.build()))
        self._weights = first.each(lambda tensor: tensor.detach()[None])
        self._lane_of = np.zeros(len(self.group), dtype=np.intp)
        self._alive = list(range(len(self.group)))
        self.scores = np.full((len(self.group), 2), (math.inf, math.nan))

    def round(self, number: int) -> None:
        """Let every client train from the common weights, and average."""
        if not self._alive:
            return
        # Lanes only ever split; splitting at the start of a round serves all its epochs.
        first = number * self.local_epochs
        sharing = share_lanes(self.group.recipes, self._alive, first + self.local_epochs - 1)
        parents = self._lane_of[list(sharing.leaders)]
        start = self._weights.each(lambda tensor: tensor[parents])
        self._lane_of = np.maximum(sharing.lane_of, 0)
        recipes = [self._recipe(leader, first) for leader in sharing.leaders]
        total = sum(len(client) for client in self.clients)
        mean = start.each(lambda tensor: tensor.double() * 0)
        seeds = [self.seed + 1 + place for place in range(len(self.clients))]
        with self._recordings.runner(self.model, self.group.recipes) as runner:
            for places, trained in runner.train(recipes, start, self.clients, seeds, first):
                shares = np.array([len(self.clients[place]) / total for place in places])
                mean = _sum(mean, trained, shares)
        self._weights = Weights(
            {n: t.to(start.parameters[n].dtype) for n, t in mean.parameters.items()},
            {n: t.to(start.buffers[n].dtype) for n, t in mean.buffers.items()},
        )
        self._judge(first + self.local_epochs)

    def keep(self, path: Path, rounds: int) -> None:
        """Write what the next round begins with, whole or not at all."""
        import torch  # noqa: PLC0415 - the core runs without torch

        state = {
            "rounds": rounds,
            "parameters": self._weights.parameters,
            "buffers": self._weights.buffers,
            "lane_of": torch.from_numpy(self._lane_of),
            "alive": self._alive,
            "scores": torch.from_numpy(self.scores),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(".part")
        torch.save(state, waiting)
        waiting.replace(path)

    def restored(self, path: Path) -> int:
        """Go on from a checkpoint, if there is one; return how many rounds it has seen."""
        import torch  # noqa: PLC0415 - the core runs without torch

        if not path.exists():
            return 0
        state = torch.load(path, map_location="cpu", weights_only=True)
        self._weights = Weights(state["parameters"], state["buffers"])
        self._lane_of = state["lane_of"].cpu().numpy()
        self._alive, self.scores = state["alive"], state["scores"].cpu().numpy()
        return int(state["rounds"])

    def _recipe(self, member: int, first: int) -> Recipe:
        """Return a member's recipe for the round that begins with an epoch."""
        recipe = self.group.recipes[member]
        rate = recipe.lr if self.restart_decay else recipe.learning_rates()[first]
        return replace(recipe, lr=rate, epochs=self.local_epochs)

    def _judge(self, next_epoch: int) -> None:
        """Judge members that are done: all at the end, and those that will not move again."""
        recipes = self.group.recipes
        over = next_epoch == self.group.epochs
        still = not self._weights.buffers and not self.restart_decay
        done = [
            m
            for m in self._alive
            if over or (still and not any(recipes[m].learning_rates()[next_epoch:]))
        ]
        if done:
            with self._recordings.runner(self.model, recipes) as runner:
                found = runner.score(self._weights, self.test, rows=4 * recipes[0].batch_size)
            self.scores[done] = found[self._lane_of[done]]
            self._alive = [m for m in self._alive if m not in set(done)]


def _sum(mean: Weights, trained: Weights, shares: npt.NDArray[np.float64]) -> Weights:
    """Add some clients' weights, each by its share of all rows, in float64."""
    import torch  # noqa: PLC0415 - the core runs without torch

    def added(before: "Tensor", tensor: "Tensor") -> "Tensor":
        factors = torch.from_numpy(shares).to(tensor.device)
        each = factors @ tensor.double().reshape(len(shares), -1)
        return before.to(tensor.device) + each.view(before.shape)

    return Weights(
        {n: added(t, trained.parameters[n]) for n, t in mean.parameters.items()},
        {n: added(t, trained.buffers[n]) for n, t in mean.buffers.items()},
    )

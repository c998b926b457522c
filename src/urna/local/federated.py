"""Federated averaging of every candidate at once: what the best possible vote would reach.

Evaluations need it (the Opt and RandGuess baselines of DP-Hype): each candidate trained by
FedAvg over all clients, judged on test rows nobody trained on. All candidates advance
together, as in a local search, and those that have agreed so far share a lane. It runs in
one process on data that a study may see; nothing here is private.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.lanes import Group, group_plans, share_lanes
from urna.local.objective import Progress
from urna.local.recipe import plan_candidates
from urna.local.torch_sgd import check_smoothing, require_torch
from urna.space import Space

if TYPE_CHECKING:
    from torch import Tensor

    from urna.local.batched import BatchedObjective
    from urna.local.stack import Tensors

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
    objective: "BatchedObjective",
    clients: Sequence[Samples],
    space: Space,
    test: Samples,
    *,
    rounds: int,
    local_epochs: int = 1,
    seed: int,
    restart_decay: bool = False,
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
        progress: Called with the work done, in candidates.
    """
    require_torch()
    if rounds < 1 or local_epochs < 1 or not clients:
        raise ParameterError(
            f"averaging needs clients, rounds and epochs, got {len(clients)} clients, {rounds} "
            f"rounds and {local_epochs} epochs"
        )
    recipe = replace(objective.recipe(), epochs=rounds * local_epochs)
    plans = plan_candidates((_without_epochs(c) for c in space), recipe, objective.factory)
    check_smoothing(plans, objective.loss)
    losses, accuracies = np.full(len(space), math.inf), np.full(len(space), math.nan)
    done = 0
    for group in group_plans(plans):
        federation = _Federation(objective, group, clients, test, local_epochs, seed, restart_decay)
        for finished in range(rounds):
            federation.round(finished)
            if progress is not None:
                progress(done + len(group) * (finished + 1) // rounds, len(space))
        done += len(group)
        places = list(group.places)
        losses[places], accuracies[places] = federation.losses, federation.accuracies
    losses[np.isnan(losses)] = math.inf
    return FederatedScores(losses, accuracies)


def _without_epochs(
    candidate: dict[str, bool | int | float | str],
) -> dict[str, bool | int | float | str]:
    if "epochs" in candidate:
        raise ParameterError("`epochs` cannot be an axis here: rounds decide how long is trained")
    return candidate


class _Federation:
    """One group's common weights, and the clients that train them."""

    def __init__(
        self,
        objective: "BatchedObjective",
        group: Group,
        clients: Sequence[Samples],
        test: Samples,
        local_epochs: int,
        seed: int,
        restart_decay: bool,
    ) -> None:
        from urna.local.batches import seeded_module  # noqa: PLC0415 - imports torch inside
        from urna.local.runner import measure_room, pick_device  # noqa: PLC0415 - imports torch
        from urna.local.stack import Features, SettingsTable, first_stack  # noqa: PLC0415

        self._objective, self._group = objective, group
        self._clients, self._test = clients, test
        self._local_epochs, self._seed = local_epochs, seed
        self._restart_decay = restart_decay
        self._device = pick_device(objective.device)
        with seeded_module(seed):
            module = objective.module_of(group)
        first = first_stack([module], group.optimiser, self._device)
        self._weights, self._buffers = first.parameters, first.buffers
        self._module = module.to(self._device)
        self._features = Features.of(group.recipes)
        self._table = SettingsTable(group.recipes, self._device)
        self._lane_of = np.zeros(len(group), dtype=np.intp)
        self._alive = list(range(len(group)))
        largest = max(clients, key=len)
        self._room = measure_room(replace(objective, race=None), group, largest, len(clients))
        self.losses = np.full(len(group), math.inf)
        self.accuracies = np.full(len(group), math.nan)

    def round(self, number: int) -> None:
        """Let every client train from the common weights, and average."""
        import torch  # noqa: PLC0415

        if not self._alive:
            return
        # Lanes only ever split; splitting at the start of a round serves all its epochs.
        last = (number + 1) * self._local_epochs - 1
        sharing = share_lanes(self._group.recipes, tuple(self._alive), last)
        parents = torch.from_numpy(self._lane_of[list(sharing.leaders)]).to(self._device)
        start = _selected(self._weights, parents), _selected(self._buffers, parents)
        self._lane_of = np.maximum(sharing.lane_of, 0)
        sums: tuple[Tensors, Tensors] = ({}, {})
        total = sum(len(client) for client in self._clients)
        for places in self._blocks():
            trained = self._train(places, start, sharing.leaders, number)
            share = len(self._clients[places[0]]) / total
            for sum_, part in zip(sums, trained, strict=True):
                _add(sum_, part, share, len(places))
        kinds = [{n: t.dtype for n, t in part.items()} for part in start]
        self._weights, self._buffers = (
            {n: t.to(kind[n]) for n, t in part.items()}
            for part, kind in zip(sums, kinds, strict=True)
        )
        self._judge(number)

    def _blocks(self) -> list[list[int]]:
        """Group clients with equally many rows, as many together as fit.

        The largest come first: what is recorded for them serves all others.
        """
        by_size: dict[int, list[int]] = {}
        for place, client in enumerate(self._clients):
            by_size.setdefault(len(client), []).append(place)
        most = self._room.clients
        return [
            places[i : i + most]
            for _, places in sorted(by_size.items(), reverse=True)
            for i in range(0, len(places), most)
        ]

    def _train(
        self,
        places: Sequence[int],
        start: "tuple[Tensors, Tensors]",
        leaders: Sequence[int],
        number: int,
    ) -> "tuple[Tensors, Tensors]":
        """Return the weights and buffers of some clients after one round's epochs."""
        from urna.local.block import plan_epoch, stack_rows  # noqa: PLC0415 - imports torch
        from urna.local.stack import fresh_state, upload  # noqa: PLC0415

        count = len(places)
        block = stack_rows(
            [self._clients[p] for p in places], [self._seed + 1 + p for p in places], self._device
        )
        weights, buffers = (
            {n: t.repeat(count, *[1] * (t.dim() - 1)) for n, t in part.items()} for part in start
        )
        stack = fresh_state(weights, buffers, self._group.optimiser)
        # The objective keeps engines: a search of the same group shares what was recorded.
        runner = self._objective.runner_of(self._group)
        # Clients stack one after the other here, so that several go in one piece.
        width = len(leaders) if count > 1 else self._room.width(len(leaders))
        members = upload(np.tile(np.array(leaders), count), self._device)
        with runner.lock:
            _, engine = runner.engine(count, self._room)
            for epoch in range(number * self._local_epochs, (number + 1) * self._local_epochs):
                decayed = epoch % self._local_epochs if self._restart_decay else epoch
                settings = self._table.at(members, decayed)
                plan = plan_epoch(block, self._group.batch_size, epoch)
                stack = engine.epoch(stack, settings, block, plan, width)
        return stack.parameters, stack.buffers

    def _judge(self, number: int) -> None:
        """Judge candidates that are done: all at the end, and those that will not move again."""
        from urna.local.block import stack_rows  # noqa: PLC0415 - imports torch
        from urna.local.engine import evaluate  # noqa: PLC0415
        from urna.local.runner import make_engine  # noqa: PLC0415
        from urna.local.stack import fresh_state  # noqa: PLC0415

        next_epoch = (number + 1) * self._local_epochs
        over = next_epoch == self._group.epochs
        still = not self._buffers and not self._restart_decay
        done = [
            m
            for m in self._alive
            if over or (still and not any(self._group.recipes[m].learning_rates()[next_epoch:]))
        ]
        if not done:
            return
        crew, _ = make_engine(self._objective, self._module, self._features, 1, self._room)
        rows = stack_rows([self._test], [0], self._device)
        losses, right = evaluate(
            crew,
            fresh_state(self._weights, self._buffers, self._group.optimiser),
            rows.inputs,
            rows.targets,
            width=self._room.lanes,
            rows=4 * self._group.batch_size,
        )
        lanes = self._lane_of[done]
        self.losses[done] = losses.cpu().numpy()[lanes]
        self.accuracies[done] = right.cpu().numpy()[lanes]
        self._alive = [m for m in self._alive if m not in set(done)]


def _selected(part: "Tensors", lanes: "Tensor") -> "Tensors":
    return {n: t.index_select(0, lanes) for n, t in part.items()}


def _add(sums: "Tensors", part: "Tensors", share: float, count: int) -> None:
    """Add some clients' tensors, each weighted by its share of all rows, in float64."""
    for name, tensor in part.items():
        each = tensor.double().view(count, -1, *tensor.shape[1:]).sum(0) * share
        sums[name] = sums[name] + each if name in sums else each

"""Runs one group of candidates on many clients, within the memory there is.

This module imports torch.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from urna.data import Samples
from urna.local.batches import seeded_module
from urna.local.block import blocks_of, stack_clients
from urna.local.chunks import Room, lane_bytes, plan_room
from urna.local.course import Course, run_course
from urna.local.engine import EagerEngine, Engine
from urna.local.gradients import Batched
from urna.local.graphs import CudaRecorder, GraphEngine
from urna.local.holdout import Holdout
from urna.local.lanes import Group
from urna.local.recipe import Optimiser
from urna.local.stack import Features
from urna.local.torch_sgd import as_tensors, out_of_memory

if TYPE_CHECKING:
    from urna.local.batched import BatchedObjective

__all__ = ["Runner", "make_engine", "measure_room", "pick_device"]

_log = logging.getLogger(__name__)

ShareDone = Callable[[int, float], None]


def pick_device(device: str) -> str:
    """Return the device to use; "auto" is a GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


class Runner:
    """Searches one group; engines and recordings are kept from block to block."""

    def __init__(self, objective: "BatchedObjective", group: Group) -> None:
        self._objective = objective
        self._group = group
        self._device = pick_device(objective.device)
        with seeded_module(0):
            self._module = objective.module_of(group).to(self._device)
        self._features = Features.of(group.recipes)
        self._engines: dict[tuple[int, int], tuple[Batched, Engine]] = {}

    def blocks(
        self, clients: Sequence[Samples], seeds: Sequence[int], tick: ShareDone
    ) -> Iterator[tuple[list[int], npt.NDArray[np.float64]]]:
        """Yield the places of some clients and their scores, block by block.

        Scores have the shape (clients, members, 2): loss and share of right answers.
        """
        fraction = self._objective.validation_fraction
        blocks = blocks_of(clients, seeds, fraction=fraction, most=len(clients))
        rooms: dict[tuple[int, int], Room] = {}  # measuring takes longer than a small client
        # The largest first: what is recorded for it serves all others.
        for places, parts in sorted(blocks, key=lambda block: -len(block[1][0].train)):
            train = parts[0].train
            size = min(self._group.batch_size, len(train)), len(parts)
            if size not in rooms:
                rooms[size] = measure_room(self._objective, self._group, train, len(parts))
            room = rooms[size]
            for start in range(0, len(places), room.clients):
                chosen = places[start : start + room.clients]
                some = parts[start : start + room.clients]
                yield chosen, self._search(some, [seeds[p] for p in chosen], room, tick)

    def _search(
        self, parts: Sequence[Holdout], seeds: Sequence[int], room: Room, tick: ShareDone
    ) -> npt.NDArray[np.float64]:
        """Search a block; where memory runs out, again with half as much at once."""
        try:
            return self._course(self._group, parts, seeds, room, tick)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # Outside the handler: the error's traceback holds on to the tensors of the failed try.
        self._engines.clear()
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()
        if len(parts) > 1:
            fewer = Room(room.lanes, 1)
            found = [self._search([p], [s], fewer, tick) for p, s in zip(parts, seeds, strict=True)]
            return np.concatenate(found)
        if room.lanes > 1:
            _log.info("out of memory with %d candidates at once; trying half", room.lanes)
            return self._search(parts, seeds, Room(-(-room.lanes // 2), 1), tick)
        return self._one_by_one(parts, seeds, tick)

    def _one_by_one(
        self, parts: Sequence[Holdout], seeds: Sequence[int], tick: ShareDone
    ) -> npt.NDArray[np.float64]:
        """Give each candidate all the memory; one that still does not fit has failed."""
        scores = np.full((1, len(self._group), 2), (np.inf, np.nan))
        for member, (place, recipe) in enumerate(
            zip(self._group.places, self._group.recipes, strict=True)
        ):
            group = self._group
            alone = Group(
                group.shape, group.batch_size, group.epochs, group.optimiser, (place,), (recipe,)
            )
            try:
                scores[:, member : member + 1] = self._course(alone, parts, seeds, Room(1, 1), tick)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
        return scores

    def _course(
        self,
        group: Group,
        parts: Sequence[Holdout],
        seeds: Sequence[int],
        room: Room,
        tick: ShareDone,
    ) -> npt.NDArray[np.float64]:
        batched, engine = self.engine(len(parts), room.lanes)
        course = Course(
            group,
            stack_clients(parts, seeds, self._device),
            batched,
            engine,
            room.lanes,
            race=self._objective.race,
        )
        run_course(
            course,
            lambda: self._objective.module_of(group),
            lambda share: tick(len(parts), share),
        )
        return np.stack([course.losses, course.accuracies], axis=-1)

    def engine(self, clients: int, lanes: int) -> tuple[Batched, Engine]:
        """Return the engine for so many clients and lanes at once, with what it recorded."""
        if (clients, lanes) not in self._engines:
            self._engines[clients, lanes] = make_engine(
                self._objective, self._module, self._features, clients, lanes
            )
        return self._engines[clients, lanes]


def make_engine(
    objective: "BatchedObjective", module: nn.Module, features: Features, clients: int, lanes: int
) -> tuple[Batched, Engine]:
    """Return the batched gradient of a module and the engine that uses it."""
    batched = Batched(
        module,
        objective.loss,
        clients,
        torch.bfloat16 if objective.precision == "bfloat16" else None,
        features.label_smoothing,
    )
    if objective.graphs and pick_device(objective.device).startswith("cuda"):
        recorder = CudaRecorder()
        return batched, GraphEngine(batched, features, lanes, recorder, compiled=objective.compiled)
    return batched, EagerEngine(batched, features, lanes)


def measure_room(objective: "BatchedObjective", group: Group, train: Samples, clients: int) -> Room:
    """Measure one lane on a client's rows and plan how many run at once."""
    with seeded_module(0):
        module = objective.module_of(group)
    batch = train.take(np.arange(min(group.batch_size, len(train))))
    states = 4 if group.optimiser is Optimiser.ADAMW else 3
    activations, state = lane_bytes(module, as_tensors(batch, "cpu")[0], states)
    device = pick_device(objective.device)
    room = plan_room(
        activations,
        state,
        lanes=len(group),
        clients=clients,
        device=device,
        running=None if objective.race is None else min(objective.race.finalists, len(group)),
    )
    most = objective.most_lanes
    return room if most is None else Room(lanes=min(most, len(group)), clients=1)

"""Runs one group of candidates on many clients, within the memory there is.

This module imports torch.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from urna.data import Samples
from urna.local.batches import seeded_module
from urna.local.block import blocks_of, stack_clients
from urna.local.chunks import Room, fixed_width, lane_bytes, plan_room, rounds_alike
from urna.local.course import Course, run_course
from urna.local.crew import Crew, judge_as_it_comes
from urna.local.engine import EagerEngine, Engine
from urna.local.gradients import Batched
from urna.local.graphs import CudaRecorder, GraphEngine
from urna.local.holdout import Holdout
from urna.local.lanes import Group, share_lanes
from urna.local.patches import by_patches
from urna.local.recipe import Optimiser
from urna.local.stack import Features
from urna.local.steps import RecordedJudge, RecordedSteps, watched
from urna.local.torch_sgd import as_tensors, out_of_memory

if TYPE_CHECKING:
    from urna.local.batched import BatchedObjective

__all__ = ["Runner", "make_engine", "measure_room", "pick_device"]

_log = logging.getLogger(__name__)

ShareDone = Callable[[int, float], None]
Collect = Callable[[], npt.NDArray[np.float64]]
"""Waits for a search that a GPU may still be at, and returns its scores."""


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
        self._engines: dict[tuple[int, int], tuple[Crew, Engine]] = {}

    def blocks(
        self, clients: Sequence[Samples], seeds: Sequence[int], tick: ShareDone
    ) -> Iterator[tuple[list[int], npt.NDArray[np.float64]]]:
        """Yield the places of some clients and their scores, block by block.

        Scores have the shape (clients, members, 2): loss and share of right answers.
        """
        fraction = self._objective.validation_fraction
        blocks = blocks_of(clients, seeds, fraction=fraction, most=len(clients))
        running: tuple[list[int], Collect] | None = None
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
                collect = self._search(some, [seeds[p] for p in chosen], room, tick)
                # A GPU is still at it; what was started before is finished first.
                if running is not None:
                    yield running[0], running[1]()
                running = chosen, collect
        if running is not None:
            yield running[0], running[1]()

    def _search(
        self, parts: Sequence[Holdout], seeds: Sequence[int], room: Room, tick: ShareDone
    ) -> Collect:
        """Search a block; where memory runs out, again with half as much at once."""
        try:
            return self._course(self._group, parts, seeds, room, tick).collect
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # Outside the handler: the error's traceback holds on to the tensors of the failed try.
        self._engines.clear()
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()
        if len(parts) > 1:
            fewer = replace(room, clients=1)
            found = [
                self._search([p], [s], fewer, tick)() for p, s in zip(parts, seeds, strict=True)
            ]
            return lambda: np.concatenate(found)
        if room.lanes > 1:
            _log.info("out of memory with %d candidates at once; trying half", room.lanes)
            half = Room(-(-room.lanes // 2), 1, room.fixed)
            return self._search(parts, seeds, half, tick)
        scores = self._one_by_one(parts, seeds, tick)
        return lambda: scores

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
                course = self._course(alone, parts, seeds, Room(1, 1), tick)
                scores[:, member : member + 1] = course.collect()
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
    ) -> Course:
        crew, engine = self.engine(len(parts), room)
        block = stack_clients(parts, seeds, self._device)
        course = Course(group, block, crew, engine, room, race=self._objective.race)
        with crew.between_pieces():
            return run_course(
                course,
                lambda: self._objective.module_of(group),
                lambda share: tick(len(parts), share),
            )

    def engine(self, clients: int, room: Room) -> tuple[Crew, Engine]:
        """Return the engine for so many clients at once, with what it recorded."""
        if (clients, room.threads) not in self._engines:
            self._engines[clients, room.threads] = make_engine(
                self._objective, self._module, self._features, clients, room
            )
        return self._engines[clients, room.threads]


def make_engine(
    objective: "BatchedObjective", module: nn.Module, features: Features, clients: int, room: Room
) -> tuple[Crew, Engine]:
    """Return who computes a module's batched gradient, and the engine that uses it."""
    batched = Batched(
        module,
        objective.loss,
        clients,
        torch.bfloat16 if objective.precision == "bfloat16" else None,
        features.label_smoothing,
        _takeover(objective),
        _of_lanes(objective, module),
    )
    if pick_device(objective.device).startswith("cuda"):
        crew = Crew(batched, steady=objective.repeatable)
        if objective.graphs:
            return crew, GraphEngine(
                batched,
                features,
                CudaRecorder(),
                compiled=objective.compiled,
                repeatable=objective.repeatable,
            )
    else:
        alone = watched(module)
        judge = judge_as_it_comes if alone else RecordedJudge()
        crew = Crew(batched, room.threads, spread=room.least == 2, judge=judge)
        if not alone:
            return crew, EagerEngine(crew, features, RecordedSteps())
    return crew, EagerEngine(crew, features)


def _takeover(
    objective: "BatchedObjective",
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return the context of convolutions: our kernels for bfloat16 on a GPU, PyTorch's elsewhere.

    In float32 ours were no faster than cuDNN's in a compiled step.
    """
    device = pick_device(objective.device)
    if objective.precision != "bfloat16" or not device.startswith("cuda"):
        return contextlib.nullcontext
    if find_spec("triton") is None:
        return contextlib.nullcontext
    from urna.local.convolve import LaneConvolutions, works_on  # noqa: PLC0415 - imports triton

    return LaneConvolutions if works_on(device) else contextlib.nullcontext


def _of_lanes(
    objective: "BatchedObjective", module: nn.Module
) -> Callable[[int], contextlib.AbstractContextManager[Any]]:
    """Return the context of a CPU's convolutions; their weights have four dimensions.

    Normalising layers give pictures back in PyTorch's own order, and their gradient wants them so:
    turning them over and back costs more than patches save.
    """
    if pick_device(objective.device).startswith("cuda"):
        return contextlib.nullcontext
    normalising = nn.modules.batchnorm._NormBase | nn.GroupNorm
    if any(isinstance(part, normalising) for part in module.modules()):
        return contextlib.nullcontext
    if any(parameter.dim() == 4 for parameter in module.parameters()):
        return by_patches
    return contextlib.nullcontext


def measure_room(objective: "BatchedObjective", group: Group, train: Samples, clients: int) -> Room:
    """Measure one lane on a client's rows and plan how many run at once.

    What is asked to be repeatable on a GPU runs client by client in pieces of one width.
    """
    with seeded_module(0):
        module = objective.module_of(group)
    batch = train.take(np.arange(min(group.batch_size, len(train))))
    states = 4 if group.optimiser is Optimiser.ADAMW else 3
    activations, state = lane_bytes(module, as_tensors(batch, "cpu")[0], states)
    device = pick_device(objective.device)
    on_gpu = device.startswith("cuda")
    # On a CPU, only where a client's losses are those it would get alone.
    stackable = not objective.repeatable if on_gpu else rounds_alike(module)
    room = plan_room(
        activations,
        state,
        lanes=len(group),
        clients=clients if stackable else 1,
        device=device,
        running=None if objective.race is None else min(objective.race.finalists, len(group)),
        threads=1 if on_gpu else torch.get_num_threads(),
    )
    if objective.most_lanes is not None:
        most = max(objective.most_lanes, 2) if len(group) > 1 else 1
        room = replace(room, lanes=min(most, room.lanes), clients=1)
    if not (on_gpu and objective.repeatable):
        return room
    width = fixed_width(activations + state, _lanes_by_epoch(group, module), room.lanes)
    return replace(room, lanes=width, fixed=True)


def _lanes_by_epoch(group: Group, module: nn.Module) -> list[int]:
    """Return the lanes of every epoch of a full search in which nothing diverges."""
    has_buffers = any(True for _ in module.buffers())
    rates = [recipe.learning_rates() for recipe in group.recipes]
    lanes = []
    for epoch in range(group.epochs):
        alive = tuple(m for m, r in enumerate(rates) if has_buffers or epoch == 0 or any(r[epoch:]))
        lanes.append(len(share_lanes(group.recipes, alive, epoch).leaders))
    return lanes

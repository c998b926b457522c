"""Runs one group of candidates on many clients, within the memory there is.

This module imports torch.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from urna.data import Samples
from urna.local.batches import seeded_module
from urna.local.block import Block, blocks_of, stack_clients
from urna.local.chunks import Room, fixed_width, lane_bytes, plan_room, rounds_alike
from urna.local.course import Course, first_weights, run_course
from urna.local.crew import Crew, rounds_to_tf32
from urna.local.engine import EagerEngine, Engine
from urna.local.gradients import Batched, Takeover
from urna.local.graphs import CudaRecorder, GraphEngine
from urna.local.holdout import Holdout
from urna.local.lanes import Group, share_lanes
from urna.local.patches import by_patches
from urna.local.recipe import Optimiser
from urna.local.stack import Features, Stack
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


@dataclass(frozen=True, slots=True)
class _Job:
    """Equally large clients that run at once, and the room they have."""

    places: list[int]
    parts: Sequence[Holdout]
    seeds: Sequence[int]
    room: Room

    def one_by_one(self) -> "Iterator[_Job]":
        """Yield the clients each by itself."""
        room = replace(self.room, clients=1)
        for place, part, seed in zip(self.places, self.parts, self.seeds, strict=True):
            yield _Job([place], [part], [seed], room)


NextJob = Callable[[], _Job | None]


class Runner:
    """Searches one group; engines and recordings are kept from block to block.

    Whoever searches holds `lock`: one module serves one search at a time.
    """

    def __init__(self, objective: "BatchedObjective", group: Group) -> None:
        self.lock = Lock()
        self._objective = objective
        self._group = group
        self._device = pick_device(objective.device)
        with seeded_module(0):
            self._module = objective.module_of(group).to(self._device)
        self._features = Features.of(group.recipes)
        self._engines: dict[tuple[int, int], tuple[Crew, Engine]] = {}
        self._ready: tuple[Sequence[Holdout], Block, Stack] | None = None
        """What waits on the device for the next block of clients."""

    def blocks(
        self, clients: Sequence[Samples], seeds: Sequence[int], tick: ShareDone
    ) -> Iterator[tuple[list[int], npt.NDArray[np.float64]]]:
        """Yield the places of some clients and their scores, block by block.

        Scores have the shape (clients, members, 2): loss and share of right answers.
        """
        running: tuple[list[int], Collect] | None = None
        jobs = self._jobs(clients, seeds)
        job = next(jobs, None)
        try:
            while job is not None:
                following = functools.cache(lambda: next(jobs, None))
                collect = self._search(job, tick, following)
                # A GPU is still at it; what was started before is finished first.
                if running is not None:
                    yield running[0], running[1]()
                running, job = (job.places, collect), following()
            if running is not None:
                yield running[0], running[1]()
        finally:
            self._ready = None

    def _jobs(self, clients: Sequence[Samples], seeds: Sequence[int]) -> "Iterator[_Job]":
        """Yield equally large clients, as many as run at once."""
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
                yield _Job(chosen, some, [seeds[p] for p in chosen], room)

    def _search(self, job: "_Job", tick: ShareDone, following: "NextJob" = lambda: None) -> Collect:
        """Search a block; where memory runs out, again with half as much at once."""
        try:
            return self._course(self._group, job, tick, following).collect
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # Outside the handler: the error's traceback holds on to the tensors of the failed try.
        self._engines.clear()
        self._ready = None
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()
        if len(job.parts) > 1:
            found = [self._search(alone, tick)() for alone in job.one_by_one()]
            return lambda: np.concatenate(found)
        if job.room.lanes > 1:
            _log.info("out of memory with %d candidates at once; trying half", job.room.lanes)
            half = Room(-(-job.room.lanes // 2), 1, job.room.fixed)
            return self._search(replace(job, room=half), tick)
        scores = self._one_by_one(job, tick)
        return lambda: scores

    def _one_by_one(self, job: "_Job", tick: ShareDone) -> npt.NDArray[np.float64]:
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
                course = self._course(alone, replace(job, room=Room(1, 1)), tick)
                scores[:, member : member + 1] = course.collect()
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
        return scores

    def _course(
        self, group: Group, job: "_Job", tick: ShareDone, following: "NextJob" = lambda: None
    ) -> Course:
        crew, engine = self.engine(len(job.parts), job.room)
        ready = self._ready
        if ready is None or ready[0] is not job.parts:
            ready = self._prepare(job)
        self._ready = None
        _, block, stack = ready

        def meanwhile() -> None:
            waiting = following()
            if waiting is None or self._ready is not None:
                return
            try:
                self._ready = self._prepare(waiting)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise  # else it waits until this block has made room

        course = Course(
            group, block, crew, engine, job.room, race=self._objective.race, meanwhile=meanwhile
        )
        with crew.between_pieces():
            return run_course(course, stack, lambda share: tick(len(job.parts), share))

    def _prepare(self, job: "_Job") -> tuple[Sequence[Holdout], Block, Stack]:
        """Bring a block's rows and first weights to the device."""
        block = stack_clients(job.parts, job.seeds, self._device)
        stack = first_weights(
            block, self._group.optimiser, lambda: self._objective.module_of(self._group)
        )
        return job.parts, block, stack

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
        features.label_smoothing,
        _takeover(objective, module),
    )
    if pick_device(objective.device).startswith("cuda"):
        crew = Crew(batched, steady=objective.repeatable)
        if objective.graphs:
            return crew, GraphEngine(
                batched,
                features,
                CudaRecorder(),
                repeatable=objective.repeatable,
            )
    else:
        spread = room.least == 2
        if not watched(module):
            crew = Crew(batched, room.threads, spread=spread, judge=RecordedJudge())
            return crew, EagerEngine(crew, features, RecordedSteps())
        crew = Crew(batched, room.threads, spread=spread)
    return crew, EagerEngine(crew, features)


def _takeover(objective: "BatchedObjective", module: nn.Module) -> Takeover:
    """Return the context of convolutions: ours where they pay, else PyTorch's.

    On a CPU normalising layers give pictures back in PyTorch's own order, and their gradient wants
    them so: turning them over and back costs more than patches save.
    """
    device = pick_device(objective.device)
    if device.startswith("cuda"):
        return _kernels_of_ours(device)
    normalising = nn.modules.batchnorm._NormBase | nn.GroupNorm
    if any(isinstance(part, normalising) for part in module.modules()):
        return contextlib.nullcontext
    convolves = any(parameter.dim() == 4 for parameter in module.parameters())
    return by_patches if convolves else contextlib.nullcontext


def _kernels_of_ours(device: str) -> Takeover:
    """Return our kernels' context on a GPU that can run them.

    Float32 counts as TF32 there, unless PyTorch was told otherwise; then it is cuDNN's.
    """
    if find_spec("triton") is None or not rounds_to_tf32():
        return contextlib.nullcontext
    from urna.local.convolve import LaneKernels, works_on  # noqa: PLC0415 - imports triton

    return (lambda _: LaneKernels()) if works_on(device) else contextlib.nullcontext


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

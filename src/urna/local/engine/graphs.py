"""Steps recorded once as CUDA graphs and replayed.

A step of a small module is dozens of kernels of a few microseconds; launching them from
Python takes a hundred times longer than running them. A graph is one launch. Everything a
step reads (weights, data, the order of rows, keys, learning rates) stands in fixed places on
the device, and a counter there says which batch is next, so that an epoch is a row of
replays and nothing waits for the host. This module imports torch.
"""

import contextlib
import functools
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from urna.local.engine.epochs import Block, Epoch, Step, eager_step, take_rows
from urna.local.engine.gradients import Batched
from urna.local.engine.pieces import cut
from urna.local.engine.stack import Features, LaneSettings, Stack

__all__ = ["CudaRecorder", "GraphTrainer", "Recorder"]

_log = logging.getLogger(__name__)


class Recorder(Protocol):
    """Turns a step into something that repeats it."""

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats `step`. Recording may run the step a few times."""
        ...


class CudaRecorder:
    """Records CUDA graphs; all share one pool, as they never run at the same time."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        """Run the step twice on a stream of its own to warm up, then record it."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=self._pool):
            step()
        replay: Callable[[], None] = graph.replay
        return replay


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector away: a graph that it frees would spoil the one recorded now."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class GraphTrainer:
    """Replays recorded steps; one recording for each number of lanes and rows it meets.

    Args:
        batched: The module's batched gradient.
        features: What the group's recipes ask of the optimiser.
        recorder: What records; CUDA graphs outside of tests.
        step: Takes a step.
    """

    def __init__(
        self,
        batched: Batched,
        features: Features,
        recorder: Recorder,
        step: Step = eager_step,
    ) -> None:
        self._batched, self._features, self._take = batched, features, step
        self._recorder = recorder
        self._recordings: dict[tuple[int, ...], _Recording] = {}

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent."""
        pieces = cut(len(stack), block.clients * width)
        if len(pieces) == 1:
            recording = self._recording(stack, settings, block, epoch)
            recording.replay(stack, settings, block, epoch)
            return recording.stack
        before = stack.steps.clone()
        for piece in pieces:
            stack.steps.copy_(before)
            part, part_settings = stack.view(piece), settings.view(piece)
            recording = self._recording(part, part_settings, block, epoch)
            recording.replay(part, part_settings, block, epoch)
            part.copy_from(recording.stack)
        return stack

    def _recording(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch
    ) -> "_Recording":
        shape = (len(stack), block.clients, *block.inputs.shape[2:], max(epoch.sizes))
        if shape not in self._recordings or self._recordings[shape].capacity < block.rows:
            take = functools.partial(self._take, self._batched)
            self._recordings[shape] = _Recording(
                take, self._features, self._recorder, stack, settings, block, epoch
            )
        return self._recordings[shape]


class _Recording:
    """Recordings of a step, by the size of the batch, and fixed places for everything it reads.

    Serves clients of up to `capacity` training rows. Full batches are recorded at once; a
    shorter last batch only when its size comes back, because clients of different sizes
    bring many that never do.
    """

    def __init__(
        self,
        take: Callable[[Stack, LaneSettings, Features, Tensor, Tensor, Tensor], None],
        features: Features,
        recorder: Recorder,
        stack: Stack,
        settings: LaneSettings,
        block: Block,
        epoch: Epoch,
    ) -> None:
        self._take, self._features, self._recorder = take, features, recorder
        self.stack, self._settings = stack.copy(), settings.copy()
        self._inputs, self._targets = block.inputs.clone(), block.targets.clone()
        self._longest = max(epoch.sizes)
        self._rows = torch.zeros_like(epoch.rows)
        self._keys = torch.zeros_like(epoch.keys)
        self._next = torch.zeros(1, dtype=torch.int64, device=stack.steps.device)
        self._seen: set[int] = set()
        self._replays: dict[int, Callable[[], None]] = {}

    @property
    def capacity(self) -> int:
        """Most training rows of a client."""
        return self._targets.shape[1]

    def replay(self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch) -> None:
        """Put everything in place and replay the epoch's steps; `stack` here has the result."""
        self._inputs[:, : block.rows].copy_(block.inputs)
        self._targets[:, : block.rows].copy_(block.targets)
        self._rows[:, : epoch.rows.shape[1]].copy_(epoch.rows)
        self._keys[: len(epoch.keys)].copy_(epoch.keys)
        for size in dict.fromkeys(epoch.sizes):
            if size not in self._replays and (size == self._longest or size in self._seen):
                self._record(size)
            self._seen.add(size)
        if stack is not self.stack:
            self.stack.copy_from(stack)
        self._settings.copy_from(settings)
        self._next.zero_()
        for size in epoch.sizes:
            if size in self._replays:
                self._replays[size]()
            else:
                self._step(size)

    def _step(self, size: int) -> None:
        """Take the next step, with a batch of this size."""
        # Only the last batch may be shorter, so every batch starts at a multiple. The bounds
        # matter to the warm-up alone, which counts on beyond the epoch's end.
        places = self._next * self._longest + torch.arange(size, device=self._next.device)
        rows = self._rows.index_select(1, places.clamp_(max=self._rows.shape[1] - 1))
        key = self._keys.index_select(0, self._next.clamp(max=len(self._keys) - 1))[0]
        inputs, targets = take_rows(self._inputs, rows), take_rows(self._targets, rows)
        self._take(self.stack, self._settings, self._features, inputs, targets, key)
        self._next.add_(1)

    def _record(self, size: int) -> None:
        """Record a step for batches of one size; warming up moves the stack, which is put back."""
        kept, work = self.stack.copy(), functools.partial(self._step, size)
        try:
            self._replays[size] = self._recorder.record(work)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            # Some operation waits for the host. Slower eagerly, but no less right.
            _log.warning("a step could not be recorded (%s); it runs eagerly", error)
            self._replays[size] = work
        self.stack.copy_from(kept)

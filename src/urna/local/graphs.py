"""Steps recorded once as CUDA graphs and replayed.

A step of a small module is dozens of kernels of a few microseconds; launching them from
Python takes a hundred times longer than running them. A graph is one launch. Everything a
step reads (weights, data, the order of rows, keys, learning rates) stands in fixed places on
the device, and a counter there says which batch is next, so that an epoch is a row of
replays and nothing waits for the host. This module imports torch.
"""

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Protocol

import torch
from torch import Tensor

from urna.local.block import Block, Epoch, take_rows
from urna.local.crew import cut, kernels
from urna.local.engine import GradientFunction, take_step
from urna.local.gradients import Batched
from urna.local.stack import Features, Settings, Stack, same_bits

__all__ = ["CudaRecorder", "GraphEngine", "Recorder"]

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


class GraphEngine:
    """Replays recorded steps; one recording for each number of lanes and rows it meets.

    Args:
        batched: The module's batched gradient.
        features: What the group's recipes ask of the optimiser.
        recorder: What records; CUDA graphs outside of tests.
        repeatable: Whether to take only kernels that repeat themselves, and to check them.
    """

    def __init__(
        self,
        batched: Batched,
        features: Features,
        recorder: Recorder,
        *,
        repeatable: bool = False,
    ) -> None:
        self._batched = batched
        self._features = features
        self._repeatable = repeatable
        self._recorder = recorder
        self._tapes: dict[tuple[int, ...], _Tape] = {}

    def epoch(
        self, stack: Stack, settings: Settings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent."""
        pieces = cut(len(settings.lr), block.clients * width)
        if len(pieces) == 1:
            tape = self._tape(stack, settings, block, epoch)
            tape.play(stack, settings, block, epoch)
            return tape.stack
        before = stack.steps.clone()
        for piece in pieces:
            stack.steps.copy_(before)
            part, part_settings = stack.view(piece), settings.view(piece)
            tape = self._tape(part, part_settings, block, epoch)
            tape.play(part, part_settings, block, epoch)
            part.copy_from(tape.stack)
        return stack

    def _tape(self, stack: Stack, settings: Settings, block: Block, epoch: Epoch) -> "_Tape":
        shape = (len(settings.lr), block.clients, *block.inputs.shape[2:], max(epoch.sizes))
        if shape not in self._tapes or self._tapes[shape].capacity < block.rows:
            self._tapes[shape] = _Tape(
                self._batched.gradients,
                self._features,
                stack,
                settings,
                block,
                epoch,
                self._recorder,
                repeatable=self._repeatable,
            )
        return self._tapes[shape]


class _Tape:
    """Fixed places for everything a step reads, and recordings of the steps.

    Serves clients of up to `capacity` training rows. Full batches are recorded at once; a
    shorter last batch only when its size comes back, because clients of different sizes
    bring many that never do.
    """

    def __init__(
        self,
        gradients: GradientFunction,
        features: Features,
        stack: Stack,
        settings: Settings,
        block: Block,
        epoch: Epoch,
        recorder: Recorder,
        *,
        repeatable: bool,
    ) -> None:
        self.capacity = block.rows
        self.stack = stack.select(torch.arange(len(settings.lr), device=stack.steps.device))
        self._settings = settings.copy()
        self._features = features
        self._inputs, self._targets = block.inputs.clone(), block.targets.clone()
        self._longest = max(epoch.sizes)
        self._rows = torch.zeros_like(epoch.rows)
        self._keys = torch.zeros_like(epoch.keys)
        self._next = torch.zeros(1, dtype=torch.int64, device=stack.steps.device)
        self._recorder = recorder
        self._gradients = gradients
        self._repeatable = repeatable
        self._seen: set[int] = set()
        self._replays: dict[int, Callable[[], None]] = {}

    def play(self, stack: Stack, settings: Settings, block: Block, epoch: Epoch) -> None:
        """Put everything in place and replay the epoch's steps."""
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
                with kernels(steady=self._repeatable):
                    self._step(size)

    def _record(self, size: int) -> None:
        """Record a step for batches of one size.

        The warm-up, the recording and its check write into the fixed places; the stack is put
        back here, and `play` fills the others after.
        """
        kept = self.stack.select(torch.arange(len(self._settings.lr), device=self._next.device))

        def work() -> None:
            self._step(size)

        try:
            with kernels(steady=self._repeatable):
                self._replays[size] = self._recorder.record(work)
            if self._repeatable:
                self._check(size)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            # Some operation waits for the host. Slower as it comes, but no less right.
            _log.warning("a step could not be recorded (%s); it runs unrecorded", error)
            self._replays[size] = work
        self.stack.copy_from(kept)

    def _check(self, size: int) -> None:
        """Say so where equal lanes part in a step, or where a second time gives other numbers.

        Kernels that add up in whatever order their blocks finish do both. Others always give
        the same, but not the same in every place of a piece: a race puts its finalists in
        other places than the full search.
        """
        clients = len(self._inputs)
        lanes = len(self._settings.lr) // clients
        first = torch.arange(clients, device=self._next.device).repeat_interleave(lanes) * lanes
        alike = self.stack.select(first)
        for field in fields(self._settings):
            column = getattr(self._settings, field.name)
            column.copy_(column.index_select(0, first))
        self._settings.lr.fill_(1.0)  # a step too small to see would prove nothing
        rounds = []
        for _ in range(2):
            self.stack.copy_from(alike)
            self._next.zero_()
            self._replays[size]()
            rounds.append([p.view(clients, lanes, *p.shape[1:]).clone() for p in self._weights()])
        pairs = list(zip(*rounds, strict=True))
        if not all(same_bits(a, b) for a, b in pairs):
            _log.warning(
                "a step gives other last digits when it is repeated, although asked not to"
            )
        elif not all(same_bits(a, a[:, :1].expand_as(a)) for a, _ in pairs):
            _log.warning(
                "a step's last digits depend on a candidate's place among the others; searches "
                "repeat themselves, but finalists of a race may differ from the full search"
            )

    def _weights(self) -> list[Tensor]:
        return list(self.stack.parameters.values())

    def _batch(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        # Only the last batch may be shorter, so every batch starts at a multiple. The bounds
        # matter to the warm-up alone, which counts on beyond the epoch's end.
        places = self._next * self._longest + torch.arange(size, device=self._next.device)
        rows = self._rows.index_select(1, places.clamp_(max=self._rows.shape[1] - 1))
        key = self._keys.index_select(0, self._next.clamp(max=len(self._keys) - 1))[0]
        return take_rows(self._inputs, rows), take_rows(self._targets, rows), key

    def _step(self, size: int) -> None:
        batch = self._batch(size)
        take_step(self._gradients, self.stack, self._settings, self._features, *batch)
        self._next.add_(1)

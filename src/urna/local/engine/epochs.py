"""One epoch of training for a stack of lanes, step by step.

The eager trainer works on every device. On a GPU the same steps are recorded once and
replayed (`urna.local.engine.graphs`). This module imports torch.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from urna.local.engine.block import Block, Epoch, take_rows
from urna.local.engine.gradients import Batched
from urna.local.engine.stack import Features, LaneSettings, Stack, advance
from urna.local.engine.threads import Threads, cut

__all__ = ["EagerTrainer", "EpochTrainer", "Step", "batches_of", "eager_step", "evaluate"]

Step = Callable[[Batched, Stack, LaneSettings, Features, Tensor, Tensor, Tensor], None]
"""Takes one step in every lane, in place, on inputs, targets and a key of the masks."""


class EpochTrainer(Protocol):
    """Moves a stack through one epoch."""

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent.

        Args:
            stack: The lanes in pieces of `width` lanes of every client, client by client.
            settings: Of every lane, in the stack's order.
            block: The clients' data.
            epoch: What each step visits.
            width: Lanes of one client that run at once.
        """
        ...


def eager_step(
    batched: Batched,
    stack: Stack,
    settings: LaneSettings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> None:
    """Take one step in every lane, in place. Nothing here waits for the device."""
    found, buffers = batched.gradients(
        stack.parameters, stack.buffers, inputs, targets, key, settings.label_smoothing
    )
    with torch.no_grad():
        for name, tensor in buffers.items():
            stack.buffers[name].copy_(tensor)
        advance(stack, found, settings, features)


def batches_of(block: Block, epoch: Epoch) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, targets and the masks' key of every step."""
    start = 0
    for size, key in zip(epoch.sizes, epoch.keys, strict=True):
        rows = epoch.rows[:, start : start + size]
        start += size
        yield take_rows(block.inputs, rows), take_rows(block.targets, rows), key


class EagerTrainer:
    """Runs one step after the other, piece by piece.

    Args:
        threads: The module's batched gradient, and who runs it.
        features: What the group's recipes ask of the optimiser.
        step: Takes a step.
    """

    def __init__(self, threads: Threads, features: Features, step: Step = eager_step) -> None:
        self._threads, self._features, self.step = threads, features, step

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch, in place."""
        batches = list(batches_of(block, epoch))

        def train(batched: Batched, piece: slice) -> Stack:
            part, part_settings = stack.view(piece), settings.view(piece)
            part.steps = stack.steps.clone()  # every piece counts its own
            for batch in batches:
                self.step(batched, part, part_settings, self._features, *batch)
            return part

        pieces = _pieces(len(stack), block.clients, width)
        parts = self._threads.run(pieces, train)
        stack.steps.copy_(parts[0].steps)
        return stack


def evaluate(
    threads: Threads, stack: Stack, inputs: Tensor, targets: Tensor, *, width: int, rows: int
) -> Tensor:
    """Return every lane's mean loss and share of right answers, shape (2, lanes).

    The stack lies in pieces of `width`, as in `EpochTrainer.epoch`; `rows` rows are judged
    at a time.
    """
    clients, total = targets.shape[:2]

    def judge(batched: Batched, piece: slice) -> Tensor:
        part = stack.view(piece)
        sums: list[Tensor] = []
        for start in range(0, total, rows):
            x, y = inputs[:, start : start + rows], targets[:, start : start + rows]
            pair = torch.stack(batched.validation(part.parameters, part.buffers, x, y))
            sums.append(pair.double() * (y.shape[1] / total))
        return torch.stack(sums).sum(0)

    return torch.cat(threads.run(_pieces(len(stack), clients, width), judge), dim=1)


def _pieces(lanes: int, clients: int, width: int) -> list[slice]:
    """Cut a stack; a single lane, for which PyTorch has other kernels, gets company if it can."""
    return cut(lanes, clients * width, least=2 if clients == 1 else 1)

"""One epoch of training for a stack of lanes, step by step.

The eager engine works on every device. On a GPU the same steps are recorded once and
replayed (`urna.local.graphs`). This module imports torch.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from urna.local.block import Block, Epoch, take_rows
from urna.local.crew import Crew, cut
from urna.local.gradients import Batched
from urna.local.stack import Features, Settings, Stack, Tensors, advance

__all__ = ["EagerEngine", "Engine", "evaluate"]

GradientFunction = Callable[
    [Tensors, Tensors, Tensor, Tensor, Tensor, Tensor], tuple[Tensors, Tensors]
]


StepFunction = Callable[[Batched, Stack, Settings, Features, Tensor, Tensor, Tensor], None]


class Engine(Protocol):
    """Moves a stack through one epoch."""

    def epoch(
        self, stack: Stack, settings: Settings, block: Block, epoch: Epoch, width: int
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


def take_step(
    gradients: GradientFunction,
    stack: Stack,
    settings: Settings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> None:
    """Take one step in every lane, in place. Nothing here waits for the device."""
    found, buffers = gradients(
        stack.parameters, stack.buffers, inputs, targets, key, settings.label_smoothing
    )
    with torch.no_grad():
        for name, tensor in buffers.items():
            stack.buffers[name].copy_(tensor)
        advance(stack, found, settings, features)


def step_as_it_comes(
    batched: Batched,
    stack: Stack,
    settings: Settings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> None:
    """Take one step in every lane, in place, without recording anything."""
    take_step(batched.gradients, stack, settings, features, inputs, targets, key)


class EagerEngine:
    """Runs one step after the other, piece by piece.

    Args:
        crew: The module's batched gradient, and who runs it.
        features: What the group's recipes ask of the optimiser.
        step: Takes a step.
    """

    def __init__(
        self, crew: Crew, features: Features, step: StepFunction = step_as_it_comes
    ) -> None:
        self._crew = crew
        self._features = features
        self._step = step

    def epoch(
        self, stack: Stack, settings: Settings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch, in place."""
        batches = []
        start = 0
        for size in epoch.sizes:
            rows = epoch.rows[:, start : start + size]
            start += size
            batches.append((take_rows(block.inputs, rows), take_rows(block.targets, rows)))

        def train(batched: Batched, piece: slice) -> Stack:
            part, part_settings = stack.view(piece), settings.view(piece)
            part.steps = stack.steps.clone()  # every piece counts its own
            for (inputs, targets), key in zip(batches, epoch.keys, strict=True):
                self._step(batched, part, part_settings, self._features, inputs, targets, key)
            return part

        pieces = _pieces(len(settings.lr), block.clients, width)
        parts = self._crew.run(pieces, train)
        stack.steps.copy_(parts[0].steps)
        return stack


def evaluate(
    crew: Crew, stack: Stack, inputs: Tensor, targets: Tensor, *, width: int, rows: int
) -> tuple[Tensor, Tensor]:
    """Return every lane's mean loss and share of right answers, `rows` rows at a time.

    The stack lies in pieces of `width`, as in `Engine.epoch`.
    """
    lanes = len(next(iter(stack.parameters.values())))
    total = targets.shape[1]

    def judge(batched: Batched, piece: slice) -> Tensor:
        part = stack.view(piece)
        sums: list[Tensor] = []
        for start in range(0, total, rows):
            x, y = inputs[:, start : start + rows], targets[:, start : start + rows]
            pair = crew.judge(batched, part, x, y)
            sums.append(pair.double() * (y.shape[1] / total))
        return torch.stack(sums).sum(0)

    found = crew.run(_pieces(lanes, crew.batched.clients, width), judge)
    losses, right = torch.cat(found, dim=1)
    return losses, right


def _pieces(lanes: int, clients: int, width: int) -> list[slice]:
    """Cut a stack; a single lane, for which PyTorch has other kernels, gets company if it can."""
    return cut(lanes, clients * width, least=2 if clients == 1 else 1)

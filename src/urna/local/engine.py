"""One epoch of training for a stack of lanes, step by step.

The eager engine works on every device. On a GPU the same steps are recorded once and
replayed (`urna.local.graphs`). This module imports torch.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from urna.local.block import Block, Epoch, take_rows
from urna.local.gradients import Batched
from urna.local.stack import Features, Settings, Stack, Tensors, advance

__all__ = ["EagerEngine", "Engine", "evaluate"]

GradientFunction = Callable[
    [Tensors, Tensors, Tensor, Tensor, Tensor, Tensor], tuple[Tensors, Tensors]
]


class Engine(Protocol):
    """Moves a stack through one epoch."""

    def epoch(self, stack: Stack, settings: Settings, block: Block, epoch: Epoch) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent."""
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


class EagerEngine:
    """Runs each step as it comes, some lanes at a time.

    Args:
        batched: The module's batched gradient.
        features: What the group's recipes ask of the optimiser.
        most_lanes: Lanes that run at once; more are taken in turns. Lanes never mix, so
            the number changes the time and not the result.
    """

    def __init__(self, batched: Batched, features: Features, most_lanes: int) -> None:
        self._batched = batched
        self._features = features
        self._most_lanes = most_lanes

    def epoch(self, stack: Stack, settings: Settings, block: Block, epoch: Epoch) -> Stack:
        """Train every lane for one epoch, in place."""
        lanes = len(settings.lr)
        # Several clients at once come only where all their lanes fit together.
        most = lanes if block.clients > 1 else self._most_lanes
        steps_before = stack.steps.clone()
        for piece in even_pieces(lanes, most):
            stack.steps.copy_(steps_before)
            part, part_settings = stack.view(piece), settings.view(piece)
            start = 0
            for size, key in zip(epoch.sizes, epoch.keys, strict=True):
                rows = epoch.rows[:, start : start + size]
                start += size
                take_step(
                    self._batched.gradients,
                    part,
                    part_settings,
                    self._features,
                    take_rows(block.inputs, rows),
                    take_rows(block.targets, rows),
                    key,
                )
        return stack


def evaluate(
    batched: Batched, stack: Stack, inputs: Tensor, targets: Tensor, *, most_lanes: int, rows: int
) -> tuple[Tensor, Tensor]:
    """Return every lane's mean loss and share of right answers, `rows` rows at a time."""
    lanes = len(next(iter(stack.parameters.values())))
    most = lanes if batched.clients > 1 else most_lanes
    found = []
    for piece in even_pieces(lanes, most):
        part = stack.view(piece)
        sums: list[Tensor] = []
        total = targets.shape[1]
        for start in range(0, total, rows):
            x, y = inputs[:, start : start + rows], targets[:, start : start + rows]
            pair = torch.stack(batched.validation(part.parameters, part.buffers, x, y))
            sums.append(pair.double() * (y.shape[1] / total))
        found.append(torch.stack(sums).sum(0))
    losses, right = torch.cat(found, dim=1)
    return losses, right


def even_pieces(total: int, most: int) -> list[slice]:
    """Cut `total` lanes into the fewest pieces of at most `most`, of nearly equal size.

    Example:
        >>> even_pieces(10, 4)
        [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    """
    count = -(-total // max(most, 1))
    base, longer = divmod(total, count)
    pieces, start = [], 0
    for piece in range(count):
        stop = start + base + (piece < longer)
        pieces.append(slice(start, stop))
        start = stop
    return pieces

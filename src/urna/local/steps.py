"""Training steps and validation on a CPU: recorded the first time, checked the second, then played.

This module imports torch.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from urna.local.crew import judge_as_it_comes
from urna.local.engine import take_step
from urna.local.gradients import Batched
from urna.local.stack import Features, Settings, Stack, same_bits
from urna.local.tape import Tape, record

__all__ = ["RecordedJudge", "RecordedSteps", "watched"]

_log = logging.getLogger(__name__)

Shapes = tuple[tuple[object, ...], ...]


@dataclass(slots=True)
class _Take:
    """A recorded step; None where it cannot be played."""

    tape: Tape | None
    proven: bool = False


class RecordedSteps:
    """Take steps, by tape where one of the same shapes was recorded.

    The second step of a shape is taken both ways. A module that keeps a count, or draws numbers
    past PyTorch, gives itself away there; its steps then run as they come. Threads share tapes.
    """

    def __init__(self) -> None:
        self._takes: dict[Shapes, _Take] = {}

    def __call__(
        self,
        batched: Batched,
        stack: Stack,
        settings: Settings,
        features: Features,
        inputs: Tensor,
        targets: Tensor,
        key: Tensor,
    ) -> None:
        """Take one step in every lane, in place."""

        def step(stack: Stack) -> None:
            take_step(batched.gradients, stack, settings, features, inputs, targets, key)

        tensors = [
            *(tensor for part in stack.parts() for tensor in part.values()),
            stack.steps,
            *(getattr(settings, f.name) for f in fields(settings)),
            inputs,
            targets,
            key,
        ]
        shapes = _shapes(tensors)
        take = self._takes.get(shapes)
        tape = None if take is None else take.tape
        if take is None:
            self._takes[shapes] = _Take(record(lambda: step(stack), tensors))
        elif tape is None:
            step(stack)
        elif take.proven:
            tape.play(tensors)
        else:
            self._prove(take, tape, tensors, stack, step)

    def _prove(
        self,
        take: _Take,
        tape: Tape,
        tensors: list[Tensor],
        stack: Stack,
        step: Callable[[Stack], None],
    ) -> None:
        lanes = len(next(iter(stack.parameters.values())))
        expected = stack.select(torch.arange(lanes))
        step(expected)
        tape.play(tensors)
        if _alike(stack, expected):
            take.proven = True
            return
        _log.info("a recorded step gives other numbers than the module; it is not used")
        take.tape = None
        stack.copy_from(expected)


class RecordedJudge:
    """Validate lanes, by tape where rows of the same shapes were judged before."""

    def __init__(self) -> None:
        self._takes: dict[Shapes, _Take] = {}

    def __call__(self, batched: Batched, stack: Stack, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return losses and shares of right answers of all lanes, shape (2, lanes)."""
        found = torch.empty((2, len(next(iter(stack.parameters.values())))))
        tensors = [*stack.parameters.values(), *stack.buffers.values(), inputs, targets, found]

        def judge() -> None:
            found.copy_(judge_as_it_comes(batched, stack, inputs, targets))

        shapes = _shapes(tensors)
        take = self._takes.get(shapes)
        tape = None if take is None else take.tape
        if take is None:
            self._takes[shapes] = _Take(record(judge, tensors))
        elif tape is None:
            judge()
        elif take.proven:
            tape.play(tensors)
        else:
            tape.play(tensors)
            played = found.clone()
            judge()
            if same_bits(played, found):
                take.proven = True
            else:
                take.tape = None
        return found


def _shapes(tensors: list[Tensor]) -> Shapes:
    return tuple((t.shape, t.stride()) for t in tensors)


def _alike(one: Stack, other: Stack) -> bool:
    """Tell whether two stacks agree to the last bit."""
    return all(
        same_bits(a, b)
        for mine, theirs in zip(one.parts(), other.parts(), strict=True)
        for a, b in zip(mine.values(), theirs.values(), strict=True)
    )


def watched(module: nn.Module) -> bool:
    """Tell whether hooks watch a module: they would see the first steps only."""
    return any(
        getattr(part, name)
        for part in module.modules()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    )

"""Training steps on a CPU: recorded once they come often, checked, then replayed.

This module imports torch.
"""

import logging
from dataclasses import dataclass, field, fields
from threading import Lock

from torch import Tensor, nn

from urna.local.engine.epochs import eager_step
from urna.local.engine.gradients import Batched
from urna.local.engine.stack import Features, LaneSettings, Stack, same_bits
from urna.local.engine.tape import Tape, record

__all__ = ["RecordedSteps", "has_hooks"]

_log = logging.getLogger(__name__)

Shapes = tuple[tuple[object, ...], ...]

_OFTEN = 4
"""Which step of a shape is recorded: one that comes back, for recording takes time.

Of 2, 4, 6 and 16, a small CNN's first and fourth search were shortest with four.
"""


@dataclass(slots=True)
class _Recording:
    """Steps of one shape: how many came, their tape, and whether it is trusted."""

    seen: int = 0
    tape: Tape | None = None
    checked: bool = False
    lock: Lock = field(default_factory=Lock)


class RecordedSteps:
    """Take steps, by tape where many of the same shapes came before.

    The next step after the recording is taken both ways. A module that keeps a count, or draws
    numbers past PyTorch, gives itself away there; its steps then run eagerly. Threads share
    tapes.
    """

    def __init__(self) -> None:
        self._recordings: dict[Shapes, _Recording] = {}

    def __call__(
        self,
        batched: Batched,
        stack: Stack,
        settings: LaneSettings,
        features: Features,
        inputs: Tensor,
        targets: Tensor,
        key: Tensor,
    ) -> None:
        """Take one step in every lane, in place."""

        def step(stack: Stack) -> None:
            eager_step(batched, stack, settings, features, inputs, targets, key)

        tensors = [
            *(tensor for part in stack.parts() for tensor in part.values()),
            stack.steps,
            *(getattr(settings, f.name) for f in fields(settings)),
            inputs,
            targets,
            key,
        ]
        recording = self._recordings.setdefault(_shapes(tensors), _Recording())
        with recording.lock:  # threads come at the same time
            recording.seen += 1
            due = recording.seen == _OFTEN
            tape, checked = recording.tape, recording.checked
        if due:
            recording.tape = record(lambda: step(stack), tensors)
        elif tape is None:
            step(stack)
        elif checked:
            tape.replay(tensors)
        else:
            expected = stack.copy()
            step(expected)
            tape.replay(tensors)
            same = _same(stack, expected)
            with recording.lock:
                recording.checked, recording.tape = same, tape if same else None
            if not same:
                _log.info("a recorded step gives other numbers than the module; it is not used")
            stack.copy_from(expected)


def _shapes(tensors: list[Tensor]) -> Shapes:
    """Return what a tape depends on. How far a single row lies from the next says nothing."""
    return tuple(
        (t.dtype, t.shape, t.stride()[1:] if t.shape[:1] == (1,) else t.stride()) for t in tensors
    )


def _same(one: Stack, other: Stack) -> bool:
    """Tell whether two stacks agree to the last bit."""
    return all(
        same_bits(a, b)
        for mine, theirs in zip(one.parts(), other.parts(), strict=True)
        for a, b in zip(mine.values(), theirs.values(), strict=True)
    )


def has_hooks(module: nn.Module) -> bool:
    """Tell whether hooks watch a module: they would see the first steps only."""
    return any(
        getattr(part, name)
        for part in module.modules()
        for name in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        )
    )

"""Compiled steps, for trainings of half an hour on a GPU.

`urna.local` records steps as CUDA graphs, which pays within seconds; its batch norm, pooling and
dropout pass over the activations one by one. PyTorch's compiler fuses them, after half a minute
for every shape. Searches of a client never last long enough, this evaluation's CIFAR-10 does.
What is computed is the same but for rounding.

A step is traced to plain tensor operations first; the compiler then knows nothing of vmap,
modules or keyed dropout. Our convolutions are opaque to it. And where every learning rate is
zero, as after the first epoch of a decay of zero, nothing moves but batch norm's statistics: such
epochs are forward passes.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from urna.local.engine import convolve, graphs, runner
from urna.local.engine.epochs import Block, Epoch, Step, eager_step
from urna.local.engine.gradients import Batched, KeyedDropout
from urna.local.engine.stack import Features, LaneSettings, Stack, Tensors

__all__ = ["CompiledTrainer", "TracedKernels", "compiled_steps"]

convolve_op = torch.library.custom_op("urna::convolve", convolve._convolve, mutates_args=())
weight_gradient_op = torch.library.custom_op(
    "urna::weight_gradient", convolve._weight_gradient, mutates_args=()
)


def _convolved(x: Tensor, weights: Tensor, padding: Sequence[int], groups: int) -> Tensor:
    return x.new_empty((len(x), len(weights), *convolve._sizes(x, weights, padding)))


def _gradient(
    x: Tensor, grad: Tensor, shape: Sequence[int], padding: Sequence[int], groups: int
) -> Tensor:
    return x.new_empty(tuple(shape))


convolve_op.register_fake(_convolved)
weight_gradient_op.register_fake(_gradient)


class TracedKernels(convolve.LaneKernels):
    """Our convolutions as operations of their own; layouts and pooling are the compiler's."""

    convolve = staticmethod(convolve_op)
    weight_gradient = staticmethod(weight_gradient_op)

    @staticmethod
    def channels_last(x: Tensor) -> Tensor:
        """Put channels side by side, as part of what computes them."""
        return x.contiguous(memory_format=torch.channels_last)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Replace convolutions."""
        if func is torch.ops.aten.max_pool2d_with_indices_backward.default:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


Shape = tuple[int, int]
"""Lanes, and rows of a batch."""


def still_step(
    batched: Batched,
    stack: Stack,
    settings: LaneSettings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> None:
    """Take a step of learning rate zero in every lane: only buffers move.

    As `eager_step`, of one client.
    """
    batched.module.train()

    def one(weights: Tensors, state: Tensors, x: Tensor, key: Tensor) -> Tensors:
        after = {name: tensor.clone() for name, tensor in state.items()}
        with KeyedDropout(key):
            functional_call(batched.module, (weights, after), (x,))
        return after

    (x,), (one_key,) = inputs, key  # of one client
    with torch.no_grad(), batched.kernels(len(stack)):
        each_lane = vmap(one, in_dims=(0, 0, None, None))
        for name, tensor in each_lane(stack.parameters, stack.buffers, x, one_key).items():
            stack.buffers[name].copy_(tensor)
        stack.steps.add_(1)


def compile_step(
    step: Step,
    batched: Batched,
    stack: Stack,
    settings: LaneSettings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> Callable[..., None]:
    """Return a step on a stack, compiled for tensors of these shapes."""
    names = [list(part) for part in stack.parts()]

    def flat(*tensors: Tensor) -> list[Tensor]:
        waiting = iter(tensors)
        one, two, three, four, five = ({name: next(waiting) for name in part} for part in names)
        mine = Stack(one, two, three, four, five, next(waiting))
        theirs = LaneSettings(**{field.name: next(waiting) for field in fields(LaneSettings)})
        step(batched, mine, theirs, features, *waiting)
        return []

    places = _places(stack, settings)
    return torch.compile(make_fx(flat)(*places, inputs, targets, key), dynamic=False)


def _places(stack: Stack, settings: LaneSettings) -> list[Tensor]:
    tensors = [tensor for part in stack.parts() for tensor in part.values()]
    return [*tensors, stack.steps, *(getattr(settings, f.name) for f in fields(settings))]


class CompiledSteps:
    """Takes steps, compiled where there are so many lanes and rows of a batch."""

    def __init__(self, step: Step, shapes: Collection[Shape]) -> None:
        self._step, self._shapes = step, shapes
        self._fast: dict[tuple[object, ...], Callable[..., None]] = {}

    def __call__(
        self,
        batched: Batched,
        stack: Stack,
        settings: LaneSettings,
        features: Features,
        *batch: Tensor,
    ) -> None:
        """Take one step in every lane, in place."""
        inputs = batch[0]
        if (len(stack), inputs.shape[1]) not in self._shapes:
            self._step(batched, stack, settings, features, *batch)
            return
        key = len(stack), *inputs.shape
        if key not in self._fast:
            kept = stack.copy()  # tracing takes a step, and so does compiling
            compiled = compile_step(self._step, batched, stack, settings, features, *batch)
            compiled(*_places(stack, settings), *batch)
            stack.copy_from(kept)
            self._fast[key] = compiled
        self._fast[key](*_places(stack, settings), *batch)


class CompiledTrainer(graphs.GraphTrainer):
    """Replays recordings of compiled steps, and of still ones where no lane learns.

    Args:
        batched: The module's batched gradient.
        features: What the group's recipes ask of the optimiser.
        recorder: What records.
        shapes: Lanes, and rows of a batch, for which steps are compiled.
    """

    def __init__(
        self,
        batched: Batched,
        features: Features,
        recorder: graphs.Recorder,
        *,
        shapes: Collection[Shape],
    ) -> None:
        step, still = CompiledSteps(eager_step, shapes), CompiledSteps(still_step, shapes)
        super().__init__(batched, features, recorder, step)
        self._still = graphs.GraphTrainer(batched, features, recorder, still)

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent."""
        if not bool(settings.lr.any()):
            return self._still.epoch(stack, settings, block, epoch, width)
        return super().epoch(stack, settings, block, epoch, width)


@contextlib.contextmanager
def compiled_steps(shapes: Collection[Shape]) -> Iterator[None]:
    """Let GPUs run compiled steps for so many lanes and rows of a batch, in a `with` block."""
    with (
        patch.object(runner, "GraphTrainer", functools.partial(CompiledTrainer, shapes=shapes)),
        patch.object(runner, "_triton_kernels", lambda device: lambda lanes: TracedKernels()),
    ):
        yield

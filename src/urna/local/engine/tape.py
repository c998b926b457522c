"""Training steps on a CPU: recorded once they come often, checked, then replayed.

vmap and grad decide anew in every step what each operation becomes for a stack of lanes. For
small layers that takes longer than the operations themselves, and it holds the GIL. What
it becomes depends on shapes alone, so one step is recorded as it runs and the next ones of the
same shape go straight to PyTorch's kernels: the same operations on the same numbers, to the last
bit. Everything a step reads is handed in again each time. This module imports torch.
"""

import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from urna.local.engine.epochs import eager_step
from urna.local.engine.gradients import Batched
from urna.local.engine.stack import Features, LaneSettings, Stack, same_bits

__all__ = ["RecordedSteps", "has_hooks"]

_log = logging.getLogger(__name__)

Replay = Callable[[Sequence[Tensor]], None]
Shapes = tuple[tuple[object, ...], ...]

_OFTEN = 4
"""Which step of a shape is recorded: one that comes back, for recording takes time.

Of 2, 4, 6 and 16, a small CNN's first and fourth search were shortest with four.
"""
_UNFORESEEABLE = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
)
_OUT_OF_SIGHT = (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)
"""How numbers leave PyTorch without an operation: what Python makes of them cannot be replayed."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(slots=True)
class _Recording:
    """Steps of one shape: how many came, what replays them, and whether it is trusted."""

    seen: int = 0
    replay: Replay | None = None
    checked: bool = False
    lock: Lock = field(default_factory=Lock)


class RecordedSteps:
    """Take steps, by replay where many of the same shapes came before.

    The next step after the recording is taken both ways. A module that keeps a count, or draws
    numbers past PyTorch, gives itself away there; its steps then run eagerly. Threads share
    recordings.
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
            replay, checked = recording.replay, recording.checked
        if due:
            recording.replay = record(lambda: step(stack), tensors)
        elif replay is None:
            step(stack)
        elif checked:
            replay(tensors)
        else:
            expected = stack.copy()
            step(expected)
            replay(tensors)
            same = _same(stack, expected)
            with recording.lock:
                recording.checked, recording.replay = same, replay if same else None
            if not same:
                _log.info("a recorded step gives other numbers than the module; it is not used")
            stack.copy_from(expected)


def record(step: Callable[[], None], inputs: Sequence[Tensor]) -> Replay | None:
    """Run a step and return what repeats it, or None where values decide what it does.

    Args:
        step: Reads and writes `inputs` and nothing else that changes; returns nothing.
        inputs: In the order in which the replay will get them.
    """
    recorder = _Recorder(inputs)
    with recorder, _Watch(recorder):
        step()
    return recorder.replay()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Write down every operation below vmap and grad."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph, self._constants = fx.Graph(), nn.Module()
        # Weak: a recorded step needs no more memory than any other.
        self._nodes = WeakTensorKeyDictionary()
        for number, tensor in enumerate(inputs):
            self._nodes[tensor] = self._graph.placeholder(f"given{number}")
        self._views: dict[object, fx.Node] = {}
        self._bases: dict[fx.Node, tuple[fx.Node, int]] = {}
        """Of what each view is one, and where that begins."""
        self._outside: set[int] = set()
        """Where the module's constants lie, views of them included."""
        self.refused = False

    def replay(self) -> Replay | None:
        """Return what repeats the step: one Python function without what has no effect."""
        if self.refused:
            return None
        self._graph.output(())
        self._graph.eliminate_dead_code(_has_effect)
        # The function lets go of every tensor after its last use.
        step = fx.GraphModule(self._constants, self._graph).forward

        def replay(inputs: Sequence[Tensor]) -> None:
            with torch.no_grad():
                step(*inputs)

        return replay

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Run the operation and write it down."""
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if not self.refused:
            self._note(func, args, kwargs, found)
        return found

    def _note(
        self,
        func: Any,  # noqa: ANN401
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        found: Any,  # noqa: ANN401
    ) -> None:
        several = isinstance(found, tuple | list)
        results = found if several else (found,)
        if (
            any(tag in _UNFORESEEABLE for tag in func.tags)
            or not all(r is None or isinstance(r, Tensor) for r in results)
            # What outlives the step, and nobody hands in.
            or not all(t in self._nodes for t in _written(func, args, kwargs))
        ):
            self.refused = True
            return
        if not func._schema.is_mutable and args and all(_is_view(r, args[0]) for r in results):
            for view in results:
                self._add_view(args[0], view)
            return
        named = {name: self._node(a) for name, a in kwargs.items()}
        made = self._graph.call_function(func, tuple(map(self._node, args)), named)
        for which, result in enumerate(results):
            known = result is None or result in self._nodes
            if not known and result.untyped_storage().data_ptr() not in self._outside:
                self._nodes[result] = (
                    self._graph.call_function(operator.getitem, (made, which)) if several else made
                )

    def _add_view(self, tensor: Tensor, view: Tensor) -> None:
        """Write a row of views (vmap makes many) down as one, of the tensor at its beginning."""
        node = self._nodes.get(tensor)  # type: ignore[no-untyped-call]
        if node is None or view in self._nodes:
            return
        base, start = self._bases.get(node, (node, int(tensor.storage_offset())))
        ahead = int(view.storage_offset()) - start
        shape = base, tuple(view.shape), view.stride()
        if (*shape, ahead) not in self._views:
            found = (
                self._graph.call_function(_further, (*shape, ahead))
                if ahead
                else self._graph.call_function(torch.as_strided, shape)
            )
            self._views[(*shape, ahead)], self._bases[found] = found, (base, start)
        self._nodes[view] = self._views[(*shape, ahead)]

    def _node(self, argument: Any) -> Any:  # noqa: ANN401 - any argument
        if isinstance(argument, list | tuple):
            return [self._node(a) for a in argument]
        if not isinstance(argument, Tensor):
            return argument
        if argument in self._nodes:
            return self._nodes[argument]
        name = f"constant{len(list(self._constants.buffers()))}"
        self._constants.register_buffer(name, argument, persistent=False)
        self._outside.add(argument.untyped_storage().data_ptr())
        return self._graph.get_attr(name)


class _Watch(TorchFunctionMode):
    """Tell a recorder where numbers leave PyTorch without an operation."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - a function of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Call the function."""
        self._recorder.refused |= func in _OUT_OF_SIGHT
        return func(*args, **(kwargs or {}))


def _further(base: Tensor, size: tuple[int, ...], stride: tuple[int, ...], ahead: int) -> Tensor:
    """Return a view that begins after its tensor does, wherever that is."""
    return torch.as_strided(base, size, stride, base.storage_offset() + ahead)


def _is_view(found: object, base: object) -> bool:
    """Tell whether a result is the same numbers seen otherwise."""
    return (
        isinstance(found, Tensor)
        and isinstance(base, Tensor)
        and (found.dtype, found.is_conj(), found.is_neg())
        == (base.dtype, base.is_conj(), base.is_neg())
        and found.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        and found.untyped_storage().nbytes() > 0
    )


def _has_effect(node: fx.Node) -> bool:
    """Tell whether a call writes to an argument, or returns nothing, as an assertion does."""
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    schema = getattr(node.target, "_schema", None)
    return schema is not None and (schema.is_mutable or not schema.returns)


def _written(
    func: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Iterable[Tensor]:
    """Yield the arguments an operation writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[place] if place < len(args) else None)
            yield from value if isinstance(value, list | tuple) else [value]


def _shapes(tensors: list[Tensor]) -> Shapes:
    """Return what a recording depends on. How far a single row lies from the next says nothing."""
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
    return any(getattr(part, name) for part in module.modules() for name in _HOOKS)

"""Steps recorded once on a CPU as plain tensor operations and replayed.

vmap and grad decide anew in every step what each operation becomes for a stack of lanes. For
small layers that takes longer than the operations themselves, and it holds the GIL. What
it becomes depends on shapes alone, so one step is recorded as it runs and the next ones of the
same shape go straight to PyTorch's kernels: the same operations on the same numbers, to the last
bit. Everything a step reads is handed in again each time. This module imports torch.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["Tape", "record"]

_UNFORESEEABLE = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
)
_OUT_OF_SIGHT = (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)
"""How numbers leave PyTorch without an operation: what Python makes of them cannot be replayed."""


@dataclass(frozen=True, slots=True)
class _Spot:
    """A tensor of the step: where it lies while a tape is replayed, or a view of what lies there.

    A row of views (vmap makes many) is one view of the tensor at its beginning.
    """

    place: int
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    ahead: int = 0
    """How many elements after the other's the view begins."""
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation as it was recorded."""

    operation: Any
    args: list[Any]
    kwargs: dict[str, Any]
    results: tuple[int | None, ...]
    """Places of what it returns; None for what is no tensor."""
    single: bool
    """Whether it returns one tensor and not several."""
    reads: frozenset[_Spot]

    @property
    def writes(self) -> bool:
        """Whether it changes one of its arguments."""
        return bool(self.operation._schema.is_mutable)

    @property
    def checks(self) -> bool:
        """Whether it returns nothing, as an assertion does."""
        return not self.operation._schema.returns


class Tape:
    """A step of one shape, as a row of operations without results: all it does is in place."""

    def __init__(self, calls: Sequence[_Call], offsets: Sequence[int], inputs: int) -> None:
        graph = fx.Graph()
        nodes = {_Spot(place): graph.placeholder(f"given{place}") for place in range(inputs)}
        constants: dict[str, Tensor] = {}

        def node(argument: Any) -> Any:  # noqa: ANN401 - any argument
            if isinstance(argument, Tensor):
                name = f"constant{len(constants)}"
                constants[name] = argument
                return graph.get_attr(name)
            if type(argument) is list:
                return [node(a) for a in argument]
            if type(argument) is not _Spot:
                return argument
            if argument not in nodes:
                base, view = nodes[_Spot(argument.place)], (argument.size, argument.stride)
                if argument.place >= inputs:
                    start = offsets[argument.place] + argument.ahead
                    made = graph.call_function(torch.as_strided, (base, *view, start))
                elif argument.ahead == 0:  # pieces of a stack begin at different places
                    made = graph.call_function(torch.as_strided, (base, *view))
                else:
                    made = graph.call_function(_further, (base, *view, argument.ahead))
                nodes[argument] = made
            return nodes[argument]

        root = nn.Module()
        for call in _needed(calls):
            args = tuple(node(a) for a in call.args)
            kwargs = {name: node(a) for name, a in call.kwargs.items()}
            found = graph.call_function(call.operation, args, kwargs)
            for which, place in enumerate(call.results):
                if place is not None:
                    nodes[_Spot(place)] = (
                        found
                        if call.single
                        else graph.call_function(operator.getitem, (found, which))
                    )
        graph.output(())
        for name, tensor in constants.items():
            root.register_buffer(name, tensor, persistent=False)
        self._length = len(graph.nodes)
        # Written out as one Python function, which also lets go of every tensor after its last use.
        self._step = fx.GraphModule(root, graph).forward

    def __len__(self) -> int:
        return self._length

    def replay(self, inputs: Sequence[Tensor]) -> None:
        """Repeat the step on tensors of the same shapes, in the recorded order."""
        with torch.no_grad():
            self._step(*inputs)


def _further(base: Tensor, size: tuple[int, ...], stride: tuple[int, ...], ahead: int) -> Tensor:
    return torch.as_strided(base, size, stride, base.storage_offset() + ahead)


def _needed(calls: Sequence[_Call]) -> list[_Call]:
    """Leave out what neither has an effect nor is read by anything that stays."""
    wanted: set[int] = set()
    kept = []
    for call in reversed(calls):
        if call.writes or call.checks or wanted.intersection(call.results):
            wanted.update(spot.place for spot in call.reads)
            kept.append(call)
    return kept[::-1]


def record(step: Callable[[], None], inputs: Sequence[Tensor]) -> Tape | None:
    """Run a step and return what repeats it, or None where values decide what it does.

    Args:
        step: Reads and writes `inputs` and nothing else that changes; returns nothing.
        inputs: In the order in which `Tape.replay` will get them.
    """
    recorder = _Recorder(inputs)
    with recorder, _Watch(recorder):
        step()
    return recorder.tape()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Write down every operation below vmap and grad."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Weak: a recorded step needs no more memory than any other.
        self._spots = WeakTensorKeyDictionary()
        self._offsets: list[int] = []
        for tensor in inputs:
            self._add(tensor)
        self._inputs = len(inputs)
        self._calls: list[_Call] = []
        self._refused = False

    def refuse(self) -> None:
        """Give up: the step cannot be replayed."""
        self._refused = True

    def tape(self) -> Tape | None:
        """Return the tape."""
        return None if self._refused else Tape(self._calls, self._offsets, self._inputs)

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
        if not self._refused:
            self._note(func, args, kwargs, found)
        return found

    def _note(
        self,
        func: Any,  # noqa: ANN401
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        found: Any,  # noqa: ANN401
    ) -> None:
        results = found if isinstance(found, tuple | list) else (found,)
        if any(tag in _UNFORESEEABLE for tag in func.tags) or not all(
            r is None or isinstance(r, Tensor) for r in results
        ):
            self.refuse()
            return
        writes = func._schema.is_mutable
        if writes and not all(t in self._spots for t in _written(func, args, kwargs)):
            self.refuse()  # something outlives the step that nobody hands in
            return
        if not writes and args and all(_is_view(r, args[0]) for r in results):
            if args[0] in self._spots:
                for view in results:
                    self._add_view(view, self._spots[args[0]])
            return
        if not writes and _overlap(results, (*args, *kwargs.values())):
            self.refuse()  # a view of another kind: who else lies there would be lost
            return
        reads: set[_Spot] = set()
        template = [self._template(a, reads) for a in args]
        named = {name: self._template(a, reads) for name, a in kwargs.items()}
        places = tuple(None if r is None else self._add(r) for r in results)
        self._calls.append(
            _Call(func, template, named, places, isinstance(found, Tensor), frozenset(reads))
        )

    def _template(self, argument: Any, reads: set[_Spot]) -> Any:  # noqa: ANN401 - any argument
        if isinstance(argument, Tensor):
            if argument not in self._spots:
                return argument  # a constant of the module's
            spot: _Spot = self._spots[argument]
            reads.add(spot)
            return spot
        if isinstance(argument, list | tuple):
            return [self._template(a, reads) for a in argument]
        return argument

    def _add(self, tensor: Tensor) -> int | None:
        """Return a new tensor's place; None for one that is known, as what was written to is."""
        if tensor in self._spots:
            return None
        self._spots[tensor] = _Spot(len(self._offsets))
        self._offsets.append(int(tensor.storage_offset()))
        return len(self._offsets) - 1

    def _add_view(self, tensor: Tensor, base: _Spot) -> None:
        if tensor in self._spots:
            return
        ahead = int(tensor.storage_offset()) - self._offsets[base.place]
        self._spots[tensor] = _Spot(
            base.place, tuple(tensor.shape), tensor.stride(), ahead, is_view=True
        )


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
        if func in _OUT_OF_SIGHT:
            self._recorder.refuse()
        return func(*args, **(kwargs or {}))


def _is_view(found: object, base: object) -> bool:
    """Tell whether a result is the same numbers seen otherwise."""
    return (
        isinstance(found, Tensor)
        and isinstance(base, Tensor)
        and found.dtype == base.dtype
        and found.is_conj() == base.is_conj()
        and found.is_neg() == base.is_neg()
        and found.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        and found.untyped_storage().nbytes() > 0
    )


def _overlap(results: Iterable[Tensor | None], args: Iterable[Any]) -> bool:
    """Tell whether a result lies where an argument does."""
    given = set()
    for argument in args:
        for tensor in argument if isinstance(argument, list | tuple) else [argument]:
            if isinstance(tensor, Tensor):
                given.add(tensor.untyped_storage().data_ptr())
    return any(
        r is not None and r.numel() > 0 and r.untyped_storage().data_ptr() in given for r in results
    )


def _written(
    func: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Iterator[Tensor]:
    """Yield the arguments an operation writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[place] if place < len(args) else None)
            yield from value if isinstance(value, list | tuple) else [value]

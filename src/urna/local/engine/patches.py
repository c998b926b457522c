"""Convolutions of many candidates at once on a CPU, as matrix products over patches.

vmap turns a convolution of every lane into one grouped convolution, and oneDNN's kernels for
groups of a few channels are slow. Here images lie with their rows of data innermost: lane,
channel, height, width, row. Patches are then copied in long runs, one product per lane does the
rest, and pooling and whatever works element by element runs over neighbouring numbers as well. A
lane's product is its own, whoever else is in the stack. This module imports torch.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["by_patches"]

_BLOCK_BYTES = 2 * 2**20
"""Patches copied at once: they are read while they are still in the cache."""
_FEWEST_TERMS = 16
_VECTOR_BYTES = 64
_KINDS = (torch.float32, torch.float64)
_POOLS = (F.max_pool2d, F.avg_pool2d)
_ATEN = torch.ops.aten


@contextlib.contextmanager
def by_patches(lanes: int) -> Iterator[None]:
    """Take over the convolutions and the pooling of so many lanes, inside a `with` block."""
    with _Patches(lanes) as patches, _OneLane(patches):
        yield


class _OneLane(TorchFunctionMode):
    """See convolutions and pooling as one lane calls them, before vmap.

    A convolution is ours if every lane has weights of its own: what vmap makes of it no longer
    shows that. Pooling gets images with rows and channels exchanged, which it treats alike. Lanes
    and channels lie side by side and make one dimension without a copy, and to PyTorch's kernels
    rows that lie innermost are channels that do.
    """

    def __init__(self, patches: "_Patches") -> None:
        super().__init__()
        self._patches = patches

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - a function of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Announce convolutions, replace pooling, and pass everything else on."""
        kwargs = kwargs or {}
        if func is torch.conv2d:
            return self._convolution(*args, **kwargs)
        if func in _POOLS and args and args[0].dim() == 4:
            return func(args[0].transpose(0, 1), *args[1:], **kwargs).transpose(0, 1)
        return func(*args, **kwargs)

    def _convolution(
        self,
        input: Tensor,  # noqa: A002 - PyTorch's own name for it
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,  # noqa: ANN401 - one number or two
        padding: Any = 0,  # noqa: ANN401 - or a word
        dilation: Any = 1,  # noqa: ANN401
        groups: int = 1,
    ) -> Tensor:
        rest, by_lane = (stride, padding, dilation), _by_lane(weight)
        whole = input.shape[-3] % groups == len(weight) % groups == 0
        if groups > 1 and by_lane and whole and not _by_lane(input):
            # Of an input that lanes share, vmap would mix lanes and groups.
            biases = [None] * groups if bias is None else bias.chunk(groups)
            parts = zip(input.chunk(groups, -3), weight.chunk(groups), biases, strict=True)
            return torch.cat([self._convolution(*part, *rest) for part in parts], -3)
        # Groups of its own would look like lanes once vmap has made groups of these.
        with self._patches.announced(by_lane and groups == 1):
            return F.conv2d(input, weight, bias, *rest, groups)


def _by_lane(tensor: Tensor) -> bool:
    """Tell whether every lane has its own."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


@dataclass(frozen=True, slots=True)
class _Shape:
    """One lane's convolution without stride or dilation: sizes in both directions."""

    padding: Sequence[int]
    channels: int
    kernel: Sequence[int]
    before: Sequence[int]
    """Height and width of what goes in."""

    @property
    def after(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        high, wide = (self.before[i] + 2 * self.padding[i] - self.kernel[i] + 1 for i in (0, 1))
        return high, wide

    @property
    def taps(self) -> int:
        """How many products there are per piece: one for every row of the kernel.

        Neighbouring rows of pixels then share patches, and a product adds to what the last one
        found. Products of a few terms are slow: there one takes the whole kernel.
        """
        return self.kernel[0] if self.channels * self.kernel[1] >= _FEWEST_TERMS else 1

    @property
    def tap(self) -> tuple[int, int]:
        """Height and width of one product's patches."""
        return 1 if self.taps > 1 else self.kernel[0], self.kernel[1]

    @property
    def terms(self) -> int:
        """How many numbers a patch has."""
        return self.channels * math.prod(self.tap)


class _Patches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replace what vmap makes of a convolution that was announced, and of its gradient.

    Two dimensions and any padding; a stride, a dilation or groups go on to PyTorch.

    Args:
        lanes: Rows of the stack.
    """

    def __init__(self, lanes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lanes = lanes
        self._announced = False
        self._ours: set[tuple[object, ...]] = set()
        self._largest: dict[tuple[object, ...], Tensor] = {}
        """Where the largest numbers of a pool's windows are."""

    @contextlib.contextmanager
    def announced(self, ours: bool) -> Iterator[None]:
        """Say whether convolutions inside a `with` block are ours."""
        self._announced = ours
        try:
            yield
        finally:
            self._announced = False

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Replace convolutions and their gradients, and pass everything else on."""
        if func is _ATEN.convolution.default and self._announced and self._fits(*args):
            x, weights, _, _, padding, _, _, _, groups = args
            self._ours.add(_key(x, weights, padding))
            return _convolve(x, weights, _shape(x, weights, padding), self._lanes, groups == 1)
        if func is _ATEN.bmm.default and all(map(_transposed, args)) and _aligned(*args):
            # As they lie, so lies the product: with rows of data innermost.
            return torch.bmm(args[1].mT, args[0].mT).mT
        if func is _ATEN.max_pool2d_with_indices.default:
            found = func(*args, **(kwargs or {}))
            self._largest[_window(*args)] = found[1]
            return found
        if func is _ATEN.max_pool2d_with_indices_backward.default:
            # vmap hands over a copy that lies otherwise.
            return func(*args[:-1], self._largest.get(_window(*args[1:-1]), args[-1]))
        if func is _ATEN.convolution_backward.default:
            grad, x, weights, _, _, padding, _, _, _, groups, wanted = args
            shared = groups == 1
            ours = _key(x, weights, padding) in self._ours
            if ours and not wanted[2] and not (wanted[0] and shared):
                shape = _shape(x, weights, padding)
                to_weights = (grad, x, weights.shape, shape, self._lanes, shared)
                return (
                    _to_input(grad, weights, shape, self._lanes) if wanted[0] else None,
                    _to_weights(*to_weights) if wanted[1] else None,
                    None,
                )
        return func(*args, **(kwargs or {}))

    def _fits(
        self,
        x: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        _: Sequence[int],
        groups: int,
    ) -> bool:
        """Tell whether a convolution is ours. What is wrong is not: PyTorch says so best."""
        return (
            bias is None
            and not transposed
            and x.dim() == 4
            and {*stride, *dilation} == {1}
            and x.device.type == "cpu"
            and x.dtype == weights.dtype
            and x.dtype in _KINDS
            and len(x) > 0
            and groups in (1, self._lanes)
            and x.shape[1] == weights.shape[1] * groups
            and len(weights) % self._lanes == 0
            and min(_shape(x, weights, padding).after) > 0
        )


def _shape(x: Tensor, weights: Tensor, padding: Sequence[int]) -> _Shape:
    return _Shape(padding, weights.shape[1], weights.shape[2:], x.shape[2:])


def _key(x: Tensor, weights: Tensor, padding: Sequence[int]) -> tuple[object, ...]:
    """Return by what a convolution's gradient knows it again."""
    return x.shape, weights.shape, *padding


def _window(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> tuple[object, ...]:
    """Return by what a pool's gradient knows it again; its images are kept until then."""
    sizes = (tuple(size) for size in (kernel, stride, padding, dilation))
    return x.data_ptr(), x.shape, x.stride(), *sizes, ceil_mode


def _transposed(matrices: Tensor) -> bool:
    """Tell whether a stack of matrices lies column by column."""
    return matrices.stride(1) == 1 and matrices.stride(2) > 1


def _aligned(left: Tensor, right: Tensor) -> bool:
    """Tell whether every product of a stack begins where a vector may: else bits depend on it."""
    return left.shape[1] * right.shape[2] * left.element_size() % _VECTOR_BYTES == 0


def _rows_last(images: Tensor, stack: int) -> Tensor:
    """Return images of shape (stack, channels, height, width, rows), as they lie in memory."""
    near = images.permute(1, 2, 3, 0).contiguous()
    return near.view(stack, -1, *near.shape[1:])


def _rows_first(images: Tensor) -> Tensor:
    """Return them as PyTorch expects them. Nothing moves unless lanes lie apart."""
    return images.flatten(0, 1).permute(3, 0, 1, 2)


def _blocks(
    stack: int, shape: _Shape, count: int, of: Tensor
) -> tuple[list[tuple[slice, slice]], Tensor]:
    """Return pieces of the stack and of the output's rows of pixels that fit into the cache.

    How pixels are cut follows from one lane alone, so that its sums are added up in the same
    order in any stack. No piece has one lane where others have more: PyTorch has other
    kernels for that.

    Args:
        stack: Products.
        shape: Of one of them.
        count: Rows of data.
        of: Says which kind of numbers.

    Returns:
        The pieces, and room for the patches of the largest.
    """
    high, wide = shape.after
    row, overlap = shape.terms * wide * count, shape.taps - 1
    numbers = _BLOCK_BYTES // of.element_size()
    rows = max(min(numbers // (2 * row) - overlap, high), 1)
    each = _apart(row * (rows + overlap), of)
    count = max(stack // max(numbers // each, 2), 1)
    edges = [stack * i // count for i in range(count + 1)]
    lanes = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    pixels = [slice(first, min(first + rows, high)) for first in range(0, high, rows)]
    most = max(part.stop - part.start for part in lanes)
    return [(a, b) for a in lanes for b in pixels], of.new_empty(most * each)


def _apart(numbers: int, of: Tensor) -> int:
    """Return how far a lane's numbers lie from the next lane's: both begin where a vector may.

    Sums of a lane would else depend on its place in the stack.
    """
    vector = _VECTOR_BYTES // of.element_size()
    return -(-numbers // vector) * vector


def _in_room(room: Tensor, stack: int, terms: int, length: int) -> Tensor:
    """Return a part of the room, shape (stack, terms, length)."""
    return room.as_strided((stack, terms, length), (_apart(terms * length, room), length, 1))


def _room_for(of: Tensor, stack: int, terms: int, length: int) -> Tensor:
    """Return new room of the same kind of numbers, shape (stack, terms, length)."""
    return _in_room(of.new_empty(stack * _apart(terms * length, of)), stack, terms, length)


def _unfolded(x: Tensor, shape: _Shape, rows: slice, room: Tensor) -> Tensor:
    """Copy the patches of some rows of pixels, shape (stack, terms, pixels and rows of data).

    They go where the last ones were: that is still in the cache.
    """
    stack, channels, _, _, count = x.shape
    lane, channel, down, right, _ = x.stride()
    high, wide = rows.stop - rows.start, shape.after[1]
    windows = x[:, :, rows.start :].as_strided(
        (stack, channels, *shape.tap, high, wide, count),
        (lane, channel, down, right, down, right, 1),
    )
    patches = _in_room(room, stack, shape.terms, high * wide * count)
    patches.view(windows.shape).copy_(windows)
    return patches


def _patches(
    x: Tensor, shape: _Shape, stack: int, shared: bool
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield lanes, their rows of pixels, and the patches of these: used up before the next."""
    down, right = shape.padding
    images = _rows_last(x, 1 if shared else stack)
    images = F.pad(images, (0, 0, right, right, down, down)) if down or right else images
    blocks, room = _blocks(stack, shape, len(x), x)
    for lanes, rows in blocks:
        further = slice(rows.start, rows.stop + shape.taps - 1)
        patches = _unfolded(images if shared else images[lanes], shape, further, room)
        if shared:
            patches = patches.expand(lanes.stop - lanes.start, -1, -1)
        yield lanes, rows, patches


def _by_tap(weights: Tensor, shape: _Shape, stack: int) -> Tensor:
    """Return the factors of every product, shape (taps, stack, outputs, terms)."""
    kernel = weights.reshape(stack, -1, weights.shape[1], shape.taps, *shape.tap)
    return kernel.permute(3, 0, 1, 2, 4, 5).flatten(3)


def _multiply(factors: Tensor, by: Tensor, place: Tensor, number: int) -> None:
    """Write the first product to a place, and add the others'."""
    if number == 0:
        torch.bmm(factors, by, out=place)
    else:
        place.baddbmm_(factors, by)


def _convolve(x: Tensor, weights: Tensor, shape: _Shape, stack: int, shared: bool) -> Tensor:
    factors = _by_tap(weights, shape, stack)
    high, wide = shape.after
    across = wide * len(x)
    out = _room_for(x, stack, factors.shape[2], high * across)
    for lanes, rows, patches in _patches(x, shape, stack, shared):
        place = out[lanes, :, rows.start * across : rows.stop * across]
        for tap, factor in enumerate(factors):
            start = tap * across
            _multiply(factor[lanes], patches[:, :, start : start + place.shape[2]], place, tap)
    return _rows_first(out.view(stack, -1, high, wide, len(x)))


def _to_weights(
    grad: Tensor, x: Tensor, sizes: Sequence[int], shape: _Shape, stack: int, shared: bool
) -> Tensor:
    gradient = _rows_last(grad, stack).flatten(2)
    across = shape.after[1] * len(x)
    outputs = sizes[0] // stack
    out = _room_for(x, shape.taps * stack, shape.terms, outputs)
    out = out.view(shape.taps, stack, shape.terms, outputs)
    for lanes, rows, patches in _patches(x, shape, stack, shared):
        part = gradient[lanes, :, rows.start * across : rows.stop * across].transpose(1, 2)
        for tap, place in enumerate(out[:, lanes]):
            start = tap * across
            _multiply(patches[:, :, start : start + part.shape[1]], part, place, rows.start)
    # The other way round, gradient times patches, MKL took two and a half times as long.
    apart = out.view(shape.taps, stack, shape.channels, *shape.tap, outputs)
    return apart.permute(1, 5, 2, 0, 3, 4).reshape(tuple(sizes))


def _to_input(grad: Tensor, weights: Tensor, shape: _Shape, stack: int) -> Tensor:
    gradient = _rows_last(grad, stack).flatten(2)
    factors = _by_tap(weights, shape, stack).transpose(2, 3)
    count, wide = len(grad), shape.after[1]
    across = wide * count
    around = [size + 2 * pad for size, pad in zip(shape.before, shape.padding, strict=True)]
    out = grad.new_empty((stack, shape.channels, *around, count))
    blocks, room = _blocks(stack, shape, count, grad)
    for lanes, rows in blocks:
        further = rows.stop - rows.start + shape.taps - 1
        part = gradient[lanes, :, rows.start * across : rows.stop * across]
        found = _in_room(room, lanes.stop - lanes.start, shape.terms, further * across)
        found[:, :, part.shape[2] :].zero_()
        for tap, factor in enumerate(factors):
            start = tap * across
            _multiply(factor[lanes], part, found[:, :, start : start + part.shape[2]], tap)
        if rows.start == 0:
            out[lanes].zero_()  # here and not before: it stays in the cache
        pixels = found.view(len(found), shape.channels, *shape.tap, further, wide, count)
        for down in range(shape.tap[0]):
            to_rows = slice(rows.start + down, rows.start + down + further)
            for right in range(shape.tap[1]):
                out[lanes, :, to_rows, right : right + wide] += pixels[:, :, down, right]
    down, right = shape.padding
    inside = out[:, :, down : down + shape.before[0], right : right + shape.before[1]]
    return _rows_first(inside)

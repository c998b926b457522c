"""Convolutions of many candidates at once on a CPU, as matrix products over patches.

vmap turns a convolution of every lane into one grouped convolution, and oneDNN's kernels for
groups of a few channels are slow. Here pictures lie with their rows of data innermost: lane,
channel, height, width, row. Patches are then copied in long runs, one product per lane does the
rest, and pooling and whatever works element by element runs over neighbouring numbers as well. A
lane's product is its own, whoever else is in the stack. This module imports torch.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@contextlib.contextmanager
def by_patches(lanes: int) -> Iterator[None]:
    """Take over the convolutions and the pooling of so many lanes, inside a `with` block."""
    with _Patches(lanes) as patches, _OneLane(patches):
        yield


class _OneLane(TorchFunctionMode):
    """See convolutions and pooling as one lane calls them, before vmap.

    A convolution is ours if every lane has weights of its own: what vmap makes of it no longer
    shows that. Pooling gets pictures with rows and channels exchanged, which it treats alike. Lanes
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
        rest = stride, padding, dilation
        with self._patches.announced(_by_lane(weight)) as ours:
            channels = input.shape[-3]
            # Of an input that lanes share, vmap would mix lanes and groups.
            mixed = ours and groups > 1 and not _by_lane(input)
            if not mixed or channels % groups or len(weight) % groups:
                return F.conv2d(input, weight, bias, *rest, groups)
            parts = zip(
                input.chunk(groups, -3),
                weight.chunk(groups),
                [None] * groups if bias is None else bias.chunk(groups),
                strict=True,
            )
            return torch.cat([F.conv2d(*part, *rest) for part in parts], -3)


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
    """One lane's convolution: sizes in both directions where there are two numbers."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    channels: int
    kernel: Sequence[int]
    before: Sequence[int]
    """Height and width of what goes in."""

    @property
    def after(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        high, wide = (
            (self.before[i] + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return high, wide

    @property
    def taps(self) -> int:
        """How many products there are per piece: one for every row of the kernel.

        Neighbouring rows of pixels then share patches, and a product adds to what the last one
        found. With a stride they do not lie side by side, and products of a few terms are slow:
        there one takes the whole kernel.
        """
        several = self.stride[0] == 1 and self.channels * self.kernel[1] >= _FEWEST_TERMS
        return self.kernel[0] if several else 1

    @property
    def tap(self) -> "_Shape":
        """What one product's patches are of."""
        return self if self.taps == 1 else replace(self, kernel=(1, self.kernel[1]))

    @property
    def terms(self) -> int:
        """How many numbers a patch has."""
        return self.channels * math.prod(self.tap.kernel)

    @property
    def overlap(self) -> int:
        """How many more rows of patches than of pixels a piece has."""
        return (self.taps - 1) * self.dilation[0]

    def taken(self, axis: int, tap: int) -> tuple[slice, slice]:
        """Return which places one tap of the kernel reads, and for which results."""
        step, first = self.stride[axis], tap * self.dilation[axis] - self.padding[axis]
        low = max(-(first // step), 0)
        high = min((self.before[axis] - 1 - first) // step + 1, self.after[axis])
        if high <= low:
            return slice(0, 0), slice(0, 0)
        start = first + low * step
        return slice(start, first + (high - 1) * step + 1, step), slice(low, high)


class _Patches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replace what vmap makes of a convolution that was announced, and of its gradient.

    Two dimensions and any stride, padding and dilation; what else there is goes on to PyTorch.

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
    def announced(self, ours: bool) -> Iterator[bool]:
        """Say whether convolutions inside a `with` block are ours."""
        self._announced = ours
        try:
            yield ours
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
        if func is torch.ops.aten.convolution.default:
            x, weights, bias, stride, padding, dilation, transposed, _, groups = args
            if (
                self._announced
                and bias is None
                and not transposed
                and self._fits(x, weights, groups)
            ):
                shape = _Shape(
                    stride, padding, dilation, weights.shape[1], weights.shape[2:], x.shape[2:]
                )
                if min(shape.after) > 0:
                    self._ours.add(_key(x, weights, args[3:]))
                    return _convolve(x, weights, shape, self._stack(groups), groups == 1)
        if func is torch.ops.aten.bmm.default and all(map(_transposed, args)) and _aligned(*args):
            # As they lie, so lies the product: with rows of data innermost.
            return torch.bmm(args[1].mT, args[0].mT).mT
        if func is torch.ops.aten.max_pool2d_with_indices.default:
            found = func(*args, **(kwargs or {}))
            self._largest[_window(*args)] = found[1]
            return found
        if func is torch.ops.aten.max_pool2d_with_indices_backward.default:
            # vmap hands over a copy that lies otherwise.
            return func(*args[:-1], self._largest.get(_window(*args[1:-1]), args[-1]))
        if func is torch.ops.aten.convolution_backward.default:
            grad, x, weights, _, stride, padding, dilation, transposed, _, groups, wanted = args
            shared = groups == 1
            if (
                _key(x, weights, args[4:-1]) in self._ours
                and not wanted[2]
                and not (wanted[0] and shared)
            ):
                shape = _Shape(
                    stride, padding, dilation, weights.shape[1], weights.shape[2:], x.shape[2:]
                )
                stack = self._stack(groups)
                return (
                    _to_input(grad, weights, shape, stack) if wanted[0] else None,
                    _to_weights(grad, x, weights.shape, shape, stack, shared)
                    if wanted[1]
                    else None,
                    None,
                )
        return func(*args, **(kwargs or {}))

    def _stack(self, groups: int) -> int:
        """Return how many products there are: of every group, or of lanes that share an input."""
        return self._lanes if groups == 1 else groups

    def _fits(self, x: Tensor, weights: Tensor, groups: int) -> bool:
        """Tell whether a convolution is ours. What is wrong is not: PyTorch says so best."""
        return (
            x.dim() == 4
            and x.device.type == "cpu"
            and x.dtype == weights.dtype
            and x.dtype in _KINDS
            and len(x) > 0
            and x.shape[1] == weights.shape[1] * groups
            and (groups == 1 or groups % self._lanes == 0)
            and len(weights) % self._stack(groups) == 0
        )


def _key(x: Tensor, weights: Tensor, rest: Iterable[Any]) -> tuple[object, ...]:
    """Return by what a convolution's gradient knows it again."""
    return x.shape, weights.shape, *(tuple(r) if isinstance(r, list) else r for r in rest)


def _window(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> tuple[object, ...]:
    """Return by what a pool's gradient knows it again; its pictures are kept until then."""
    sizes = (tuple(size) for size in (kernel, stride, padding, dilation))
    return x.data_ptr(), x.shape, x.stride(), *sizes, ceil_mode


def _transposed(matrices: Tensor) -> bool:
    """Tell whether a stack of matrices lies column by column."""
    return matrices.stride(1) == 1 and matrices.stride(2) > 1


def _aligned(left: Tensor, right: Tensor) -> bool:
    """Tell whether every product of a stack begins where a vector may: else bits depend on it."""
    return left.shape[1] * right.shape[2] * left.element_size() % _VECTOR_BYTES == 0


def _rows_last(pictures: Tensor, stack: int) -> Tensor:
    """Return pictures of shape (stack, channels, height, width, rows), as they lie in memory."""
    near = pictures.permute(1, 2, 3, 0).contiguous()
    return near.view(stack, -1, *near.shape[1:])


def _rows_first(pictures: Tensor) -> Tensor:
    """Return them as PyTorch expects them. Nothing moves unless lanes lie apart."""
    return pictures.flatten(0, 1).permute(3, 0, 1, 2)


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
    row, overlap = shape.terms * wide * count, shape.overlap
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
    part = x[:, :, rows.start * shape.stride[0] :]
    windows = part.as_strided(
        (stack, channels, *shape.kernel, high, wide, count),
        (
            lane,
            channel,
            down * shape.dilation[0],
            right * shape.dilation[1],
            down * shape.stride[0],
            right * shape.stride[1],
            1,
        ),
    )
    patches = _in_room(
        room, stack, channels * shape.kernel[0] * shape.kernel[1], high * wide * count
    )
    patches.view(windows.shape).copy_(windows)
    return patches


def _padded(x: Tensor, shape: _Shape) -> Tensor:
    down, right = shape.padding
    return F.pad(x, (0, 0, right, right, down, down)) if down or right else x


def _patches(
    x: Tensor, shape: _Shape, stack: int, shared: bool
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield lanes, their rows of pixels, and the patches of these: used up before the next."""
    pictures = _padded(_rows_last(x, 1 if shared else stack), shape)
    blocks, room = _blocks(stack, shape, len(x), x)
    for lanes, rows in blocks:
        further = slice(rows.start, rows.stop + shape.overlap)
        patches = _unfolded(pictures if shared else pictures[lanes], shape.tap, further, room)
        if shared:
            patches = patches.expand(lanes.stop - lanes.start, -1, -1)
        yield lanes, rows, patches


def _by_tap(weights: Tensor, shape: _Shape, stack: int) -> Tensor:
    """Return the factors of every product, shape (taps, stack, outputs, terms)."""
    kernel = weights.reshape(stack, -1, weights.shape[1], shape.taps, *shape.tap.kernel)
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
            start = tap * shape.dilation[0] * across
            _multiply(factor[lanes], patches[:, :, start : start + place.shape[2]], place, tap)
    return _rows_first(out.view(stack, -1, high, wide, len(x)))


def _to_weights(
    grad: Tensor, x: Tensor, sizes: Sequence[int], shape: _Shape, stack: int, shared: bool
) -> Tensor:
    slopes = _rows_last(grad, stack).flatten(2)
    across = shape.after[1] * len(x)
    outputs = sizes[0] // stack
    out = _room_for(x, shape.taps * stack, shape.terms, outputs)
    out = out.view(shape.taps, stack, shape.terms, outputs)
    for lanes, rows, patches in _patches(x, shape, stack, shared):
        part = slopes[lanes, :, rows.start * across : rows.stop * across].transpose(1, 2)
        for tap, place in enumerate(out[:, lanes]):
            start = tap * shape.dilation[0] * across
            _multiply(patches[:, :, start : start + part.shape[1]], part, place, rows.start)
    # The other way round, slopes times patches, MKL took two and a half times as long.
    apart = out.view(shape.taps, stack, shape.channels, *shape.tap.kernel, outputs)
    return apart.permute(1, 5, 2, 0, 3, 4).reshape(tuple(sizes))


def _to_input(grad: Tensor, weights: Tensor, shape: _Shape, stack: int) -> Tensor:
    slopes = _rows_last(grad, stack).flatten(2)
    factors = _by_tap(weights, shape, stack).transpose(2, 3)
    count, wide = len(grad), shape.after[1]
    across = wide * count
    out = grad.new_empty((stack, shape.channels, *shape.before, count))
    blocks, room = _blocks(stack, shape, count, grad)
    for lanes, rows in blocks:
        further = slice(rows.start, rows.stop + shape.overlap)
        part = slopes[lanes, :, rows.start * across : rows.stop * across]
        size = lanes.stop - lanes.start, shape.terms, (further.stop - further.start) * across
        found = _in_room(room, *size)
        if shape.overlap:
            found[:, :, part.shape[2] :].zero_()
        for tap, factor in enumerate(factors):
            start = tap * shape.dilation[0] * across
            _multiply(factor[lanes], part, found[:, :, start : start + part.shape[2]], tap)
        if rows.start == 0:
            out[lanes].zero_()  # here and not before: it stays in the cache
        pixels = found.view(size[0], shape.channels, *shape.tap.kernel, -1, wide, count)
        _fold(out[lanes], pixels, shape.tap, further)
    return _rows_first(out)


def _fold(out: Tensor, found: Tensor, shape: _Shape, rows: slice) -> None:
    """Add up what every tap of the kernel found for some rows of pixels."""
    for down in range(shape.kernel[0]):
        to_rows, from_rows = shape.taken(0, down)
        for right in range(shape.kernel[1]):
            to_columns, from_columns = shape.taken(1, right)
            low, high = max(from_rows.start, rows.start), min(from_rows.stop, rows.stop)
            if high <= low or from_columns.stop <= from_columns.start:
                continue
            step = shape.stride[0]
            start = to_rows.start + (low - from_rows.start) * step
            place = out[:, :, start : start + (high - low - 1) * step + 1 : step, to_columns]
            place += found[:, :, down, right, low - rows.start : high - rows.start, from_columns]

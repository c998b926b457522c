"""Convolutions of many candidates at once on a GPU, as Triton kernels of our own.

vmap turns a convolution of every lane into one grouped convolution. cuDNN's kernels for hundreds
of groups with tens of channels each are slow, and may round a lane otherwise in another place or
in other company. Here a program multiplies a tile of one lane's pixels with that lane's weights;
patches are never written to memory. Neither a lane's place nor the number of lanes decides in
which order its numbers are added up.

Tensor cores want the numbers that are added up side by side in memory: channels for the
convolution, pixels for the gradient of the weights. Images lie as PyTorch has them, and are
copied channels-last for the convolution.

Triton's interpreter runs the same kernels on a CPU (`TRITON_INTERPRET=1`, set before this module
is imported), which is how they are tested. This module imports torch and triton.
"""

import functools
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from urna.local.engine.pieces import rounds_to_tf32

__all__ = ["LaneKernels", "works_on"]

_log = logging.getLogger(__name__)
_ATEN = torch.ops.aten

# Tiles were picked on an H200, for the 32 to 128 channels of DP-Hype's networks.
_PIXELS = 128
_PIXELS_ADDED = 32
_MOST_OUTPUTS = 128
_MOST_TERMS = 32
_MOST_TERMS_ADDED = 64
_MOST_GROUPS = 65_535  # CUDA's limit for the second dimension of a grid
_FEWEST_OUTPUTS = 8  # of a group; fewer leave a tile nearly empty
_SPAN = 4096  # most pixels that one program adds up for the gradient of the weights
_TRANSPOSED = 64  # channels and pixels that one program transposes


@triton.jit
def _place(m, height, width):
    """Return image, row and column of pixels that are counted through all images."""
    image = m // (height * width)
    rest = m - image * (height * width)
    row = rest // width
    return image.to(tl.int64), row, rest - row * width


@triton.jit
def _patch(
    x, m, k, pixels, height, width, out_height, out_width,
    x_image, x_channel, x_row, x_column,
    CHANNELS: tl.constexpr, ACROSS: tl.constexpr, TERMS: tl.constexpr,
    PAD_ROWS: tl.constexpr, PAD_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Load what output pixels `m` see of one lane's images, for the terms `k`.

    A term is one weight of an output channel: row of the kernel, column, input channel.
    """
    image, row, column = _place(m, out_height, out_width)
    top, left = row - PAD_ROWS, column - PAD_COLUMNS
    tap = k // CHANNELS
    down, right = tap // ACROSS, tap % ACROSS
    inside = (m < pixels)[:, None] & (k < TERMS)[None, :]
    if PAD_ROWS > 0 or PAD_COLUMNS > 0:
        y, z = top[:, None] + down[None, :], left[:, None] + right[None, :]
        inside = inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
    corner = x + image * x_image + top * x_row + left * x_column
    away = down * x_row + right * x_column + (k % CHANNELS) * x_channel
    return tl.load(corner[:, None] + away[None, :], mask=inside, other=0.0)


@triton.jit
def _forward(
    x, weights, out, pixels, height, width, out_height, out_width,
    x_image, x_group, x_channel, x_row, x_column,
    out_image, out_group, out_channel, out_row, out_column, outputs,
    CHANNELS: tl.constexpr, ACROSS: tl.constexpr, TERMS: tl.constexpr,
    PAD_ROWS: tl.constexpr, PAD_COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute one tile of pixels of some output channels of one lane."""
    group = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    o = tl.program_id(2) * OUT + tl.arange(0, OUT)
    sums = tl.zeros((TILE, OUT), dtype=tl.float32)
    for first in range(0, TERMS, BLOCK):
        k = first + tl.arange(0, BLOCK)
        patch = _patch(
            x + group * x_group, m, k, pixels, height, width, out_height, out_width,
            x_image, x_channel, x_row, x_column, CHANNELS, ACROSS, TERMS, PAD_ROWS, PAD_COLUMNS,
        )  # fmt: skip
        factors = tl.load(
            weights + (group * outputs + o)[:, None] * TERMS + k[None, :],
            mask=(o < outputs)[:, None] & (k < TERMS)[None, :],
            other=0.0,
        )
        sums = tl.dot(patch, tl.trans(factors), sums, input_precision=PRECISION)
    image, row, column = _place(m, out_height, out_width)
    place = group * out_group + image * out_image + row * out_row + column * out_column
    tl.store(
        out + place[:, None] + (o * out_channel)[None, :],
        sums.to(out.dtype.element_ty),
        mask=(m < pixels)[:, None] & (o < outputs)[None, :],
    )


@triton.jit
def _weight_gradient_parts(
    x, grad, parts, pixels, height, width, out_height, out_width,
    x_image, x_group, x_channel, x_row, x_column,
    grad_image, grad_group, grad_channel, grad_row, grad_column, groups, outputs,
    CHANNELS: tl.constexpr, ACROSS: tl.constexpr, TERMS: tl.constexpr,
    PAD_ROWS: tl.constexpr, PAD_COLUMNS: tl.constexpr, SPAN: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up one span of pixels for the gradient of some weights of one lane."""
    group, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    blocks = tl.cdiv(TERMS, BLOCK)
    k = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    o = (tl.program_id(0) // blocks) * OUT + tl.arange(0, OUT)
    sums = tl.zeros((OUT, BLOCK), dtype=tl.float32)
    for first in range(0, SPAN, TILE):
        m = part * SPAN + first + tl.arange(0, TILE)
        patch = _patch(
            x + group * x_group, m, k, pixels, height, width, out_height, out_width,
            x_image, x_channel, x_row, x_column, CHANNELS, ACROSS, TERMS, PAD_ROWS, PAD_COLUMNS,
        )  # fmt: skip
        image, row, column = _place(m, out_height, out_width)
        place = group * grad_group + image * grad_image + row * grad_row + column * grad_column
        gradient = tl.load(
            grad + place[:, None] + (o * grad_channel)[None, :],
            mask=(m < pixels)[:, None] & (o < outputs)[None, :],
            other=0.0,
        )
        sums = tl.dot(tl.trans(gradient), patch, sums, input_precision=PRECISION)
    tl.store(
        parts + ((part * groups + group) * outputs + o)[:, None] * TERMS + k[None, :],
        sums,
        mask=(o < outputs)[:, None] & (k < TERMS)[None, :],
    )


@triton.jit
def _transpose(x, out, channels, pixels, SIZE: tl.constexpr):
    """Put the channels of some pixels of one image side by side."""
    image = tl.program_id(2).to(tl.int64) * channels * pixels
    p = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    c = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    numbers = tl.load(
        x + image + c[:, None] * pixels + p[None, :],
        mask=(c < channels)[:, None] & (p < pixels)[None, :],
    )
    tl.store(
        out + image + p[:, None] * channels + c[None, :],
        tl.trans(numbers),
        mask=(p < pixels)[:, None] & (c < channels)[None, :],
    )


def _run(
    kernel: Any,  # noqa: ANN401 - Triton's
    grid: tuple[int, int, int],
    x: Tensor,
    *arguments: Tensor | int,
    **constants: int | str,
) -> None:
    """Launch a kernel on the device that holds `x`."""
    precision = "tf32" if rounds_to_tf32() else "ieee"  # of float32, as cuDNN's
    with torch.cuda.device_of(x):
        kernel[grid](x, *arguments, PRECISION=precision, num_stages=3, **constants)


def _strides(images: Tensor, groups: int) -> tuple[int, int, int, int, int]:
    """Return the strides of images, groups, channels, rows and columns."""
    image, channel, row, column = images.stride()
    return image, channel * (images.shape[1] // groups), channel, row, column


def _block(size: int, most: int) -> int:
    return max(16, min(1 << (size - 1).bit_length(), most))


def _output_tile(outputs: int, groups: int) -> int:
    """Return how many output channels of a group a program computes.

    Where all lanes see the same images they are one group. Then the number of lanes must not
    pick the tensor cores' instruction, and large tiles have one only.
    """
    return max(_block(outputs, _MOST_OUTPUTS), 64 if groups == 1 else 16)


def _sizes(x: Tensor, weights: Tensor, padding: Sequence[int]) -> list[int]:
    """Return height and width of what a convolution returns."""
    sizes = zip(x.shape[2:], weights.shape[2:], padding, strict=True)
    return [size + 2 * pad - kernel + 1 for size, kernel, pad in sizes]


def _convolve(x: Tensor, weights: Tensor, padding: Sequence[int], groups: int) -> Tensor:
    """Convolve with stride 1; fastest where images lie channels-last."""
    images, _, height, width = x.shape
    total, channels, down, across = weights.shape
    out = torch.empty((images, total, *_sizes(x, weights, padding)), device=x.device)
    pixels, outputs = images * out.shape[2] * out.shape[3], total // groups
    terms, tile = channels * down * across, _output_tile(outputs, groups)
    _run(
        _forward, (triton.cdiv(pixels, _PIXELS), groups, triton.cdiv(outputs, tile)),
        x, weights.permute(0, 2, 3, 1).contiguous(), out, pixels, height, width, *out.shape[2:],
        *_strides(x, groups), *_strides(out, groups), outputs,
        CHANNELS=channels, ACROSS=across, TERMS=terms,
        PAD_ROWS=padding[0], PAD_COLUMNS=padding[1],
        TILE=_PIXELS, OUT=tile, BLOCK=_block(terms, _MOST_TERMS), num_warps=8,
    )  # fmt: skip
    return out


def _weight_gradient(
    x: Tensor, grad: Tensor, shape: Sequence[int], padding: Sequence[int], groups: int
) -> Tensor:
    """Return the gradient of weights of some shape."""
    images, _, height, width = x.shape
    total, channels, down, across = shape
    pixels, outputs = images * grad.shape[2] * grad.shape[3], total // groups
    terms = channels * down * across
    out, block = _output_tile(outputs, groups), _block(terms, _MOST_TERMS_ADDED)
    span = max(_PIXELS_ADDED, _block(pixels, _SPAN))
    spans = triton.cdiv(pixels, span)
    parts = torch.empty((spans, total, terms), device=x.device)
    blocks = triton.cdiv(terms, block) * triton.cdiv(outputs, out)
    _run(
        _weight_gradient_parts, (blocks, groups, spans),
        x, grad, parts, pixels, height, width, *grad.shape[2:],
        *_strides(x, groups), *_strides(grad, groups), groups, outputs,
        CHANNELS=channels, ACROSS=across, TERMS=terms,
        PAD_ROWS=padding[0], PAD_COLUMNS=padding[1], SPAN=span,
        TILE=_PIXELS_ADDED, OUT=out, BLOCK=block, num_warps=4,
    )  # fmt: skip
    added = parts[0]
    for part in parts[1:]:  # in one order, whatever the number of lanes
        added += part
    return added.view(total, down, across, channels).permute(0, 3, 1, 2).contiguous()


def _channels_last(x: Tensor) -> Tensor:
    """Return images whose channels lie side by side; PyTorch's copy takes three times as long."""
    if x.is_contiguous(memory_format=torch.channels_last):
        return x
    images, channels, height, width = x.shape
    out = torch.empty_like(x, memory_format=torch.channels_last)
    tiles = triton.cdiv(height * width, _TRANSPOSED), triton.cdiv(channels, _TRANSPOSED), images
    with torch.cuda.device_of(x):
        _transpose[tiles](x.contiguous(), out, channels, height * width, SIZE=_TRANSPOSED)
    return out


@functools.cache
def works_on(device: str) -> bool:
    """Tell whether a GPU can build and run the kernels; a small convolution is tried, once."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return False
    try:
        if torch.cuda.get_device_capability(device) < (8, 0):
            return False  # no products of TF32 in hardware
        x = torch.zeros((1, 16, 4, 4), device=device)
        out = _convolve(_channels_last(x), x.new_zeros((16, 16, 3, 3)), [1, 1], 1)
        _weight_gradient(x, out, [16, 16, 3, 3], [1, 1], 1)
        torch.cuda.synchronize(device)
    except Exception as error:  # no compiler, no driver, no room: PyTorch serves
        _log.warning("our convolutions cannot run here (%s); PyTorch's are used", error)
        return False
    return True


class LaneKernels(TorchDispatchMode):
    """Replace what vmap makes of convolutions and pooling over many lanes, in a `with` block.

    Convolutions in float32 of two dimensions, stride 1, no dilation, any padding and kernel, at
    least eight output channels of a group (of all lanes, where they see the same images); and
    the gradient of max pooling whose windows do not overlap. Everything else goes on to PyTorch.
    """

    channels_last = staticmethod(_channels_last)
    convolve = staticmethod(_convolve)
    weight_gradient = staticmethod(_weight_gradient)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Replace what is ours, and pass everything else on."""
        if func is _ATEN.convolution.default:
            x, weights, bias, stride, padding, dilation, transposed, _, groups = args
            fits = _fits(x, weights, (*stride, *dilation), padding, transposed, groups)
            if fits and (bias is None or bias.shape == weights.shape[:1]):
                out = self.convolve(self.channels_last(x), weights, padding, groups)
                return out if bias is None else out + bias.view(-1, 1, 1)
        if func is _ATEN.convolution_backward.default:
            grad, x, weights, _, stride, padding, dilation, transposed, _, groups, wanted = args
            if _fits(x, weights, (*stride, *dilation), padding, transposed, groups):
                return self._backward(grad, x, weights, padding, groups, wanted)
        if func is _ATEN.max_pool2d_with_indices_backward.default and _windows_apart(*args):
            return _ATEN.max_unpool2d.default(args[0], args[7], args[1].shape[2:])
        return func(*args, **(kwargs or {}))

    def _backward(
        self,
        grad: Tensor,
        x: Tensor,
        weights: Tensor,
        padding: list[int],
        groups: int,
        wanted: list[bool],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of input, weights and bias, those that are wanted."""
        to_input = to_weights = None
        if wanted[0]:  # a convolution of the gradient with the flipped kernel
            lanes = weights.view(groups, -1, *weights.shape[1:])
            flipped = lanes.flip(3, 4).transpose(1, 2).flatten(0, 1)
            around = [size - 1 - pad for size, pad in zip(weights.shape[2:], padding, strict=True)]
            to_input = self.convolve(self.channels_last(grad), flipped, around, groups)
        if wanted[1]:
            shape = list(weights.shape)
            to_weights = self.weight_gradient(
                x.contiguous(), grad.contiguous(), shape, padding, groups
            )
        return to_input, to_weights, grad.sum((0, 2, 3)) if wanted[2] else None


def _fits(
    x: Tensor,
    weights: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    transposed: bool,
    groups: int,
) -> bool:
    """Tell whether a convolution is ours. What is wrong is not: PyTorch says so best."""
    return (
        x.dim() == 4
        and not transposed
        and set(strides) == {1}
        and x.dtype == weights.dtype == torch.float32
        and 0 < groups <= _MOST_GROUPS
        and len(weights) >= groups * _FEWEST_OUTPUTS
        and len(weights) % groups == 0
        and x.shape[1] == weights.shape[1] * groups
        and min(padding) >= 0
        and min(len(x), *_sizes(x, weights, padding)) > 0
        and len(x) <= _MOST_GROUPS
        # Places within an image, and pixels of all, are counted in 32 bits.
        and math.prod(x.shape[1:]) < 2**31
        and len(x) * math.prod(_sizes(x, weights, padding)) < 2**31
    )


def _windows_apart(
    grad: Tensor,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    _: Tensor,
) -> bool:
    """Tell whether no pixel is in two windows: then its gradient is its window's, or none.

    PyTorch's kernel looks for every pixel in every window around it.
    """
    return (
        x.dim() == 4
        and grad.is_contiguous()
        and x.is_contiguous()
        and list(stride or kernel) == list(kernel)
        and not any(padding)
        and set(dilation) == {1}
        and not ceil_mode
        and not torch.are_deterministic_algorithms_enabled()  # it does not know our windows
    )

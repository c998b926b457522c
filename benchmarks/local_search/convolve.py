"""Claim: our convolutions of many lanes beat cuDNN's grouped ones on a GPU.

The layers of DP-Hype's networks, 80 lanes, 64 rows: forward, gradient of the input, gradient of
the weights. cuDNN may try all its kernels. Every ratio is its time in TF32 over ours, copies
included.
"""

from collections.abc import Callable
from typing import Any

import torch

LAYERS = {
    "mnist 1→32": (1, 32, 28, 0, True),
    "mnist 32→64": (32, 64, 26, 0, False),
    "cifar10 32→32": (32, 32, 32, 1, False),
    "cifar10 64→128": (64, 128, 16, 1, False),
}
"""Channels in and out, size, padding, and whether all lanes see the same images."""
ROWS = 64
PARTS = ("forward", "to the input", "to the weights")


def works(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, padding: int, groups: int) -> Any:  # noqa: ANN401
    """Return the three operations on these tensors, to be called."""
    around = [padding, padding]
    plain = ([1, 1], around, [1, 1], False, [0, 0], groups)

    def backward(*wanted: bool) -> Any:  # noqa: ANN401
        return torch.ops.aten.convolution_backward(g, x, w, None, *plain, list(wanted))

    return (
        lambda: torch.ops.aten.convolution(x, w, None, *plain),
        lambda: backward(True, False, False),
        lambda: backward(False, True, False),
    )


def milliseconds(work: Callable[[], Any]) -> float:
    """Return the median time of a call."""
    from triton.testing import do_bench  # noqa: PLC0415 - needs a GPU

    return float(do_bench(work, warmup=10, rep=50, return_mode="median"))


def measure(name: str, lanes: int) -> list[dict[str, Any]]:
    """Return a row for each operation of a layer."""
    from urna.local.engine.convolve import LaneKernels  # noqa: PLC0415 - imports triton

    channels, outputs, size, padding, shared = LAYERS[name]
    groups = 1 if shared else lanes
    maker = torch.Generator(device="cuda").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=maker, device="cuda")

    after = size + 2 * padding - 2
    tensors = (
        draw(ROWS, groups * channels, size, size),
        draw(lanes * outputs, channels, 3, 3),
        draw(ROWS, lanes * outputs, after, after),
    )
    rows = []
    for part in range(3):
        if shared and part == 1:
            continue  # nobody needs the gradient of the images themselves
        peer = milliseconds(works(*tensors, padding, groups)[part])
        with LaneKernels():
            ours = milliseconds(works(*tensors, padding, groups)[part])
        rows.append(
            {
                "name": f"{name}, {PARTS[part]}",
                "ours": ours,
                "cuDNN": peer,
                "ratio": peer / ours,
            }
        )
    return rows


def convolve_suite(lanes: int) -> list[dict[str, Any]]:
    """Return a row for each operation of every layer."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    return [row for name in LAYERS for row in measure(name, lanes)]

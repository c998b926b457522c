"""Claim: our convolutions of many lanes beat cuDNN's grouped ones on a GPU.

    python benchmarks/convolve.py --format json

The layers of DP-Hype's networks, 80 lanes, 64 rows: forward, gradient of the input, gradient of
the weights. cuDNN may try all its kernels, in its own favourite layout. In float32 every ratio is
its time in TF32 over ours, copies included; in bfloat16 the better of its two times over ours.
Needs a GPU.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

LAYERS = {
    "mnist 1→32": (1, 32, 28, 0, True),
    "mnist 32→64": (32, 64, 26, 0, False),
    "cifar10 32→32": (32, 32, 32, 1, False),
    "cifar10 64→128": (64, 128, 16, 1, False),
}
"""Channels in and out, size, padding, and whether all lanes see the same pictures."""
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
    from urna.local.convolve import LaneKernels  # noqa: PLC0415 - imports triton

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
    lower = [tensor.bfloat16() for tensor in tensors]
    near = [tensor.contiguous(memory_format=torch.channels_last) for tensor in lower]
    rows = []
    for part in range(3):
        if shared and part == 1:
            continue  # nobody needs the gradient of the pictures themselves
        theirs = {
            "cuDNN TF32": milliseconds(works(*tensors, padding, groups)[part]),
            "cuDNN bfloat16": milliseconds(works(*lower, padding, groups)[part]),
        }
        for kind, given in (
            (torch.float32, tensors),
            (torch.bfloat16, (near[0], lower[1], near[2])),
        ):
            with LaneKernels(kind):
                ours = milliseconds(works(*given, padding, groups)[part])
            peer = theirs["cuDNN TF32"] if kind == torch.float32 else min(theirs.values())
            row = {"layer": name, "part": PARTS[part], "type": str(kind), "ours": ours}
            rows.append({**row, **theirs, "ratio": peer / ours})
    return rows


def main() -> None:
    """Print a line for each operation, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lanes", type=int, default=80)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this compares kernels of a GPU, and there is none here")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    rows = [row for name in LAYERS for row in measure(name, given.lanes)]
    if given.format == "json":
        machine = torch.cuda.get_device_name()
        print(
            json.dumps({"machine": machine, "ratio": min(r["ratio"] for r in rows), "rows": rows})
        )
        return
    for row in rows:
        what = f"{row['layer']:16} {row['part']:16} {row['type']:16}"
        print(f"{what} ours {row['ours']:.3f} ms, {row['ratio']:.1f} times")


if __name__ == "__main__":
    main()

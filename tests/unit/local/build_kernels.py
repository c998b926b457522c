"""Build our kernels for two kinds of GPU, in both types; prints the types that could be built."""

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from urna.local import convolve
from urna.local.convolve import _add_slopes, _forward, _turn

CONSTANTS: dict[str, int | str] = {"CHANNELS": 32, "ACROSS": 3, "TERMS": 288, "PRECISION": "tf32"}
CONSTANTS |= {"PAD_ROWS": 1, "PAD_COLUMNS": 1}
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def build(kernel: Any, target: int, kind: str, **more: int) -> None:
    """Build one kernel as it is launched for one number of channels."""
    constants = {n: v for n, v in {**CONSTANTS, **more}.items() if n in kernel.arg_names}
    types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {n: f"*{kind}" for n in ("x", "weights", "grad", "out") if n in types}
    types |= {n: "*fp32" for n in ("parts",) if n in types}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    triton.compile(source, target=GPUTarget("cuda", target, 32), options={"num_stages": 3})


def main() -> None:
    """Build all kernels in both types."""
    for kind, type_ in TYPES.items():
        terms, tile = convolve._MOST_TERMS[type_], convolve._PIXELS_ADDED[type_]
        added, span = convolve._MOST_TERMS_ADDED, convolve._SPAN
        for target in (80, 90):
            for out in (16, 128):
                build(_forward, target, kind, TILE=convolve._PIXELS, OUT=out, BLOCK=terms)
                build(_add_slopes, target, kind, TILE=tile, OUT=out, BLOCK=added, SPAN=span)
            build(_turn, target, kind, SIZE=convolve._TURNED)
        print(kind)


if __name__ == "__main__":
    main()

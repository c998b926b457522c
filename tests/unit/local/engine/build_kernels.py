"""Build our kernels for two kinds of GPU; prints which kinds they could be built for."""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from urna.local.engine import convolve

CONSTANTS: dict[str, int | str] = {"CHANNELS": 32, "ACROSS": 3, "TERMS": 288, "PRECISION": "tf32"}
CONSTANTS |= {"PAD_ROWS": 1, "PAD_COLUMNS": 1}
TENSORS = ("x", "weights", "grad", "out", "parts")


def build(kernel: Any, target: int, **more: int) -> None:
    """Build one kernel as it is launched for one number of channels."""
    constants = {n: v for n, v in {**CONSTANTS, **more}.items() if n in kernel.arg_names}
    types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {n: "*fp32" for n in TENSORS if n in types}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    triton.compile(source, target=GPUTarget("cuda", target, 32), options={"num_stages": 3})


def main() -> None:
    """Build all kernels for both kinds."""
    terms, added = convolve._MOST_TERMS, convolve._MOST_TERMS_ADDED
    tile, span = convolve._PIXELS_ADDED, convolve._SPAN
    for target in (80, 90):
        for out in (16, 128):
            build(convolve._forward, target, TILE=convolve._PIXELS, OUT=out, BLOCK=terms)
            parts = convolve._weight_gradient_parts
            build(parts, target, TILE=tile, OUT=out, BLOCK=added, SPAN=span)
        build(convolve._transpose, target, SIZE=convolve._TRANSPOSED)
        print(target)


if __name__ == "__main__":
    main()

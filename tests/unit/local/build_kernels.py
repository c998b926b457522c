"""Build our kernels for two kinds of GPU, in both types; prints the types that could be built."""

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from urna.local.convolve import _add_slopes, _forward

CONSTANTS: dict[str, int | str] = {"CHANNELS": 32, "ACROSS": 3, "TERMS": 288, "PRECISION": "tf32"}
CONSTANTS |= {"PAD_ROWS": 1, "PAD_COLUMNS": 1, "BLOCK": 64, "OUT": 64}


def build(kernel: Any, target: int, kind: str, **more: int) -> None:
    """Build one kernel as it is launched for one number of channels."""
    constants = {**CONSTANTS, **more}
    types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {n: f"*{kind}" for n in ("x", "weights", "grad", "out") if n in types}
    types |= {n: "*fp32" for n in ("parts",) if n in types}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=types, constexprs=places)
    triton.compile(source, target=GPUTarget("cuda", target, 32), options={"num_stages": 3})


def main() -> None:
    """Build both kernels in both types."""
    for kind in ("bf16", "fp32"):
        for target in (80, 90):
            build(_forward, target, kind, TILE=128)
            build(_add_slopes, target, kind, TILE=64, SPAN=4096)
        print(kind)


if __name__ == "__main__":
    main()

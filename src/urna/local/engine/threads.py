"""Pieces of a stack, worked on by threads of our own on a CPU.

PyTorch's threads meet after every operation. A small layer's operation is over before they
have met, and on a busy machine each waits for one that is not running. Pieces of a stack need
nothing from each other, so here every thread takes a piece through a whole epoch with kernels
that run on that thread alone. The numbers then do not depend on how many threads there are;
only of a few large lanes, fewer than there are threads, does a kernel get several. This module
imports torch.
"""

import contextlib
import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar, cast

import torch

from urna.local.engine.gradients import Batched

__all__ = ["Threads", "cut", "deterministic_kernels", "rounds_to_tf32"]

PieceT = TypeVar("PieceT")
ResultT = TypeVar("ResultT")


class Threads:
    """Runs work on pieces; each thread has a copy of the module.

    Calling a module with other weights changes the module for as long as the call lasts, so
    two threads cannot share one.

    Args:
        batched: The module's batched gradient and validation.
        count: Pieces worked on at the same time; with 1, PyTorch's own threads work.
        spread: Whether kernels share the threads that no piece is left for.
        deterministic: Whether cuDNN may only take deterministic kernels.
    """

    def __init__(
        self,
        batched: Batched,
        count: int = 1,
        *,
        spread: bool = False,
        deterministic: bool = False,
    ) -> None:
        self.batched = batched
        self._count, self._spread, self._deterministic = count, spread, deterministic
        self._copies: list[Batched] = []
        _keep_memory()

    def run(
        self, pieces: Sequence[PieceT], work: Callable[[Batched, PieceT], ResultT]
    ) -> list[ResultT]:
        """Call `work` for every piece and return what it returned, in order."""
        busy = min(self._count, len(pieces))
        if self._count == 1:
            with deterministic_kernels(self._deterministic):
                return [work(self.batched, piece) for piece in pieces]
        with _kernel_threads(self._count // busy if self._spread else 1) as each:
            if busy == 1:
                return [work(self.batched, piece) for piece in pieces]
            while len(self._copies) < busy - 1:
                module = copy.deepcopy(self.batched.module)
                self._copies.append(replace(self.batched, module=module))
            found: list[ResultT | None] = [None] * len(pieces)
            waiting = iter(enumerate(pieces))

            def take_pieces(batched: Batched) -> None:
                torch.set_num_threads(each)  # a thread starts with its own number
                try:
                    for place, piece in waiting:
                        found[place] = work(batched, piece)
                finally:
                    deque(waiting, maxlen=0)  # after an error nobody need go on

            # This thread works too: starting others and waiting for them contends for the GIL.
            with ThreadPoolExecutor(busy - 1) as pool:
                others = [pool.submit(take_pieces, mine) for mine in self._copies[: busy - 1]]
                take_pieces(self.batched)
                for other in others:
                    other.result()
            return cast("list[ResultT]", found)

    def between_pieces(self) -> contextlib.AbstractContextManager[object]:
        """Return a context for what is done between pieces: small things, on one thread.

        PyTorch's own threads would go on waiting for more while ours begin.
        """
        return contextlib.nullcontext() if self._count == 1 else _kernel_threads(1)


def _keep_memory() -> None:
    """Let the C library keep what a step frees for the next one.

    It hands memory back as soon as twice the largest block it has seen freed lies idle at its
    end, and the kernel clears every page anew. That took a third of a small CNN's time. One
    block just below the largest that counts (32 MiB in glibc) raises the limit.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def rounds_to_tf32() -> bool:
    """Whether convolutions in float32 may round to TF32 on a GPU, as PyTorch does by default."""
    cudnn = torch.backends.cudnn
    if hasattr(cudnn, "conv"):  # the older switch raises once the newer one was used
        return bool(cudnn.conv.fp32_precision == "tf32")
    return bool(cudnn.allow_tf32)


@contextlib.contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """Let cuDNN take only deterministic kernels, and none picked by the clock, where wanted."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    if wanted:
        cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


@contextlib.contextmanager
def _kernel_threads(count: int) -> Iterator[int]:
    """Let each kernel run on this many threads, and put the setting back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield count
    finally:
        torch.set_num_threads(before)


def cut(total: int, most: int, least: int = 1) -> list[slice]:
    """Cut a stack of `total` rows into pieces of `most`; the last may be shorter.

    One shorter than `least` takes what it lacks from the one before, where that can spare it.

    Example:
        >>> cut(10, 4)
        [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
        >>> cut(7, 3, least=2)
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    edges = [*range(0, total, most), total]
    if len(edges) > 2 and most > least:
        edges[-2] = min(edges[-2], total - least)
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]

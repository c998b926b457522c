"""How many lanes run at once, and on which threads of our own on a CPU.

Lanes never mix, so the number decides time and memory and not the result, but for which
kernels run and how they round.

PyTorch's threads meet after every operation. A small layer's operation is over before they
have met, and on a busy machine each waits for one that is not running. So here every thread takes
a piece of the stack through a whole epoch with kernels that run on that thread alone. The numbers
then do not depend on how many threads there are; only of a few large lanes, fewer than there are
threads, does a kernel get several. This module imports torch.
"""

import contextlib
import copy
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from urna.local.engine.gradients import Batched, KeyedDropout

__all__ = [
    "Capacity",
    "Threads",
    "cut",
    "deterministic_kernels",
    "lane_bytes",
    "plan_capacity",
    "rounds_to_tf32",
    "rows_apart",
    "slots_of",
]

_CPU_CACHE = 12 * 2**20
"""What a chunk should keep for its backward pass on a CPU: more falls out of the cache."""
_LEAST_LANES, _LEAST_BYTES = 8, 4 * 2**20
"""What is worth a thread, whichever comes first: a step has a fixed cost as well."""
_SHARE = 0.5
"""Share of the free memory one search may plan with; others live here too."""
_BACKWARD = 3.0
"""Peak of a step over what the forward pass keeps: gradients of it, and working space."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many lanes run at once.

    Args:
        lanes: Most lanes of a client in a piece.
        fixed: Whether every piece has exactly `lanes` lanes, whatever a race leaves over.
        threads: Pieces that run at the same time.
        least: Fewest lanes worth a thread; 2 where a lane alone is much work.
    """

    lanes: int
    fixed: bool = False
    threads: int = 1
    least: int = 2

    def width(self, lanes: int) -> int:
        """Return how many lanes a piece holds when so many are left.

        At least two unless there is room for one only: PyTorch has other kernels for a
        single lane, which may round the last digit otherwise.

        Example:
            >>> capacity = Capacity(lanes=65, threads=2, least=8)
            >>> capacity.width(80), capacity.width(20), capacity.width(12)
            (40, 10, 12)
            >>> Capacity(lanes=10, fixed=True).width(24)
            10
        """
        if self.fixed or self.lanes == 1:
            return self.lanes
        pieces = -(-lanes // self.lanes)
        shared = -(-pieces // self.threads) * self.threads
        pieces = max(pieces, min(shared, lanes // self.least))
        return max(-(-lanes // pieces), 2)


def slots_of(activations: int, state: int, *, lanes: int, most: int) -> int:
    """Return how many slots a stack of clients has on a CPU.

    What is free just now plays no part: it depends on the other clients.

    Args:
        activations: Bytes one lane keeps for its backward pass.
        state: Bytes of one lane's weights and optimiser state.
        lanes: Lanes of one client.
        most: Most slots.

    Example:
        >>> slots_of(2**16, 2**18, lanes=1, most=16), slots_of(2**23, 2**20, lanes=1, most=16)
        (16, 1)
    """
    return max(min(_CPU_CACHE // (lanes * max(activations + state, 1)), most // lanes), 1)


def lane_bytes(module: nn.Module, inputs: Tensor, states: int) -> tuple[int, int]:
    """Return what one lane keeps for its backward pass, and the size of its whole state.

    Measured by one forward pass of the module itself, so that any architecture is counted.

    Args:
        module: A module on the CPU.
        inputs: One batch on the CPU.
        states: Copies of the weights a lane holds: weights, gradients, optimiser state.
    """
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    weights.add(inputs.untyped_storage().data_ptr())
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = _training_outputs(module, inputs)
        outputs.float().sum()
    activations = sum(size for place, size in kept.items() if place not in weights)
    activations += outputs.numel() * outputs.element_size()
    state = states * sum(p.numel() * p.element_size() for p in module.parameters())
    return activations, state


def rows_apart(module: nn.Module, inputs: Tensor) -> bool:
    """Tell whether a row's outputs depend on that row alone, dropout included.

    Then rows may be added to a batch and ignored in the loss. Two made-up rows are tried with
    and without a third: batch norm, say, gives itself away.

    Args:
        module: A module on the CPU.
        inputs: Says what a row looks like; its numbers are not used.
    """
    made = torch.Generator().manual_seed(0)
    rows = 0.1 + 0.8 * torch.rand((3, *inputs.shape[1:]), generator=made)
    with torch.no_grad():
        two, three = (_training_outputs(module, rows[:count]) for count in (2, 3))
    return torch.allclose(two, three[:2], rtol=1e-4, atol=1e-6)


def _training_outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a module on the CPU makes of a batch in training; it stays as it was."""
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    module.train()
    with KeyedDropout(torch.tensor(0)):
        outputs: Tensor = module(inputs)
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    return outputs


def plan_capacity(
    activations: int,
    state: int,
    *,
    lanes: int,
    device: str,
    threads: int = 1,
    free: int | None = None,
) -> Capacity:
    """Return how many lanes of a client run at once.

    Args:
        activations: Bytes one lane keeps for its backward pass.
        state: Bytes of one lane's weights and optimiser state.
        lanes: Lanes of the client.
        device: Where it runs.
        threads: Pieces that run at the same time on a CPU.
        free: Free bytes; read from the machine when None.

    Example:
        >>> plan_capacity(2**20, 2**20, lanes=100, device="cpu", free=2**34).lanes
        12
    """
    free = free_bytes(device) if free is None else free
    peak = int(activations * _BACKWARD) + 1
    fitting = max((int(free * _SHARE) - lanes * state) // peak, 1)
    if device.startswith("cuda"):
        return Capacity(min(lanes, fitting))
    fitting = max(fitting // threads, 1)
    at_once = min(max(_CPU_CACHE // max(activations, 1), 2), fitting)
    least = min(max(_LEAST_BYTES // max(activations, 1), 2), _LEAST_LANES)
    return Capacity(min(lanes, at_once), threads=threads, least=least)


def free_bytes(device: str) -> int:
    """Return the memory that is free on a device, the smaller of machine and container."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(torch.device(device))
        # What PyTorch keeps for itself but does not use is free for us as well.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached
    free = _available()
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return free


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux: half of what is built in
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


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
    """

    def __init__(self, batched: Batched, count: int = 1, *, spread: bool = False) -> None:
        self.batched = batched
        self._count, self._spread = count, spread
        self._copies: list[Batched] = []
        _keep_memory()

    def run(
        self, pieces: Sequence[PieceT], work: Callable[[Batched, PieceT], ResultT]
    ) -> list[ResultT]:
        """Call `work` for every piece and return what it returned, in order."""
        busy = min(self._count, len(pieces))
        if self._count == 1:
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

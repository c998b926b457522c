"""How many lanes run at once, from what one lane needs and what the machine has.

Lanes never mix, so the number decides time and memory and not the result, but for which
kernels run and how they round. This module imports torch.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from urna.local.engine.masks import KeyedDropout

__all__ = ["Capacity", "lane_bytes", "plan_capacity", "rows_apart", "slots_of"]

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

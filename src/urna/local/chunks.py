"""How many lanes run at once, from what one lane needs and what the machine has.

Lanes never mix, so the number decides time and memory and never a result. This module
imports torch.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from urna.local.masks import KeyedDropout

__all__ = ["Room", "lane_bytes", "plan_room"]

_CPU_CACHE = 12 * 2**20
"""What a chunk should keep for its backward pass on a CPU: more falls out of the cache."""
_GPU_ENOUGH = 3 * 2**30
"""What keeps a GPU busy: stacking more clients beyond this only takes memory."""
_SHARE = 0.5
"""Share of the free memory one search may plan with; others live here too."""
_BACKWARD = 3.0
"""Peak of a step over what the forward pass keeps: gradients of it, and working space."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many lanes and clients run at once."""

    lanes: int
    clients: int


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
    module.train()
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        with KeyedDropout(torch.tensor(0)):
            outputs = module(inputs)
        outputs.float().sum()
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    activations = sum(size for place, size in kept.items() if place not in weights)
    activations += outputs.numel() * outputs.element_size()
    state = states * sum(p.numel() * p.element_size() for p in module.parameters())
    return activations, state


def plan_room(
    activations: int,
    state: int,
    *,
    lanes: int,
    clients: int,
    device: str,
    running: int | None = None,
    free: int | None = None,
) -> Room:
    """Return how many lanes of one client, and how many clients, run at once.

    Args:
        activations: Bytes one lane keeps for its backward pass.
        state: Bytes of one lane's weights and optimiser state.
        lanes: Lanes of one client.
        clients: Equally large clients that could be stacked.
        device: Where it runs.
        running: Lanes of one client that mostly run, where a race stops the others.
        free: Free bytes; read from the machine when None.

    Example:
        >>> plan_room(2**20, 2**20, lanes=100, clients=1, device="cpu", free=2**34).lanes
        12
    """
    free = free_bytes(device) if free is None else free
    budget = int(free * _SHARE)
    peak = int(activations * _BACKWARD) + 1
    fitting = max((budget - lanes * state) // peak, 1)
    if not device.startswith("cuda"):
        at_once = min(max(_CPU_CACHE // max(activations, 1), 1), fitting)
        # Few lanes leave a step's fixed cost to be shared with other clients.
        stacked = max(min(at_once // (running or lanes), clients), 1)
        return Room(lanes=min(lanes, at_once), clients=stacked)
    whole_client = lanes * (peak + state)
    if whole_client > budget or clients == 1:
        return Room(lanes=min(lanes, fitting), clients=1)
    stacked = min(clients, budget // whole_client, _GPU_ENOUGH // whole_client)
    return Room(lanes=lanes, clients=max(stacked, 1))


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

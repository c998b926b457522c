"""The data of one or several equally large clients, ready on the device.

This module imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from urna.data import Samples
from urna.local.batches import epoch_batches, step_key
from urna.local.holdout import Holdout, hold_out
from urna.local.stack import send, upload
from urna.local.torch_sgd import as_tensors

__all__ = ["Block", "Epoch", "blocks_of", "plan_epoch", "stack_clients", "stack_rows", "take_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Clients whose training and validation parts have equally many rows."""

    inputs: Tensor
    """Training features, shape (clients, rows, ...)."""
    targets: Tensor
    validation_inputs: Tensor
    validation_targets: Tensor
    seeds: tuple[int, ...]
    """Each client's public seed."""

    @property
    def clients(self) -> int:
        """How many clients are in the block."""
        return len(self.seeds)

    @property
    def rows(self) -> int:
        """Training rows of each client."""
        return self.targets.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """Where one epoch's batches begin and end, and what they hold."""

    rows: Tensor
    """Rows to visit in order, shape (clients, rows visited)."""
    keys: Tensor
    """Keys of the dropout masks, shape (steps, clients)."""
    sizes: tuple[int, ...]
    """Rows of each step's batch."""


def stack_clients(parts: Sequence[Holdout], seeds: Sequence[int], device: str) -> Block:
    """Bring equally large clients to the device."""
    train = _stacked([p.train for p in parts], device)
    return Block(*train, *_stacked([p.validation for p in parts], device), tuple(seeds))


def stack_rows(clients: Sequence[Samples], seeds: Sequence[int], device: str) -> Block:
    """Bring equally large clients to the device with nothing held out."""
    inputs, targets = _stacked(clients, device)
    return Block(inputs, targets, inputs[:, :0], targets[:, :0], tuple(seeds))


def _stacked(samples: Sequence[Samples], device: str) -> tuple[Tensor, Tensor]:
    """Stack on the host: one transfer instead of one for every client."""
    pairs = [as_tensors(part, "cpu") for part in samples]
    inputs, targets = torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
    return send(inputs, device), send(targets, device)


def plan_epoch(block: Block, batch_size: int, epoch: int) -> Epoch:
    """Return an epoch's batches for every client of a block, on the block's device."""
    batches = [epoch_batches(block.rows, batch_size, seed=s, epoch=epoch) for s in block.seeds]
    sizes = tuple(len(rows) for rows in batches[0])
    first = epoch * len(sizes)  # steps taken before: every epoch has equally many
    keys = [[step_key(s, first + step) for s in block.seeds] for step in range(len(sizes))]
    device = str(block.targets.device)
    return Epoch(
        upload(np.stack([np.concatenate(b) for b in batches]), device),
        upload(np.array(keys, dtype=np.int64), device),
        sizes,
    )


def take_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return each client's rows, shape (clients, rows, ...)."""
    if len(tensor) == 1:
        return tensor[0].index_select(0, rows[0]).unsqueeze(0)
    client = torch.arange(len(tensor), device=tensor.device).unsqueeze(1)
    return tensor[client, rows]


def blocks_of(
    clients: Sequence[Samples], seeds: Sequence[int], *, fraction: float, most: int
) -> list[tuple[list[int], list[Holdout]]]:
    """Split every client's data and group equally large clients, at most `most` together.

    Returns:
        For each block, the clients' places and their split data.
    """
    split = [hold_out(c, fraction=fraction, seed=s) for c, s in zip(clients, seeds, strict=True)]
    by_size: dict[tuple[int, int], list[int]] = {}
    for place, part in enumerate(split):
        by_size.setdefault((len(part.train), len(part.validation)), []).append(place)
    return [
        (places[start : start + most], [split[p] for p in places[start : start + most]])
        for places in by_size.values()
        for start in range(0, len(places), most)
    ]

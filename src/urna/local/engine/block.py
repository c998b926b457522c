"""The data of one or several clients that are trained together, ready on the device.

This module imports torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from urna.data import Samples
from urna.local.engine.batches import epoch_batches, step_key
from urna.local.engine.loss import as_tensors
from urna.local.engine.stack import send, upload
from urna.local.holdout import Holdout

__all__ = ["Block", "Epoch", "pad_clients", "plan_epoch", "searched_client", "take_rows"]

IGNORED = -100
"""The target of a row that pads a batch: PyTorch's cross entropy leaves such rows out."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Clients that take equally many steps in an epoch."""

    inputs: Tensor
    """Training features, shape (clients, rows, ...)."""
    targets: Tensor
    seeds: tuple[int, ...]
    """Each client's public seed."""
    sizes: tuple[int, ...]
    """Each client's training rows; more rows than these are padding."""
    batch: int | None = None
    """Rows of every batch, where smaller ones are padded; None for as many as there are."""
    validation: tuple[Tensor, Tensor] | None = None
    """Features and targets that candidates are judged by."""

    @property
    def clients(self) -> int:
        """How many clients are in the block."""
        return len(self.seeds)

    @property
    def rows(self) -> int:
        """Training rows of each client, padding included."""
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


def searched_client(part: Holdout, seed: int, device: str) -> Block:
    """Bring one client to the device, with the rows that candidates are judged by."""
    train = _stacked([as_tensors(part.train)], device)
    held = _stacked([as_tensors(part.validation)], device)
    return Block(*train, (seed,), (train[1].shape[1],), validation=held)


def pad_clients(
    clients: Sequence[Samples],
    seeds: Sequence[int],
    device: str,
    *,
    rows: int | None = None,
    batch: int | None = None,
) -> Block:
    """Bring clients to the device with nothing held out, smaller ones padded.

    A row that pads repeats the client's own first row, and its target says to ignore it.

    Args:
        clients: Each client's rows.
        seeds: Each client's public seed.
        device: Where they go.
        rows: How many rows every client is padded to; by default those of the largest.
        batch: How many rows every batch is padded to; by default those of the largest client's.
    """
    sizes = tuple(len(client) for client in clients)

    def padded(client: Samples) -> tuple[Tensor, Tensor]:
        inputs, targets = as_tensors(client)
        missing = (rows or max(sizes)) - len(client)
        if missing:
            inputs = torch.cat([inputs, inputs[:1].expand(missing, *inputs.shape[1:])])
            targets = torch.cat([targets, targets.new_full((missing,), IGNORED)])
        return inputs, targets

    return Block(*_stacked(map(padded, clients), device), tuple(seeds), sizes, batch)


def _stacked(pairs: Iterable[tuple[Tensor, Tensor]], device: str) -> tuple[Tensor, Tensor]:
    """Stack on the host: one transfer instead of one for every client."""
    inputs, targets = zip(*pairs, strict=True)
    return send(torch.stack(inputs), device), send(torch.stack(targets), device)


def plan_epoch(block: Block, batch_size: int, epoch: int) -> Epoch:
    """Return an epoch's batches for every client of a block, on the block's device."""
    batches = [
        epoch_batches(size, batch_size, seed=seed, epoch=epoch)
        for size, seed in zip(block.sizes, block.seeds, strict=True)
    ]
    sizes = tuple(block.batch or max(map(len, step)) for step in zip(*batches, strict=True))
    rows = np.full((block.clients, sum(sizes)), block.rows - 1)  # where clients differ, padding
    for client, chosen in enumerate(batches):
        visited = np.concatenate(chosen)
        rows[client, : len(visited)] = visited
    first = epoch * len(sizes)  # steps taken before: every epoch has equally many
    keys = [[step_key(s, first + step) for s in block.seeds] for step in range(len(sizes))]
    device = str(block.targets.device)
    return Epoch(upload(rows, device), upload(np.array(keys, dtype=np.int64), device), sizes)


def take_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return each client's rows, shape (clients, rows, ...)."""
    if len(tensor) == 1:
        return tensor[0].index_select(0, rows[0]).unsqueeze(0)
    client = torch.arange(len(tensor), device=tensor.device).unsqueeze(1)
    return tensor[client, rows]

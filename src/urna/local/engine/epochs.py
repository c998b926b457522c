"""The data of clients on the device, and one epoch of training on them, step by step.

The eager trainer works on every device. On a GPU the same steps are recorded once and
replayed (`urna.local.engine.graphs`). This module imports torch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from urna.data import Samples
from urna.local.engine.batches import epoch_batches, step_key
from urna.local.engine.gradients import Batched
from urna.local.engine.model import as_tensors
from urna.local.engine.pieces import Threads, cut
from urna.local.engine.stack import Features, LaneSettings, Stack, advance, send, upload
from urna.local.holdout import Holdout

__all__ = [
    "Block",
    "EagerTrainer",
    "Epoch",
    "EpochTrainer",
    "Step",
    "batches_of",
    "eager_step",
    "evaluate",
    "pad_clients",
    "plan_epoch",
    "searched_client",
    "take_rows",
]

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


Step = Callable[[Batched, Stack, LaneSettings, Features, Tensor, Tensor, Tensor], None]
"""Takes one step in every lane, in place, on inputs, targets and a key of the masks."""


class EpochTrainer(Protocol):
    """Moves a stack through one epoch."""

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch and return the stack; the old one is spent.

        Args:
            stack: The lanes in pieces of `width` lanes of every client, client by client.
            settings: Of every lane, in the stack's order.
            block: The clients' data.
            epoch: What each step visits.
            width: Lanes of one client that run at once.
        """
        ...


def eager_step(
    batched: Batched,
    stack: Stack,
    settings: LaneSettings,
    features: Features,
    inputs: Tensor,
    targets: Tensor,
    key: Tensor,
) -> None:
    """Take one step in every lane, in place. Nothing here waits for the device."""
    found, buffers = batched.gradients(
        stack.parameters, stack.buffers, inputs, targets, key, settings.label_smoothing
    )
    with torch.no_grad():
        for name, tensor in buffers.items():
            stack.buffers[name].copy_(tensor)
        advance(stack, found, settings, features)


def batches_of(block: Block, epoch: Epoch) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, targets and the masks' key of every step."""
    start = 0
    for size, key in zip(epoch.sizes, epoch.keys, strict=True):
        rows = epoch.rows[:, start : start + size]
        start += size
        yield take_rows(block.inputs, rows), take_rows(block.targets, rows), key


class EagerTrainer:
    """Runs one step after the other, piece by piece.

    Args:
        threads: The module's batched gradient, and who runs it.
        features: What the group's recipes ask of the optimiser.
        step: Takes a step.
    """

    def __init__(self, threads: Threads, features: Features, step: Step = eager_step) -> None:
        self._threads, self._features, self.step = threads, features, step

    def epoch(
        self, stack: Stack, settings: LaneSettings, block: Block, epoch: Epoch, width: int
    ) -> Stack:
        """Train every lane for one epoch, in place."""
        batches = list(batches_of(block, epoch))

        def train(batched: Batched, piece: slice) -> Stack:
            part, part_settings = stack.view(piece), settings.view(piece)
            part.steps = stack.steps.clone()  # every piece counts its own
            for batch in batches:
                self.step(batched, part, part_settings, self._features, *batch)
            return part

        pieces = _pieces(len(stack), block.clients, width)
        parts = self._threads.run(pieces, train)
        stack.steps.copy_(parts[0].steps)
        return stack


def evaluate(
    threads: Threads, stack: Stack, inputs: Tensor, targets: Tensor, *, width: int, rows: int
) -> Tensor:
    """Return every lane's mean loss and share of right answers, shape (2, lanes).

    The stack lies in pieces of `width`, as in `EpochTrainer.epoch`; `rows` rows are judged
    at a time.
    """
    clients, total = targets.shape[:2]

    def judge(batched: Batched, piece: slice) -> Tensor:
        part = stack.view(piece)
        sums: list[Tensor] = []
        for start in range(0, total, rows):
            x, y = inputs[:, start : start + rows], targets[:, start : start + rows]
            pair = torch.stack(batched.validation(part.parameters, part.buffers, x, y))
            sums.append(pair.double() * (y.shape[1] / total))
        return torch.stack(sums).sum(0)

    return torch.cat(threads.run(_pieces(len(stack), clients, width), judge), dim=1)


def _pieces(lanes: int, clients: int, width: int) -> list[slice]:
    """Cut a stack; a single lane, for which PyTorch has other kernels, gets company if it can."""
    return cut(lanes, clients * width, least=2 if clients == 1 else 1)

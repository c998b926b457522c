"""Training that starts from given weights and gives back the trained ones.

Guarantee:
    What `slotted` deals out is trained as each client would be alone, to the last bit, whatever
    the other clients hold and however many they are. A run has one number of slots whoever is in
    it, every client is padded to a shape that follows from its own number of rows, and its slot
    follows from its seed. So its numbers lie at the same place in tensors of the same shape, and
    the same kernels compute with them. No operation mixes what is in different slots.

Assumes:
    A kernel's arithmetic follows from shapes, from where tensors begin, and from its number of
    threads: true of PyTorch's kernels on a CPU, and not relied on for a GPU.

This module imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from urna.data import Samples
from urna.local.engine.epochs import EpochTrainer, pad_clients, plan_epoch
from urna.local.engine.model import Weights
from urna.local.engine.stack import Features, SettingsTable, fresh_state, upload
from urna.local.recipe import Recipe

__all__ = ["SLOTS", "GroupTraining", "Piece", "repeated", "slotted"]

SLOTS = 16
"""Most slots of a run. With more a small network's client took a CPU no less time, and an empty
slot is work all the same."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Clients that train in one stack, and which lanes of each."""

    places: tuple[int, ...]
    """The places of the clients."""
    slots: tuple[int, ...]
    """Their slots."""
    width: int
    """How many slots there are."""
    lanes: slice
    rows: int | None = None
    """To how many rows every client is padded; None for none."""

    @property
    def stack(self) -> list[int]:
        """Who is in the stack, slot by slot; an empty slot repeats the first client."""
        dealt = dict(zip(self.slots, self.places, strict=True))
        return [dealt.get(slot, self.places[0]) for slot in range(self.width)]

    def kept(self, weights: Weights) -> Weights:
        """Return the clients' weights, without those of empty slots."""

        def clients(tensor: Tensor) -> Tensor:
            by_slot = tensor.view(self.width, -1, *tensor.shape[1:])
            return by_slot[list(self.slots)].flatten(0, 1)

        return weights.each(clients if self.width > 1 else Tensor.clone)


@dataclass(frozen=True, slots=True, eq=False)
class GroupTraining:
    """What is trained: the same weights on every client, one lane for each recipe.

    Args:
        recipes: Of one batch size, optimiser and length.
        weights: Where every client starts, on the device.
        clients: Each client's rows.
        seeds: Each client's seed of batches and masks.
        first_epoch: The number of the first epoch.
        features: What the recipes ask of the optimiser.
        device: Where it runs.
    """

    recipes: Sequence[Recipe]
    weights: Weights
    clients: Sequence[Samples]
    seeds: Sequence[int]
    first_epoch: int
    features: Features
    device: str

    def run(self, piece: Piece, trainer: EpochTrainer) -> Weights:
        """Train some clients' lanes with a fresh optimiser and return their weights."""
        places, lanes, batch_size = piece.stack, piece.lanes, self.recipes[0].batch_size
        block = pad_clients(
            [self.clients[p] for p in places],
            [self.seeds[p] for p in places],
            self.device,
            rows=piece.rows,
            batch=None if piece.rows is None else batch_size,
        )
        start = repeated(self.weights.each(lambda tensor: tensor[lanes]), len(places))
        stack = fresh_state(start.parameters, start.buffers, self.features)
        table = SettingsTable(self.recipes[lanes], self.device)
        width = lanes.stop - lanes.start
        members = upload(np.tile(np.arange(width), len(places)), self.device)
        for epoch in range(self.recipes[0].epochs):
            plan = plan_epoch(block, batch_size, self.first_epoch + epoch)
            stack = trainer.epoch(stack, table.at(members, epoch), block, plan, width)
        # Copies: a recording's places are written again by the next piece.
        return piece.kept(Weights(stack.parameters, stack.buffers))


def slotted(
    places: Sequence[int],
    seeds: Sequence[int],
    width: int,
    lanes: Sequence[slice],
    rows: int | None = None,
) -> list[Piece]:
    """Deal clients of one shape out to stacks, each to the slot that its own seed names.

    Args:
        places: The clients.
        seeds: The seeds of all clients, by place.
        width: How many slots a stack has.
        lanes: How each client's lanes are cut.
        rows: To how many rows every client is padded.

    Example:
        >>> dealt = slotted([3, 4, 5], [0, 0, 0, 7, 8, 11], width=4, lanes=[slice(0, 1)])
        >>> [piece.stack for piece in dealt]
        [[4, 3, 3, 3], [5, 5, 5, 5]]
    """
    runs: list[dict[int, int]] = []
    for place in places:
        slot = seeds[place] % width
        if all(slot in run for run in runs):
            runs.append({})
        next(run for run in runs if slot not in run)[slot] = place
    return [
        Piece(tuple(run.values()), tuple(run), width, part, rows) for run in runs for part in lanes
    ]


def repeated(weights: Weights, clients: int) -> Weights:
    """Return all lanes for every client, client by client."""
    return weights.each(lambda tensor: tensor.repeat(clients, *[1] * (tensor.dim() - 1)))

"""Training that starts from given weights and gives back the trained ones.

This module imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from urna.data import Samples
from urna.local.engine import Weights
from urna.local.engine.block import alike, pad_clients, plan_epoch
from urna.local.engine.capacity import Capacity
from urna.local.engine.epochs import Trainer
from urna.local.engine.stack import Features, SettingsTable, fresh_state, upload
from urna.local.engine.threads import cut
from urna.local.recipe import Recipe

__all__ = ["GroupTraining", "Piece", "blocks_of", "cut_blocks", "repeated"]

Piece = tuple[list[int], slice]
"""The places of clients that train in one stack, and which lanes of each."""


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

    def run(self, piece: Piece, trainer: Trainer) -> Weights:
        """Train some clients' lanes with a fresh optimiser and return their weights."""
        places, lanes = piece
        block = pad_clients(
            [self.clients[p] for p in places], [self.seeds[p] for p in places], self.device
        )
        start = repeated(self.weights.each(lambda tensor: tensor[lanes]), len(places))
        stack = fresh_state(start.parameters, start.buffers, self.features)
        table = SettingsTable(self.recipes[lanes], self.device)
        width = lanes.stop - lanes.start
        members = upload(np.tile(np.arange(width), len(places)), self.device)
        for epoch in range(self.recipes[0].epochs):
            plan = plan_epoch(block, self.recipes[0].batch_size, self.first_epoch + epoch)
            stack = trainer.epoch(stack, table.at(members, epoch), block, plan, width)
        # A recording's places are written again by the next piece.
        return Weights(stack.parameters, stack.buffers).each(lambda tensor: tensor.clone())


def blocks_of(clients: Sequence[Samples], steps: Sequence[int], *, pads: bool) -> list[list[int]]:
    """Return the places of clients that may train in one stack, the largest clients first.

    Args:
        clients: The clients' rows.
        steps: How many batches each has in an epoch; one without any is left out.
        pads: Whether smaller clients may be padded, so that equally many steps are enough.
    """
    busy = [place for place, count in enumerate(steps) if count]
    kinds = [
        (steps[p] if pads else len(clients[p]), *np.shape(clients[p].features)[1:]) for p in busy
    ]
    blocks = [[busy[i] for i in places] for places in alike(kinds)]
    # What is recorded for the largest serves all others.
    return sorted(blocks, key=lambda places: -max(len(clients[p]) for p in places))


def cut_blocks(blocks: Sequence[list[int]], lanes: int, capacity: Capacity) -> list[Piece]:
    """Cut blocks into what is trained at once: several clients, or a part of one client's lanes.

    On a CPU every thread takes a piece of its own through all epochs.
    """
    most = max(-(-capacity.clients // capacity.threads), 1)
    pieces = []
    for block in blocks:
        each = min(most, -(-len(block) // capacity.threads))
        parts = [slice(0, lanes)] if each > 1 else cut(lanes, capacity.width(lanes), least=2)
        for start in range(0, len(block), each):
            pieces += [(block[start : start + each], part) for part in parts]
    return pieces


def repeated(weights: Weights, clients: int) -> Weights:
    """Return all lanes for every client, client by client."""
    return weights.each(lambda tensor: tensor.repeat(clients, *[1] * (tensor.dim() - 1)))

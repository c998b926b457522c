"""A whole local search for one group of candidates: epochs, sharing, stopping, losses.

This module imports torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from urna.local.engine.block import Block, plan_epoch
from urna.local.engine.capacity import Capacity
from urna.local.engine.epochs import EpochTrainer, evaluate
from urna.local.engine.lanes import LaneGroup, Sharing, lineages, share_numbers
from urna.local.engine.stack import SettingsTable, Stack, upload
from urna.local.engine.threads import Threads
from urna.local.racing import Race

__all__ = ["GroupSearch"]

Places = npt.NDArray[np.intp]

Tick = Callable[[float], None]
"""Called after each epoch with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Where lanes lie in a stack: in pieces of `width` lanes of every client, client by client.

    So a piece is one contiguous slice, and holds all clients that run together.
    """

    clients: int
    width: int

    def row(self, client: Places, lane: Places) -> Places:
        """Return the rows of some clients' lanes."""
        piece, within = np.divmod(lane, self.width)
        return (piece * self.clients + client) * self.width + within

    def arrange(self, table: Places) -> Places:
        """Return a table of shape (clients, lanes) in the order of the stack."""
        pieces = table.reshape(self.clients, -1, self.width)
        return np.ascontiguousarray(pieces.transpose(1, 0, 2)).ravel()

    def by_client(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers in the order of the stack as a table of shape (clients, lanes)."""
        pieces = rows.reshape(-1, self.clients, self.width)
        return pieces.transpose(1, 0, 2).reshape(self.clients, -1)


@dataclass(slots=True)
class GroupSearch:
    """A search of one group on one block of clients, and where its scores gather.

    Args:
        group: The candidates.
        block: One client, or several equally large ones, with rows to judge by.
        threads: The module's batched validation, and who runs it.
        trainer: What moves a stack through an epoch.
        capacity: How many lanes run at once.
        race: Which candidates may stop early; None trains all of them to the end.
        shared: Whether candidates that have agreed so far share a lane.
    """

    group: LaneGroup
    block: Block
    threads: Threads
    trainer: EpochTrainer
    capacity: Capacity
    race: Race | None = None
    shared: bool = True
    _alive: list[list[int]] = field(init=False)
    """For each client, the members of the group still trained."""
    _pending: list[tuple[Places, Places, Places, Tensor]] = field(init=False)
    """Final scores, still on the device: of which clients and members, in which lanes."""

    def __post_init__(self) -> None:
        self._alive = [list(range(len(self.group))) for _ in range(self.block.clients)]
        self._pending = []

    def run(self, stack: Stack, tick: Tick) -> None:
        """Train all candidates; on a GPU this may return before the training is over.

        Args:
            stack: The clients' first weights, one lane each; they are spent.
            tick: Called after each epoch.
        """
        group, block = self.group, self.block
        device = str(block.targets.device)
        numbers = lineages(group.recipes)
        if not self.shared:
            numbers = np.tile(np.arange(len(group))[:, None], (1, group.epochs))
        rates = np.array([recipe.learning_rates() for recipe in group.recipes])
        table = SettingsTable(group.recipes, device)
        has_buffers = bool(stack.buffers)
        layout, lane_of = (
            LaneLayout(block.clients, 1),
            np.zeros((block.clients, len(group)), np.intp),
        )
        who = np.arange(block.clients)[:, None]
        for epoch in range(group.epochs):
            sharings = _share(numbers[:, epoch], self._alive)
            lanes = self._lanes(sharings, epoch)
            if lanes == 0:
                break
            width = self.capacity.width(lanes)
            leaders = np.array([_padded(s.leaders, -(-lanes // width) * width) for s in sharings])
            parents = layout.row(who, np.take_along_axis(lane_of, leaders, axis=1))
            layout = LaneLayout(block.clients, width)
            parents = layout.arrange(parents)
            if not np.array_equal(parents, np.arange(len(stack))):
                stack = stack.select(upload(parents, device))
            settings = table.at(upload(layout.arrange(leaders), device), epoch)
            plan = plan_epoch(block, group.batch_size, epoch)
            stack = self.trainer.epoch(stack, settings, block, plan, width)
            lane_of = np.stack([np.maximum(s.lane_of, 0) for s in sharings])
            last = epoch == group.epochs - 1
            # A learning rate of zero moves no weight: without buffers that run is over.
            moves = np.array(not last) if has_buffers else rates[:, epoch + 1 :].any(axis=1)
            over = np.broadcast_to(~moves, len(group))
            self._after_epoch(epoch, over, sharings, stack, layout)
            tick((epoch + 1) / group.epochs)

    def scores(self) -> npt.NDArray[np.float64]:
        """Fetch all scores from the device at once.

        Returns:
            Losses and shares of right answers, shape (clients, members, 2). A loss is infinite
            and a share NaN where training did not come to its end, or diverged.
        """
        shape = (self.block.clients, len(self.group))
        losses, accuracies = np.full(shape, np.inf), np.full(shape, np.nan)
        for who, what, lanes, values in self._pending:
            found = values.double().cpu().numpy()
            losses[who, what], accuracies[who, what] = found[0][lanes], found[1][lanes]
        losses[np.isnan(losses)] = np.inf
        return np.stack([losses, accuracies], axis=-1)

    def _lanes(self, sharings: Sequence[Sharing], epoch: int) -> int:
        """Return how many lanes every client gets in an epoch."""
        lanes = max(len(s.leaders) for s in sharings)
        on_cpu = self.block.targets.device.type == "cpu"
        # Before the first epoch nobody has been stopped.
        if self.race is None or epoch == 0 or on_cpu or self.capacity.fixed:
            return lanes
        return _round_up(lanes)

    def _after_epoch(
        self,
        epoch: int,
        over: npt.NDArray[np.bool_],
        sharings: Sequence[Sharing],
        stack: Stack,
        layout: LaneLayout,
    ) -> None:
        """Judge members whose training is over, and ask the race who else stops."""
        done = [[m for m in alive if over[m]] for alive in self._alive]
        race = self.race
        undecided = race is not None and any(
            len(alive) - len(gone) > race.finalists
            for alive, gone in zip(self._alive, done, strict=True)
        )
        if any(done) or undecided:
            values = self._validate(stack, layout.width)
            if race is not None and undecided:
                self._drop_losers(race, sharings, values[0], layout, done, epoch)
            self._settle(done, sharings, values, layout)

    def _validate(self, stack: Stack, width: int) -> Tensor:
        """Return every lane's loss and share of right answers, shape (2, lanes)."""
        if self.block.validation is None:
            raise ValueError("a search needs rows to judge by")
        rows = 2 * self.group.batch_size
        return evaluate(self.threads, stack, *self.block.validation, width=width, rows=rows)

    def _settle(
        self,
        members: Sequence[Sequence[int]],
        sharings: Sequence[Sharing],
        values: Tensor,
        layout: LaneLayout,
    ) -> None:
        """Note final values, still on the device, and train these members no further."""
        who = np.repeat(np.arange(len(members)), [len(chosen) for chosen in members])
        what = np.concatenate([np.array(chosen, dtype=np.intp) for chosen in members])
        lane_of = np.stack([sharing.lane_of for sharing in sharings])
        self._pending.append((who, what, layout.row(who, lane_of[who, what]), values))
        for client, chosen in enumerate(members):
            gone = set(chosen)
            self._alive[client] = [m for m in self._alive[client] if m not in gone]

    def _drop_losers(
        self,
        race: Race,
        sharings: Sequence[Sharing],
        values: Tensor,
        layout: LaneLayout,
        done: Sequence[Sequence[int]],
        epoch: int,
    ) -> None:
        """Ask the race who goes on; the others keep an infinite loss."""
        host = layout.by_client(values.double().cpu().numpy())
        for client, sharing in enumerate(sharings):
            alive = self._alive[client]
            losses = np.full(len(self.group), np.inf)
            losses[alive] = host[client, sharing.lane_of[alive]]
            finished = set(done[client])
            racing = [m for m in alive if m not in finished]
            kept = finished.union(race.survivors(losses=losses, racing=racing, epoch=epoch))
            self._alive[client] = [m for m in alive if m in kept]


def _share(numbers: Places, alive: Sequence[Sequence[int]]) -> list[Sharing]:
    """Assign every client's lanes; clients that still train the same members agree."""
    found: dict[tuple[int, ...], Sharing] = {}
    for members in map(tuple, alive):
        if members not in found:
            found[members] = share_numbers(numbers, members)
    return [found[tuple(members)] for members in alive]


def _round_up(lanes: int) -> int:
    """Return the next of at most four sizes per doubling: few sizes, so few recordings.

    Example:
        >>> [_round_up(lanes) for lanes in (5, 9, 24, 33)]
        [5, 10, 24, 40]
    """
    grain = max((1 << (lanes - 1).bit_length()) // 8, 1)
    return -(-lanes // grain) * grain


def _padded(leaders: Sequence[int], lanes: int) -> list[int]:
    """Fill up to `lanes` with copies of the last: clients stack only with equally many."""
    filler = leaders[-1] if leaders else 0
    return [*leaders, *[filler] * (lanes - len(leaders))]

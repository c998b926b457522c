"""A whole local search for one group of candidates: epochs, sharing, stopping, losses.

This module imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from urna.local.engine.epochs import Block, EpochTrainer, evaluate, plan_epoch
from urna.local.engine.model import Tick
from urna.local.engine.pieces import Capacity, Threads
from urna.local.engine.stack import SettingsTable, Stack, upload
from urna.local.recipe import LaneGroup, Sharing, SuccessiveHalving, share_lanes

__all__ = ["GroupSearch"]

Places = npt.NDArray[np.intp]


@dataclass(slots=True)
class GroupSearch:
    """A search of one group on one client, and where its scores gather.

    Args:
        group: The candidates.
        block: One client, with rows to judge by.
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
    race: SuccessiveHalving | None = None
    shared: bool = True
    _alive: list[int] = field(init=False)
    """The members of the group still trained."""
    _pending: list[tuple[Sequence[int], Places, Tensor]] = field(init=False)
    """Final scores, still on the device: of which members, in which lanes."""

    def __post_init__(self) -> None:
        self._alive = list(range(len(self.group)))
        self._pending = []

    def run(self, stack: Stack, tick: Tick) -> None:
        """Train all candidates; on a GPU this may return before the training is over.

        Args:
            stack: The client's first weights, as one lane; they are spent.
            tick: Called after each epoch.
        """
        group, block = self.group, self.block
        device = str(block.targets.device)
        rates = np.array([recipe.learning_rates() for recipe in group.recipes])
        table = SettingsTable(group.recipes, device)
        has_buffers = bool(stack.buffers)
        lane_of = np.zeros(len(group), np.intp)
        for epoch in range(group.epochs):
            sharing = share_lanes(group.recipes, self._alive, epoch, shared=self.shared)
            lanes = self._lanes(len(sharing.leaders), epoch)
            if lanes == 0:
                break
            width = self.capacity.width(lanes)
            # Filled up with copies of the last.
            filler = -(-lanes // width) * width - len(sharing.leaders)
            leaders = np.array([*sharing.leaders, *[sharing.leaders[-1]] * filler])
            parents = lane_of[leaders]
            if not np.array_equal(parents, np.arange(len(stack))):
                stack = stack.select(upload(parents, device))
            settings = table.at(upload(leaders, device), epoch)
            plan = plan_epoch(block, group.batch_size, epoch)
            stack = self.trainer.epoch(stack, settings, block, plan, width)
            lane_of = np.maximum(sharing.lane_of, 0)
            last = epoch == group.epochs - 1
            # A learning rate of zero moves no weight: without buffers that run is over.
            moves = np.array(not last) if has_buffers else rates[:, epoch + 1 :].any(axis=1)
            over = np.broadcast_to(~moves, len(group))
            self._after_epoch(epoch, over, sharing, stack, width)
            tick((epoch + 1) / group.epochs)

    def scores(self) -> npt.NDArray[np.float64]:
        """Fetch all scores from the device at once.

        Returns:
            Losses and shares of right answers, shape (members, 2). A loss is infinite and a share
            NaN where training did not come to its end, or diverged.
        """
        losses, accuracies = np.full(len(self.group), np.inf), np.full(len(self.group), np.nan)
        for members, lanes, values in self._pending:
            found = values.double().cpu().numpy()
            losses[members], accuracies[members] = found[0][lanes], found[1][lanes]
        losses[np.isnan(losses)] = np.inf
        return np.stack([losses, accuracies], axis=-1)

    def _lanes(self, lanes: int, epoch: int) -> int:
        """Return how many lanes there are in an epoch: few sizes, where steps are recorded."""
        on_cpu = self.block.targets.device.type == "cpu"
        # Before the first epoch nobody has been stopped.
        if self.race is None or epoch == 0 or on_cpu or self.capacity.fixed or not lanes:
            return lanes
        return _round_up(lanes)

    def _after_epoch(
        self,
        epoch: int,
        over: npt.NDArray[np.bool_],
        sharing: Sharing,
        stack: Stack,
        width: int,
    ) -> None:
        """Judge members whose training is over, and ask the race who else stops."""
        done, racing = ([m for m in self._alive if over[m] == gone] for gone in (True, False))
        race = self.race
        undecided = race is not None and len(racing) > race.finalists
        if not done and not undecided:
            return
        values = self._validate(stack, width)
        if done:
            self._pending.append((done, sharing.lane_of[done], values))
        if race is not None and undecided:
            losses, alive = np.full(len(self.group), np.inf), self._alive
            losses[alive] = values[0].double().cpu().numpy()[sharing.lane_of[alive]]
            racing = race.survivors(losses=losses, racing=racing, epoch=epoch)
        self._alive = racing

    def _validate(self, stack: Stack, width: int) -> Tensor:
        """Return every lane's loss and share of right answers, shape (2, lanes)."""
        if self.block.validation is None:
            raise ValueError("a search needs rows to judge by")
        rows = 2 * self.group.batch_size
        return evaluate(self.threads, stack, *self.block.validation, width=width, rows=rows)


def _round_up(lanes: int) -> int:
    """Return the next of at most four sizes per doubling: few sizes, so few recordings.

    Example:
        >>> [_round_up(lanes) for lanes in (5, 9, 24, 33)]
        [5, 10, 24, 40]
    """
    grain = max((1 << (lanes - 1).bit_length()) // 8, 1)
    return -(-lanes // grain) * grain

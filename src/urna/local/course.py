"""A whole local search for one group of candidates: epochs, sharing, stopping, losses.

This module imports torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from urna.local.batches import seeded_module
from urna.local.block import Block, plan_epoch
from urna.local.chunks import Room
from urna.local.crew import Crew
from urna.local.engine import Engine, evaluate
from urna.local.lanes import Group, Sharing, lineages, share_numbers
from urna.local.racing import Race
from urna.local.recipe import Optimiser
from urna.local.stack import SettingsTable, Stack, first_stack, upload

__all__ = ["Course", "first_weights", "run_course"]

Places = npt.NDArray[np.intp]

Tick = Callable[[float], None]
"""Called after each epoch with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Layout:
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
class Course:
    """What a search of one group needs, and where its losses gather.

    Args:
        group: The candidates.
        block: One client, or several equally large ones.
        crew: The module's batched gradient and validation, and who runs it.
        engine: What moves a stack through an epoch.
        room: How many lanes run at once.
        race: Which candidates may stop early; None trains all of them to the end.
        meanwhile: Called when a race must wait for the device: work for the host until then.
    """

    group: Group
    block: Block
    crew: Crew
    engine: Engine
    room: Room
    race: Race | None = None
    meanwhile: Callable[[], None] = lambda: None
    alive: list[list[int]] = field(init=False)
    """For each client, the members of the group still trained."""
    losses: npt.NDArray[np.float64] = field(init=False)
    """Shape (clients, members); infinite until known."""
    accuracies: npt.NDArray[np.float64] = field(init=False)
    """Shares of right answers beside them; NaN until known."""
    epochs_trained: npt.NDArray[np.intp] = field(init=False)
    """How many epochs each member was trained, shape (clients, members)."""
    _pending: list[tuple[Places, Places, Places, Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        clients, members = self.block.clients, len(self.group)
        self.alive = [list(range(members)) for _ in range(clients)]
        self.losses = np.full((clients, members), np.inf)
        self.accuracies = np.full((clients, members), np.nan)
        self.epochs_trained = np.zeros((clients, members), dtype=np.intp)
        self._pending = []

    def settle(
        self,
        members: Sequence[Sequence[int]],
        sharings: Sequence[Sharing],
        values: Tensor,
        layout: "Layout",
    ) -> None:
        """Note final values, still on the device, and train these members no further.

        Args:
            members: For each client, those that are done.
            sharings: For each client, the lanes of its members.
            values: What `_validate` returns.
            layout: Where lanes lie in it.
        """
        who = np.repeat(np.arange(len(members)), [len(chosen) for chosen in members])
        what = np.concatenate([np.array(chosen, dtype=np.intp) for chosen in members])
        lane_of = np.stack([sharing.lane_of for sharing in sharings])
        self._pending.append((who, what, layout.row(who, lane_of[who, what]), values))
        for client, chosen in enumerate(members):
            gone = set(chosen)
            self.alive[client] = [m for m in self.alive[client] if m not in gone]

    def collect(self) -> npt.NDArray[np.float64]:
        """Fetch all noted values from the device at once; a loss of NaN becomes infinite.

        Returns:
            Losses and shares of right answers, shape (clients, members, 2).
        """
        for who, what, lanes, values in self._pending:
            losses, accuracies = values.double().cpu().numpy()
            self.losses[who, what], self.accuracies[who, what] = losses[lanes], accuracies[lanes]
        self._pending.clear()
        self.losses[np.isnan(self.losses)] = np.inf
        return np.stack([self.losses, self.accuracies], axis=-1)


def first_weights(block: Block, optimiser: Optimiser, build: Callable[[], Any]) -> Stack:
    """Return the weights from which each client's candidates start, one lane for every client.

    Args:
        block: The clients.
        optimiser: The group's.
        build: Makes the group's module; called once for every seed of the clients.
    """
    modules: dict[int, Any] = {}
    for seed in block.seeds:
        if seed not in modules:
            with seeded_module(seed):
                modules[seed] = build()
    device = str(block.targets.device)
    return first_stack([modules[seed] for seed in block.seeds], optimiser, device)


def run_course(course: Course, stack: Stack, tick: Tick | None = None) -> Course:
    """Train all candidates of a group on a block's clients; `collect` then has their scores.

    On a GPU this may return before the training is over.

    Args:
        course: The search.
        stack: The clients' first weights, as `first_weights` makes them; they are spent.
        tick: Called after each epoch.
    """
    group, block = course.group, course.block
    device = str(block.targets.device)
    layout = Layout(block.clients, 1)
    lane_of = np.zeros((block.clients, len(group)), dtype=np.intp)
    rates = np.array([recipe.learning_rates() for recipe in group.recipes])
    numbers = lineages(group.recipes)
    table = SettingsTable(group.recipes, device)
    has_buffers = bool(stack.buffers)
    who = np.arange(block.clients)[:, None]
    rows_before = block.clients
    for epoch in range(group.epochs):
        sharings = _share(numbers[:, epoch], course.alive)
        lanes = max(len(s.leaders) for s in sharings)
        if lanes == 0:
            break
        if course.race and epoch > 0 and device != "cpu" and not course.room.fixed:
            lanes = _round_up(lanes)  # before the first, nobody has been stopped
        width = course.room.width(lanes)
        leaders = np.array([_padded(s.leaders, -(-lanes // width) * width) for s in sharings])
        parents = layout.row(who, np.take_along_axis(lane_of, leaders, axis=1))
        layout = Layout(block.clients, width)
        parents = layout.arrange(parents)
        if not np.array_equal(parents, np.arange(rows_before)):
            stack = stack.select(upload(parents, device))
        settings = table.at(upload(layout.arrange(leaders), device), epoch)
        plan = plan_epoch(block, group.batch_size, epoch)
        stack = course.engine.epoch(stack, settings, block, plan, width)
        rows_before = len(parents)
        lane_of = np.stack([np.maximum(s.lane_of, 0) for s in sharings])
        for client, alive in enumerate(course.alive):
            course.epochs_trained[client, alive] = epoch + 1
        last = epoch == group.epochs - 1
        # A learning rate of zero moves no weight: without buffers that run is over.
        over = np.full(len(group), last) if has_buffers else ~rates[:, epoch + 1 :].any(axis=1)
        ending = set(np.flatnonzero(over).tolist())
        resting = [[m for m in alive if m in ending] for alive in course.alive]
        undecided = course.race is not None and any(
            len(alive) - len(done) > course.race.finalists
            for alive, done in zip(course.alive, resting, strict=True)
        )
        if any(resting) or undecided:
            values = _validate(course, stack, width)
            if undecided:
                _drop_losers(course, sharings, values[0], layout, resting, epoch)
            course.settle(resting, sharings, values, layout)
        elif device == "cpu":
            _drop_diverged(course, sharings, stack, layout)
        if tick is not None:
            tick((epoch + 1) / group.epochs)
    return course


def _share(numbers: Places, alive: Sequence[Sequence[int]]) -> list[Sharing]:
    """Assign every client's lanes; clients that still train the same members agree."""
    found: dict[tuple[int, ...], Sharing] = {}
    for members in map(tuple, alive):
        if members not in found:
            found[members] = share_numbers(numbers, members)
    return [found[tuple(members)] for members in alive]


def _round_up(lanes: int) -> int:
    """Return the next of at most four sizes per doubling: few sizes, so few recordings."""
    grain = max((1 << (lanes - 1).bit_length()) // 8, 1)
    return -(-lanes // grain) * grain


def _padded(leaders: Sequence[int], lanes: int) -> list[int]:
    """Fill up to `lanes` with copies of the last: clients stack only with equally many."""
    filler = leaders[-1] if leaders else 0
    return [*leaders, *[filler] * (lanes - len(leaders))]


def _validate(course: Course, stack: Stack, width: int) -> Tensor:
    """Return every lane's loss and share of right answers, shape (2, lanes)."""
    found = evaluate(
        course.crew,
        stack,
        course.block.validation_inputs,
        course.block.validation_targets,
        width=width,
        rows=2 * course.group.batch_size,
    )
    return torch.stack(found)


def _drop_losers(
    course: Course,
    sharings: Sequence[Sharing],
    values: Tensor,
    layout: Layout,
    resting: Sequence[Sequence[int]],
    epoch: int,
) -> None:
    """Ask the race who goes on; the others keep an infinite loss."""
    if course.race is None:
        return
    course.meanwhile()
    host = layout.by_client(values.double().cpu().numpy())
    for client, sharing in enumerate(sharings):
        alive = course.alive[client]
        losses = np.full(len(course.group), np.inf)
        losses[alive] = host[client, sharing.lane_of[alive]]
        finished = set(resting[client])
        racing = [m for m in alive if m not in finished]
        kept = finished.union(course.race.survivors(losses=losses, racing=racing, epoch=epoch))
        course.alive[client] = [m for m in alive if m in kept]


def _drop_diverged(
    course: Course, sharings: Sequence[Sharing], stack: Stack, layout: Layout
) -> None:
    """Stop training lanes whose weights are no longer finite; their loss stays infinite."""
    sums = torch.stack([p.flatten(1).sum(1) for p in stack.parameters.values()]).sum(0)
    finite = layout.by_client(torch.isfinite(sums).numpy())
    if finite.all():
        return
    for client, sharing in enumerate(sharings):
        course.alive[client] = [
            m for m in course.alive[client] if finite[client, sharing.lane_of[m]]
        ]

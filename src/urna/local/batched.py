"""Train all candidates of a client together: the fast torch objective.

Gives the losses of `TorchObjective` within floating-point tolerance, for any module that
torch.func can batch. Torch is imported when losses are computed, not before.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.engine import Model, Recordings, check_client, check_model, search_group
from urna.local.engine.lanes import LaneGroup, group_plans
from urna.local.engine.loss import (
    Loss,
    TorchLoss,
    check_loss,
    check_smoothing,
    out_of_memory,
    require_torch,
)
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import Losses, Progress, note_failure
from urna.local.racing import Race
from urna.local.recipe import Recipe, plan_candidates
from urna.local.speed import Speed
from urna.space import Space

__all__ = ["BatchedObjective"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchedObjective:
    """Train a torch module with every candidate's hyperparameters at once.

    Takes what `TorchObjective` takes and gives its losses: the same first weights, batches
    and dropout masks. Candidates that change shapes (a width, the batch size) are grouped by
    shape. A candidate that diverges has an infinite loss and leaves the others untouched.
    So does one that alone does not fit into memory.

    The module must be one that torch.func can batch: no random numbers other than dropout (nor in
    the loss), no recurrent layers, no control flow that depends on the data. Others belong to
    `TorchObjective`. Threads may share an objective: they take turns.

    Args:
        factory: Makes a fresh module; called with the candidate's names that are its own.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        epochs: Passes over the training rows, unless the candidate says otherwise.
        batch_size: Rows per step, likewise.
        defaults: The rest of the recipe.
        validation_fraction: Share of rows to validate on.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        race: Stop candidates early; None trains all of them to the end.
        most_lanes: Candidates trained at once; None lets memory and cache decide.
        repeatable: Whether a GPU should give the same bits every time, at the price of time:
            one client after the other, pieces of one width, deterministic kernels. Without it,
            the last digits depend on how many candidates and clients run at once, and may
            differ from one search to the next. A CPU always repeats itself.
        speed: What may be done to be faster; `Speed.plain()` does none of it.
    """

    factory: Callable[..., Any]
    loss: Loss = TorchLoss.CROSS_ENTROPY
    epochs: int = 5
    batch_size: int = 64
    defaults: Recipe = field(default_factory=Recipe)
    validation_fraction: float = 0.2
    device: str = "auto"
    race: Race | None = None
    most_lanes: int | None = None
    repeatable: bool = False
    speed: Speed = field(default_factory=Speed, compare=False)
    _recordings: Recordings = field(
        default_factory=Recordings, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_loss(self.loss)
        self.recipe()
        if self.most_lanes is not None and self.most_lanes < 1:
            raise ParameterError(f"most_lanes must be at least 1, got {self.most_lanes}")

    def recipe(self) -> Recipe:
        """Return what candidates start from."""
        return replace(self.defaults, epochs=self.epochs, batch_size=self.batch_size)

    def model(self, group: LaneGroup) -> Model:
        """Return what a group's candidates train."""
        return Model(self.factory, group.shape, self.loss, self.device, self.speed, self.repeatable)

    def groups(self, space: Space) -> list[LaneGroup]:
        """Return the candidates in groups that train together.

        Raises:
            ParameterError: An axis is unknown or has a value out of range.
            DataMissing: Torch is not installed.
        """
        require_torch()
        plans = plan_candidates(space, self.recipe(), self.factory)
        check_smoothing((plan.recipe for plan in plans), self.loss)
        return group_plans(plans)

    def check(self, space: Space) -> None:
        """Refuse a space that this objective cannot judge, whatever the data.

        Raises:
            ParameterError: An axis is unknown or has a value out of range, or a module has
                recurrent layers.
            DataMissing: Torch is not installed.
        """
        for group in self.groups(space):
            check_model(self.model(group))

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return every candidate's validation loss after training, infinite if it diverged.

        All candidates advance together, so `progress` counts the share of the work done, in
        candidates.

        Raises:
            ParameterError: The space cannot be judged, there are too few rows, or targets are
                not among the module's classes.
        """
        groups = self.groups(space)
        part = self._split(data, groups, seed)
        result: Losses = self._scores([part], groups, [seed], progress)[0, :, 0]
        return result

    def scores_of_clients(
        self,
        clients: Sequence[Samples],
        space: Space,
        *,
        seeds: Sequence[int],
        progress: Progress | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return losses and accuracies of many simulated clients, for studies.

        With `speed.stacked_clients`, equally large clients are trained together as far as that
        is faster, unless the objective is `repeatable` on a GPU. Then the last digits of a
        client's losses may depend on the others: a vote evaluates its clients one by one, by
        `losses`, whose guarantee this has otherwise.

        Args:
            clients: The clients' data.
            space: The candidates.
            seeds: One public seed per client.
            progress: Called with the work done, in candidates of all clients.

        Returns:
            Shape (clients, candidates, 2). An accuracy is NaN where targets are no classes, and
            where training did not come to its end. All scores of a client whose rows cannot be
            trained on are NaN, and the log says why, by the error's type.
        """
        if len(seeds) != len(clients):
            raise ParameterError(
                f"every client needs a seed, got {len(seeds)} seeds for {len(clients)} clients"
            )
        groups = self.groups(space)
        parts: list[Holdout | None] = []
        for number, (client, seed) in enumerate(zip(clients, seeds, strict=True)):
            try:
                parts.append(self._split(client, groups, seed))
            except Exception as error:  # whatever is wrong with these rows
                note_failure(number, error)
                parts.append(None)
        return self._scores(parts, groups, seeds, progress)

    def _split(self, data: Samples, groups: Sequence[LaneGroup], seed: int) -> Holdout:
        """Hold rows out, and refuse rows that a device should not see."""
        part = hold_out(data, fraction=self.validation_fraction, seed=seed)
        for group in groups:
            try:
                for rows in (part.train, part.validation):
                    check_client(self.model(group), group.recipes, rows, self._recordings)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise  # else its candidates will fail, and no others
        return part

    def _scores(
        self,
        parts: Sequence[Holdout | None],
        groups: Sequence[LaneGroup],
        seeds: Sequence[int],
        progress: Progress | None,
    ) -> npt.NDArray[np.float64]:
        """Train every group on every client that has a part; the others' scores are NaN."""
        there = [place for place, part in enumerate(parts) if part is not None]
        clients = [part for part in parts if part is not None]
        candidates = sum(map(len, groups))
        scores = np.full((len(parts), candidates, 2), math.nan)
        scores[there, :, 0] = math.inf
        bar = _Bar(progress, len(parts) * candidates)
        if len(there) < len(parts):
            bar.finish((len(parts) - len(there)) * candidates)
        for group in groups:
            share = len(group)
            finished = 0
            try:
                blocks = search_group(
                    self.model(group),
                    group,
                    clients,
                    [seeds[place] for place in there],
                    recordings=self._recordings,
                    race=self.race,
                    most_lanes=self.most_lanes,
                    tick=bar.part(share),
                )
                for places, found in blocks:
                    scores[np.ix_([there[p] for p in places], group.places)] = found
                    finished += len(places)
                    bar.finish(len(places) * share)
            except RuntimeError as error:  # what torch raises when memory runs out
                if not out_of_memory(error):
                    raise
                _log.warning("a module of shape %s does not fit into memory", dict(group.shape))
                bar.finish((len(clients) - finished) * share)
        return scores


class _Bar:
    """Turns shares of blocks into candidates finished."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def part(self, members: int) -> Callable[[int, float], None]:
        """Return what the engine calls with (clients in the block, share done)."""

        def tick(clients: int, share: float) -> None:
            if self._progress is not None and share < 1:
                self._progress(self._done + int(clients * members * share), self._total)

        return tick

    def finish(self, count: int) -> None:
        """Note that this many candidates are finished for good."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

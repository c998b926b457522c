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
from urna.local.objective import Losses, Progress
from urna.local.racing import SuccessiveHalving
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
            pieces of one width, deterministic kernels. Without it, the last digits depend on how
            many candidates run at once, and may differ from one search to the next. A CPU always
            repeats itself.
        speed: What may be done to be faster; `Speed.plain()` does none of it.
    """

    factory: Callable[..., Any]
    loss: Loss = TorchLoss.CROSS_ENTROPY
    epochs: int = 5
    batch_size: int = 64
    defaults: Recipe = field(default_factory=Recipe)
    validation_fraction: float = 0.2
    device: str = "auto"
    race: SuccessiveHalving | None = None
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
        losses: Losses = self.scores(data, space, seed=seed, progress=progress)[:, 0]
        return losses

    def scores(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> npt.NDArray[np.float64]:
        """Return losses and accuracies, shape (candidates, 2), for studies.

        An accuracy is NaN where targets are no classes, and where training did not come to its
        end. Raises what `losses` raises.
        """
        groups = self.groups(space)
        part = self._split(data, groups, seed)
        report = progress or (lambda done, total: None)
        scores = np.full((len(space), 2), (math.inf, math.nan))
        done = 0
        for group in groups:

            def tick(share: float, before: int = done, members: int = len(group)) -> None:
                if share < 1:
                    report(before + int(members * share), len(space))

            try:
                scores[list(group.places)] = search_group(
                    self.model(group),
                    group,
                    part,
                    seed,
                    recordings=self._recordings,
                    race=self.race,
                    most_lanes=self.most_lanes,
                    tick=tick,
                )
            except RuntimeError as error:  # what torch raises when memory runs out
                if not out_of_memory(error):
                    raise
                _log.warning("a module of shape %s does not fit into memory", dict(group.shape))
            done += len(group)
            report(done, len(space))
        return scores

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

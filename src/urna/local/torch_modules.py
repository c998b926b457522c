"""Torch modules as objectives: all candidates of a client together, or one after the other.

Both give the same losses within floating-point tolerance. The plain loop is the reference that the
batched engine is held to, and the right choice for a module torch.func cannot batch. Torch is
imported when losses are computed, not before.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.engine import Model, Recordings, check_model
from urna.local.engine.batches import count_steps, epoch_batches, seeded_module, step_key
from urna.local.engine.model import (
    Loss,
    Speed,
    TorchLoss,
    as_tensors,
    check_loss,
    check_smoothing,
    check_targets,
    count_classes,
    mean_loss,
    out_of_memory,
    require_torch,
)
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import Losses, Progress
from urna.local.recipe import (
    LaneGroup,
    Optimiser,
    Recipe,
    SortedRecipe,
    SuccessiveHalving,
    group_plans,
    plan_candidates,
)
from urna.space import Space

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["BatchedObjective", "TorchObjective", "train_alone"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _TorchModule:
    """What both objectives take."""

    factory: Callable[..., Any]
    loss: Loss = TorchLoss.CROSS_ENTROPY
    epochs: int = 5
    batch_size: int = 64
    defaults: Recipe = field(default_factory=Recipe)
    validation_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_loss(self.loss)
        self.recipe()

    def recipe(self) -> Recipe:
        """Return what candidates start from."""
        return replace(self.defaults, epochs=self.epochs, batch_size=self.batch_size)

    def plans(self, space: Space) -> list[SortedRecipe]:
        """Return how each candidate is built and trained.

        Raises:
            ParameterError: An axis is unknown or has a value out of range.
            DataMissing: Torch is not installed.
        """
        require_torch()
        plans = plan_candidates(space, self.recipe(), self.factory)
        check_smoothing((plan.recipe for plan in plans), self.loss)
        return plans


@dataclass(frozen=True, slots=True)
class TorchObjective(_TorchModule):
    """Train a torch module with each candidate's hyperparameters, one after the other.

    All candidates of one shape start from the same weights and see the same batches and
    dropout masks: what differs between their losses is what the candidate decides. Other random
    numbers that a module draws follow from the seed as well.

    A candidate's names are those of `Recipe` (lr, decay, momentum, nesterov, weight_decay,
    label_smoothing, optimiser, clip_norm, beta1, beta2, proximal, batch_size, epochs) or
    arguments of the factory (a width, say). Any other name is refused.

    Args:
        factory: Makes a fresh module; called with the candidate's names that are its own.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        epochs: Passes over the training rows, unless the candidate says otherwise.
        batch_size: Rows per step, likewise.
        defaults: The rest of the recipe; its epochs and batch size yield to those above.
        validation_fraction: Share of rows to validate on.
        device: Where to train: "cpu", "cuda".

    Raises:
        ParameterError: The loss is unknown or a number is out of range.
    """

    device: str = "cpu"

    def check(self, space: Space) -> None:
        """Refuse a space that this objective cannot judge, whatever the data.

        Raises:
            ParameterError: An axis is unknown or has a value out of range.
            DataMissing: Torch is not installed.
        """
        self.plans(space)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return every candidate's validation loss after training.

        Infinite if it diverged or did not fit into memory.

        Raises:
            ParameterError: The space cannot be judged, there are too few rows, or targets are
                not among the module's classes.
        """
        plans = self.plans(space)
        parts = hold_out(data, fraction=self.validation_fraction, seed=seed)
        losses = np.full(len(plans), math.inf)
        for place, plan in enumerate(plans):
            try:
                losses[place] = self._train_one(plan, parts, seed)
            except RuntimeError as error:  # what torch raises when memory runs out
                if not out_of_memory(error):
                    raise
            if progress is not None:
                progress(place + 1, len(plans))
        losses[np.isnan(losses)] = math.inf
        return losses

    def _train_one(self, plan: SortedRecipe, parts: Holdout, seed: int) -> float:
        """Train one candidate in a plain loop and return its validation loss."""
        import torch  # noqa: PLC0415

        recipe = plan.recipe
        train, held = as_tensors(parts.train), as_tensors(parts.validation)
        with seeded_module(seed, self.device):
            module: nn.Module = plan.build(self.factory)
            if self.loss == TorchLoss.CROSS_ENTROPY:
                classes = count_classes(module, train[0])
                check_targets(train[1], classes)
                check_targets(held[1], classes)
            module.to(self.device)
            train_alone(module, parts.train, recipe, self.loss, seed=seed)
            module.eval()
            inputs, targets = (tensor.to(self.device) for tensor in held)
            with torch.no_grad():
                return float(mean_loss(module(inputs), targets, self.loss, 0.0))


def train_alone(
    module: "nn.Module",
    rows: Samples,
    recipe: Recipe,
    loss: Loss,
    *,
    seed: int,
    first_epoch: int = 0,
) -> None:
    """Train a module in a plain loop where it is; epochs go on from `first_epoch`."""
    import torch  # noqa: PLC0415

    from urna.local.engine.gradients import KeyedDropout  # noqa: PLC0415

    device = next(module.parameters()).device
    inputs, targets = (tensor.to(device) for tensor in as_tensors(rows))
    module.train()
    optimiser = _optimiser(module, recipe)
    first = [p.detach().clone() for p in module.parameters()] if recipe.proximal else []
    step = first_epoch * count_steps(len(targets), recipe.batch_size)
    for epoch, rate in enumerate(recipe.learning_rates(), start=first_epoch):
        for group in optimiser.param_groups:
            group["lr"] = rate
        for batch in epoch_batches(len(targets), recipe.batch_size, seed=seed, epoch=epoch):
            chosen = torch.from_numpy(batch).to(device)
            with KeyedDropout(torch.tensor(step_key(seed, step), device=device)):
                outputs = module(inputs[chosen])
            found = mean_loss(outputs, targets[chosen], loss, recipe.label_smoothing)
            optimiser.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            for weights, start in zip(module.parameters(), first, strict=False):
                if weights.grad is not None:
                    weights.grad.add_(weights.detach() - start, alpha=recipe.proximal)
            if math.isfinite(recipe.clip_norm):
                torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
            optimiser.step()
            step += 1


def _optimiser(module: "nn.Module", recipe: Recipe) -> "torch.optim.Optimizer":
    import torch  # noqa: PLC0415

    if recipe.optimiser is Optimiser.ADAMW:
        return torch.optim.AdamW(
            module.parameters(),
            lr=recipe.lr,
            betas=(recipe.beta1, recipe.beta2),
            weight_decay=recipe.weight_decay,
        )
    return torch.optim.SGD(
        module.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        # PyTorch refuses to look ahead without momentum; a space may hold that corner.
        nesterov=recipe.nesterov and recipe.momentum > 0,
    )


@dataclass(frozen=True, slots=True)
class BatchedObjective(_TorchModule):
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

    device: str = "auto"
    race: SuccessiveHalving | None = None
    most_lanes: int | None = None
    repeatable: bool = False
    speed: Speed = field(default_factory=Speed, compare=False)
    _recordings: Recordings = field(
        default_factory=Recordings, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        _TorchModule.__post_init__(self)
        if self.most_lanes is not None and self.most_lanes < 1:
            raise ParameterError(f"most_lanes must be at least 1, got {self.most_lanes}")

    def model(self, group: LaneGroup) -> Model:
        """Return what a group's candidates train."""
        return Model(self.factory, group.shape, self.loss, self.device, self.speed, self.repeatable)

    def groups(self, space: Space) -> list[LaneGroup]:
        """Return the candidates in groups that train together; raises what `check` raises."""
        return group_plans(self.plans(space))

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
                with self._recordings.runner(self.model(group), group.recipes) as runner:
                    scores[list(group.places)] = runner.search(
                        group, part, seed, race=self.race, most_lanes=self.most_lanes, tick=tick
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
                with self._recordings.runner(self.model(group), group.recipes) as runner:
                    runner.check(part.train)
                    runner.check(part.validation)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise  # else its candidates will fail, and no others
        return part

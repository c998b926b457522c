"""A torch module trained by SGD or AdamW, one candidate after the other.

The plain loop. It is the reference that the batched engine is held to, and the right choice
for a module torch.func cannot batch. Torch is imported when losses are computed, not before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from urna.data import Samples
from urna.local.engine.batches import epoch_batches, seeded_module, step_key
from urna.local.engine.loss import (
    Loss,
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
from urna.local.recipe import Optimiser, Recipe, SortedRecipe, plan_candidates
from urna.space import Space

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["TorchObjective"]


@dataclass(frozen=True, slots=True)
class TorchObjective:
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

    factory: Callable[..., Any]
    loss: Loss = TorchLoss.CROSS_ENTROPY
    epochs: int = 5
    batch_size: int = 64
    defaults: Recipe = field(default_factory=Recipe)
    validation_fraction: float = 0.2
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_loss(self.loss)
        self.recipe()

    def recipe(self) -> Recipe:
        """Return what candidates start from."""
        return replace(self.defaults, epochs=self.epochs, batch_size=self.batch_size)

    def check(self, space: Space) -> None:
        """Refuse a space that this objective cannot judge, whatever the data.

        Raises:
            ParameterError: An axis is unknown or has a value out of range.
            DataMissing: Torch is not installed.
        """
        self._plans(space)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return every candidate's validation loss after training.

        Infinite if it diverged or did not fit into memory.

        Raises:
            ParameterError: The space cannot be judged, there are too few rows, or targets are
                not among the module's classes.
        """
        plans = self._plans(space)
        parts = hold_out(data, fraction=self.validation_fraction, seed=seed)
        losses = np.full(len(plans), math.inf)
        for place, plan in enumerate(plans):
            try:
                loss = self._train_one(plan, parts, seed)
            except RuntimeError as error:  # what torch raises when memory runs out
                if not out_of_memory(error):
                    raise
                loss = math.inf
            losses[place] = math.inf if math.isnan(loss) else loss
            if progress is not None:
                progress(place + 1, len(plans))
        return losses

    def _plans(self, space: Space) -> list[SortedRecipe]:
        require_torch()
        plans = plan_candidates(space, self.recipe(), self.factory)
        check_smoothing((plan.recipe for plan in plans), self.loss)
        return plans

    def _train_one(self, plan: SortedRecipe, parts: Holdout, seed: int) -> float:
        """Train one candidate in a plain loop and return its validation loss."""
        import torch  # noqa: PLC0415

        from urna.local.engine.masks import KeyedDropout  # noqa: PLC0415

        recipe = plan.recipe
        train, held = as_tensors(parts.train), as_tensors(parts.validation)
        with seeded_module(seed, self.device):
            module: nn.Module = plan.build(self.factory)
            if self.loss == TorchLoss.CROSS_ENTROPY:
                classes = count_classes(module, train[0])
                check_targets(train[1], classes)
                check_targets(held[1], classes)
            inputs, targets = (tensor.to(self.device) for tensor in train)
            module.to(self.device).train()
            optimiser = _optimiser(module, recipe)
            first = [p.detach().clone() for p in module.parameters()] if recipe.proximal else []
            step = 0
            for epoch, rate in enumerate(recipe.learning_rates()):
                for group in optimiser.param_groups:
                    group["lr"] = rate
                for rows in epoch_batches(len(targets), recipe.batch_size, seed=seed, epoch=epoch):
                    chosen = torch.from_numpy(rows).to(self.device)
                    key = torch.tensor(step_key(seed, step), device=self.device)
                    with KeyedDropout(key):
                        outputs = module(inputs[chosen])
                    loss = mean_loss(outputs, targets[chosen], self.loss, recipe.label_smoothing)
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    for weights, start in zip(module.parameters(), first, strict=False):
                        if weights.grad is not None:
                            weights.grad.add_(weights.detach() - start, alpha=recipe.proximal)
                    if math.isfinite(recipe.clip_norm):
                        torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
                    optimiser.step()
                    step += 1
            module.eval()
            inputs, targets = (tensor.to(self.device) for tensor in held)
            with torch.no_grad():
                return float(mean_loss(module(inputs), targets, self.loss, 0.0))


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

"""A torch module trained by SGD or AdamW, one candidate after the other.

The plain loop. It is the reference that the batched engine is held to, and the right choice
for a module torch.func cannot batch. Torch is imported when losses are computed, not before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from urna.data import Samples
from urna.errors import DataMissing, ParameterError, UnknownName
from urna.local.batches import epoch_batches, seeded_module, step_key
from urna.local.holdout import hold_out
from urna.local.objective import Losses, Progress
from urna.local.recipe import Optimiser, Plan, Recipe, plan_candidates
from urna.space import Space

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

__all__ = ["TorchLoss", "TorchObjective"]


class TorchLoss(StrEnum):
    """What the training minimises and the validation rows are judged by."""

    CROSS_ENTROPY = "cross_entropy"
    """For classes: the module returns one logit per class."""
    SQUARED_ERROR = "squared_error"
    """For numbers: the module returns one number per row."""


Loss = TorchLoss | str | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TorchObjective:
    """Train a torch module with each candidate's hyperparameters, one after the other.

    All candidates of one shape start from the same weights and see the same batches and
    dropout masks: what differs between their losses is what the candidate decides.

    A candidate's names are those of `Recipe` (lr, decay, momentum, nesterov, weight_decay,
    label_smoothing, optimiser, clip_norm, beta1, beta2, batch_size, epochs) or arguments of
    the factory (a width, say). Any other name is refused.

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

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return every candidate's validation loss after training.

        Infinite if it diverged or did not fit into memory.
        """
        require_torch()
        plans = plan_candidates(space, self.recipe(), self.factory)
        check_smoothing(plans, self.loss)
        parts = hold_out(data, fraction=self.validation_fraction, seed=seed)
        train, validation = (as_tensors(p, self.device) for p in (parts.train, parts.validation))
        losses = np.full(len(plans), math.inf)
        for place, plan in enumerate(plans):
            try:
                loss = train_one(
                    plan, self.factory, self.loss, train, validation, seed=seed, device=self.device
                )
            except RuntimeError as error:  # what torch raises when memory runs out
                if not out_of_memory(error):
                    raise
                loss = math.inf
            losses[place] = math.inf if math.isnan(loss) else loss
            if progress is not None:
                progress(place + 1, len(plans))
        return losses


def train_one(
    plan: Plan,
    factory: Callable[..., Any],
    loss: Loss,
    train: "tuple[Tensor, Tensor]",
    validation: "tuple[Tensor, Tensor]",
    *,
    seed: int,
    device: str,
) -> float:
    """Train one candidate in a plain loop and return its validation loss."""
    import torch  # noqa: PLC0415

    from urna.local.masks import KeyedDropout  # noqa: PLC0415

    recipe = plan.recipe
    with seeded_module(seed):
        module: nn.Module = plan.build(factory)
    module.to(device).train()
    optimiser = _optimiser(module, recipe)
    inputs, targets = train
    step = 0
    for epoch, rate in enumerate(recipe.learning_rates()):
        for group in optimiser.param_groups:
            group["lr"] = rate
        for rows in epoch_batches(len(targets), recipe.batch_size, seed=seed, epoch=epoch):
            chosen = torch.from_numpy(rows).to(device)
            key = torch.tensor(step_key(seed, step), device=device)
            with KeyedDropout(key):
                outputs = module(inputs[chosen])
            batch_loss = mean_loss(outputs, targets[chosen], loss, recipe.label_smoothing)
            optimiser.zero_grad()
            batch_loss.backward()  # type: ignore[no-untyped-call]
            if math.isfinite(recipe.clip_norm):
                torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
            optimiser.step()
            step += 1
    module.eval()
    with torch.no_grad():
        return float(mean_loss(module(validation[0]), validation[1], loss, 0.0))


def mean_loss(outputs: "Tensor", targets: "Tensor", loss: Loss, smoothing: float) -> "Tensor":
    """Return the mean loss over rows."""
    import torch.nn.functional as F  # noqa: N812, PLC0415

    if not isinstance(loss, str):
        result: Tensor = loss(outputs, targets)
        return result
    if loss == TorchLoss.CROSS_ENTROPY:
        return F.cross_entropy(outputs, targets, label_smoothing=smoothing)
    return F.mse_loss(outputs.reshape(targets.shape), targets)


def as_tensors(data: Samples, device: str) -> "tuple[Tensor, Tensor]":
    """Return features as float32 and targets as classes or float32, on the device."""
    import torch  # noqa: PLC0415

    features = torch.from_numpy(np.ascontiguousarray(data.features, dtype=np.float32))
    whole = np.issubdtype(data.targets.dtype, np.integer)
    kind = np.int64 if whole else np.float32
    targets = torch.from_numpy(np.ascontiguousarray(data.targets, dtype=kind))
    return features.to(device), targets.to(device)


def check_loss(loss: Loss) -> None:
    """Refuse a loss that is neither known nor a function."""
    if isinstance(loss, str) and loss not in list(TorchLoss):
        raise UnknownName("loss", loss, TorchLoss)
    if not isinstance(loss, str) and not callable(loss):
        raise ParameterError(f"a loss is a name or a function, got {type(loss).__name__}")


def check_smoothing(plans: list[Plan], loss: Loss) -> None:
    """Refuse label smoothing where there are no labels to smooth."""
    if loss != TorchLoss.CROSS_ENTROPY and any(p.recipe.label_smoothing for p in plans):
        raise ParameterError(
            "label_smoothing needs the loss 'cross_entropy'; put it into your own loss function "
            "or take it out of the space"
        )


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    import torch  # noqa: PLC0415

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def require_torch() -> None:
    """Say which extra is missing where torch is not installed."""
    try:
        import torch  # noqa: F401, PLC0415
    except ImportError as error:
        raise DataMissing(
            "training a torch module needs torch; install it with: pip install 'urna[torch]'"
        ) from error


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

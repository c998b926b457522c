"""Losses of torch modules, and the checks that come before anything is trained.

Torch is imported when something is computed, not before.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from urna.data import Samples
from urna.errors import DataMissing, ParameterError, UnknownName
from urna.local.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "Loss",
    "TorchLoss",
    "as_tensors",
    "check_loss",
    "check_smoothing",
    "check_targets",
    "count_classes",
    "mean_loss",
    "out_of_memory",
    "require_torch",
]


class TorchLoss(StrEnum):
    """What the training minimises and the validation rows are judged by."""

    CROSS_ENTROPY = "cross_entropy"
    """For classes: the module returns one logit per class."""
    SQUARED_ERROR = "squared_error"
    """For numbers: the module returns one number per row."""


Loss = TorchLoss | str | Callable[..., Any]


def mean_loss(outputs: "Tensor", targets: "Tensor", loss: Loss, smoothing: float) -> "Tensor":
    """Return the mean loss over rows."""
    import torch.nn.functional as F  # noqa: N812, PLC0415 - the core runs without torch

    if not isinstance(loss, str):
        result: Tensor = loss(outputs, targets)
        return result
    if loss == TorchLoss.CROSS_ENTROPY:
        return F.cross_entropy(outputs, targets, label_smoothing=smoothing)
    return F.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype))


def as_tensors(data: Samples) -> "tuple[Tensor, Tensor]":
    """Return features as float32 and targets as classes or float32, on the host.

    They are copies in memory of PyTorch's own, which begins at a multiple of 64 bytes. MKL rounds
    a product by where its factors begin, and a client's rows may be a part of a table, so that
    they begin where those of the clients before it end.
    """
    import torch  # noqa: PLC0415

    features, targets = np.asarray(data.features), np.asarray(data.targets)
    whole = np.issubdtype(targets.dtype, np.integer)
    copies = (
        torch.empty(features.shape, dtype=torch.float32),
        torch.empty(targets.shape, dtype=torch.int64 if whole else torch.float32),
    )
    for copy, given in zip(copies, (features, targets), strict=True):
        np.copyto(copy.numpy(), given, casting="unsafe")
    return copies


def check_loss(loss: Loss) -> None:
    """Refuse a loss that is neither known nor a function."""
    if isinstance(loss, str) and loss not in list(TorchLoss):
        raise UnknownName("loss", loss, TorchLoss)
    if not isinstance(loss, str) and not callable(loss):
        raise ParameterError(f"a loss is a name or a function, got {type(loss).__name__}")


def check_smoothing(recipes: Iterable[Recipe], loss: Loss) -> None:
    """Refuse label smoothing where there are no labels to smooth."""
    if loss != TorchLoss.CROSS_ENTROPY and any(recipe.label_smoothing for recipe in recipes):
        raise ParameterError(
            "label_smoothing needs the loss 'cross_entropy'; put it into your own loss function "
            "or take it out of the space"
        )


def count_classes(module: "nn.Module", inputs: "Tensor") -> int:
    """Return how many classes a module on the host tells apart, by two made-up rows.

    Two, because batch norm without running statistics cannot judge one. Nobody's rows: what they
    hold must not decide whether the module takes them.

    Args:
        module: A module on the host.
        inputs: Says what a row looks like; its numbers are not used.
    """
    import torch  # noqa: PLC0415

    training = module.training
    module.eval()
    with torch.no_grad():
        outputs: Tensor = module(inputs.new_zeros((2, *inputs.shape[1:])))
    module.train(training)
    if outputs.dim() < 2:
        raise ParameterError(
            f"for cross_entropy a module returns one logit per class for every row; this one "
            f"returned shape {tuple(outputs.shape)} for two rows"
        )
    return outputs.shape[1]


def check_targets(targets: "Tensor", classes: int) -> None:
    """Refuse targets that are not among the classes, while they are still on the host.

    A GPU checks this in a kernel, and when it fails the whole process can no longer use the
    device. The message holds no target: it may travel to a log.

    Raises:
        ParameterError: Targets are no whole numbers, or not all in 0..classes - 1.
    """
    if targets.is_floating_point():
        raise ParameterError(
            "cross_entropy needs whole numbers as targets, got floating point; for regression say "
            "loss='squared_error'"
        )
    if targets.numel() and (int(targets.min()) < 0 or int(targets.max()) >= classes):
        raise ParameterError(
            f"cross_entropy needs targets in 0..{classes - 1}, one for each of the module's "
            f"{classes} outputs, and some are not; give the module more outputs, or number the "
            "classes from 0"
        )


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out; PyTorch words it in several ways."""
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

"""What is trained together: a module, its loss, its weights, and how fast it may be.

A weight has one lane for each candidate or client. Torch is imported when something is computed.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from urna.data import Samples
from urna.errors import DataMissing, ParameterError, UnknownName
from urna.local.recipe import Recipe
from urna.space import Value

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "Loss",
    "Model",
    "Speed",
    "Tick",
    "TorchLoss",
    "Weights",
    "as_tensors",
    "check_loss",
    "check_smoothing",
    "check_targets",
    "count_classes",
    "joined",
    "mean_loss",
    "out_of_memory",
    "require_torch",
]

_TESTED = ((2, 11), (2, 13))
"""First and last version of PyTorch with which fast and plain runs were compared."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speed:
    """Which ways to train faster are taken; each can be switched off by itself.

    None changes what is computed: losses stay the same but for the rounding of other kernels.
    So a cache does not tell searches apart by their speed.
    """

    shared_lanes: bool = True
    """Candidates that have agreed in everything so far are trained as one."""
    threads: bool = True
    """CPU: every thread takes candidates of its own through an epoch."""
    recorded_steps: bool = True
    """CPU: steps are recorded below torch.func and replayed."""
    patches: bool = True
    """CPU: convolutions run as matrix products over patches (im2col)."""
    graphs: bool = True
    """GPU: steps are recorded as CUDA graphs and replayed."""
    kernels: bool = True
    """GPU: convolutions run in Triton kernels of our own."""

    @classmethod
    def plain(cls) -> "Speed":
        """Return the value with every part switched off: torch.func over all candidates alone."""
        return cls(**{field.name: False for field in fields(cls)})

    def on(self, version: str) -> "Speed":
        """Return what is taken with a version of PyTorch; one that was not tested gets plain.

        Example:
            >>> Speed().on("2.13.0+cpu") == Speed()
            True
        """
        found = re.match(r"(\d+)\.(\d+)", version)
        tested = found is not None and _TESTED[0] <= (int(found[1]), int(found[2])) <= _TESTED[1]
        if tested or self == Speed.plain():
            return self
        _say_once(version)
        return Speed.plain()


@functools.cache
def _say_once(version: str) -> None:
    first, last = (".".join(map(str, tested)) for tested in _TESTED)
    _log.warning(
        "PyTorch %s is not among the versions tested (%s to %s): training runs as with "
        "Speed.plain(), the same but slower",
        version,
        first,
        last,
    )


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


Tick = Callable[[float], None]
"""Called after each epoch with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Model:
    """A module to train, and where and how it is trained; nothing of it differs by candidate.

    Args:
        factory: Makes a fresh module; called with `shape`.
        shape: What the factory is called with, as sorted (name, value) pairs.
        loss: A `TorchLoss`, or a function (outputs, targets) -> mean loss over the rows.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        speed: What may be done to be faster.
        repeatable: Whether a GPU should give the same bits every time.
    """

    factory: Callable[..., Any]
    shape: tuple[tuple[str, Value], ...] = ()
    loss: Loss = TorchLoss.CROSS_ENTROPY
    device: str = "auto"
    speed: Speed = field(default_factory=Speed)
    repeatable: bool = False

    def build(self) -> Any:  # noqa: ANN401 - a torch module
        """Call the factory."""
        return self.factory(**dict(self.shape))


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of several lanes, by name; the first dimension of each tensor is the lane."""

    parameters: "dict[str, Tensor]"
    buffers: "dict[str, Tensor]"

    def each(self, change: "Callable[[Tensor], Tensor]") -> "Weights":
        """Return the weights with every tensor changed."""
        parts = (
            {n: change(t) for n, t in part.items()} for part in (self.parameters, self.buffers)
        )
        return Weights(*parts)


def joined(parts: Sequence[Weights]) -> Weights:
    """Return all lanes of the first weights, then of the next."""
    import torch  # noqa: PLC0415 - the core runs without torch

    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Weights(
        {n: torch.cat([part.parameters[n] for part in parts]) for n in first.parameters},
        {n: torch.cat([part.buffers[n] for part in parts]) for n in first.buffers},
    )

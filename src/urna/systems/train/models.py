"""Ready-made small networks: noise grows with the root of the number of parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urna.data import Dataset
from urna.errors import ParameterError, UnknownName
from urna.local import TorchLoss
from urna.local.engine.model import mean_loss, require_torch
from urna.local.named import named_object, said_in_one_line

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "Network", "network"]


@dataclass(frozen=True, slots=True)
class Network:
    """A factory of one of the ready-made networks; it can be pickled, and describes itself."""

    kind: str  # a key of `MODELS`
    features: int  # columns of a row
    outputs: int  # classes, or one for regression
    shape: tuple[int, int, int] | None = None  # what picture a row is, where it is one
    hidden: int = 32

    @property
    def __name__(self) -> str:
        """What a learner calls it."""
        return f"{self.kind} ({self.features} -> {self.outputs})"

    def __call__(self) -> "nn.Module":
        """Build a fresh module."""
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        columns = self.features
        if self.kind == "pooled":
            colours, height, width = self.shape or (1, 1, self.features)
            layers += [nn.Unflatten(1, (colours, height, width)), nn.AvgPool2d(2), nn.Flatten()]
            columns = colours * (height // 2) * (width // 2)
        if self.kind != "linear":
            layers += [nn.Linear(columns, self.hidden), nn.ReLU()]
            columns = self.hidden
        return nn.Sequential(*layers, nn.Linear(columns, self.outputs))


MODELS: Mapping[str, str] = {
    "linear": "one linear layer",
    "mlp": "one hidden layer of 32",
    "pooled": "pictures at half their size, then one hidden layer of 32",
}
"""The ready-made networks, in words."""


def network(
    name: str, dataset: Dataset, *, hidden: int = 32, base: Path | None = None
) -> Callable[[], Any]:
    """Return a factory by name: one of the ready-made, or one's own.

    Args:
        name: `linear`, `mlp` or `pooled`; `FILE.py:FUNCTION` or `module:FUNCTION`.
        dataset: What it is trained on.
        hidden: Width of the hidden layer of a ready-made one.
        base: The folder that files are relative to.

    Raises:
        UnknownName: There is none of this name.
        ParameterError: What is made is no module for these data.
    """
    if ":" in name:
        factory = named_object(name, base=base)
        if not callable(factory):
            raise ParameterError(f"the model {name} is no function that makes a module")
        _check_works(name, factory, dataset)
        return factory  # type: ignore[no-any-return]
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    if name == "pooled" and dataset.shape is None:
        raise ParameterError(f"{dataset.name!r} holds no pictures; take `mlp`")
    features = int(dataset.train.features.shape[1])
    return Network(name, features, dataset.classes or 1, dataset.shape, hidden)


def _check_works(name: str, factory: Callable[[], Any], dataset: Dataset) -> None:
    """See on rows of zeros that somebody's module fits the data, before anything is spent."""
    require_torch()
    import torch

    try:
        module = factory()
    except (Exception, SystemExit) as error:  # as above
        raise ParameterError(
            f"the model {name} cannot be made: {said_in_one_line(error)}"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"the model {name} is no torch module but {type(module).__name__}")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ParameterError(f"the model {name} has no parameters to train")
    rows = torch.zeros(2, *dataset.train.features.shape[1:])
    classes = dataset.classes
    targets = torch.zeros(2) if classes is None else torch.full((2,), classes - 1)
    loss = TorchLoss.SQUARED_ERROR if classes is None else TorchLoss.CROSS_ENTROPY
    try:
        with torch.no_grad():
            mean_loss(module(rows), targets, loss, 0.0)
    except Exception as error:  # as above
        kind = "one number a row" if classes is None else f"{classes} classes"
        raise ParameterError(
            f"the model {name} does not fit {dataset.name!r}, rows of {tuple(rows.shape[1:])} and "
            f"{kind}: {said_in_one_line(error)}"
        ) from error

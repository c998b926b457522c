"""The objective of a study: a ready-made model, or somebody's own by name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from urna.data import Dataset, Samples
from urna.errors import ParameterError
from urna.local import (
    BatchedObjective,
    CallableObjective,
    EstimatorObjective,
    Objective,
    TorchLoss,
)
from urna.local.models import PRESETS, preset
from urna.local.named import named_object, said_in_one_line
from urna.space import Axis, Space
from urna.study.schema import ObjectivePart
from urna.study.tune_and_train import RATES
from urna.systems.train.models import MODELS, network

__all__ = ["ChosenObjective", "choose_objective"]


@dataclass(frozen=True, slots=True)
class ChosenObjective:
    """How candidates are judged, and what can be trained with the winner."""

    description: str
    objective: Objective[Samples]
    space: Space | None
    """The model's own candidates, where it has any."""
    factory: Callable[[], Any] | None = None
    """Makes the torch module, where it is one: what can be trained afterwards."""
    loss: TorchLoss = TorchLoss.CROSS_ENTROPY


def choose_objective(
    part: ObjectivePart, dataset: Dataset, *, base: Path | None = None, train: bool = False
) -> ChosenObjective:
    """Return the objective that a study names.

    Args:
        part: What is said of it.
        dataset: What it is evaluated on.
        base: The folder that files of one's own are relative to.
        train: Whether a torch module is trained afterwards: `linear` is then one.

    Raises:
        ParameterError: There is no such model, or it is nothing that can judge candidates.
    """
    name = part.model
    if ":" in name:
        return _own(part, dataset, base)
    if name in PRESETS and not (train and name in MODELS):
        if train:
            raise ParameterError(
                f"`{name}` is judged and not trained: training takes {', '.join(MODELS)}, or what "
                "makes a torch module of your own"
            )
        ready = preset(name, dataset)
        return ChosenObjective(ready.description, ready.objective, ready.space)
    return _torch(part, network(name, dataset), f"network {name}", dataset)


def _own(part: ObjectivePart, dataset: Dataset, base: Path | None) -> ChosenObjective:
    name = part.model
    found = named_object(name, base=base)
    short = name.rpartition(":")[2]
    if not callable(found) and not hasattr(found, "losses") and not hasattr(found, "get_params"):
        raise ParameterError(
            f"{name} is {type(found).__name__}: a function (candidate, data) -> loss is wanted, an "
            "estimator, or what makes a torch module"
        )
    if hasattr(found, "losses") and not isinstance(found, type):
        return ChosenObjective(short, found, None)
    if not isinstance(found, type) and callable(found) and _takes(found) >= 2:
        return ChosenObjective(f"function {short}", CallableObjective(found), None)
    made = found
    if isinstance(found, type) or not hasattr(found, "get_params"):
        try:
            made = found()
        except (Exception, SystemExit) as error:  # whatever a stranger's function raises
            raise ParameterError(f"{name} cannot be made: {said_in_one_line(error)}") from error
    if hasattr(made, "get_params") and hasattr(made, "fit"):
        return ChosenObjective(short, EstimatorObjective(made, part.metric, dict(part.fixed)), None)
    if hasattr(made, "parameters") and hasattr(made, "forward"):
        return _torch(part, network(name, dataset, base=base), f"torch module {short}", dataset)
    if hasattr(made, "losses"):
        return ChosenObjective(short, made, None)
    raise ParameterError(
        f"{name} makes {type(made).__name__}, which is no estimator and no torch module; a "
        "function that judges takes (candidate, data)"
    )


def _torch(
    part: ObjectivePart, factory: Callable[[], Any], description: str, dataset: Dataset
) -> ChosenObjective:
    loss = TorchLoss.SQUARED_ERROR if dataset.classes is None else TorchLoss.CROSS_ENTROPY
    objective = BatchedObjective(factory, epochs=part.epochs, batch_size=part.batch_size, loss=loss)
    return ChosenObjective(description, objective, Space(lr=Axis.log(list(RATES))), factory, loss)


def _takes(function: Callable[..., Any]) -> int:
    """Return how many arguments a function must be called with."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)

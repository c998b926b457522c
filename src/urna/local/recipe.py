"""How a torch module is trained, and which of it a candidate decides.

A candidate's names are sorted here, once: those of a `Recipe` steer the training, those the
module's factory takes shape the module, and any other is refused before anything runs.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from urna.errors import ParameterError, UnknownName
from urna.space import Candidate, Value

__all__ = ["Optimiser", "Recipe", "SortedRecipe", "plan_candidates"]


class Optimiser(StrEnum):
    """Which rule turns gradients into steps."""

    SGD = "sgd"
    ADAMW = "adamw"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that steers one training run; each field may be an axis of the space."""

    lr: float = 0.1
    """Learning rate of the first epoch."""
    decay: float = 1.0
    """Factor on the learning rate after each epoch (γ); 0 trains for one epoch only."""
    momentum: float = 0.0
    """Momentum of SGD."""
    nesterov: bool = False
    """Whether SGD looks ahead; without momentum it changes nothing."""
    weight_decay: float = 0.0
    """Added to the gradient for SGD, decoupled for AdamW, as in PyTorch."""
    label_smoothing: float = 0.0
    """Share of the target spread over all classes; cross-entropy only."""
    optimiser: Optimiser = Optimiser.SGD
    """SGD or AdamW."""
    clip_norm: float = math.inf
    """Longest gradient over all parameters together; infinite for no clipping."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: float = 0.999
    """AdamW's decay of the mean squared gradient."""
    proximal: float = 0.0
    """FedProx's pull to the first weights: μ/2 ‖w − w₀‖² is added to the loss, this is μ."""
    batch_size: int = 64
    """Rows per step; an epoch's last batch may be smaller."""
    epochs: int = 5
    """Passes over the training rows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimiser", _optimiser(self.optimiser))
        for name in ("lr", "decay", "momentum", "weight_decay", "proximal"):
            value = getattr(self, name)
            if not (_is_number(value) and math.isfinite(value) and value >= 0):
                raise ParameterError(f"{name} must be a finite number >= 0, got {value!r}")
        for name in ("beta1", "beta2", "label_smoothing"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value < 1):
                raise ParameterError(f"{name} must be a number in [0, 1), got {value!r}")
        if not (_is_number(self.clip_norm) and self.clip_norm > 0):
            raise ParameterError(f"clip_norm must be a number > 0, got {self.clip_norm!r}")
        if not isinstance(self.nesterov, bool):
            raise ParameterError(f"nesterov must be true or false, got {self.nesterov!r}")
        for name in ("batch_size", "epochs"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ParameterError(f"{name} must be a whole number >= 1, got {value!r}")

    def learning_rates(self) -> tuple[float, ...]:
        """Return the learning rate of every epoch.

        Example:
            >>> Recipe(lr=0.5, decay=0.0, epochs=3).learning_rates()
            (0.5, 0.0, 0.0)
        """
        rates = [float(self.lr)]
        for _ in range(self.epochs - 1):
            rates.append(rates[-1] * self.decay)
        return tuple(rates)


@dataclass(frozen=True, slots=True)
class SortedRecipe:
    """One candidate, sorted: how to build the module and how to train it."""

    shape: tuple[tuple[str, Value], ...]
    """What the factory is called with, as sorted (name, value) pairs."""
    recipe: Recipe

    def build(self, factory: Callable[..., Any]) -> Any:  # noqa: ANN401 - a torch module
        """Call the factory with this candidate's shape."""
        return factory(**dict(self.shape))


def plan_candidates(
    candidates: Iterable[Candidate], defaults: Recipe, factory: Callable[..., Any]
) -> list[SortedRecipe]:
    """Sort every candidate's hyperparameters into recipe and module, in order.

    Raises:
        ParameterError: A value is out of range, or a name is neither a field of `Recipe` nor
            an argument of the factory. A name that is both goes to the recipe.
    """
    steering = {field.name for field in fields(Recipe)}
    known, takes_any = _factory_names(factory)
    plans = []
    for candidate in candidates:
        recipe: dict[str, Any] = {n: value for n, value in candidate.items() if n in steering}
        shape = {name: value for name, value in candidate.items() if name not in steering}
        for name in shape:
            if not takes_any and name not in known:
                raise UnknownName("hyperparameter", name, sorted(steering | known))
        plans.append(SortedRecipe(tuple(sorted(shape.items())), replace(defaults, **recipe)))
    return plans


def _factory_names(factory: Callable[..., Any]) -> tuple[set[str], bool]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _optimiser(name: object) -> Optimiser:
    if name not in list(Optimiser):
        raise UnknownName("optimiser", str(name), Optimiser)
    return Optimiser(str(name))

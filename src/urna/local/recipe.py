"""How candidates are trained: their recipes, which of them train together, and who stops early.

A candidate's names are sorted here, once: those of a `Recipe` steer the training, those the
module's factory takes shape the module, and any other is refused before anything runs.

A *group* holds candidates whose modules, batches and optimiser agree in shape, so that their
weights stack into one tensor. A *lane* is one row of that stack. All candidates of a group
start from the same weights and see the same batches and masks; two that have agreed in every
hyperparameter so far, learning rates of past epochs included, are still one run and share a
lane. The shared result is exact.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.space import Candidate, Value

__all__ = [
    "LaneGroup",
    "Optimiser",
    "Recipe",
    "Sharing",
    "SortedRecipe",
    "SuccessiveHalving",
    "group_plans",
    "lineages",
    "plan_candidates",
    "share_lanes",
]


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


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Candidates that stack."""

    shape: tuple[tuple[str, Value], ...]
    places: tuple[int, ...]
    """The candidates' places in the space."""
    recipes: tuple[Recipe, ...]
    """Their recipes, in the same order; of one batch size, length and optimiser."""

    @property
    def batch_size(self) -> int:
        """Rows per step."""
        return self.recipes[0].batch_size

    @property
    def epochs(self) -> int:
        """Passes over the training rows."""
        return self.recipes[0].epochs

    def __len__(self) -> int:
        return len(self.places)

    def only(self, member: int) -> "LaneGroup":
        """Return the group of one member alone."""
        return replace(self, places=(self.places[member],), recipes=(self.recipes[member],))


def group_plans(plans: Sequence[SortedRecipe]) -> list[LaneGroup]:
    """Group candidates by all that changes the shape of a step."""
    members: dict[tuple[object, ...], list[int]] = {}
    for place, plan in enumerate(plans):
        recipe = plan.recipe
        key = (plan.shape, recipe.batch_size, recipe.epochs, recipe.optimiser)
        members.setdefault(key, []).append(place)
    return [
        LaneGroup(plans[places[0]].shape, tuple(places), tuple(plans[p].recipe for p in places))
        for places in members.values()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Who shares a lane during one epoch."""

    leaders: tuple[int, ...]
    """One member of the group for each lane: its recipe is the lane's for this epoch."""
    lane_of: npt.NDArray[np.intp]
    """The lane of every member of the group; −1 for those no longer trained."""


@functools.lru_cache(maxsize=64)
def lineages(recipes: tuple[Recipe, ...]) -> npt.NDArray[np.intp]:
    """Return a number for every member and epoch, shape (members, epochs).

    Members with the same number have agreed in everything up to the end of that epoch.
    Remembered, because every simulated client asks for the same.
    """
    found = np.zeros((len(recipes), recipes[0].epochs), dtype=np.intp)
    others = [_effective(recipe) for recipe in recipes]
    rates = [recipe.learning_rates() for recipe in recipes]
    for epoch in range(found.shape[1]):
        numbers: dict[tuple[object, ...], int] = {}
        for member, (other, rate) in enumerate(zip(others, rates, strict=True)):
            found[member, epoch] = numbers.setdefault((rate[: epoch + 1], other), len(numbers))
    found.flags.writeable = False
    return found


def share_lanes(
    recipes: tuple[Recipe, ...], alive: Sequence[int], epoch: int, *, shared: bool = True
) -> Sharing:
    """Assign lanes for one epoch; members that agreed in everything so far share one.

    Args:
        recipes: The group's recipes.
        alive: Members still trained, by their place in the group.
        epoch: The epoch about to run, from 0.
        shared: False gives every member a lane of its own.

    Example:
        >>> recipes = (Recipe(lr=0.1, decay=1.0), Recipe(lr=0.1, decay=0.5), Recipe(lr=0.2))
        >>> share_lanes(recipes, (0, 1, 2), epoch=0).leaders
        (0, 2)
        >>> share_lanes(recipes, (0, 1, 2), epoch=1).leaders
        (0, 1, 2)
    """
    numbers = lineages(recipes)[:, epoch] if shared else np.arange(len(recipes))
    members = np.array(alive, dtype=np.intp)
    _, first, lane = np.unique(numbers[members], return_index=True, return_inverse=True)
    lane_of = np.full(len(numbers), -1, dtype=np.intp)
    lane_of[members] = lane
    return Sharing(tuple(members[first].tolist()), lane_of)


def _effective(recipe: Recipe) -> Recipe:
    """Return the recipe without learning rates and without what its optimiser ignores."""
    still = replace(recipe, lr=0.0, decay=0.0)
    if recipe.optimiser is Optimiser.ADAMW:
        return replace(still, momentum=0.0, nesterov=False)
    return replace(still, beta1=0.0, beta2=0.0, nesterov=recipe.nesterov and recipe.momentum > 0)


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """After each epoch keep the best share (Jamieson and Talwalkar 2016).

    Candidates that tie go on or stop together, and those that still share a lane tie exactly.
    Finalists go on from the weights they had: their losses are the full search's, bit for bit on a
    CPU, and up to the rounding of other kernels on a GPU. A race costs no privacy; it may change
    whom a client votes for (`benchmarks/papers/agreement.py` measures how often).

    Guarantee:
        What is voted on are losses at equal effort. A candidate that a race stops has an
        infinite loss, so it is never compared with one that was trained longer. At least
        `finalists` candidates are trained to the end, besides those whose training ends
        early by itself (a learning rate that decays to zero): their losses are final and kept.

    Assumes:
        A ballot names no more candidates than there are finalists. Choose `finalists` at least as
        large as the number of votes or ranks of a ballot, better a quarter of the candidates.

    Args:
        factor: One in this many goes on; 2 halves.
        finalists: Fewest candidates trained to the end.
        first_epoch: Epochs before anybody is stopped.
    """

    factor: float = 4.0
    finalists: int = 24
    first_epoch: int = 1

    def __post_init__(self) -> None:
        if self.finalists < 1:
            raise ParameterError(f"finalists must be at least 1, got {self.finalists}")
        if not self.factor > 1 or self.first_epoch < 1:
            raise ParameterError(
                f"halving needs a factor > 1 and a first epoch >= 1, got {self.factor} and "
                f"{self.first_epoch}"
            )

    def survivors(
        self, *, losses: npt.NDArray[np.float64], racing: Sequence[int], epoch: int
    ) -> list[int]:
        """Return those of `racing` that go on: the best share; ties at the border go together.

        Args:
            losses: Validation losses after this epoch, by place in the group.
            racing: Places of the candidates still in the race.
            epoch: The epoch just trained, from 0.
        """
        if epoch + 1 < self.first_epoch:
            return list(racing)
        count = max(int(np.ceil(len(racing) / self.factor)), self.finalists)
        finite = [member for member in racing if np.isfinite(losses[member])]  # others diverged
        border = np.sort(losses[finite])[:count].max(initial=-np.inf)
        return [member for member in finite if losses[member] <= border]

"""Which candidates train together, and which of them are still the same run.

A *group* holds candidates whose modules, batches and optimiser agree in shape, so that their
weights stack into one tensor. A *lane* is one row of that stack. All candidates of a group
start from the same weights and see the same batches and masks; two that have agreed in every
hyperparameter so far, learning rates of past epochs included, are still one run and share a
lane. A space with five decays of the learning rate trains a fifth of its candidates in the
first epoch, and loses nothing: the shared result is exact.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from urna.local.recipe import Optimiser, Recipe, SortedRecipe
from urna.space import Value

__all__ = ["LaneGroup", "Sharing", "group_plans", "lineages", "share_lanes", "share_numbers"]


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Candidates that stack."""

    shape: tuple[tuple[str, Value], ...]
    batch_size: int
    epochs: int
    optimiser: Optimiser
    places: tuple[int, ...]
    """The candidates' places in the space."""
    recipes: tuple[Recipe, ...]
    """Their recipes, in the same order."""

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
    groups = []
    for places in members.values():
        plan = plans[places[0]]
        recipes = tuple(plans[place].recipe for place in places)
        first = recipes[0]
        groups.append(
            LaneGroup(
                plan.shape, first.batch_size, first.epochs, first.optimiser, tuple(places), recipes
            )
        )
    return groups


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


def share_lanes(recipes: tuple[Recipe, ...], alive: Sequence[int], epoch: int) -> Sharing:
    """Assign lanes for one epoch; members that agreed in everything so far share one.

    Args:
        recipes: The group's recipes.
        alive: Members still trained, by their place in the group.
        epoch: The epoch about to run, from 0.

    Example:
        >>> recipes = (Recipe(lr=0.1, decay=1.0), Recipe(lr=0.1, decay=0.5), Recipe(lr=0.2))
        >>> share_lanes(recipes, (0, 1, 2), epoch=0).leaders
        (0, 2)
        >>> share_lanes(recipes, (0, 1, 2), epoch=1).leaders
        (0, 1, 2)
    """
    return share_numbers(lineages(recipes)[:, epoch], alive)


def share_numbers(numbers: npt.NDArray[np.intp], alive: Sequence[int]) -> Sharing:
    """Give one lane to all of `alive` that have the same number, one column of `lineages`."""
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

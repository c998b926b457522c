"""Trains candidates, or clients, together and gives back scores or weights.

Three functions are the whole interface, and all the rest of this package is there to make them
fast: `search_group` trains a group of candidates on a client and gives back their scores,
`train_group` trains from given weights and gives back the trained ones, `score_group` judges
weights. They know recipes, data and races, but no objective. Importing this package does not
import torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.local.engine.model import Model, Tick, Weights, joined, out_of_memory
from urna.local.holdout import Holdout
from urna.local.recipe import LaneGroup, Recipe, SuccessiveHalving

if TYPE_CHECKING:
    from urna.local.engine.runner import Runner

__all__ = [
    "Model",
    "Recordings",
    "Tick",
    "Weights",
    "check_client",
    "check_model",
    "joined",
    "score_group",
    "search_group",
    "train_group",
]


@dataclass(slots=True)
class Recordings:
    """Modules and recorded steps, kept from one call to the next; pickled, it is empty."""

    _runners: "dict[object, Runner]" = field(default_factory=dict, repr=False)

    def runner(self, model: Model, recipes: Sequence[Recipe]) -> "Runner":
        """Return what trains a model by such recipes, with what it has recorded so far."""
        from urna.local.engine.runner import Runner  # noqa: PLC0415 - imports torch
        from urna.local.engine.stack import Features  # noqa: PLC0415

        key = model, Features.of(recipes)
        found = self._runners.get(key)
        # Two threads may make one; both then use the same.
        return found or self._runners.setdefault(key, Runner(*key))

    def __reduce__(self) -> tuple[type["Recordings"], tuple[()]]:
        return Recordings, ()


def check_model(model: Model) -> None:
    """Refuse a module that cannot be trained together, whatever the data; nothing is computed.

    Raises:
        CannotBatch: The module has recurrent layers.
    """
    import torch  # noqa: PLC0415 - the core runs without torch

    from urna.local.engine.gradients import refuse_recurrent  # noqa: PLC0415
    from urna.local.engine.runner import Runner  # noqa: F401, PLC0415 - imported for later

    try:
        with torch.device("meta"):
            module = model.build()
    except Exception:  # the factory needs real tensors, or cannot be called like this at all
        try:
            module = model.build()
        except RuntimeError as error:
            if out_of_memory(error):
                return  # its candidates will fail, and no others
            raise
    refuse_recurrent(module)


def check_client(
    model: Model, recipes: Sequence[Recipe], data: Samples, recordings: Recordings
) -> None:
    """Refuse rows that the model cannot be trained on, before a device sees them.

    Raises:
        ParameterError: Targets are not among the module's classes.
    """
    runner = recordings.runner(model, recipes)
    with runner.lock:
        runner.check(data)


def search_group(
    model: Model,
    group: LaneGroup,
    client: Holdout,
    seed: int,
    *,
    recordings: Recordings,
    race: SuccessiveHalving | None = None,
    most_lanes: int | None = None,
    tick: Tick = lambda share: None,
) -> npt.NDArray[np.float64]:
    """Train a group of candidates on a client, and judge them.

    Args:
        model: What is trained.
        group: The candidates' recipes.
        client: Its rows to train on and to judge by.
        seed: Of first weights, batches and masks.
        recordings: What earlier calls recorded.
        race: Which candidates may stop early.
        most_lanes: Candidates trained at once; None lets memory and cache decide.
        tick: Called after each epoch.

    Returns:
        Shape (members, 2): losses and shares of right answers.
    """
    runner = recordings.runner(model, group.recipes)
    with runner.lock:
        return runner.search(group, client, seed, race, most_lanes, tick)


def train_group(
    model: Model,
    recipes: Sequence[Recipe],
    weights: Weights,
    clients: Sequence[Samples],
    seeds: Sequence[int],
    *,
    recordings: Recordings,
    features_of: Sequence[Recipe] | None = None,
    first_epoch: int = 0,
) -> Iterator[tuple[list[int], Weights]]:
    """Train given weights on every client with a fresh optimiser.

    On a CPU clients that take equally many steps are trained together, smaller ones padded with
    rows that the loss ignores, where that is sound: cross entropy without smoothing, and a module
    in which rows do not mix. Otherwise only equally large ones are.

    Args:
        model: What is trained.
        recipes: One for each lane of `weights`; of one batch size, optimiser and length.
        weights: Where every client starts, one lane for each recipe.
        clients: Each client's rows.
        seeds: Each client's seed of batches and masks.
        recordings: What earlier calls recorded.
        features_of: All recipes that recordings are to be shared with; by default these.
        first_epoch: The number of the first epoch: batches and masks go on from there.

    Yields:
        The places of some clients, and their weights: all lanes of the first, then of the next.
    """
    runner = recordings.runner(model, features_of or recipes)
    with runner.lock:
        yield from runner.train(recipes, weights, clients, seeds, first_epoch)


def score_group(
    model: Model,
    recipes: Sequence[Recipe],
    weights: Weights,
    data: Samples,
    *,
    recordings: Recordings,
) -> npt.NDArray[np.float64]:
    """Return the loss and the share of right answers of every lane of weights on some rows.

    Args:
        model: What was trained.
        recipes: By which it was trained.
        weights: One lane for each answer.
        data: Rows to judge by.
        recordings: What earlier calls recorded.

    Returns:
        Shape (lanes, 2).
    """
    runner = recordings.runner(model, recipes)
    with runner.lock:
        return runner.score(weights, data, rows=4 * recipes[0].batch_size)

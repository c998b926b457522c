"""PrivTuna's mean: average every client's best setting (Mitic, Pyrgelis & Sav 2025)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.papers.baselines.bounded import BoundedSum, Floats, check_scores

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget
from urna.space import Space

__all__ = ["MeanSetting"]


@dataclass(frozen=True, slots=True)
class MeanSetting:
    """Average the settings clients like best, and take the candidate nearest to the mean.

    Its authors add up under homomorphic encryption and publish the exact mean, without
    differential privacy: `budget=None`. The same sum may carry noise. Settings are scaled
    to [0, 1] axis by axis, so that one client moves as many entries by one as there are axes.

    Args:
        budget: What the mean may cost; None publishes it exactly, as the authors do.
    """

    budget: Budget | None = None

    def sum_of(self, clients: int, axes: int) -> BoundedSum:
        """Return the private sum this takes."""
        return BoundedSum(clients, moved=axes, budget=self.budget)

    def winners(
        self,
        losses: npt.NDArray[np.floating],
        space: Space,
        rng: np.random.Generator,
        draws: int,
    ) -> IntVector:
        """Return the winners of independent draws; ties at a client are broken by lot.

        Args:
            losses: Clients × candidates; not finite where a run diverged.
            space: The candidates, all axes numeric.
            rng: Public generator.
            draws: How many times to choose.
        """
        values = check_scores(losses)
        values = np.where(np.isfinite(values), values, np.inf)
        places = scaled(space)
        private = self.sum_of(len(values), places.shape[1])
        chosen = []
        for _ in range(draws):
            lots = rng.random(values.shape)
            best = np.lexsort((lots, values), axis=1)[:, 0]
            mean = private.noisy(places[best], rng) / len(values)
            chosen.append(np.argmin(((places - mean) ** 2).sum(axis=1)))
        return np.array(chosen)


def scaled(space: Space) -> Floats:
    """Return candidates × axes, every axis scaled to [0, 1] by its smallest and largest value.

    Raises:
        ParameterError: An axis is not numeric: nothing can be averaged.
    """
    names = list(space[0])
    for name in names:
        if not all(isinstance(candidate[name], int | float) for candidate in space):
            raise ParameterError(f"settings cannot be averaged along {name!r}: it holds no numbers")
    raw = np.array([[float(candidate[name]) for name in names] for candidate in space])
    low, high = raw.min(axis=0), raw.max(axis=0)
    places: Floats = (raw - low) / np.where(high > low, high - low, 1.0)
    return places

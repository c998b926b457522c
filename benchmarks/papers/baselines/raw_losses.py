"""RawLosses: clients send their accuracies instead of votes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.papers.baselines.bounded import BoundedSum, check_scores

from urna.noise import IntVector
from urna.privacy import Budget

__all__ = ["RawLosses"]


@dataclass(frozen=True, slots=True)
class RawLosses:
    """Add up all clients' accuracies, clipped to [0, 1], and take the largest noisy sum.

    An accuracy says more than a vote, and costs more: one client can move every one of the m
    sums by one, an L2 sensitivity of √m where a ballot of k votes has √(2k).

    Args:
        budget: What it may cost; None for no noise.
    """

    budget: Budget | None

    def sum_of(self, clients: int, candidates: int) -> BoundedSum:
        """Return the private sum this takes."""
        return BoundedSum(clients, moved=candidates, budget=self.budget)

    def winners(
        self, accuracies: npt.NDArray[np.floating], rng: np.random.Generator, draws: int
    ) -> IntVector:
        """Return the winners of independent draws.

        Args:
            accuracies: Clients × candidates.
            rng: Public generator.
            draws: How many times to choose.
        """
        values = check_scores(accuracies)
        private = self.sum_of(*values.shape)
        return np.array([np.argmax(private.noisy(values, rng)) for _ in range(draws)])

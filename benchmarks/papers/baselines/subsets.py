"""Subsets: each client judges one candidate only."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.papers.baselines.bounded import BoundedSum, check_scores

from urna.noise import IntVector
from urna.privacy import Budget

__all__ = ["Subsets"]


@dataclass(frozen=True, slots=True)
class Subsets:
    """Split the clients over the candidates by public lot; each sends one accuracy.

    One client moves one sum by one, so the noise is small. But each candidate is judged by
    n/m clients, and with fewer clients than candidates some are judged by nobody; those
    cannot win. The largest noisy mean wins.

    Args:
        budget: What it may cost; None for no noise.
    """

    budget: Budget | None

    def sum_of(self, clients: int) -> BoundedSum:
        """Return the private sum this takes."""
        return BoundedSum(clients, moved=1, budget=self.budget)

    def winners(
        self, accuracies: npt.NDArray[np.floating], rng: np.random.Generator, draws: int
    ) -> IntVector:
        """Return the winners of independent draws, each with a split of its own.

        Args:
            accuracies: Clients × candidates.
            rng: Public generator.
            draws: How many times to choose.
        """
        values = check_scores(accuracies)
        clients, candidates = values.shape
        private = self.sum_of(clients)
        chosen = []
        for _ in range(draws):
            sends = assignment(clients, candidates, rng)
            counts = sends.sum(axis=0)
            means = private.noisy(values, rng, sends) / np.maximum(counts, 1)
            chosen.append(np.argmax(np.where(counts > 0, means, -np.inf)))
        return np.array(chosen)


def assignment(clients: int, candidates: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return zeros and ones, clients × candidates: one 1 for each client, spread evenly."""
    order = rng.permutation(candidates)
    sends = np.zeros((clients, candidates))
    sends[rng.permutation(clients), order[np.arange(clients) % candidates]] = 1.0
    return sends

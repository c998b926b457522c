"""Private selection by a trusted server (Papernot & Steinke 2022): what trust would buy."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.papers.baselines.bounded import check_scores

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget

__all__ = ["CentralSelection"]


@dataclass(frozen=True, slots=True)
class CentralSelection:
    """Judge a random number of random candidates privately and publish the best only.

    A server that everybody trusts draws K from a Poisson distribution, K times a candidate
    uniformly, adds up the clients' clipped accuracies with Gaussian noise, and publishes the
    candidate of the largest noisy sum. With no try at all it publishes any candidate.

    Guarantee:
        The published candidate is as private as `budget` says when one client is replaced:
        every noisy sum is a Gaussian mechanism of sensitivity one, and repeating it a
        Poisson number of times and keeping the best is priced by dp-accounting's
        `RepeatAndSelectDpEvent`.

    Assumes:
        Nobody sees anything but the published candidate: not K, no other sum. That takes a
        trusted server, which a vote does without.

    Args:
        budget: What it may cost; None for no noise.
        tries: Mean number of tries; None tries each candidate once on average.
    """

    budget: Budget | None
    tries: float | None = None

    def noise_std(self, candidates: int) -> float:
        """Return the standard deviation of the noise on a sum of accuracies."""
        if self.budget is None:
            return 0.0
        return _least_std(self.budget, self._tries(candidates))

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
        sums = np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0).sum(axis=0)
        candidates = len(sums)
        std = self.noise_std(candidates)
        chosen = []
        for _ in range(draws):
            tried = rng.integers(candidates, size=max(rng.poisson(self._tries(candidates)), 0))
            if len(tried) == 0:
                chosen.append(int(rng.integers(candidates)))
                continue
            noisy = sums[tried] + std * rng.standard_normal(len(tried))
            chosen.append(int(tried[np.argmax(noisy)]))
        return np.array(chosen)

    def _tries(self, candidates: int) -> float:
        tries = float(candidates) if self.tries is None else self.tries
        if not (math.isfinite(tries) and tries > 0):
            raise ParameterError(f"the mean number of tries must be positive, got {tries}")
        return tries


@functools.lru_cache(maxsize=128)
def _least_std(budget: Budget, tries: float) -> float:
    """Return the least standard deviation that meets the budget, to 0.1 %, rounded up."""

    def enough(std: float) -> bool:
        return price(std, tries, budget.delta) <= budget.epsilon

    low, high = 0.5, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise ParameterError(f"no noise meets epsilon {budget.epsilon:g}; raise delta")
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def price(std: float, tries: float, delta: float) -> float:
    """Return the epsilon of the whole selection at this delta."""
    import dp_accounting  # noqa: PLC0415 - only this baseline needs it here

    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    once = dp_accounting.GaussianDpEvent(std)
    accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(once, tries, math.inf))
    return float(accountant.get_epsilon(delta))

"""Feathers' choice of hyperparameters (Seng et al. 2022), replayed on recorded losses.

Its authors keep a reward for every candidate. In each phase of exploration the server draws
candidates from the softmax of the rewards, as many as γ times the entropy of it says; all
clients train with each of them for a while and report their validation loss before and
after, each with Gaussian noise of their own; rewards move towards the mean gain by a factor
α, and those of candidates not drawn shrink to α times themselves. The candidate of largest
reward is used. Architecture search, the other half of Feathers, has no counterpart here.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.papers.baselines.bounded import check_scores
from scipy.special import softmax

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget, gaussian_std

__all__ = ["Feathers"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Feathers:
    """Explore candidates in phases and follow noisy gains.

    Guarantee:
        With `honest`, each client's reports together are as private as `budget` says, even
        against a server that sees every report (local differential privacy). Losses are
        clipped to [0, `largest_loss`]; there are at most `reports` of them, because the
        entropy of m candidates is at most log m; and Gaussian mechanisms of equal strength
        compose, adaptively chosen ones too, to one of √`reports` times the sensitivity.

        Without it, as published, there is no guarantee: losses are not clipped, and the
        noise is sized as if one loss of sensitivity one were reported once.

    Args:
        budget: What it may cost; None for no noise.
        honest: Whether to clip losses and to pay for every report.
        phases: Phases of exploration; the authors' 120 rounds have 12.
        step: The factor α of rewards.
        exploration: The factor γ of entropy.
        largest_loss: Where honest clients clip; about twice the loss of guessing among ten.
    """

    budget: Budget | None
    honest: bool = False
    phases: int = 12
    step: float = 0.3
    exploration: float = 4.0
    largest_loss: float = 4.6

    def __post_init__(self) -> None:
        if self.phases < 1 or not 0 < self.step <= 1:
            raise ParameterError(
                "exploration needs at least one phase and a step in (0, 1], got "
                f"{self.phases} and {self.step}"
            )
        if self.exploration <= 0 or self.largest_loss <= 0:
            raise ParameterError("the entropy's factor and the largest loss must be positive")

    def reports(self, candidates: int) -> int:
        """Return how many losses a client can be asked for: two for each candidate drawn."""
        return 2 * self.phases * self._most_drawn(candidates)

    def noise_std(self, candidates: int) -> float:
        """Return the standard deviation of the noise on each reported loss."""
        if self.budget is None:
            return 0.0
        if not self.honest:
            return gaussian_std(self.budget, sensitivity=1.0)
        sensitivity = self.largest_loss * math.sqrt(self.reports(candidates))
        return gaussian_std(self.budget, sensitivity=sensitivity)

    def winners(
        self,
        losses: npt.NDArray[np.floating],
        before: npt.NDArray[np.floating],
        rng: np.random.Generator,
        draws: int,
        rows: npt.NDArray[np.integer] | None = None,
    ) -> IntVector:
        """Return the winners of independent runs.

        Args:
            losses: Clients × candidates: each client's loss after training; not finite where
                it diverged.
            before: Each client's loss before any training.
            rng: Public generator.
            draws: How many runs.
            rows: Each client's rows, by which the authors weight; None weights them equally.
        """
        after = check_scores(losses)
        # A diverged run's loss is taken as the largest that is reported: gains stay numbers.
        after = np.where(np.isfinite(after), after, self.largest_loss)
        start = np.broadcast_to(before.astype(np.float64), (len(after),))
        if self.honest:
            after, start = (np.clip(x, 0.0, self.largest_loss) for x in (after, start))
        share = np.ones(len(after)) if rows is None else rows.astype(np.float64)
        share = share / share.sum()
        gains = share @ (start[:, None] - after)
        # The server only uses the weighted mean of all reports: its noise is one normal.
        std = self.noise_std(after.shape[1]) * math.sqrt(2 * float(share @ share))
        return np.array([self._run(gains, std, rng) for _ in range(draws)])

    def _run(self, gains: Floats, std: float, rng: np.random.Generator) -> int:
        rewards = np.zeros(len(gains))
        for _ in range(self.phases):
            largest = np.abs(rewards).max()
            chances = softmax(rewards / largest if largest > 0 else rewards)
            count = max(self._drawn(chances), 1)
            drawn = rng.choice(len(gains), size=count, p=chances)
            seen = gains[drawn] + std * rng.standard_normal(count)
            times = np.bincount(drawn, minlength=len(gains))
            means = np.bincount(drawn, weights=seen, minlength=len(gains)) / np.maximum(times, 1)
            moved = rewards + self.step * (means - rewards)
            rewards = np.where(times > 0, moved, self.step * rewards)
        best = np.flatnonzero(rewards == rewards.max())
        return int(rng.choice(best))

    def _drawn(self, chances: Floats) -> int:
        positive = chances[chances > 0]
        entropy = -float(positive @ np.log(positive))
        return round(self.exploration * entropy)

    def _most_drawn(self, candidates: int) -> int:
        return max(round(self.exploration * math.log(candidates)), 1)

"""The paper's controlled simulation (DP-Hype, Section V-B and Figure 2).

Losses of good candidates are normal around 0, those of bad ones around 1, with a common
spread; the larger the spread, the less clients agree. No real data is involved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.forecast.votes import exact_interval
from urna.privacy import Budget
from urna.systems.vote.plan import plan

__all__ = [
    "FIGURE_2_GOOD",
    "FIGURE_2_SPREADS",
    "FIGURE_2_VOTES",
    "SimulatedVote",
    "simulate",
]

FIGURE_2_VOTES = (1, 5, 25, 50, 100)
FIGURE_2_SPREADS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FIGURE_2_GOOD = (1, 2, 5, 10, 20, 50, 90)


@dataclass(frozen=True, slots=True)
class SimulatedVote:
    """How often a good candidate won in one setting."""

    epsilon: float
    delta: float
    votes: int
    good: int
    spread: float
    noise_std: float
    successes: int
    repetitions: int

    @property
    def rate(self) -> float:
        """Fraction of repetitions in which a good candidate won."""
        return self.successes / self.repetitions

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % confidence interval of the success probability."""
        return exact_interval(self.successes, self.repetitions)


def simulate(
    *,
    budgets: Sequence[Budget],
    rng: np.random.Generator,
    clients: int = 250,
    candidates: int = 100,
    votes: Sequence[int] = FIGURE_2_VOTES,
    good: int = 5,
    spread: float = 1.0,
    repetitions: int = 100,
) -> list[SimulatedVote]:
    """Return how often each budget and number of votes finds a good candidate.

    The noise is the mechanism's own: integer noise of the calibrated variance, drawn from a
    public generator because nothing here is secret.

    Args:
        budgets: Budgets to compare.
        rng: Public generator.
        clients: Number of voters.
        candidates: Number of candidates.
        votes: Ballot sizes to compare.
        good: How many of the candidates are good.
        spread: Standard deviation of the losses around 0 (good) and 1 (bad).
        repetitions: How many votes are held in each setting.
    """
    if not 1 <= good < candidates:
        raise ParameterError(f"1 to {candidates - 1} candidates can be good, got {good}")
    if not (math.isfinite(spread) and spread > 0):
        raise ParameterError(f"the spread must be finite and positive, got {spread}")
    if repetitions < 1:
        raise ParameterError(f"repetitions must be at least 1, got {repetitions}")
    settings = [
        (budget, k, plan(clients=clients, candidates=candidates, budget=budget, votes=k))
        for budget in budgets
        for k in votes
    ]
    wins = [0] * len(settings)
    for _ in range(repetitions):
        counts = _vote_counts(rng, clients, candidates, good, spread, votes)
        for i, (_, k, vote) in enumerate(settings):
            # Skellam is closed under addition: all clients' noise is one draw.
            tally = vote.tally
            table = tally.noise.table(tally.share * clients)
            noisy = counts[k] * tally.scale + table.draw(rng.bytes(32), candidates)
            best = np.flatnonzero(noisy == noisy.max())
            wins[i] += int(rng.choice(best) < good)
    return [
        SimulatedVote(
            epsilon=budget.epsilon,
            delta=budget.delta,
            votes=k,
            good=good,
            spread=spread,
            noise_std=vote.noise_std,
            successes=won,
            repetitions=repetitions,
        )
        for (budget, k, vote), won in zip(settings, wins, strict=True)
    ]


def _vote_counts(
    rng: np.random.Generator,
    clients: int,
    candidates: int,
    good: int,
    spread: float,
    votes: Sequence[int],
) -> dict[int, npt.NDArray[np.int64]]:
    """Return the exact votes of one electorate for each size of ballot."""
    losses = rng.normal(0.0, spread, size=(clients, candidates))
    losses[:, good:] += 1.0
    ranked = np.argsort(losses, axis=1)
    return {k: np.bincount(ranked[:, :k].ravel(), minlength=candidates) for k in votes}

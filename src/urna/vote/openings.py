"""Which opening suits a vote: its tally, or its winner alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.errors import ParameterError
from urna.privacy import SelectionRelease
from urna.vote.levels import LevelShape
from urna.vote.plan import VotePlan

__all__ = ["Openings", "compare_openings", "leading_chance"]

_BESIDE = {"largest_of": 4, "fineness": 4, "gap": False}  # what composes best
_SMALLEST = 1e-4  # epsilon of a winner that nobody would hold


@dataclass(frozen=True, slots=True)
class Openings:
    """The lead a candidate needs to win this probably, as a part of what all ballots can give it.

    The smaller, the better a vote finds. Each is for the same ledger: what the vote is priced at
    is the same.
    """

    probability: float
    tally: float
    """Read from a tally by argmax; a decoder that knows the grid does better under strong noise."""
    winner_alone: float
    """The winner opened, the vote alone in its ledger."""
    winner_beside: float
    """The winner opened beside sums in the same ledger, at the μ of the tally."""

    @property
    def advice(self) -> str:
        """What to open, in words."""
        alone = "the winner" if self.winner_alone < self.tally else "the tally"
        beside = "the winner" if self.winner_beside < self.tally else "the tally"
        if alone == beside:
            return alone
        return f"alone in its ledger {alone}, beside training {beside}"

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; a lead no ballots can make as null."""
        leads = {
            "tally": self.tally,
            "winner_alone": self.winner_alone,
            "winner_beside": self.winner_beside,
        }
        return {
            "lead_needed": {k: v if math.isfinite(v) else None for k, v in leads.items()},
            "advice": self.advice,
        }


def compare_openings(vote: VotePlan, probability: float = 0.95) -> Openings:
    """Compare what a vote finds by its tally and by its winner alone. Nothing is spent."""
    terms, release = vote.terms, vote.tally.release
    ballots = terms.fewest * terms.shards
    shape = LevelShape(vote.candidates)
    reach = shape.reach(terms.adjacency)
    alone = SelectionRelease(float(terms.budget.epsilon), reach, vote.candidates)
    beside = math.inf
    if release is not None:
        priced = _priced(release.cost().mu, reach, vote.candidates)
        if priced is not None:
            beside = _lead_for(priced, probability) / (ballots * shape.levels)
    return Openings(
        probability,
        vote.gap_for(probability) / vote.largest_gap,
        _lead_for(alone, probability) / (ballots * shape.levels),
        beside,
    )


def leading_chance(lead: int, release: SelectionRelease) -> float:
    """Return how probably a candidate wins that leads all others, which are equal, by so much.

    Σ_t P(N = t)·P(N < t + lead)^(m − 1), for noise on whole votes and ties that are lost.
    """
    rate = release.rate * (1 << release.fineness)
    steps = np.arange(math.ceil(40 / rate))
    chance = np.diff(-np.expm1(-rate * (steps + 1)), prepend=0.0)
    if release.largest_of > 1:
        chance = np.diff((-np.expm1(-rate * (steps + 1))) ** release.largest_of, prepend=0.0)
    behind = np.maximum(-np.expm1(-rate * (steps + lead)), 0.0) ** release.largest_of
    return float(chance @ behind ** (release.candidates - 1))


def _lead_for(release: SelectionRelease, probability: float) -> int:
    """Return the least lead, in votes, at which a candidate wins this probably."""
    high = 1
    while leading_chance(high, release) < probability:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if leading_chance(middle, release) < probability else (low, middle)
        )
    return high


def _priced(mu: float, reach: int, candidates: int) -> SelectionRelease | None:
    """Return the selection of largest epsilon that costs at most μ beside sums, to 1 %."""

    def made(epsilon: float) -> SelectionRelease | None:
        try:
            return SelectionRelease(epsilon, reach, candidates, **_BESIDE)  # type: ignore[arg-type]
        except ParameterError:
            return None

    low, high = _SMALLEST, 50.0
    found = None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        tried = made(middle)
        if tried is None or tried.mu <= mu:
            low, found = middle, tried or found
        else:
            high = middle
    return found

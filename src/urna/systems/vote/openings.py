"""What a vote needs of its ballots if its tally is opened, or its winner alone."""

import math
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from urna.errors import ParameterError
from urna.privacy import SelectionRelease
from urna.systems.vote.levels import LevelShape
from urna.systems.vote.plan import VotePlan

__all__ = [
    "BESIDE",
    "Kind",
    "Leads",
    "compare_leads",
    "epsilon_leading",
    "leading_chance",
    "priced_beside",
]


class Kind(TypedDict):
    """What kind of selection it is, but for its epsilon."""

    largest_of: int
    fineness: int
    gap: bool


BESIDE: Kind = {"largest_of": 4, "fineness": 4, "gap": False}
"""The selection that composes best with sums."""

_SMALLEST = 1e-4  # epsilon of a winner that nobody would hold


@dataclass(frozen=True, slots=True)
class Leads:
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

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; a lead no ballots can make as null."""
        leads = {
            "tally": self.tally,
            "winner_alone": self.winner_alone,
            "winner_beside": self.winner_beside,
        }
        return {k: v if math.isfinite(v) else None for k, v in leads.items()}


def compare_leads(vote: VotePlan, probability: float = 0.95) -> Leads:
    """Compare what a vote finds by its tally and by its winner alone. Nothing is spent."""
    terms, release = vote.terms, vote.tally.release
    ballots = terms.fewest * terms.shards
    shape = LevelShape(vote.candidates)
    reach = shape.reach
    alone = SelectionRelease(float(terms.budget.epsilon), reach, vote.candidates)
    beside = math.inf
    if release is not None:
        priced = priced_beside(release.cost().mu, vote.candidates)
        if priced is not None:
            beside = _lead_for(priced, probability) / (ballots * shape.levels)
    return Leads(
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


def epsilon_leading(lead: int, release: SelectionRelease, probability: float) -> float | None:
    """Return the least epsilon, to 1 %, at which this lead wins this probably; None if none does.

    Args:
        lead: In votes, over all others, which are equal.
        release: The selection, but for its epsilon.
        probability: How probably the candidate should win.
    """
    low, high = _SMALLEST, 50.0
    if leading_chance(lead, replace(release, epsilon=high)) < probability:
        return None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        try:
            enough = leading_chance(lead, replace(release, epsilon=middle)) >= probability
        except ParameterError:  # no noise is that fine
            enough = False
        low, high = (low, middle) if enough else (middle, high)
    return high


def priced_beside(mu: float, candidates: int, kind: Kind = BESIDE) -> SelectionRelease | None:
    """Return the selection of largest epsilon that costs at most μ beside sums, to 1 %."""
    reach = LevelShape(candidates).reach

    def made(epsilon: float) -> SelectionRelease | None:
        try:
            return SelectionRelease(epsilon, reach, candidates, **kind)
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

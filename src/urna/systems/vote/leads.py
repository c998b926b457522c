"""The leads that a vote needs whose counts are revealed, or its winner alone."""

import math
from dataclasses import dataclass
from typing import Any

from urna.privacy import SelectionRelease
from urna.systems.vote.levels import lead_needed, priced_beside
from urna.systems.vote.plan import VotePlan
from urna.systems.vote.shapes import LevelShape

__all__ = ["Leads", "compare_leads"]


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
    """The winner revealed, the vote alone in its ledger."""
    winner_beside: float
    """The winner revealed beside sums in the same ledger, at the μ of the tally."""

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
    alone = SelectionRelease(float(terms.budget.epsilon), shape.reach, vote.candidates)
    beside = math.inf
    if release is not None:
        priced = priced_beside(release.cost().mu, vote.candidates)
        if priced is not None:
            beside = lead_needed(probability, priced) / (ballots * shape.levels)
    return Leads(
        probability,
        vote.gap_for(probability) / vote.largest_gap,
        lead_needed(probability, alone) / (ballots * shape.levels),
        beside,
    )

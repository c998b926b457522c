"""Which opening suits a vote: its tally or its winner alone, both held on synthetic loss surfaces.

The tally has the ballot and the decoder that it would have, the winner its levels and head start;
both are held on the same loss surfaces (`forecast`). Nothing is spent.
"""

from dataclasses import dataclass
from typing import Any

from urna.forecast.votes import HELD, Forecast, forecast
from urna.privacy import Budget
from urna.space import Space
from urna.systems.vote import Decoder, Reveal, VotePlan, plan_vote
from urna.systems.vote.levels import BESIDE, priced_beside

__all__ = ["NEAR", "Openings", "forecast_openings", "winner_beside"]

NEAR = 0.03
"""How far a winner may fall short of the best candidate to be called near it."""

_ERRORS = 2.0  # standard errors beyond which one opening is called better


@dataclass(frozen=True, slots=True)
class Openings:
    """A tally and a winner for the same room in a ledger, and what they found.

    Args:
        tally: What votes found whose tally is opened.
        winner: What those found of which only the winner is, on the same loss surfaces.
        tally_epsilon: What the tally costs by itself.
        winner_epsilon: What the winner does.
    """

    tally: Forecast
    winner: Forecast
    tally_epsilon: float
    winner_epsilon: float

    @property
    def gain(self) -> tuple[float, float]:
        """How much less regret the winner has, and its standard error."""
        return self.tally.gain_of(self.winner)

    @property
    def better(self) -> str:
        """`winner`, `tally`, or `either` where chance may explain the difference."""
        gain, error = self.gain
        if abs(gain) <= _ERRORS * error:
            return "either"
        return "winner" if gain > 0 else "tally"

    def __str__(self) -> str:
        what = "either" if self.better == "either" else f"the {self.better}"
        return (
            f"{what} (winner, epsilon {self.winner_epsilon:.3g}: "
            f"{100 * self.winner.within(NEAR):.0f} % within {100 * NEAR:g} % of the best, regret "
            f"{100 * self.winner.regret:.1f}; tally, epsilon {self.tally_epsilon:.3g}: "
            f"{100 * self.tally.within(NEAR):.0f} %, regret {100 * self.tally.regret:.1f})"
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        gain, error = self.gain
        return {
            "better": self.better,
            "gain": gain,
            "gain_error": error,
            "tally": {"epsilon": self.tally_epsilon, **self.tally.as_mapping()},
            "winner": {"epsilon": self.winner_epsilon, **self.winner.as_mapping()},
        }


def forecast_openings(
    tally: VotePlan,
    winner: VotePlan,
    space: Space,
    *,
    decoder: Decoder | None = None,
    held: int = HELD,
    found: Forecast | None = None,
    seed: int = 0,
) -> Openings:
    """Compare two openings of one vote on the same synthetic loss surfaces.

    Args:
        tally: The vote whose tally is opened.
        winner: The vote of which only the winner is.
        space: The candidates.
        decoder: How a tally is read; `PosteriorDecoder` by default.
        held: How many votes of each.
        found: What the tally found with this seed, where it was forecast before.
        seed: Public seed.
    """
    return Openings(
        found or forecast(tally, space, decoder=decoder, held=held, seed=seed),
        forecast(winner, space, held=held, seed=seed),
        float(tally.terms.budget.epsilon),
        float(winner.terms.budget.epsilon),
    )


def winner_beside(tally: VotePlan, space: Space) -> VotePlan | None:
    """Plan the winner that costs beside sums what a tally does; None where none is to be had.

    It is the one that composes best: no gap is opened, and noise is the largest of several.
    """
    release = tally.tally.release
    if release is None:
        return None
    terms = tally.terms
    bought = priced_beside(release.cost().mu, len(space))
    if bought is None:
        return None
    costing = terms.costing(Budget(bought.epsilon, terms.budget.delta))
    return plan_vote(costing, space, reveal=Reveal("winner", "a helper"), kind=BESIDE)

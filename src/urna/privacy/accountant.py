"""Compose releases into one epsilon."""

from collections.abc import Iterable
from dataclasses import dataclass

from urna.privacy.cost import FREE, Cost, together
from urna.privacy.events import Release, prices

__all__ = ["DECLARED", "GAUSSIAN", "Spent", "accountant_of", "compose"]

GAUSSIAN = "GDP (exact PLD of the dominating Gaussian)"
DECLARED = "basic composition"


@dataclass(frozen=True, slots=True)
class Spent:
    """How much privacy releases have cost."""

    epsilon: float
    accountant: str


def compose(releases: Iterable[Release], delta: float) -> Spent:
    """Return the epsilon of all releases together at this delta.

    Guarantee:
        Together the releases are (epsilon, delta)-DP under their own neighbouring relation,
        also when what is computed later depends on what was released earlier
        (`cost.together`). Selections are counted by their epsilons or by their Gaussians,
        whichever is less for all of them together.

    Assumes:
        How many releases there are and how much noise each has does not depend on the
        results of earlier ones. Where it may, keep a `Ledger`: its cap holds all the same.

    Example:
        >>> compose([], 1e-5)
        Spent(epsilon=0.0, accountant='nothing released')
    """
    costs = [prices(release) for release in releases]
    ways = [together(price[way] for price in costs) for way in (0, -1)]
    return spent_at(min(ways, key=lambda cost: cost.at(delta)), delta)


def spent_at(cost: Cost, delta: float) -> Spent:
    """Return a cost as an epsilon, and what computed it."""
    return Spent(cost.at(delta), accountant_of(cost))


def accountant_of(cost: Cost) -> str:
    """Return which bounds a cost rests on, in words."""
    if cost == FREE:
        return "nothing released"
    parts = [GAUSSIAN] * (cost.mu > 0) + [DECLARED] * (cost.epsilon > 0 or cost.delta > 0)
    return " + ".join(parts)

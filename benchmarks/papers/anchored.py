"""A strategy of our own: a published default, unless clients say that it fails.

What a server's optimiser needs has little to do with what clients need for themselves. The server
adds the mean of clients' updates, which are steps already: a learning rate of one is federated
averaging itself, and with a momentum of .9 (FedAvgM, Hsu, Qi & Brown 2019) it is what
most federations are started with. Local searches are asked for one thing only: which settings
ruin training. `benchmarks/own_federations.py` has the federations of ours on which the tolerance
was chosen; docs/decisions/0020-combining.md tells how.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from benchmarks.papers.federations import candidates

from urna.errors import ParameterError
from urna.systems.combine import (
    Frame,
    Searches,
)
from urna.systems.combine.cells import Mask
from urna.systems.combine.frame import Floats
from urna.systems.combine.strategies import Combined

__all__ = ["FEDAVGM", "Anchored"]

FEDAVGM: Mapping[str, float] = MappingProxyType({"lr": 1.0, "momentum": 0.9})
"""Server settings of federated averaging with momentum, public since 2019."""


@dataclass(frozen=True, slots=True)
class Anchored:
    """Take the setting closest to a public one, among those that do not ruin clients' training.

    A setting's worth is the mean over clients of its score as a part of that client's best.

    Args:
        anchor: The public setting, by axis. Axes it does not name are free: there the best
            counts.
        tolerance: A setting may lose this part of the best worth, and no more.
        within: The axes of what the setting is for, where they end sooner than clients' own.
    """

    name: ClassVar[str] = "anchored"
    anchor: Mapping[str, float] = field(default_factory=lambda: FEDAVGM)
    tolerance: float = 0.9
    within: Frame | None = None

    def combine(self, searches: Searches) -> Combined:
        """Return the setting."""
        names = searches.frame.names
        named = [place for place, name in enumerate(names) if name in self.anchor]
        if not named:
            raise ParameterError(
                f"the anchor names {', '.join(self.anchor)}; the axes are {', '.join(names)}"
            )
        tried = candidates(searches)
        worth = worth_of(searches, tried)
        allowed = self._inside(searches.frame, tried)
        good = allowed & (worth >= (1 - self.tolerance) * worth[allowed].max())
        # Where it ends is where its axis ends: an anchor beyond it is closest to the end.
        point = [
            min(
                max(self.anchor[names[place]], searches.frame.rulers[place].low),
                searches.frame.rulers[place].high,
            )
            for place in named
        ]
        rows = tried[0].copy()
        rows[named] = point
        target = searches.frame.units(rows[None, :])[0, named]
        away = ((searches.frame.units(tried)[:, named] - target) ** 2).sum(axis=1)
        order = np.lexsort((-worth, away))
        chosen = next(place for place in order if good[place])
        return Combined(dict(zip(names, tried[chosen].tolist(), strict=True)))

    def _inside(self, frame: Frame, tried: Floats) -> Mask:
        """Say which candidates lie on the axes they are for."""
        rulers = (self.within or frame).rulers
        low, high = [r.low for r in rulers], [r.high for r in rulers]
        inside: Mask = np.all((tried >= low) & (tried <= high), axis=1)
        return inside if inside.any() else np.ones_like(inside)


def worth_of(searches: Searches, tried: Floats) -> Floats:
    """Return each candidate's mean score over clients, as parts of each client's best.

    Clients that did not try a candidate are left out of its mean; a run that failed is worth
    nothing.
    """
    rows = {tuple(row): place for place, row in enumerate(tried.tolist())}
    total, count = np.zeros(len(tried)), np.zeros(len(tried))
    for client in searches.clients:
        best = float(np.max(client.scores, initial=0.0, where=np.isfinite(client.scores)))
        if best <= 0:
            continue
        places = [rows[tuple(row)] for row in client.settings.tolist()]
        scores = np.where(np.isfinite(client.scores), client.scores, 0.0)
        np.add.at(total, places, scores / best)
        np.add.at(count, places, 1)
    return total / np.maximum(count, 1)

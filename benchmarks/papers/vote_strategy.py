"""A vote on recorded searches, beside PrivTuna's strategies.

Nothing here is private: noise comes from a public generator, as in a replay.
"""

import math
from dataclasses import dataclass

import numpy as np
from benchmarks.papers.federations import candidates
from benchmarks.papers.replay import Recording, replay

from urna.space import Axis, Space
from urna.study.recorded import losses_on
from urna.systems.combine import (
    Searches,
)
from urna.systems.combine.strategies import Combined

__all__ = ["VoteStrategy"]


@dataclass(frozen=True, slots=True)
class VoteStrategy:
    """Urna's vote on the same inputs: every client ranks the settings it tried.

    Not private, whatever the epsilon: noise comes from a public generator, as in a replay. For
    a real vote see `vote_on`, or `urna.search`.

    Args:
        epsilon: Budget whose noise the votes carry; infinite for none.
        delta: The delta that goes with it.
        seed: Public seed of ties and noise.
    """

    epsilon: float = math.inf
    delta: float = 1e-5
    seed: int = 0

    @property
    def name(self) -> str:
        """What tables call it."""
        return "vote" if math.isinf(self.epsilon) else f"vote, ε = {self.epsilon:g}"

    def combine(self, searches: Searches) -> Combined:
        """Return the winner."""
        space = _tried(searches)
        losses = losses_on(searches, space)
        recording = Recording(losses, np.zeros(len(space)), "nothing")
        rng = np.random.default_rng(self.seed)
        (held,) = replay(
            recording, space, epsilons=[self.epsilon], rng=rng, delta=self.delta, draws=1
        )
        return Combined({k: float(v) for k, v in space[held.winners[0]].items()})


def _tried(searches: Searches) -> Space:
    """Return all settings that some client tried, as a space."""
    rows = candidates(searches)
    axes = {}
    for place, ruler in enumerate(searches.frame.rulers):
        values = np.unique(rows[:, place]).tolist()
        axes[ruler.name] = Axis.log(values) if ruler.log else Axis.linear(values)
    whole = Space(**axes)
    tried = {tuple(row) for row in rows.tolist()}
    places = [n for n, c in enumerate(whole) if tuple(float(v) for v in c.values()) in tried]
    return whole if len(places) == len(whole) else whole.only(places)

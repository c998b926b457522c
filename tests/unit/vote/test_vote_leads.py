"""How probably a lead wins where only the winner is revealed."""

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.privacy import Budget, SelectionRelease
from urna.space import Space
from urna.systems.vote import Reveal, VoteSettings, plan_vote
from urna.systems.vote.plan import leading_chance
from urna.tally import Terms


@pytest.mark.parametrize("largest_of", [1, 3])
def test_chances_of_leading_are_those_of_drawn_noise(largest_of: int) -> None:
    """20,000 draws: the false alarm of five standard errors is 6e-7; half the lead is caught."""
    release = SelectionRelease(1.0, 6, 10, largest_of, gap=False)
    rng = np.random.default_rng(4)
    noise = rng.geometric(1 - np.exp(-release.rate), (20_000, largest_of, 10)).max(axis=1)
    won = np.mean(noise[:, 0] + 12 > noise[:, 1:].max(axis=1))
    error = 5 * (0.25 / 20_000) ** 0.5
    assert abs(won - leading_chance(12, release)) < error
    assert abs(won - leading_chance(6, release)) > error


def test_the_epsilon_that_a_lead_needs_is_the_least_that_is_enough() -> None:
    alone = VoteSettings(reveal=Reveal("winner", "a helper"))
    vote = plan_vote(Terms.of(20, Budget(1.0, 1e-5)), Space(x=list(range(100))), alone)
    found = vote.epsilon_for(60, 0.95)
    assert leading_chance(60, SelectionRelease(found, 6, 100)) >= 0.95
    assert leading_chance(60, SelectionRelease(0.97 * found, 6, 100)) < 0.95
    assert vote.gap_for(leading_chance(60, vote.selection.release)) == 60
    with pytest.raises(ParameterError, match="is not enough"):
        vote.epsilon_for(0.5, 0.95)  # ties are lost, whatever the noise

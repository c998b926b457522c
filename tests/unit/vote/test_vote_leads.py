"""The leads that a tally and a winner need, and what a winner costs beside sums."""

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.privacy import Budget, SelectionRelease, gaussian_mu
from urna.space import Space
from urna.systems.vote import Reveal, compare_leads, plan, plan_vote
from urna.systems.vote.levels import leading_chance, priced_beside
from urna.tally import Terms


@pytest.mark.parametrize(("clients", "epsilon"), [(20, 1.0), (100, 0.1), (100, 0.25), (50, 0.5)])
def test_alone_a_winner_needs_less_of_a_lead_and_beside_sums_more(
    clients: int, epsilon: float
) -> None:
    found = compare_leads(plan(clients=clients, candidates=100, budget=Budget(epsilon, 1e-5)))
    assert found.winner_alone < 0.75 * found.tally
    assert found.winner_beside > found.tally


def test_a_tenth_of_a_budget_buys_a_winner_less_than_a_tally() -> None:
    """A tenth of μ² of (1, 1e-5) is ε = 0.285 for a tally, and what is proven for a winner."""
    tenth = gaussian_mu(Budget(1.0, 1e-5)) * 0.1**0.5
    assert gaussian_mu(Budget(0.285, 1e-5)) == pytest.approx(tenth, rel=0.01)
    several = priced_beside(tenth, 100)
    assert several is not None
    assert several.epsilon == pytest.approx(0.105, rel=0.02)
    assert SelectionRelease(0.0677, 6, 100).mu == pytest.approx(tenth, rel=0.01)


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
    alone = Reveal("winner", "a helper")
    vote = plan_vote(Terms.of(20, Budget(1.0, 1e-5)), Space(x=list(range(100))), reveal=alone)
    found = vote.epsilon_for(60, 0.95)
    assert leading_chance(60, SelectionRelease(found, 6, 100)) >= 0.95
    assert leading_chance(60, SelectionRelease(0.97 * found, 6, 100)) < 0.95
    assert vote.gap_for(leading_chance(60, vote.selection.release)) == 60
    with pytest.raises(ParameterError, match="is not enough"):
        vote.epsilon_for(0.5, 0.95)  # ties are lost, whatever the noise

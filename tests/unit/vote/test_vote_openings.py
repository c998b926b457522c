"""Which opening suits a vote, and the table of parity behind that advice."""

import numpy as np
import pytest

from urna.privacy import Budget, SelectionRelease, gaussian_mu
from urna.vote import compare_openings, plan
from urna.vote.openings import _priced, leading_chance


@pytest.mark.parametrize(("clients", "epsilon"), [(20, 1.0), (100, 0.1), (100, 0.25), (50, 0.5)])
def test_alone_the_winner_suits_and_beside_training_the_tally(clients: int, epsilon: float) -> None:
    found = compare_openings(plan(clients=clients, candidates=100, budget=Budget(epsilon, 1e-5)))
    assert found.winner_alone < 0.75 * found.tally
    assert found.winner_beside > found.tally
    assert found.advice == "alone in its ledger the winner, beside training the tally"


def test_a_tenth_of_a_budget_buys_a_winner_less_than_a_tally() -> None:
    """A tenth of μ² of (1, 1e-5) is ε = 0.285 for a tally, and what is proven for a winner."""
    tenth = gaussian_mu(Budget(1.0, 1e-5)) * 0.1**0.5
    assert gaussian_mu(Budget(0.285, 1e-5)) == pytest.approx(tenth, rel=0.01)
    several = _priced(tenth, 6, 100)
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

"""Odds: what a statement implies about an attacker, against closed forms and brute force."""

import math

import numpy as np
import pytest
from scipy import stats

from urna.privacy import Adjacency, Budget, PrivacyStatement, gaussian_epsilon, gaussian_mu
from urna.privacy.cost import GAUSSIAN, SLIP_PART, Cost
from urna.report.promise import Odds

CLIENT = Adjacency.REPLACE_ONE_CLIENT


def statement(mu: float, delta: float) -> PrivacyStatement:
    epsilon = Cost(mu, slip=1e-25).at(delta)
    return PrivacyStatement(epsilon, delta, CLIENT, GAUSSIAN)


@pytest.mark.parametrize("mu", [0.01, 0.268, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_trade_off_is_found_again_and_never_better_than_it_was(mu: float, delta: float) -> None:
    odds = Odds.of(statement(mu, delta))
    assert odds is not None
    if odds.epsilon == 0.0:  # such a delta hides it altogether
        assert odds.mu is None
        return
    assert odds.mu is not None
    assert mu <= odds.mu < mu * (1 + 1e-6)


def test_without_a_gaussian_only_epsilon_and_delta_are_used() -> None:
    odds = Odds.of(PrivacyStatement(1.0, 1e-5, CLIENT, "basic composition"))
    assert odds == Odds(1.0, 1e-5)
    assert odds.curve() is None
    assert Odds.of(PrivacyStatement(math.inf, 1e-5, CLIENT, "none")) is None


def test_a_right_guess_is_what_the_best_test_of_two_gaussians_reaches() -> None:
    odds = Odds.of(statement(1.0, 1e-5))
    assert odds is not None
    cuts = np.linspace(-6, 7, 20_001)
    best = 0.5 * (stats.norm.cdf(cuts) + stats.norm.sf(cuts, loc=1.0)).max()
    assert best <= odds.right_guess < best + 1e-5


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.01), (3.0, 0.1)])
def test_a_right_guess_is_what_randomised_response_with_failures_reaches(
    epsilon: float, delta: float
) -> None:
    # The pair that every (ε, δ)-DP pair is a post-processing of: told with δ, else a biased coin.
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert Odds(epsilon, delta).right_guess == pytest.approx(delta + (1 - delta) * honest)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (3.0, 1e-3), (8.0, 1e-5)])
def test_beliefs_pass_their_bound_no_more_often_than_is_said(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(Budget(epsilon, delta))  # the loss is normal around μ²/2
    odds = Odds(epsilon, delta)

    def passed(log_odds: float) -> float:
        return float(stats.norm.sf(log_odds, loc=mu**2 / 2, scale=mu))

    bound = odds.belief(0.5)
    assert passed(math.log(bound / (1 - bound))) <= 10 * delta
    assert passed(epsilon) > delta  # e^ε alone is passed more often than with probability δ


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_detection_is_bounded_by_the_gaussian_and_meets_its_own_guess(mu: float) -> None:
    odds = Odds.of(statement(mu, 1e-5))
    assert odds is not None
    alpha = np.linspace(0, 1, 2001)
    found = odds.detected(alpha)
    exact = stats.norm.cdf(stats.norm.ppf(alpha) + mu)
    assert (found >= exact - 1e-12).all()
    assert np.abs(found - exact).max() < 1e-5
    assert ((1 + found - alpha) / 2).max() == pytest.approx(odds.right_guess, abs=1e-6)
    assert (np.diff(found) >= -1e-12).all()


def test_every_point_of_the_curve_is_a_promise_that_holds() -> None:
    mu, slip = 0.5, 1e-25
    odds = Odds.of(statement(mu, 1e-5))
    assert odds is not None
    curve = odds.curve()
    assert curve is not None
    deltas, epsilons = curve
    assert deltas[0] > 0.1  # epsilon is zero there
    assert (np.diff(deltas) < 0).all()
    assert deltas[-1] < 1e-6 * 1e-3  # the curve goes beyond the quoted point
    for delta, epsilon in zip(deltas, epsilons, strict=True):
        assert gaussian_epsilon(mu, float(delta) - 2 * math.exp(float(epsilon)) * slip) <= epsilon
    quoted = np.interp(1e-5, deltas[::-1], epsilons[::-1])
    assert quoted == pytest.approx(odds.epsilon, rel=0.02)


def test_moved_mass_is_taken_at_its_worst() -> None:
    odds = Odds.of(statement(0.5, 1e-5))
    assert odds is not None
    worst = SLIP_PART * 1e-5 / (1 + math.exp(odds.epsilon))
    assert odds.detected(np.array([0.0]))[0] >= worst
    assert odds.mu is not None
    assert odds.right_guess >= stats.norm.cdf(odds.mu / 2) + 0.9 * worst


def test_a_smaller_trade_off_would_be_noticed() -> None:
    wrong = gaussian_mu(Budget(1.0, 1e-5)) * 0.99
    right = Odds.of(PrivacyStatement(1.0, 1e-5, CLIENT, GAUSSIAN))
    assert right is not None
    assert right.mu is not None
    assert right.mu > wrong
    assert Odds(1.0, 1e-5, wrong).right_guess < right.right_guess


def test_huge_epsilons_neither_overflow_nor_promise() -> None:
    odds = Odds(1e4, 1e-5)
    assert odds.factor == math.inf
    assert odds.right_guess == pytest.approx(1.0)
    assert odds.belief(0.01) == pytest.approx(1.0)
    assert (odds.detected(np.linspace(0, 1, 5))[1:] == 1.0).all()

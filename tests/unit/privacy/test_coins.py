"""Noise of coins: priced by its exact probabilities, against slow and exact oracles."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import pytest
from scipy import stats

from urna.errors import ParameterError
from urna.privacy import Budget, CoinRelease, Ledger, Move, calibrate, calibrate_coins
from urna.privacy.coins import _probabilities, coin_parameter
from urna.privacy.cost import Cover
from urna.privacy.events import read_release


def exact(weights: tuple[int, ...], shares: int) -> list[Fraction]:
    """The probabilities of the noise, in exact fractions."""
    found = [Fraction(1)]
    for weight in itertools.chain.from_iterable(itertools.repeat(weights, shares)):
        wider = [Fraction(0)] * (len(found) + weight)
        for place, p in enumerate(found):
            wider[place] += p / 2
            wider[place + weight] += p / 2
        found = wider
    return found


def delta_of(noise: list[Fraction], d: int, epsilon: float) -> float:
    """The exact delta of one coordinate moved by d: the sum of what exceeds e^ε."""
    null, moved = [*noise, *[0] * d], [*[0] * d, *noise]
    factor = Fraction(math.exp(epsilon))
    return float(sum(max(Fraction(0), p - factor * q) for p, q in zip(moved, null, strict=True)))


@pytest.mark.parametrize(("weights", "shares"), [((1,), 7), ((1, 4), 6), ((1, 1, 3), 9)])
def test_probabilities_are_exact(weights: tuple[int, ...], shares: int) -> None:
    found = _probabilities(weights, shares)
    assert found.tolist() == pytest.approx([float(p) for p in exact(weights, shares)], rel=1e-12)


def test_far_probabilities_of_many_clients_are_right_to_eleven_digits() -> None:
    found = _probabilities((1,), 10_000)
    first = (10_001 - len(found)) // 2
    for place in (0, 100, len(found) // 2, len(found) - 1):
        right = Fraction(math.comb(10_000, first + place), 1 << 10_000)
        assert found[place] == pytest.approx(float(right), rel=1e-11)


@pytest.mark.parametrize(("weights", "shares"), [((1, 4), 60), ((1, 1, 2), 40), ((1,) * 8, 20)])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_move_costs_more_than_its_gaussian(
    weights: tuple[int, ...], shares: int, d: int
) -> None:
    tail = 1e-13
    eta = coin_parameter(weights, shares, 3, tail)
    noise = exact(weights, shares)
    mu = eta * d
    for epsilon in (0.0, 0.05, 0.2, 0.5, 1.0, 2.0):
        gaussian = stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * stats.norm.cdf(
            -epsilon / mu - mu / 2
        )
        assert delta_of(noise, d, epsilon) <= gaussian + (1 + math.exp(epsilon)) * 2 * tail


def test_half_the_coins_would_be_caught() -> None:
    eta = coin_parameter((1, 4), 60, 1, 1e-13)
    noise = exact((1, 4), 30)
    gaussian = stats.norm.cdf(-0.2 / eta + eta / 2) - math.exp(0.2) * stats.norm.cdf(
        -0.2 / eta - eta / 2
    )
    assert delta_of(noise, 1, 0.2) > gaussian + 1e-9


def test_steps_that_show_are_priced() -> None:
    """Coins of weight 2 alone tell odd from even sums: nothing is hidden."""
    assert coin_parameter((2,), 100, 1, 1e-13) > 10
    assert coin_parameter((2,), 100, 2, 1e-13) > 10
    assert coin_parameter((1, 2), 100, 1, 1e-13) < 0.1
    assert coin_parameter((1, 40), 100, 1, 1e-13) > 2 * coin_parameter((1, 4), 100, 1, 1e-13)


def test_several_coordinates_together_cost_no_more_than_claimed() -> None:
    """Exactly, two coordinates that both move: the product of their distributions."""
    release = CoinRelease(Move(2, 2), (1, 2), 12, 1, 1e-10)
    noise = exact((1, 2), 12)
    null, moved = [*noise, Fraction(0)], [Fraction(0), *noise]
    for epsilon in (0.2, 0.5, 1.0):
        factor = Fraction(math.exp(epsilon))
        delta = sum(
            max(Fraction(0), moved[a] * moved[b] - factor * null[a] * null[b])
            for a, b in itertools.product(range(len(null)), repeat=2)
        )
        cost = release.cost()
        claimed = stats.norm.cdf(-epsilon / cost.mu + cost.mu / 2) - math.exp(
            epsilon
        ) * stats.norm.cdf(-epsilon / cost.mu - cost.mu / 2)
        assert 0 < float(delta) <= claimed + (1 + math.exp(epsilon)) * cost.slip


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("shares", [9, 99, 999])
@pytest.mark.parametrize(("move", "largest"), [(Move(10, 10), 1), (Move(1800, 200), 3)])
def test_calibrated_coins_meet_the_budget_and_are_near_the_gaussian(
    epsilon: float, shares: int, move: Move, largest: int
) -> None:
    budget = Budget(epsilon, 1e-5)
    made = calibrate_coins(budget, move, shares=shares, largest=largest)
    assert made.shares <= shares
    assert made.cost().at(1e-5) <= epsilon
    assert Cover(budget).holds(made.cost())
    least = calibrate(budget, move, shares=shares).noise_std
    assert least * 0.99 <= made.noise_std <= 1.2 * least


def test_too_few_clients_for_a_tiny_epsilon_are_told_so() -> None:
    with pytest.raises(ParameterError, match="Ask more clients"):
        calibrate_coins(Budget(0.001, 1e-9), Move(1800, 200), shares=1, largest=3)


def test_a_ledger_takes_a_calibrated_release_and_reads_it_back(tmp_path: Path) -> None:
    made = calibrate_coins(Budget(1.0, 1e-5), Move(10, 10, 1e-20), shares=50, largest=1)
    assert read_release(made.as_mapping()) == made
    ledger = Ledger.open(tmp_path / "ledger.json", Budget(1.0, 1e-5))
    ledger.charge(made, label="a vote")
    assert ledger.entries()[0].release == made


@pytest.mark.parametrize(
    "wrong", [{"weights": ()}, {"weights": (0,)}, {"shares": 0}, {"largest": 0}, {"tail": 0.5}]
)
def test_releases_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    right = {"move": Move(1, 1), "weights": (1,), "shares": 3, "largest": 1}
    with pytest.raises(ParameterError):
        CoinRelease(**{**right, **wrong})  # type: ignore[arg-type]

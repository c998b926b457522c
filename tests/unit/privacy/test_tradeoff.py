import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.privacy import (
    DISCRETE_GAUSSIAN,
    SKELLAM,
    Adjacency,
    BallotShape,
    Budget,
    Distribution,
    NormBound,
    ScoreShape,
    Shifts,
    TallyRelease,
    calibrate_ballots,
    compose,
    gaussian_delta,
    gaussian_std,
)
from urna.privacy.events import read_release
from urna.privacy.tradeoff import gaussian_parameter

FAMILIES = (SKELLAM, DISCRETE_GAUSSIAN)


def masses(family: Distribution, variance: Fraction) -> np.ndarray:
    half, _ = family.half_weights(variance)
    total = 2 * sum(half) - half[0]
    side = [weight / total for weight in half]
    return np.array([*side[:0:-1], *side])


def exact_delta(mass: np.ndarray, shift: tuple[int, ...], epsilon: float) -> float:
    """Sum the hockey-stick divergence over all outcomes, with no accounting in between."""
    moved, still = np.ones(1), np.ones(1)
    for step in shift:
        padded = np.pad(mass, (abs(step), abs(step)))
        moved = np.multiply.outer(moved, np.roll(padded, step)).ravel()
        still = np.multiply.outer(still, padded).ravel()
    return float(np.maximum(moved - math.exp(epsilon) * still, 0.0).sum())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("variance", [Fraction(2), Fraction(9), Fraction(40)])
@pytest.mark.parametrize("shift", [(1,), (3,), (-2,), (2, 1), (3, -2), (1, 1)])
def test_no_integer_shift_loses_more_than_the_gaussian(
    family: Distribution, variance: Fraction, shift: tuple[int, ...]
) -> None:
    mass = masses(family, variance)
    mu = gaussian_parameter(family, variance) * math.hypot(*shift)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        exact = exact_delta(mass, shift, epsilon)
        assert exact <= gaussian_delta(1.0, sensitivity=mu, epsilon=epsilon) * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_smaller_parameter_would_claim_too_much(family: Distribution) -> None:
    """At the noise used in votes the bound is tight: 1 % less is wrong."""
    variance, shift = Fraction(400), (7, 3)
    mass = masses(family, variance)
    mu = gaussian_parameter(family, variance) * math.hypot(*shift)
    assert exact_delta(mass, shift, 0.5) > gaussian_delta(1.0, sensitivity=0.99 * mu, epsilon=0.5)


def test_the_price_of_whole_numbers_vanishes_with_the_noise() -> None:
    over = [
        math.sqrt(variance) * gaussian_parameter(SKELLAM, Fraction(variance)) - 1
        for variance in (16, 64, 256, 1024)
    ]
    assert all(extra > 0 for extra in over)
    assert all(3.5 < a / b < 4.5 for a, b in itertools.pairwise(over))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    "shape", [BallotShape.ranked(8.0, 100), ScoreShape(100)], ids=["ranked", "scored"]
)
def test_wide_ballots_get_the_gaussians_noise(
    shape: BallotShape | ScoreShape, epsilon: float
) -> None:
    calibration = calibrate_ballots(Budget(epsilon, 1e-5), shape, shares=99)
    release = calibration.release
    exact = gaussian_std(Budget(epsilon, 1e-5), sensitivity=math.sqrt(release.l2_squared))
    assert exact <= math.sqrt(release.variance) <= 1.001 * exact
    assert epsilon * 0.999 <= calibration.epsilon <= epsilon


def test_equal_votes_are_still_accounted_exactly() -> None:
    release = TallyRelease(((4, 10),), Fraction(16), 99)
    bound = TallyRelease(NormBound(160, 40, 10), Fraction(16), 99)
    exact, gaussian = compose([release], 1e-5).epsilon, compose([bound], 1e-5).epsilon
    # Neither is far from the other, and rounding decides which is smaller.
    assert exact == pytest.approx(gaussian, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=6),
    st.lists(st.integers(0, 6), min_size=2, max_size=6),
)
def test_scores_within_the_norm_move_the_sum_by_no_more_than_said(
    first: list[int], second: list[int]
) -> None:
    size = min(len(first), len(second))
    u, v = np.array(first[:size]), np.array(second[:size])
    norm = math.isqrt(max(int(u @ u), int(v @ v))) + 1
    shape = ScoreShape(size, norm=norm)
    shape.check(u)
    shape.check(v)
    moves = shape.shifts(Adjacency.REPLACE_ONE_CLIENT)
    gap = u - v
    assert int(gap @ gap) <= moves.l2_squared
    assert int(np.abs(gap).sum()) <= moves.l1
    gone = shape.shifts(Adjacency.ZERO_OUT_CLIENT)
    assert int(u @ u) <= gone.l2_squared
    assert int(u.sum()) <= gone.l1


def test_the_norm_is_reached_by_two_clients_with_one_favourite_each() -> None:
    shape = ScoreShape(2, norm=5)
    gap = np.array([5, 0]) - np.array([0, 5])
    assert int(gap @ gap) == shape.shifts(Adjacency.REPLACE_ONE_CLIENT).l2_squared


@pytest.mark.parametrize("ballot", [[-1, 0, 0], [4, 4, 0], [6, 0, 0]])
def test_scores_outside_the_norm_are_refused(ballot: list[int]) -> None:
    with pytest.raises(ParameterError, match="non-negative"):
        ScoreShape(3, norm=5).check(np.array(ballot))


@pytest.mark.parametrize("weights", [(3, 2, 1), (2, 2), (5,)])
def test_ranked_ballots_move_the_sum_by_no_more_than_said(weights: tuple[int, ...]) -> None:
    """By brute force over all pairs of ballots, abstention included."""
    candidates = 5
    shape = BallotShape(weights, candidates)
    ballots = [np.zeros(candidates, dtype=int)]
    for places in itertools.permutations(range(candidates), len(weights)):
        ballot = np.zeros(candidates, dtype=int)
        ballot[list(places)] = weights
        ballots.append(ballot)
    moves = shape.shifts(Adjacency.REPLACE_ONE_CLIENT)
    allowed = sum(count * shift**2 for shift, count in moves)
    worst = max(int((a - b) @ (a - b)) for a in ballots for b in ballots)
    assert worst <= allowed
    if 2 * len(weights) <= candidates or len(set(weights)) == 1:
        assert worst == allowed


def test_a_ledger_reads_back_what_scores_released() -> None:
    release = TallyRelease(ScoreShape(7).shifts(Adjacency.REPLACE_ONE_CLIENT), Fraction(81, 2), 9)
    assert read_release(release.as_mapping()) == release
    assert math.isfinite(compose([release], 1e-5).epsilon)


@pytest.mark.parametrize("shifts", [NormBound(1, 1, 3), ((1, 1),)], ids=["norm", "shift"])
def test_hardly_any_noise_is_no_privacy_and_no_crash(shifts: NormBound | Shifts) -> None:
    release = TallyRelease(shifts, Fraction(1, 400), 1, DISCRETE_GAUSSIAN.name)
    assert compose([release], 1e-5).epsilon > 100

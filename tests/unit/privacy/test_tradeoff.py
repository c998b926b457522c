"""Integer noise is as hard to see through as the Gaussian it is priced by."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from urna.privacy import (
    DISCRETE_GAUSSIAN,
    SKELLAM,
    Budget,
    Distribution,
    Sensitivity,
    SumRelease,
    calibrate,
    compose,
    gaussian_delta,
    gaussian_std,
)
from urna.privacy.tradeoff import BEYOND, gaussian_parameter

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
@pytest.mark.parametrize("shift", [1, 7, 40, 500])
def test_every_threshold_keeps_to_the_trade_off_with_moved_mass(
    family: Distribution, shift: int
) -> None:
    """β ≥ G(α + τ) − τ, in exact fractions: the far tails and shifts beyond them included."""
    from mpmath import mp, mpf  # noqa: PLC0415 - slow to import, and only this test needs it

    variance = Fraction(9)
    half, _ = family.half_weights(variance)
    total = 2 * sum(half) - half[0]
    reach = len(half) - 1
    below = list(itertools.accumulate([*half[:0:-1], *half]))  # F(x)·total for x = −reach, …
    mu = gaussian_parameter(family, variance) * shift
    with mp.workprec(400):

        def quantile(p: mpf) -> mpf:
            return -mp.sqrt(2) * mp.erfinv(1 - 2 * p)

        for x in range(-reach, reach + shift + 1, max(1, reach // 60)):
            f = mpf(below[min(x + reach, 2 * reach)]) / total
            back = x - shift + reach
            beta = mpf(0) if back < 0 else mpf(below[min(back, 2 * reach)]) / total
            alpha = 1 - f + mpf(BEYOND)
            if alpha >= 1:
                continue
            gaussian = mp.ncdf(quantile(1 - alpha) - mu)
            assert beta >= gaussian - mpf(BEYOND) * (1 + mpf(10) ** -6), (x, beta, gaussian)


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
def test_wide_ballots_get_the_gaussians_noise(epsilon: float) -> None:
    calibration = calibrate(Budget(epsilon, 1e-5), Sensitivity(2 * 64**2, 100), shares=99)
    release = calibration.release
    exact = gaussian_std(Budget(epsilon, 1e-5), sensitivity=release.sensitivity.l2)
    assert exact <= math.sqrt(release.variance) <= 1.001 * exact
    assert epsilon * 0.999 <= calibration.epsilon <= epsilon


def test_hardly_any_noise_is_no_privacy_and_no_crash() -> None:
    release = SumRelease(Sensitivity(1, 3), Fraction(1, 400), 1, DISCRETE_GAUSSIAN.name)
    assert compose([release], 1e-5).epsilon > 100

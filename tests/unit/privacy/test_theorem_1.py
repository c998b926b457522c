"""Hyades' Theorem 1: published figures, an oracle of our own, and that more lots cost more."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from benchmarks.papers.rdp import (
    THEOREM_ORDERS,
    gaussian_rdp,
    sampled_gaussian_epsilon,
    sampled_noise_multiplier,
    sampled_rdp,
)

from urna.privacy import Budget, Sensitivity, calibrate

Reals = npt.NDArray[np.float64]

# Settings of the paper: (rate, rounds, delta), epsilon 6; noise multipliers by the theorem.
PAPER = [(0.1, 50, 1e-3, 0.934), (0.16, 150, 1e-2, 1.350)]


def curve(multiplier: float) -> Callable[[int], float]:
    return lambda order: gaussian_rdp(order, l2_squared=1.0, variance=multiplier**2)


@pytest.mark.parametrize(("rate", "rounds", "delta", "published"), PAPER, ids=["femnist", "cifar"])
def test_noise_multipliers_of_the_paper(
    rate: float, rounds: int, delta: float, published: float
) -> None:
    found = sampled_noise_multiplier(Budget(6.0, delta), rate=rate, rounds=rounds)
    assert found == pytest.approx(published, abs=0.001)
    assert sampled_gaussian_epsilon(found, rate=rate, rounds=rounds, delta=delta) <= 6.0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.16, 0.5])
@pytest.mark.parametrize("tight", [False, True])
def test_the_bound_against_fifty_digits(rate: float, tight: bool) -> None:
    mpmath.mp.dps = 50
    multiplier = 1.1
    for order in (2, 3, 7, 32):
        q, total = mpmath.mpf(rate), mpmath.mpf(0)
        for drawn in range(order + 1):
            term = mpmath.binomial(order, drawn) * (1 - q) ** (order - drawn) * q**drawn
            term *= mpmath.exp(mpmath.mpf(drawn * (drawn - 1)) / (2 * multiplier**2))
            total += term * (3 if drawn > 2 and not tight else 1)
        expected = float(mpmath.log(total) / (order - 1))
        found = sampled_rdp(order, rate=rate, curve=curve(multiplier), tight=tight)
        assert found == pytest.approx(expected, rel=1e-9)


def test_the_bound_grows_with_the_rate_so_the_largest_covers_all() -> None:
    for tight in (False, True):
        for order in (2, 5, 16, 64):
            costs = [
                sampled_rdp(order, rate=rate, curve=curve(1.0), tight=tight)
                for rate in np.linspace(0.001, 0.999, 60)
            ]
            assert all(a <= b for a, b in itertools.pairwise(costs))


def test_the_factor_only_makes_it_larger() -> None:
    for order in THEOREM_ORDERS[:20]:
        loose = sampled_rdp(order, rate=0.1, curve=curve(0.9))
        assert sampled_rdp(order, rate=0.1, curve=curve(0.9), tight=True) <= loose


def oracle_epsilon(multiplier: float, rate: float, rounds: int, delta: float) -> float:
    """Return epsilon by convolving privacy losses on a grid of our own, rounded up.

    One client left out, both directions; no code is shared with the library.
    """
    width, worst = 2e-4, 0.0
    for removed in (True, False):
        x = np.arange(-14 * multiplier, 14 * multiplier + 1, multiplier / 4000)
        step = x[1] - x[0]

        def density(mean: float, x: Reals = x) -> Reals:
            return np.exp(-((x - mean) ** 2) / (2 * multiplier**2)) / (
                multiplier * math.sqrt(2 * math.pi)
            )

        mixed, plain = (1 - rate) * density(0.0) + rate * density(1.0), density(0.0)
        top, bottom = (mixed, plain) if removed else (plain, mixed)
        kept = (top > 1e-300) & (bottom > 1e-300)
        losses = np.ceil(np.log(top[kept] / bottom[kept]) / width).astype(int)
        low, size = int(losses.min()), 1 << 21
        mass = np.bincount(losses - low, weights=top[kept] * step, minlength=size)[:size]
        whole = np.maximum(np.fft.irfft(np.fft.rfft(mass / mass.sum()) ** rounds, size), 0.0)
        at = (np.arange(size) + rounds * low) * width
        # The circle is long enough that nothing wraps but what starts below its first place.
        low_e, high_e = 0.0, 60.0
        for _ in range(50):
            middle = (low_e + high_e) / 2
            above = at > middle
            found = float((whole[above] * -np.expm1(middle - at[above])).sum())
            low_e, high_e = (low_e, middle) if found <= delta else (middle, high_e)
        worst = max(worst, high_e)
    return worst


@pytest.mark.audit
@pytest.mark.parametrize(
    ("rate", "rounds", "delta", "published"),
    [(0.1, 50, 1e-3, 0.7525), (0.16, 150, 1e-2, 1.17)],
    ids=["femnist", "cifar"],
)
def test_loss_distributions_ask_for_less_and_an_oracle_agrees(
    rate: float, rounds: int, delta: float, published: float
) -> None:
    assert oracle_epsilon(published * 1.005, rate, rounds, delta) <= 6.0
    assert oracle_epsilon(published * 0.98, rate, rounds, delta) > 6.0
    steps = 2000
    found = calibrate(
        Budget(6.0, delta),
        Sensitivity(steps**2, 1000),
        rate=Fraction(str(rate)),
        replaced=False,
        shares=100,
        finest=1,
        rounds=rounds,
    )
    multiplier = math.sqrt(found.release.variance) / steps
    assert multiplier == pytest.approx(published, rel=0.02)

"""The weights: against Bessel functions, exponentials and moments in mpmath."""

from fractions import Fraction

import mpmath
import pytest
from mpmath import mp

from urna.privacy import DISCRETE_GAUSSIAN, SKELLAM, Distribution


def masses(family: Distribution, variance: Fraction) -> list[mpmath.mpf]:
    half, _ = family.half_weights(variance)
    total = 2 * sum(half) - half[0]
    return [mp.mpf(weight) / total for weight in half]


@pytest.fixture(autouse=True)
def precise() -> object:
    with mp.workprec(400):
        yield


@pytest.mark.parametrize("variance", ["1/100", "1/3", "1", "17.25", "900"])
def test_skellam_weights_are_bessel_functions(variance: str) -> None:
    v = Fraction(variance)
    found = masses(SKELLAM, v)
    x = mp.mpf(v.numerator) / v.denominator
    for k in {0, 1, 2, len(found) // 3, 2 * len(found) // 3, len(found) - 1}:
        exact = mp.exp(-x) * mp.besseli(k, x)
        assert abs(found[k] / exact - 1) < mp.mpf(2) ** -120


def test_wide_skellam_weights_are_differences_of_poisson_variables() -> None:
    found, mean = masses(SKELLAM, Fraction(10**6)), 5 * 10**5
    for k in (0, 1000):
        # Σ_j P[j]·P[j+k] over 21 standard deviations around the mean, term by term.
        start, end = mean - 15_000, mean + 15_000
        term = mp.exp(
            (2 * start + k) * mp.log(mean)
            - 2 * mean
            - mp.loggamma(start + 1)
            - mp.loggamma(start + k + 1)
        )
        total = mp.mpf(0)
        for j in range(start + 1, end):
            total += term
            term = term * mean * mean / (j * (j + k))
        assert abs(found[k] / total - 1) < mp.mpf(2) ** -120


@pytest.mark.parametrize("variance", ["1/100", "1/3", "1", "17.25", "900", "1000000"])
def test_discrete_gaussian_weights_are_exponentials(variance: str) -> None:
    v = Fraction(variance)
    found = masses(DISCRETE_GAUSSIAN, v)
    x = mp.mpf(v.numerator) / v.denominator
    norm = (
        mp.nsum(lambda k: mp.exp(-(k**2) / (2 * x)), [-mp.inf, mp.inf])
        if v < 100
        else (
            mp.sqrt(2 * mp.pi * x)  # Poisson summation: the rest is below exp(−2π²·100)
        )
    )
    for k in {0, len(found) // 3, 2 * len(found) // 3, len(found) - 1}:
        exact = mp.exp(-(mp.mpf(k) ** 2) / (2 * x)) / norm
        assert abs(found[k] - exact) < mp.mpf(2) ** -135


@pytest.mark.parametrize("variance", ["1/10", "1", "50", "2500"])
def test_the_variance_is_the_one_asked_for(variance: str) -> None:
    v = Fraction(variance)
    skellam = masses(SKELLAM, v)
    assert abs(2 * sum(k**2 * mass for k, mass in enumerate(skellam)) / v - 1) < mp.mpf(2) ** -110
    gaussian = masses(DISCRETE_GAUSSIAN, v)
    spread = 2 * sum(k**2 * mass for k, mass in enumerate(gaussian))
    assert spread <= v * (1 + mp.mpf(2) ** -100)  # CKS20, Corollary 9: at most σ²


@pytest.mark.parametrize("family", [SKELLAM, DISCRETE_GAUSSIAN], ids=lambda f: f.name)
@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(40)], ids=str)
def test_weights_are_log_concave(family: Distribution, variance: Fraction) -> None:
    half, _ = family.half_weights(variance)
    mirrored = [*half[:0:-1], *half]
    for before, here, after in zip(mirrored, mirrored[1:], mirrored[2:], strict=False):
        # Rounding of the last, tiny weights may break it by one part in 2^100.
        assert here * here * (1 + Fraction(1, 2**100)) >= before * after


@pytest.mark.parametrize("family", [SKELLAM, DISCRETE_GAUSSIAN], ids=lambda f: f.name)
def test_what_is_left_out_is_within_the_stated_error(family: Distribution) -> None:
    variance = Fraction(9)
    half, error = family.half_weights(variance)
    beyond = len(half)
    if family is SKELLAM:
        tail = 2 * mp.nsum(lambda k: mp.exp(-9) * mp.besseli(k, 9), [beyond, beyond + 60])
    else:
        norm = mp.nsum(lambda k: mp.exp(-(k**2) / 18), [-mp.inf, mp.inf])
        tail = 2 * mp.nsum(lambda k: mp.exp(-(k**2) / 18), [beyond, mp.inf]) / norm
    assert tail < error


def test_sums_of_skellam_are_skellam() -> None:
    one = masses(SKELLAM, Fraction(2))
    both = masses(SKELLAM, Fraction(4))
    mirrored = [*one[:0:-1], *one]
    reach = len(one) - 1
    for k in range(5):
        convolved = mp.fsum(
            mirrored[i + reach] * mirrored[k - i + reach] for i in range(k - reach, reach + 1)
        )
        assert abs(convolved / both[k] - 1) < mp.mpf(2) ** -110

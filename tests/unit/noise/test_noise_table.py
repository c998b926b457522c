"""The sampler: bit-exact, faithful to its weights, and a function of the seed alone."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from urna.errors import ParameterError
from urna.noise import DISCRETE_GAUSSIAN, FAMILIES, SKELLAM, Noise, Table
from urna.noise import table as table_module
from urna.randomness import derive_seed, expand

VECTORS = Path(__file__).parents[2] / "vectors" / "noise.json"
FALSE_ALARM = 1e-6  # how often a correct sampler would fail a check here on a fresh seed


def naive_draw(half: tuple[int, ...], seed: bytes, count: int) -> list[int]:
    """Draw the slow way: 128-bit integers, a linear search, Python's own arithmetic."""
    reach = len(half) - 1
    weights = [*half[:0:-1], *half]
    total, bounds, passed = sum(weights), [], 0
    for weight in weights[:-1]:
        passed += weight
        bounds.append((passed << 128) // total)
    first = expand(seed, 4 * count)
    more, used = expand(derive_seed(seed, b"more bits"), 12 * count), 0
    drawn = []
    for i in range(count):
        word = int.from_bytes(first[4 * i : 4 * i + 4], "little")
        # Only a boundary that begins with the very same bits leaves it open.
        if any(bound >> 96 == word for bound in bounds):
            for place in range(12 * used, 12 * used + 12, 4):
                word = word << 32 | int.from_bytes(more[place : place + 4], "little")
            used += 1
        else:
            word <<= 96
        drawn.append(sum(bound <= word for bound in bounds) - reach)
    return drawn


@pytest.mark.parametrize("noise", FAMILIES.values(), ids=lambda noise: noise.name)
@pytest.mark.parametrize("variance", [Fraction(1, 7), Fraction(9), Fraction(400)], ids=str)
def test_draws_equal_a_slow_search_through_the_weights(noise: Noise, variance: Fraction) -> None:
    seed = bytes(range(32))
    half, _ = noise.distribution.half_weights(variance)
    assert noise.table(variance).draw(seed, 300).tolist() == naive_draw(half, seed, 300)


def test_equal_high_words_move_past_every_boundary_at_or_below() -> None:
    # U is the word 5 followed by these three.
    word, first, second, third = 5, 17, 2**32 - 1, 99
    high, low = word << 32 | first, second << 32 | third
    words, more = np.array([word], dtype=np.uint32), np.array([[first, second, third]], np.uint64)
    for lows, passed in (([low - 1, low + 1], 1), ([low, low], 2), ([low + 1, low + 2], 0)):
        table = Table(
            reach=1,
            error=0.0,
            _high=np.array([high, high], dtype=np.uint64),
            _low=np.array(lows, dtype=np.uint64),
            _tops=np.array([word, word], dtype=np.uint32),
            _first=np.zeros(2, dtype=np.int32),
            _edge=np.zeros(2, dtype=np.uint32),
        )
        assert table._look_up(words, more).tolist() == [passed - 1]


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
@pytest.mark.parametrize("noise", FAMILIES.values(), ids=lambda noise: noise.name)
def test_every_size_of_pieces_draws_the_same(
    monkeypatch: pytest.MonkeyPatch, noise: Noise, size: int
) -> None:
    table, seed = noise.table(Fraction(2_000)), bytes([9]) * 32
    whole = table.draw(seed, 500)
    monkeypatch.setattr(table_module, "_BATCH", size)
    np.testing.assert_array_equal(table.draw(seed, 500), whole)
    places = [start for start, _ in table.pieces(seed, 500)]
    assert places == list(range(0, 500, size))


@pytest.mark.parametrize("count", [0, 1, 300, 40_000, 70_000, 140_000])
@pytest.mark.parametrize("seeds", [0, 1, 3])
def test_sums_of_draws_are_the_sums_of_the_draws(count: int, seeds: int) -> None:
    """Short ones are looked up together, long ones come in pieces."""
    table = SKELLAM.table(Fraction(50))
    several = [bytes([i]) * 32 for i in range(seeds)]
    found = np.zeros(count, dtype=np.int64)
    for start, piece in table.draw_sums(several, count):
        found[start : start + len(piece)] += piece
    wanted = sum((table.draw(seed, count) for seed in several), np.zeros(count, dtype=np.int64))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("noise", FAMILIES.values(), ids=lambda noise: noise.name)
def test_fewer_draws_are_the_first_of_more(noise: Noise) -> None:
    table, seed = noise.table(Fraction(10**6)), bytes([7]) * 32
    many = table.draw(seed, 200_000)
    for count in (0, 1, 65_535, 65_536, 65_537):
        assert np.array_equal(table.draw(seed, count), many[:count])


def test_draws_match_the_golden_vectors() -> None:
    for case in json.loads(VECTORS.read_text()):
        table = FAMILIES[case["family"]].table(Fraction(case["variance"]))
        drawn = table.draw(bytes.fromhex(case["seed"]), len(case["drawn"]))
        assert drawn.tolist() == case["drawn"], case["family"]


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**40), 9.0])
def test_a_variance_without_a_table_is_refused(variance: Fraction) -> None:
    with pytest.raises(ParameterError, match=r"variance|standard deviation"):
        SKELLAM.table(variance)


@given(st.fractions(min_value=Fraction(1, 1000), max_value=2000, max_denominator=1000))
def test_the_error_of_a_draw_is_far_below_any_delta(variance: Fraction) -> None:
    for noise in FAMILIES.values():
        assert 0 < noise.table(variance).error < 1e-30


def exact_mass(noise: Noise, variance: Fraction) -> tuple[np.ndarray, int]:
    half, _ = noise.distribution.half_weights(variance)
    total = 2 * sum(half) - half[0]
    mass = np.array([weight / total for weight in half])
    return np.concatenate([mass[:0:-1], mass]), len(half) - 1


def chi_square(drawn: np.ndarray, mass: np.ndarray, reach: int) -> float:
    """Return the p-value of the draws under the masses, rare values pooled."""
    counts = np.bincount(drawn + reach, minlength=len(mass)).astype(float)
    expected = mass * len(drawn)
    common = expected >= 10
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 10:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


@pytest.mark.statistical
@pytest.mark.parametrize("noise", FAMILIES.values(), ids=lambda noise: noise.name)
@pytest.mark.parametrize("std", [0.5, 4, 30, 300], ids=str)
def test_draws_follow_the_exact_distribution_and_no_other(noise: Noise, std: float) -> None:
    variance = Fraction(std) ** 2
    drawn = noise.table(variance).draw(b"the exact distribution".ljust(32), 1_000_000)
    mass, reach = exact_mass(noise, variance)
    assert chi_square(drawn, mass, reach) > FALSE_ALARM
    # Four per cent less variance is caught.
    quieter = noise.table(variance * Fraction(96, 100)).draw(b"too quiet".ljust(32), 1_000_000)
    assert chi_square(np.clip(quieter, -reach, reach), mass, reach) < FALSE_ALARM


@pytest.mark.statistical
def test_streams_of_different_seeds_are_uncorrelated_and_equal_seeds_are_not() -> None:
    table, count = SKELLAM.table(Fraction(100)), 400_000
    first = table.draw(b"first".ljust(32), count)
    second = table.draw(b"second".ljust(32), count)
    # The correlation of independent draws is normal with deviation 1/√count.
    limit = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(count)
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < limit
    assert abs(np.corrcoef(first, first)[0, 1]) > limit


@pytest.mark.statistical
@pytest.mark.parametrize(("clients", "enough"), [(16, True), (12, False)], ids=["all", "4 silent"])
def test_shares_of_many_clients_add_up_to_the_target(clients: int, enough: bool) -> None:
    share = SKELLAM.table(Fraction(100))
    sums = sum(share.draw(bytes([i]) * 32, 20_000) for i in range(clients))
    # Squared sums over the target variance are chi-square (nearly: the Skellam's excess
    # kurtosis of 1/1600 moves the p-value by less than the margin); small is too quiet.
    p_value = stats.chi2.cdf(float(np.square(sums).sum()) / 1600, df=20_000)
    assert (p_value > FALSE_ALARM) == enough


def test_the_discrete_gaussian_is_not_the_skellam() -> None:
    seed = bytes(32)
    first = SKELLAM.table(Fraction(1)).draw(seed, 1000)
    assert not np.array_equal(first, DISCRETE_GAUSSIAN.table(Fraction(1)).draw(seed, 1000))

"""The privacy of a selection, by exact sums over small cases, and mechanisms broken on purpose."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from urna.errors import BudgetExceeded, ParameterError
from urna.privacy import (
    Budget,
    Cover,
    GaussianRelease,
    Ledger,
    Repeated,
    SelectionRelease,
    compose,
    gaussian_epsilon,
    parts_of,
    pure_first,
)
from urna.privacy.events import read_release
from urna.privacy.selection import pure_mu, range_mu

Chances = dict[tuple[int, ...], float]
SMALLEST = 1e-200  # what is cut off lies far below


def drawn(release: SelectionRelease) -> np.ndarray:
    """The distribution of one candidate's noise, as its coins really fall."""
    weights = np.ones(1, dtype=np.longdouble)
    for coin in release.noise_coins():
        chance = np.longdouble(coin.probability)
        weights = np.concatenate([weights * (1 - chance), weights * chance])
    if release.largest_of == 1:
        return weights
    return np.diff(np.cumsum(weights) ** release.largest_of, prepend=0)


def outcomes(totals: tuple[int, ...], noise: np.ndarray, gap: bool) -> Chances:
    """Chances of the winner, or of (winner, gap), with ties to the earlier."""
    size = len(noise) + max(totals) + 2
    below = np.concatenate([np.cumsum(noise), np.ones(size, dtype=np.longdouble)])
    found: Chances = {}
    for j, own in enumerate(totals):
        # To win, j must reach every rival, and one more of those before it.
        rivals = np.ones(size, dtype=np.longdouble)
        for k, other in enumerate(totals):
            if k != j:
                start = other + (k < j)
                rivals[:start] = 0
                rivals[start:] *= below[: size - start]
        if not gap:
            found[(j,)] = float(noise @ rivals[own : own + len(noise)])
            continue
        level = np.diff(rivals, prepend=0)  # chances of what it must reach
        padded = np.concatenate([np.zeros(size, dtype=np.longdouble), level])
        for lead in range(own + len(noise)):
            start = size + own - lead
            found[j, lead + 1] = float(noise @ padded[start : start + len(noise)])
    return found


def raw_gaps(totals: tuple[int, int, int], noise: np.ndarray) -> Chances:
    """Broken on purpose: the gap itself is told, so that a tie is told from a gap of one."""
    noisy = np.stack(np.meshgrid(*(s + np.arange(len(noise)) for s in totals), indexing="ij"))
    chances = np.einsum("i,j,k->ijk", noise, noise, noise)
    winner = noisy.argmax(axis=0)
    ordered = np.sort(noisy, axis=0)
    gap = ordered[-1] - ordered[-2]
    found: Chances = {}
    for j in range(3):
        weights = np.bincount(gap[winner == j], chances[winner == j].astype(float))
        found |= {(j, g): float(weight) for g, weight in enumerate(weights)}
    return found


def neighbours(totals: tuple[int, ...], levels: int) -> Iterator[tuple[int, ...]]:
    """All totals that another ballot could lead to: each entry moves by up to `levels`."""
    for moves in itertools.product((-levels, 0, levels), repeat=len(totals)):
        other = tuple(s + d for s, d in zip(totals, moves, strict=True))
        if min(other) >= 0:
            yield other


def losses(one: Chances, other: Chances, floor: float) -> list[float]:
    """Logarithms of ratios, but for outcomes that only noise next to the cut can lead to."""
    keys = {key for key in one | other if max(one.get(key, 0.0), other.get(key, 0.0)) > floor}
    return [math.log(one.get(key, SMALLEST) / other.get(key, SMALLEST)) for key in keys]


CASES = [(0, 0), (3, 1), (2, 5), (1, 1, 1), (4, 2, 3), (0, 6, 1), (5, 0, 0), (2, 3, 2, 4)]
FLOOR = 1e-12  # outcomes below it are computed to few digits


def worst(release: SelectionRelease, levels: int) -> float:
    noise = drawn(release)
    found = 0.0
    for totals in CASES:
        here = outcomes(totals, noise, release.gap)
        for other in neighbours(totals, levels):
            there = outcomes(other, noise, release.gap)
            found = max(found, *map(abs, losses(here, there, FLOOR)))
    return found


@pytest.mark.parametrize("largest_of", [1, 2, 4, 8])
@pytest.mark.parametrize("gap", [True, False], ids=["gap", "winner"])
def test_no_outcome_is_more_than_epsilon_apart(largest_of: int, gap: bool) -> None:
    found = worst(SelectionRelease(3.0, 2, 4, largest_of, gap=gap), 1)
    assert found <= 3.0 + 1e-5  # but for rounding in this sum
    assert found > 2.5  # the noise is no larger than it must be


@pytest.mark.parametrize(
    "broken",
    [SelectionRelease(6.0, 2, 4), SelectionRelease(3.0, 1, 4)],
    ids=["noise halved", "ballots replaced, not left out"],
)
def test_too_little_noise_is_caught(broken: SelectionRelease) -> None:
    assert worst(broken, 1) > 3.05


def test_telling_a_tie_from_a_gap_of_one_is_caught() -> None:
    noise = drawn(SelectionRelease(3.0, 2, 3))[:30]
    found = max(
        max(map(abs, losses(raw_gaps(totals, noise), raw_gaps(other, noise), 1e-9)))
        for totals in [(2, 2, 2), (2, 3, 2), (3, 2, 2)]
        for other in neighbours(totals, 1)
    )
    assert found > 3.05


@pytest.mark.parametrize(("largest_of", "fineness"), [(2, 3), (4, 2), (4, 4), (8, 3)])
def test_the_range_of_several_is_what_it_says(largest_of: int, fineness: int) -> None:
    release = SelectionRelease(2.0, 2, 3, largest_of, fineness, gap=False)
    assert release.range < 1.9 * release.epsilon
    noise, step = drawn(release), 1 << fineness
    for totals in [(0, 0), (1, 0), (1, 1, 0), (2, 0, 1)]:
        here = outcomes(tuple(step * s for s in totals), noise, gap=False)
        for other in neighbours(totals, 1):
            there = outcomes(tuple(step * s for s in other), noise, gap=False)
            found = losses(here, there, FLOOR)
            assert max(found) - min(found) <= release.range


def test_one_geometric_has_nearly_twice_the_range() -> None:
    release = SelectionRelease(2.0, 2, 3, fineness=2, gap=False)
    noise = drawn(release)
    # Two rivals at a tie: one of them falls behind by all a ballot can do.
    here, there = (outcomes(totals, noise, gap=False) for totals in ((16, 16), (12, 20)))
    found = losses(here, there, FLOOR)
    assert max(found) - min(found) > 1.3 * release.epsilon
    assert release.range == 2 * release.epsilon


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0])
def test_coins_are_right_to_their_precision(epsilon: float) -> None:
    release = SelectionRelease(epsilon, 6, 200)
    q = math.exp(-release.rate)
    for digit, coin in enumerate(release.noise_coins()):
        assert coin.threshold % 2 == 1
        exact = q ** (2**digit) / (1 + q ** (2**digit))
        assert coin.probability == pytest.approx(exact, rel=2.0**-release.precision + 1e-10)
        assert Fraction(coin.threshold, 1 << coin.bits) < Fraction(1, 1 << (coin.bits - 29))


def test_digits_make_a_geometric_variable() -> None:
    release = SelectionRelease(1.0, 2, 3)
    noise, q = drawn(release), math.exp(-release.rate)
    exact = (1 - q) * q ** np.arange(len(noise))
    assert np.allclose(noise, exact, rtol=1e-6, atol=0)
    assert release.slip < 2.0**-64


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"reach": 0},
        {"candidates": 1},
        {"largest_of": 0},
        {"fineness": -1},
        {"precision": 8},
        {"gap": 1},
        {"epsilon": 1e-7},
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {"epsilon": 1.0, "reach": 6, "candidates": 100}
    with pytest.raises(ParameterError):
        SelectionRelease(**(fields | wrong))  # type: ignore[arg-type]


ALPHAS = np.linspace(0, 1, 2001)


def gaussian_tradeoff(mu: float) -> np.ndarray:
    return ndtr(ndtri(1 - ALPHAS) - mu)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_a_pure_pair_is_no_easier_than_its_gaussian(epsilon: float) -> None:
    pair = np.maximum(1 - math.exp(epsilon) * ALPHAS, math.exp(-epsilon) * (1 - ALPHAS))
    pair = np.maximum(pair, 0.0)
    mu = pure_mu(epsilon)
    assert (gaussian_tradeoff(mu) <= pair + 1e-12).all()
    corner = 1 / (1 + math.exp(epsilon))  # a smaller Gaussian lies above the pair there
    assert ndtr(ndtri(1 - corner) - 0.999 * mu) > corner


@pytest.mark.parametrize("most", [0.01, 0.5, 2.0, 8.0])
def test_a_pair_of_bounded_range_is_no_easier_than_its_gaussian(most: float) -> None:
    mu = range_mu(most)
    assert mu < 1.02 * pure_mu(most / 2)
    gaussian = gaussian_tradeoff(mu)
    for t in np.linspace(0, most, 41)[1:-1]:
        high = -math.expm1(t - most) / -math.expm1(-most)
        low = high * math.exp(-t)
        chords = np.maximum(1 - ALPHAS * (high / low), (1 - high) / (1 - low) * (1 - ALPHAS))
        assert (gaussian <= chords + 1e-12).all()


def test_it_is_read_back_from_the_ledger() -> None:
    release = SelectionRelease(0.5, 6, 100, 4, 4, gap=False)
    assert read_release(release.as_mapping()) == release
    series = Repeated(release, 3)
    assert read_release(series.as_mapping()) == series
    assert [price.epsilon for price in series.prices()] == [1.5, 0.0]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "a.ledger", Budget(1.0, 1e-5))


def test_alone_in_a_ledger_it_costs_its_epsilon(ledger: Ledger) -> None:
    ledger.charge(SelectionRelease(0.4, 6, 100), label="first")
    ledger.charge(SelectionRelease(0.6, 6, 100), label="second")
    assert ledger.spent().epsilon == 1.0
    assert ledger.left() == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(SelectionRelease(0.01, 6, 100), label="third")


def test_sums_have_what_selections_before_them_left(ledger: Ledger) -> None:
    ledger.charge(SelectionRelease(0.4, 6, 100), label="vote")
    assert ledger.left() == pytest.approx(0.6)
    with pytest.raises(BudgetExceeded):
        ledger.charge(GaussianRelease(1 / 0.17), label="too much")
    ledger.charge(GaussianRelease(1 / 0.165), label="training")
    assert gaussian_epsilon(0.165, 1e-5) < 0.6 < gaussian_epsilon(0.17, 1e-5)
    assert ledger.spent().epsilon <= 1.0


def test_after_a_sum_it_is_counted_by_its_gaussian(ledger: Ledger) -> None:
    ledger.charge(GaussianRelease(1 / 0.2), label="training")
    vote = SelectionRelease(0.1, 6, 100)
    ledger.charge(vote, label="vote")
    assert ledger.entries()[1].cost.mu == vote.mu
    assert ledger.entries()[1].cost.epsilon == 0.0
    # A pure epsilon on top, chosen after the sum was seen, has no such proof.
    with pytest.raises(BudgetExceeded):
        ledger.charge(SelectionRelease(0.15, 6, 100), label="second")


def test_a_vote_and_what_follows_it_are_asked_for_in_their_order(ledger: Ledger) -> None:
    """What fits if the selection comes first does not if it comes last."""
    vote, training = SelectionRelease(0.4, 6, 100), GaussianRelease(1 / 0.165)
    ledger.check(vote, training)
    with pytest.raises(BudgetExceeded):
        ledger.check(training, vote)
    with pytest.raises(BudgetExceeded):
        ledger.check(SelectionRelease(0.45, 6, 100), training)
    assert ledger.entries() == []


@pytest.mark.parametrize("part", [0.02, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_a_budget_divided_for_a_selection_that_comes_first_fits(
    tmp_path: Path, part: float, epsilon: float
) -> None:
    budget = Budget(epsilon, 1e-5)
    first, rest = pure_first(budget, part)
    assert rest == parts_of(budget, (part, 1 - part))[1]  # what follows has the same either way
    ledger = Ledger.open(tmp_path / "ledger", budget)
    ledger.charge(SelectionRelease(first.epsilon, 6, 3, precision=40), label="vote")
    assert ledger.entries()[0].cost.epsilon == first.epsilon
    mu = Cover(rest).mu
    ledger.charge(GaussianRelease(1 / mu), label="training")
    assert 0.999 * epsilon < ledger.spent().epsilon <= epsilon
    with pytest.raises(BudgetExceeded):
        ledger.charge(GaussianRelease(1 / (0.03 * mu)), label="more")


def test_a_selection_that_was_withdrawn_gets_an_id_of_its_own(ledger: Ledger) -> None:
    vote = SelectionRelease(0.4, 6, 100)
    assert ledger.free_id("vote", vote) == "vote"
    ledger.charge(vote, label="vote", id="vote")
    assert ledger.free_id("vote", vote) == "vote"  # a run that was killed goes on
    assert ledger.free_id("vote", Repeated(vote, 1)) == "vote-2"  # a series is another thing
    ledger.withdraw("vote", reason="the helper was lost")
    assert ledger.free_id("vote", vote) == "vote-2"


def test_several_beside_sums_are_counted_the_cheaper_way() -> None:
    vote = SelectionRelease(0.1, 6, 100, 4, 4, gap=False)
    assert compose([vote], 1e-5).epsilon == 0.1
    many = [vote] * 100
    assert compose(many, 1e-5).epsilon < 5.0
    assert compose(many, 1e-5).epsilon == gaussian_epsilon(
        vote.mu * math.sqrt(100), 1e-5 * (1 - 1e-6)
    )
    assert vote.mu < 0.85 * SelectionRelease(0.1, 6, 100).mu

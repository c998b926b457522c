"""Baselines cost what they say, and without noise they choose what their authors mean."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.papers.baselines import (
    BoundedSum,
    CentralSelection,
    Feathers,
    MeanSetting,
    RawLosses,
    Subsets,
    opt,
    rand_guess,
)
from benchmarks.papers.baselines.bounded import in_steps
from benchmarks.papers.baselines.central import price
from benchmarks.papers.baselines.mean_setting import scaled
from benchmarks.papers.baselines.subsets import assignment
from scipy import stats

from urna.errors import ParameterError
from urna.privacy import Budget, Sensitivity, gaussian_delta
from urna.privacy.distributions import DISTRIBUTIONS
from urna.space import Space

BUDGET = Budget(1.0, 1e-5)
FALSE_ALARM = 1e-6  # how often a correct sampler would fail here on a fresh seed


def furthest(vectors: list[tuple[float, ...]], scale: int) -> Sensitivity:
    """Return the longest move and the most entries moved between any two vectors."""
    rounded = {
        tuple(in_steps(np.array(v), scale, np.array(lots)))
        for v in vectors
        for lots in itertools.product((0.0, 0.999), repeat=len(v))
    }
    moves = [np.subtract(a, b) for a, b in itertools.product(rounded, repeat=2)]
    return Sensitivity(int(max(m @ m for m in moves)), int(max((m != 0).sum() for m in moves)))


def hockey_stick(sum_: BoundedSum, epsilon: float) -> float:
    """Return delta for all moved entries shifted by one unit, by adding up probabilities."""
    found = sum_.calibration()
    assert found is not None
    half, _ = DISTRIBUTIONS[found.release.family].half_weights(found.release.variance)
    mass = np.array([float(w) for w in [*half[:0:-1], *half]])
    mass /= mass.sum()
    here = np.concatenate([mass, np.zeros(found.scale)])
    there = np.concatenate([np.zeros(found.scale), mass])
    for _ in range(sum_.moved - 1):
        here, there = (np.multiply.outer(x, x[: len(mass) + found.scale]) for x in (here, there))
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


def test_raw_losses_pay_for_every_candidate() -> None:
    private = RawLosses(BUDGET).sum_of(clients=20, candidates=3)
    found = private.calibration()
    assert found is not None
    vectors = list(itertools.product((0.0, 0.3, 1.0), repeat=3))
    assert found.release.sensitivity == furthest(vectors, found.scale)


def test_subsets_pay_for_the_one_candidate_a_client_judges() -> None:
    private = Subsets(BUDGET).sum_of(clients=20)
    found = private.calibration()
    assert found is not None
    vectors = [(value, 0.0, 0.0) for value in (0.0, 0.3, 1.0)]
    sent = furthest([v[:1] for v in vectors], found.scale)
    assert found.release.sensitivity == sent


def test_a_mean_setting_pays_for_every_axis() -> None:
    space = Space(lr=[0.1, 0.2, 0.5], momentum=[0.0, 0.9])
    private = MeanSetting(BUDGET).sum_of(clients=20, axes=2)
    found = private.calibration()
    assert found is not None
    assert found.release.sensitivity == furthest([tuple(p) for p in scaled(space)], found.scale)


@pytest.mark.parametrize("moved", [1, 2])
def test_the_noise_of_a_bounded_sum_meets_its_budget_and_hardly_more(moved: int) -> None:
    private = BoundedSum(clients=5, moved=moved, budget=Budget(3.0, 1e-3))
    assert hockey_stick(private, 3.0) <= 1e-3
    assert hockey_stick(private, 2.97) > 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.1, False)], ids=["right", "10 %"])
def test_a_bounded_sum_carries_the_noise_of_all_clients(factor: float, right: bool) -> None:
    private = BoundedSum(clients=50, moved=4, budget=BUDGET)
    found = private.calibration()
    assert found is not None
    values, rng = np.ones((50, 4)), np.random.default_rng(1)
    noise = np.array([private.noisy(values, rng) - 50.0 for _ in range(2_000)])
    variance = float(found.release.share) * 50 / found.scale**2
    # Squared normals over their variance are chi-square; Skellam's fourth moment is near enough.
    place = stats.chi2.cdf((noise**2).sum() / variance / factor**2, df=noise.size)
    assert (FALSE_ALARM / 2 < place < 1 - FALSE_ALARM / 2) == right


def test_rounding_by_lot_keeps_the_mean() -> None:
    values, rng = np.full((400, 50), 0.3), np.random.default_rng(2)
    steps = in_steps(values, 1, rng.random(values.shape))
    assert set(np.unique(steps)) == {0.0, 1.0}
    # 20,000 coins of probability .3 leave .3 by more than .02 once in 10^9 seeds.
    assert abs(steps.mean() - 0.3) < 0.02


def test_without_noise_raw_losses_choose_the_best_mean_accuracy() -> None:
    rng = np.random.default_rng(0)
    accuracies = rng.random((30, 12))
    accuracies[3, 4] = np.nan
    expected = np.argmax(np.nan_to_num(accuracies).mean(axis=0))
    assert RawLosses(None).winners(accuracies, rng, 3).tolist() == [expected] * 3


def test_without_noise_subsets_choose_the_best_of_clients_that_agree() -> None:
    rng = np.random.default_rng(0)
    accuracies = np.tile(np.linspace(0, 0.9, 6), (25, 1))
    assert Subsets(None).winners(accuracies, rng, 5).tolist() == [5] * 5


def test_a_candidate_that_nobody_judges_cannot_win() -> None:
    rng = np.random.default_rng(0)
    sends = assignment(3, 10, rng)
    assert sends.sum(axis=1).tolist() == [1, 1, 1]
    assert sends.sum(axis=0).max() == 1
    wins = Subsets(Budget(0.1, 1e-5)).winners(np.zeros((3, 10)), rng, 300)
    assert set(wins.tolist()) == set(range(10))
    assert assignment(25, 10, rng).sum(axis=0).tolist().count(3) == 5


def test_with_a_generous_budget_noise_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    accuracies = np.tile(np.linspace(0.1, 0.9, 5), (400, 1))
    generous = Budget(20.0, 1e-5)
    assert set(RawLosses(generous).winners(accuracies, rng, 20).tolist()) == {4}
    assert set(Subsets(generous).winners(accuracies, rng, 20).tolist()) == {4}


def test_clients_that_agree_get_their_setting_from_the_mean() -> None:
    space = Space(lr=[0.1, 0.2, 0.5], momentum=[0.0, 0.9])
    losses = np.ones((40, 6))
    losses[:, 3] = 0.1
    rng = np.random.default_rng(0)
    assert MeanSetting().winners(losses, space, rng, 2).tolist() == [3, 3]
    assert set(MeanSetting(Budget(5.0, 1e-5)).winners(losses, space, rng, 20).tolist()) == {3}


def test_two_camps_get_the_setting_in_between() -> None:
    space = Space(lr=[0.0, 0.5, 1.0])
    losses = np.ones((20, 3))
    losses[:10, 0] = losses[10:, 2] = 0.0
    assert MeanSetting().winners(losses, space, np.random.default_rng(0), 1).tolist() == [1]


def test_texts_cannot_be_averaged() -> None:
    space = Space(optimiser=["sgd", "adamw"])
    with pytest.raises(ParameterError, match="averaged along 'optimiser'"):
        MeanSetting().winners(np.ones((3, 2)), space, np.random.default_rng(0), 1)


def test_feathers_finds_the_best_of_few_without_noise() -> None:
    losses = np.tile([2.0, 0.5, 1.0], (10, 1))
    wins = Feathers(None).winners(losses, np.full(10, 2.3), np.random.default_rng(0), 200)
    # The best may not be drawn in the last phase: four draws of three candidates.
    assert (wins == 1).mean() > 0.8


def test_feathers_as_published_pays_for_one_report_of_an_unbounded_loss() -> None:
    published, honest = Feathers(BUDGET), Feathers(BUDGET, honest=True)
    assert gaussian_delta(published.noise_std(100), sensitivity=1.0, epsilon=1.0) <= 1e-5
    # What its reports really cost: every one of them is a release.
    real = math.sqrt(published.reports(100)) * published.largest_loss
    assert gaussian_delta(published.noise_std(100), sensitivity=real, epsilon=1.0) > 0.99
    assert gaussian_delta(honest.noise_std(100), sensitivity=real, epsilon=1.0) <= 1e-5


def test_feathers_never_asks_for_more_reports_than_it_pays_for() -> None:
    feathers = Feathers(BUDGET, honest=True, phases=2)
    rng = np.random.default_rng(0)
    asked = [feathers._drawn(rng.dirichlet(np.full(7, a))) for a in (0.1, 1.0, 1e6)]
    assert 2 * 2 * max(asked) == feathers.reports(7)
    # One client's clipped reports, replaced: the longest they can move together.
    extremes = itertools.product((0.0, feathers.largest_loss), repeat=4)
    moved = max(math.dist(a, b) for a, b in itertools.product(list(extremes), repeat=2))
    assert moved == pytest.approx(feathers.largest_loss * math.sqrt(4))


def test_diverged_losses_leave_feathers_numbers() -> None:
    losses = np.tile([np.inf, 0.5, np.nan], (10, 1))
    losses[0] = [3.0, 0.5, 3.0]
    wins = Feathers(None).winners(
        losses, np.full(10, 2.3), np.random.default_rng(0), 50, rows=np.arange(1, 11)
    )
    assert (wins == 1).mean() > 0.8


def test_central_selection_without_noise_and_with_many_tries_takes_the_best() -> None:
    rng = np.random.default_rng(0)
    accuracies = rng.random((30, 8))
    best = np.argmax(accuracies.mean(axis=0))
    assert set(CentralSelection(None, tries=400).winners(accuracies, rng, 20).tolist()) == {best}
    few = CentralSelection(None, tries=0.01).winners(accuracies, rng, 200)
    assert set(few.tolist()) == set(range(8))  # mostly no try at all: any candidate


def test_central_selection_pays_for_repeating() -> None:
    std = CentralSelection(BUDGET, tries=50).noise_std(10)
    assert price(std, 50, 1e-5) <= 1.0 < price(0.99 * std, 50, 1e-5)
    assert gaussian_delta(std, sensitivity=1.0, epsilon=1.0) < 1e-5  # one try alone costs less
    assert CentralSelection(BUDGET, tries=500).noise_std(10) > std


@pytest.mark.parametrize("tries", [0.0, -1.0, math.inf])
def test_central_selection_refuses_numbers_of_tries(tries: float) -> None:
    with pytest.raises(ParameterError, match="must be positive"):
        CentralSelection(BUDGET, tries=tries).noise_std(10)


def test_the_ends_of_the_scale() -> None:
    federated = np.array([0.1, np.nan, 0.7])
    assert (opt(federated), rand_guess(federated)) == (0.7, pytest.approx(0.4))
    with pytest.raises(ParameterError, match="at least one of them finite"):
        opt(np.full(3, np.nan))


@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((1, 3)), np.zeros((3, 0))])
def test_scores_must_be_clients_by_candidates(scores: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="clients by candidates"):
        RawLosses(None).winners(scores, np.random.default_rng(0), 1)

"""Accounting against closed forms, brute force and the published figures."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from scipy import integrate, stats

from urna.errors import LedgerError, ParameterError
from urna.privacy import (
    DISCRETE_GAUSSIAN,
    SKELLAM,
    Adjacency,
    BallotShape,
    Budget,
    DeclaredRelease,
    GaussianRelease,
    NonPrivateRelease,
    Release,
    SkellamVectorRelease,
    TallyRelease,
    calibrate_ballots,
    compose,
    epsilon_from_rdp,
    gaussian_delta,
    gaussian_rdp,
    gaussian_std,
    honest_survivors,
    skellam_rdp,
)
from urna.privacy.events import read_release
from urna.privacy.loss import shifted_noise_loss, sum_error
from urna.privacy.rdp import ORDERS

REPLACE = Adjacency.REPLACE_ONE_CLIENT
TOP_5 = BallotShape.top_k(5, 100)
DELTA = 1e-5

# DP-Hype with k = 5 and delta = 1e-5: the authors' noise (RDP) and the exact Gaussian's,
# both rounded as printed there.
PUBLISHED = {
    0.1: (103, 97.2),
    0.25: (46, 42.0),
    0.5: (24, 22.2),
    1.0: (12.5, 11.8),
    3.0: (4.7, 4.40),
}


def mass_of(variance: Fraction, family: object = SKELLAM) -> dict[int, float]:
    half, _ = family.half_weights(variance)  # type: ignore[attr-defined]
    total = 2 * sum(half) - half[0]
    return {k: half[abs(k)] / total for k in range(-len(half) + 1, len(half))}


def brute_force_delta(shifts: list[int], variance: Fraction, epsilon: float) -> float:
    """Sum max(0, P − e^ε·Q) over all outcomes of all coordinates."""
    mass = mass_of(variance)
    window = [k for k, p in mass.items() if p > 1e-22]
    p, q = np.ones(1), np.ones(1)
    for shift in shifts:
        p = np.multiply.outer(p, [mass[k] for k in window])
        q = np.multiply.outer(q, [mass.get(k - shift, 0.0) for k in window])
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_the_gaussian_std_is_the_published_one(epsilon: float) -> None:
    found = gaussian_std(Budget(epsilon, DELTA), sensitivity=math.sqrt(10))
    assert found == pytest.approx(PUBLISHED[epsilon][1], rel=2e-3)


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_the_authors_noise_is_that_of_rdp_within_five_per_cent(epsilon: float) -> None:
    def spent(std: float) -> float:
        curve = {a: gaussian_rdp(a, l2_squared=10, variance=std**2) for a in ORDERS}
        return epsilon_from_rdp(curve, DELTA)

    published, exact = PUBLISHED[epsilon]
    assert spent(1.05 * published) <= epsilon < spent(0.95 * published)
    assert spent(exact) > epsilon  # RDP cannot prove what the exact accounting can


@pytest.mark.parametrize("epsilon", PUBLISHED)
@pytest.mark.parametrize("clients", [10, 100, 10_000])
def test_calibrated_ballots_need_no_more_than_the_gaussian(epsilon: float, clients: int) -> None:
    found = calibrate_ballots(Budget(epsilon, DELTA), TOP_5, shares=clients)
    assert found.epsilon <= epsilon
    assert found.noise_std == pytest.approx(
        gaussian_std(Budget(epsilon, DELTA), sensitivity=math.sqrt(10)), rel=2e-3
    )
    assert math.sqrt(found.release.share) >= 4


@pytest.mark.parametrize(("std", "epsilon"), [(1.0, 0.5), (5.0, 0.1), (0.7, 3.0)])
def test_gaussian_delta_equals_the_integral(std: float, epsilon: float) -> None:
    def excess(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, 1, std) - math.exp(epsilon) * stats.norm.pdf(x, 0, std))

    from_here = 0.5 + epsilon * std**2
    exact, _ = integrate.quad(excess, from_here, from_here + 40 * std)
    assert gaussian_delta(std, sensitivity=1.0, epsilon=epsilon) == pytest.approx(exact, rel=1e-6)


def test_gaussian_delta_keeps_its_digits_far_out() -> None:
    with mp.workprec(200):
        exact = mp.ncdf(mp.mpf(1) / 20 - 8 * 10) - mp.exp(8) * mp.ncdf(-mp.mpf(1) / 20 - 8 * 10)
    found = gaussian_delta(10.0, sensitivity=1.0, epsilon=8.0)
    assert found == pytest.approx(float(exact), rel=1e-9, abs=0.0)


@pytest.mark.parametrize("shifts", [[3], [2, 2], [3, 1], [2, -2]], ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_the_loss_distribution_equals_brute_force_and_never_less(
    shifts: list[int], epsilon: float
) -> None:
    variance = Fraction(9)
    lengths = sorted({abs(s) for s in shifts}, reverse=True)
    merged = tuple((length, sum(abs(s) == length for s in shifts)) for length in lengths)
    loss = shifted_noise_loss(SKELLAM, variance, merged, 1e-5)
    exact = brute_force_delta(shifts, variance, epsilon)
    found = loss.get_delta_for_epsilon(epsilon)
    assert exact <= found * (1 + 1e-9)
    assert found <= exact * 1.001 + 1e-13


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_ballots_without_a_common_candidate_are_the_worst(epsilon: float) -> None:
    # Ranked weights 2, 1 over four candidates, against every other ballot and abstention.
    variance, weights = Fraction(6), (2, 1)
    ballot = np.array([2, 1, 0, 0])
    others = [np.zeros(4, dtype=int)]
    for places in itertools.permutations(range(4), 2):
        other = np.zeros(4, dtype=int)
        other[list(places)] = weights
        others.append(other)
    shifts = BallotShape(weights, 4).shifts(REPLACE)
    assert shifts == ((2, 2), (1, 2))
    bound = shifted_noise_loss(SKELLAM, variance, shifts, 1e-4).get_delta_for_epsilon(epsilon)
    for other in others:
        moved = [int(d) for d in ballot - other if d]
        if moved and len(moved) <= 3:
            assert brute_force_delta(moved, variance, epsilon) <= bound * (1 + 1e-9)


def test_a_longer_shift_of_one_coordinate_costs_more() -> None:
    costs = [brute_force_delta([s], Fraction(9), 0.5) for s in range(1, 6)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize(
    ("votes", "candidates", "moved"),
    [(5, 100, 10), (1, 2, 2), (3, 5, 4), (4, 5, 4), (5, 5, 5)],
)
def test_k_hot_shifts_are_what_brute_force_finds(votes: int, candidates: int, moved: int) -> None:
    assert BallotShape.top_k(votes, candidates).shifts(REPLACE) == ((1, moved),)
    if candidates <= 5:
        ballots = [set(c) for c in itertools.combinations(range(candidates), votes)] + [set()]
        worst = max(len(a ^ b) for a in ballots for b in ballots)
        assert worst == moved


def test_zeroing_out_a_client_moves_each_weight_once() -> None:
    zero_out = BallotShape((4, 2, 2, 1), 20).shifts(Adjacency.ZERO_OUT_CLIENT)
    assert zero_out == ((4, 1), (2, 2), (1, 1))
    quiet = calibrate_ballots(
        Budget(1.0, DELTA), TOP_5, shares=50, adjacency=Adjacency.ZERO_OUT_CLIENT
    )
    loud = calibrate_ballots(Budget(1.0, DELTA), TOP_5, shares=50)
    assert loud.noise_std == pytest.approx(quiet.noise_std * math.sqrt(2), rel=2e-3)


def test_calibration_is_tight_and_rounds_towards_more_noise() -> None:
    found = calibrate_ballots(Budget(1.0, DELTA), TOP_5, shares=100)
    release = found.release
    unit = Fraction(2) ** (math.floor(math.log2(release.share)) - 12)
    quieter = TallyRelease(release.shifts, release.share - 2 * unit, 100)
    assert compose([release], DELTA).epsilon <= 1.0 < compose([quieter], DELTA).epsilon


def test_ranked_ballots_of_equal_norm_cost_the_same() -> None:
    # Σw² = 36 for six twos' worth: (2,)*9 and (4, 4, 2) have equal L2 norm.
    flat = calibrate_ballots(Budget(1.0, DELTA), BallotShape((2,) * 9, 60), shares=40)
    ranked = calibrate_ballots(Budget(1.0, DELTA), BallotShape((4, 4, 2), 60), shares=40)
    assert ranked.noise_std == pytest.approx(flat.noise_std, rel=2e-3)


def test_noise_falls_with_epsilon_and_grows_with_votes() -> None:
    def noise(epsilon: float, votes: int) -> float:
        shape = BallotShape.top_k(votes, 100)
        return calibrate_ballots(Budget(epsilon, DELTA), shape, shares=100).noise_std

    assert noise(0.5, 5) > noise(1.0, 5) > noise(2.0, 5)
    assert noise(1.0, 1) < noise(1.0, 5) < noise(1.0, 25)


def test_an_enormous_budget_still_gets_noise() -> None:
    found = calibrate_ballots(Budget(1000.0, DELTA), TOP_5, shares=10)
    assert 0 < found.epsilon <= 20
    assert found.noise_std > 0.5


@pytest.mark.parametrize("order", [2, 3, 8, 32])
@pytest.mark.parametrize(("shift", "variance"), [(1, 4), (3, 30), (16, 900)])
def test_the_skellam_rdp_bound_is_above_the_true_divergence(
    order: int, shift: int, variance: int
) -> None:
    half, _ = SKELLAM.half_weights(Fraction(variance))
    with mp.workprec(300):
        total = 2 * sum(half) - half[0]
        mass = {k: mp.mpf(half[abs(k)]) / total for k in range(-len(half) + 1, len(half))}
        moment = mp.fsum(
            p * (p / mass[k - shift]) ** (order - 1) for k, p in mass.items() if k - shift in mass
        )
        true = float(mp.log(moment) / (order - 1))
    bound = skellam_rdp(order, l2_squared=shift**2, l1=shift, variance=variance)
    assert true <= bound <= 3 * true


def test_rdp_never_undercuts_the_exact_loss() -> None:
    release = calibrate_ballots(Budget(1.0, DELTA), TOP_5, shares=100).release
    curve = {a: release.rdp(a) for a in ORDERS}
    assert epsilon_from_rdp(curve, DELTA) > compose([release], DELTA).epsilon


def test_sums_of_discrete_gaussians_stay_within_their_slack() -> None:
    # σ² = 0.3 is coarse enough for the difference to be seen in float64.
    share, shares = Fraction(3, 10), 3
    one = mass_of(share, DISCRETE_GAUSSIAN)
    whole = mass_of(share * shares, DISCRETE_GAUSSIAN)
    summed: dict[int, float] = {0: 1.0}
    for _ in range(shares):
        step: dict[int, float] = {}
        for (a, p), (b, q) in itertools.product(summed.items(), one.items()):
            step[a + b] = step.get(a + b, 0.0) + p * q
        summed = step
    worst = max(abs(math.log(summed[k] / whole[k])) for k in range(-4, 5))
    tau = sum_error(share, shares)
    assert 0 < worst <= tau
    assert worst > tau / 100  # the bound is of the right size


def test_discrete_gaussian_ballots_cost_what_skellam_ballots_cost() -> None:
    budget = Budget(1.0, DELTA)
    gaussian = calibrate_ballots(budget, TOP_5, shares=100, family=DISCRETE_GAUSSIAN)
    skellam = calibrate_ballots(budget, TOP_5, shares=100)
    assert gaussian.noise_std == pytest.approx(skellam.noise_std, rel=2e-3)


@pytest.mark.parametrize(
    ("clients", "dropout", "colluding", "left"),
    [(100, "0", "0", 99), (100, "0.29", "0", 70), (100, "0.2", "0.1", 70), (7, "0.3", "0.3", 3)],
)
def test_honest_survivors_counts_dropouts_as_honest(
    clients: int, dropout: str, colluding: str, left: int
) -> None:
    found = honest_survivors(clients, dropout=Fraction(dropout), colluding=Fraction(colluding))
    assert found == left
    worst = min(
        clients - gone - max(told, 1)  # whoever reads the result knows its own noise
        for gone in range(clients + 1)
        for told in range(clients + 1)
        if gone <= clients * Fraction(dropout) and told <= clients * Fraction(colluding)
    )
    assert found == worst


def test_nobody_honest_left_is_refused() -> None:
    with pytest.raises(ParameterError, match="no honest client"):
        honest_survivors(10, dropout=Fraction(1, 2), colluding=Fraction(1, 2))


EVENTS: list[Release] = [
    TallyRelease(((4, 10),), Fraction(237173, 4096), 100),
    TallyRelease(((3, 2), (1, 2)), Fraction(20), 9, DISCRETE_GAUSSIAN.name),
    SkellamVectorRelease(l2_squared=100.0, l1=500.0, variance=1e5, rounds=3),
    GaussianRelease(8.0, rounds=4),
    DeclaredRelease(0.3, 1e-7),
]


def test_composition_is_subadditive_and_does_not_depend_on_order() -> None:
    alone = sum(compose([event], DELTA / len(EVENTS)).epsilon for event in EVENTS)
    together = compose(EVENTS, DELTA)
    assert max(compose([event], DELTA).epsilon for event in EVENTS) <= together.epsilon <= alone
    assert compose(EVENTS[::-1], DELTA).epsilon == pytest.approx(together.epsilon, rel=1e-6)


def test_many_gaussians_compose_to_the_closed_form() -> None:
    spent = compose([GaussianRelease(10.0, rounds=3), GaussianRelease(10.0)], DELTA).epsilon
    assert gaussian_delta(10.0, sensitivity=2.0, epsilon=spent) == pytest.approx(DELTA, rel=0.01)


def test_two_votes_compose_better_than_their_sum() -> None:
    release = calibrate_ballots(Budget(1.0, DELTA), TOP_5, shares=100).release
    both = compose([release, release], DELTA).epsilon
    exact = gaussian_std(Budget(both, DELTA), sensitivity=math.sqrt(20))
    assert exact == pytest.approx(math.sqrt(release.variance) / 4, rel=5e-3)
    assert both < 1.6


def test_a_release_without_a_guarantee_makes_everything_infinite() -> None:
    spent = compose([GaussianRelease(8.0), NonPrivateRelease("scripted secrets")], DELTA)
    assert spent.epsilon == math.inf


def test_a_delta_below_the_precision_of_draws_is_not_claimed() -> None:
    release = TallyRelease(((4, 10),), Fraction(64), 100)
    assert compose([release], 1e-25).epsilon == math.inf
    assert compose([release], 1e-9).epsilon < math.inf


@pytest.mark.parametrize(
    "event", [*EVENTS, NonPrivateRelease("why")], ids=lambda e: type(e).__name__
)
def test_events_survive_the_ledger(event: Release) -> None:
    assert read_release(event.as_mapping()) == event


@pytest.mark.parametrize(
    "mapping",
    [
        {"kind": "from the future"},
        {},
        {"kind": "tally", "shifts": [[1, 2]], "share": "x", "shares": 3, "family": "skellam"},
        {"kind": "tally", "shifts": [[1, 2]], "share": "1", "shares": 3, "family": "laplace"},
        {"kind": "gaussian", "rounds": 1},
        {"kind": "declared", "epsilon": -1.0, "delta": 0.0},
    ],
    ids=str,
)
def test_an_event_that_cannot_be_read_is_never_skipped(mapping: dict[str, object]) -> None:
    with pytest.raises(LedgerError):
        read_release(mapping)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_budgets_refuse_impossible_epsilons(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon must be finite and positive"):
        Budget(epsilon, DELTA)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_budgets_refuse_impossible_deltas(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta must lie"):
        Budget(1.0, delta)


@pytest.mark.parametrize(
    ("weights", "candidates"), [((), 3), ((0,), 3), ((1, 2), 3), ((1, 1, 1, 1), 3), ((-1,), 2)]
)
def test_shapes_refuse_impossible_weights(weights: tuple[int, ...], candidates: int) -> None:
    with pytest.raises(ParameterError):
        BallotShape(weights, candidates)

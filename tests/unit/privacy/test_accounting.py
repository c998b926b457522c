"""Accounting against closed forms, brute force and the published figures."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.papers.rdp import ORDERS, epsilon_from_rdp, gaussian_rdp
from mpmath import mp
from scipy import integrate, stats

from urna.errors import LedgerError, ParameterError
from urna.privacy import (
    DISCRETE_GAUSSIAN,
    SKELLAM,
    Budget,
    Cost,
    DeclaredRelease,
    GaussianRelease,
    NonPrivateRelease,
    Release,
    Repeated,
    Sampled,
    Sensitivity,
    SumRelease,
    calibrate,
    compose,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_std,
    together,
)
from urna.privacy.events import read_release, sum_error

TOP_5 = Sensitivity(10, 10)
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
@pytest.mark.parametrize("clients", [1, 2, 20, 100, 10_000])
def test_integer_noise_costs_a_thousandth_more_than_the_gaussian(
    epsilon: float, clients: int
) -> None:
    found = calibrate(Budget(epsilon, DELTA), TOP_5, shares=clients)
    exact = gaussian_std(Budget(epsilon, DELTA), sensitivity=math.sqrt(10))
    assert found.epsilon <= epsilon
    assert exact <= found.noise_std <= 1.001 * exact
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


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_mu_and_epsilon_are_inverse_and_rounded_to_the_safe_side(
    epsilon: float, delta: float
) -> None:
    mu = gaussian_mu(Budget(epsilon, delta))
    assert gaussian_delta(1.0, sensitivity=mu, epsilon=epsilon) <= delta
    assert gaussian_delta(1.0, sensitivity=mu * (1 + 1e-9), epsilon=epsilon) > delta
    back = gaussian_epsilon(mu, delta)
    assert back == pytest.approx(epsilon, rel=1e-9)
    assert gaussian_delta(1.0, sensitivity=mu, epsilon=back) <= delta


def test_what_is_certain_costs_nothing_and_what_is_unbounded_everything() -> None:
    assert gaussian_epsilon(0.0, DELTA) == 0.0
    assert gaussian_epsilon(math.inf, DELTA) == math.inf
    assert gaussian_epsilon(1e-7, DELTA) == 0.0  # delta alone covers it


def test_calibration_is_tight_and_rounds_towards_more_noise() -> None:
    found = calibrate(Budget(1.0, DELTA), TOP_5, shares=100)
    release = found.release
    unit = Fraction(2) ** (math.floor(math.log2(release.share)) - 12)
    quieter = SumRelease(release.sensitivity, release.share - 3 * unit, 100)
    assert compose([release], DELTA).epsilon <= 1.0 < compose([quieter], DELTA).epsilon


def test_noise_falls_with_epsilon_and_grows_with_the_move() -> None:
    def noise(epsilon: float, squares: int) -> float:
        return calibrate(Budget(epsilon, DELTA), Sensitivity(squares, 9), shares=100).noise_std

    assert noise(0.5, 10) > noise(1.0, 10) > noise(2.0, 10)
    assert noise(1.0, 40) == pytest.approx(2 * noise(1.0, 10), rel=2e-3)


def test_vectors_on_a_fine_grid_are_not_scaled() -> None:
    fine = calibrate(Budget(1.0, DELTA), Sensitivity(4 * 7000**2, 1000), shares=80, finest=1)
    assert fine.scale == 1
    assert fine.noise_std == pytest.approx(
        gaussian_std(Budget(1.0, DELTA), sensitivity=14000.0), rel=1e-3
    )


def test_an_enormous_budget_still_gets_noise() -> None:
    found = calibrate(Budget(1000.0, DELTA), TOP_5, shares=10)
    assert 0 < found.epsilon <= 20
    assert found.noise_std > 0.5


def test_a_delta_below_the_precision_of_draws_is_refused() -> None:
    with pytest.raises(ParameterError, match="Raise delta"):
        calibrate(Budget(1.0, 1e-25), TOP_5, shares=100)


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


def test_both_families_need_the_same_noise() -> None:
    budget = Budget(1.0, DELTA)
    gaussian = calibrate(budget, TOP_5, shares=100, family=DISCRETE_GAUSSIAN)
    skellam = calibrate(budget, TOP_5, shares=100)
    assert gaussian.noise_std == pytest.approx(skellam.noise_std, rel=2e-3)


SUM = SumRelease(Sensitivity(160, 10), Fraction(237173, 4096), 100)
EVENTS: list[Release] = [
    SUM,
    SumRelease(Sensitivity(20, 4), Fraction(20), 9, DISCRETE_GAUSSIAN.name),
    GaussianRelease(8.0),
    Repeated(GaussianRelease(30.0), 4),
    Repeated(SUM, 2),
    SumRelease(Sensitivity(40, 4, beyond=1e-20), Fraction(237173, 4096), 100),
    DeclaredRelease(0.3, 1e-7),
    Sampled(SUM, Fraction(1, 10), 1e-7),
    Repeated(Sampled(GaussianRelease(2.0), Fraction(1, 5), 1e-7, replaced=False), 3),
]


def test_composition_is_subadditive_and_does_not_depend_on_order() -> None:
    alone = sum(compose([event], DELTA / len(EVENTS)).epsilon for event in EVENTS)
    spent = compose(EVENTS, DELTA)
    assert max(compose([event], DELTA).epsilon for event in EVENTS) <= spent.epsilon <= alone
    assert compose(EVENTS[::-1], DELTA).epsilon == pytest.approx(spent.epsilon, rel=1e-9)
    assert spent.accountant.startswith("GDP")
    assert spent.accountant.endswith("basic composition")


def test_many_gaussians_compose_to_the_closed_form() -> None:
    spent = compose([Repeated(GaussianRelease(10.0), 3), GaussianRelease(10.0)], DELTA).epsilon
    assert gaussian_delta(10.0, sensitivity=2.0, epsilon=spent) == pytest.approx(DELTA, rel=1e-6)


def test_two_votes_compose_better_than_their_sum() -> None:
    release = calibrate(Budget(1.0, DELTA), TOP_5, shares=100).release
    both = compose([release, release], DELTA).epsilon
    exact = gaussian_std(Budget(both, DELTA), sensitivity=math.sqrt(20))
    assert exact == pytest.approx(math.sqrt(release.variance) / 4, rel=5e-3)
    assert both < 1.6


def test_a_gaussian_beside_a_declared_release_is_covered() -> None:
    """By brute force: N(0, 1) against N(μ, 1), times randomised response of a declared epsilon."""
    mu, declared = 0.5, 0.3
    cost = together([Cost(mu=mu), Cost(epsilon=declared)])
    x = np.linspace(-12, 12, 200_001)
    p, q = stats.norm.pdf(x, mu), stats.norm.pdf(x)
    heads = math.exp(declared) / (1 + math.exp(declared))
    for epsilon in (0.5, 1.0, 2.0):
        joint = [
            np.maximum(p * a - math.exp(epsilon) * q * b, 0.0)
            for a, b in ((heads, 1 - heads), (1 - heads, heads))
        ]
        exact = float(np.trapezoid(joint[0] + joint[1], x))
        assert cost.at(exact) >= epsilon


def test_a_release_without_a_guarantee_makes_everything_infinite() -> None:
    spent = compose([GaussianRelease(8.0), NonPrivateRelease("scripted secrets")], DELTA)
    assert spent.epsilon == math.inf


def test_a_delta_below_the_precision_of_draws_is_not_claimed() -> None:
    assert compose([SUM], 1e-25).epsilon == math.inf
    assert compose([SUM], 1e-9).epsilon < math.inf
    assert compose([DeclaredRelease(1.0, 1e-3)], 1e-4).epsilon == math.inf


@pytest.mark.parametrize(
    ("multiplier", "rate", "rounds", "delta"),
    [(0.7525, Fraction(1, 10), 50, 1e-3), (1.17, Fraction(16, 100), 150, 1e-2)],
    ids=["FEMNIST", "CIFAR-10"],
)
def test_sampled_rounds_cost_the_published_epsilon(
    multiplier: float, rate: Fraction, rounds: int, delta: float
) -> None:
    """ε = 6 needs these noise multipliers by loss distributions, one client left out."""
    once = GaussianRelease(multiplier)
    cost = Repeated(Sampled(once, rate, delta, replaced=False), rounds).cost()
    assert cost.epsilon == pytest.approx(6.0, rel=0.01)
    assert cost.delta == delta
    whole = Repeated(once, rounds).cost().at(delta)
    assert cost.epsilon < whole / 2  # what sampling saves


def test_replacing_a_client_costs_more_than_leaving_one_out() -> None:
    costs = [
        Sampled(GaussianRelease(3.0), Fraction(1, 10), 1e-5, replaced=replaced).rounds(20).epsilon
        for replaced in (False, True)
    ]
    assert 1.5 * costs[0] < costs[1] < 4 * costs[0]
    # Without sampling the same step from leaving out to replacing doubles μ.
    assert costs[1] < gaussian_epsilon(2 * math.sqrt(20) / 3.0, 1e-5)


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
        {"kind": "sum", "l2_squared": 4, "coordinates": 2, "share": "x", "shares": 3},
        {"kind": "sum", "l2_squared": 4, "coordinates": 2, "share": "1/0", "shares": 3},
        {"kind": "sum", "l2_squared": 4, "coordinates": 0, "share": "1", "shares": 3},
        {
            "kind": "sum",
            "l2_squared": 4,
            "coordinates": 2,
            "share": "1",
            "shares": 3,
            "family": "x",
        },
        {"kind": "gaussian", "rounds": 1},
        {"kind": "declared", "epsilon": -1.0, "delta": 0.0},
        {"kind": "repeated", "release": {"kind": "declared"}, "rounds": 2},
        {"kind": "repeated", "release": 7, "rounds": 2},
        {"kind": "sampled", "release": {"kind": "non-private", "reason": ""}, "rate": "1/2"},
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


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (1.5, 1), (-4, 2)])
def test_a_move_has_positive_whole_norms(wrong: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match="positive integers"):
        Sensitivity(*wrong)


def test_moves_scale_and_add_up_by_the_triangle_inequality() -> None:
    assert Sensitivity(10, 4).scaled(3) == Sensitivity(90, 4)
    assert Sensitivity(10, 4).times(5, dimension=12) == Sensitivity(250, 12)
    assert Sensitivity(10, 4, 1e-20).scaled(3).beyond == 1e-20
    assert Sensitivity(10, 4, 1e-20).times(5, dimension=12).beyond == pytest.approx(5e-20)


@pytest.mark.parametrize("beyond", [-1e-20, 1.0, math.nan])
def test_what_is_beyond_a_move_is_a_probability(beyond: float) -> None:
    with pytest.raises(ParameterError, match="a probability lies"):
        Sensitivity(10, 4, beyond)

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from urna.errors import ParameterError, UnknownName
from urna.privacy import Adjacency, BallotShape, Budget
from urna.tally import TallyPlan, plan_tally
from urna.testing import unpriced_plan

TOP_5 = BallotShape.top_k(5, 100)
BUDGET = Budget(1.0, 1e-5)


@pytest.fixture(scope="module")
def plan() -> TallyPlan:
    return plan_tally(
        clients=100,
        shape=TOP_5,
        budget=BUDGET,
        dropout=Fraction(1, 5),
        colluding=Fraction(1, 10),
    )


def test_the_noise_is_sized_for_the_fewest_honest_survivors(plan: TallyPlan) -> None:
    assert plan.calibration.release.shares == 70
    assert plan.share * 70 == plan.calibration.release.variance
    assert plan.calibration.epsilon <= BUDGET.epsilon
    assert 11.75 < plan.calibration.noise_std < 12.0
    assert plan.fewest == 80
    # Excess is removed: 80 survivors, of whom 10 may collude, leave the target and theirs, and
    # approximate removal one part in 70 too much.
    assert plan.most_noise == plan.calibration.release.variance * Fraction(80, 70) * Fraction(
        71, 70
    )
    # Where it is not, all hundred leave their whole share.
    whole = replace(plan, removes_excess=False)
    assert whole.most_noise == plan.share * 100


def test_one_clients_noise_is_several_grid_steps(plan: TallyPlan) -> None:
    assert 3.9 < math.sqrt(plan.share) < 8.1
    assert plan.scale & (plan.scale - 1) == 0


def test_what_must_fit_is_the_whole_vote_and_twelve_deviations(plan: TallyPlan) -> None:
    noise = 12 * math.sqrt(100 * plan.share)
    assert plan.needed == 100 * plan.scale + math.ceil(noise)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_ring_holds_just_what_it_holds(bits: int) -> None:
    clients = 8
    # Two clients' worth below the edge, because silent noise still takes its one grid step.
    fits = (1 << (bits - 1)) // clients - 1
    plan = unpriced_plan(clients=clients, candidates=2, votes=1, scale=fits, ring_bits=bits)
    assert plan.needed <= 1 << (bits - 1)
    with pytest.raises(ParameterError, match=f"a ring of {bits} bits holds .*Use a wider ring"):
        unpriced_plan(clients=clients, candidates=2, votes=1, scale=fits + 1, ring_bits=bits)


def test_noise_alone_can_be_too_much_for_a_ring() -> None:
    # A scale that 100 unanimous votes would fit at ease; 12 deviations of noise do not.
    plan = plan_tally(clients=100, shape=TOP_5, budget=Budget(0.002, 1e-5))
    assert 100 * plan.scale < 1 << 15 < plan.needed
    with pytest.raises(ParameterError, match="a ring of 16 bits holds 32,768"):
        replace(plan, ring_bits=16)


@pytest.mark.parametrize(
    ("clients", "budget", "bits"),
    [(100, Budget(1.0, 1e-5), 16), (100, Budget(0.002, 1e-5), 32), (5_000, Budget(1.0, 1e-5), 32)],
)
def test_the_narrowest_ring_that_cannot_wrap_is_chosen(
    clients: int, budget: Budget, bits: int
) -> None:
    plan = plan_tally(clients=clients, shape=TOP_5, budget=budget)
    assert plan.ring_bits == bits
    assert plan.needed <= 1 << (bits - 1)
    assert bits == 16 or plan.needed > 1 << (bits // 2 - 1)


def test_a_ring_that_is_asked_for_is_used_or_refused() -> None:
    asked = plan_tally(clients=100, shape=TOP_5, budget=BUDGET, ring_bits=64)
    assert asked.ring_bits == 64
    with pytest.raises(ParameterError, match="a ring of 16 bits"):
        plan_tally(clients=100, shape=TOP_5, budget=Budget(0.002, 1e-5), ring_bits=16)
    with pytest.raises(ParameterError, match="16, 32 or 64 bits, got 24"):
        plan_tally(clients=100, shape=TOP_5, budget=BUDGET, ring_bits=24)


def test_the_weaker_relation_must_be_asked_for_and_takes_less_noise() -> None:
    weaker = plan_tally(
        clients=100, shape=TOP_5, budget=BUDGET, adjacency=Adjacency.ZERO_OUT_CLIENT
    )
    default = plan_tally(clients=100, shape=TOP_5, budget=BUDGET)
    assert default.adjacency is Adjacency.REPLACE_ONE_CLIENT
    ratio = default.calibration.noise_std / weaker.calibration.noise_std
    assert ratio == pytest.approx(math.sqrt(2), rel=0.02)


def test_one_client_cannot_hide() -> None:
    with pytest.raises(ParameterError, match="at least two clients, got 1"):
        plan_tally(clients=1, shape=TOP_5, budget=BUDGET)


def test_somebody_honest_must_remain() -> None:
    with pytest.raises(ParameterError, match="no honest client is sure to remain"):
        plan_tally(
            clients=10,
            shape=TOP_5,
            budget=BUDGET,
            dropout=Fraction(1, 2),
            colluding=Fraction(1, 2),
        )


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'skellam'"):
        plan_tally(clients=100, shape=TOP_5, budget=BUDGET, family="skelam")

"""A sum's plan: how much noise, which ring, and what it says of itself."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Repeated
from urna.systems.vote import Ballots, BallotShape
from urna.tally import BoundedVector, TallyPlan, Terms, plan_tally
from urna.testing import unpriced_plan

TOP_5 = Ballots(BallotShape.top_k(5, 100))
BUDGET = Budget(1.0, 1e-5)
HUNDRED = Terms.of(100, BUDGET)


@pytest.fixture(scope="module")
def plan() -> TallyPlan:
    return plan_tally(Terms.of(100, BUDGET, dropout="1/5", colluding="1/10"), TOP_5)


def test_the_noise_is_sized_for_the_fewest_honest_survivors(plan: TallyPlan) -> None:
    assert plan.release is not None
    assert plan.calibration is not None
    assert plan.release.shares == 70
    assert plan.share * 70 == plan.release.variance
    assert plan.calibration.epsilon <= BUDGET.epsilon
    assert 11.75 < plan.noise_std < 12.0
    assert plan.terms.fewest == 80
    # Excess is removed: 80 survivors, of whom 10 may collude, leave the target and theirs, and
    # approximate removal one part in 70 too much.
    assert plan.most_noise == plan.release.variance * Fraction(80, 70) * Fraction(71, 70)
    # Where it is not, all hundred leave their whole share.
    whole = replace(plan, removes_excess=False)
    assert whole.most_noise == plan.share * 100
    assert whole.most_noise_std == math.sqrt(whole.most_noise) / plan.scale


def test_one_clients_noise_is_several_grid_steps(plan: TallyPlan) -> None:
    assert 3.9 < math.sqrt(plan.share) < 8.1
    assert plan.scale & (plan.scale - 1) == 0


def test_what_must_fit_is_the_whole_vote_and_twelve_deviations(plan: TallyPlan) -> None:
    noise = 12 * math.sqrt(100 * plan.share)
    assert plan.needed == 100 * plan.scale + math.ceil(noise)


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(3, 40),
    dropout=st.fractions(0, Fraction(2, 5), max_denominator=40),
    colluding=st.fractions(0, Fraction(1, 3), max_denominator=40),
)
def test_whoever_survives_the_honest_ones_leave_what_was_calibrated(
    clients: int, dropout: Fraction, colluding: Fraction
) -> None:
    """The protocol counts colluders out, the terms everybody who reads: at least one."""
    try:
        plan = plan_tally(Terms.of(clients, BUDGET, dropout=dropout, colluding=colluding), TOP_5)
        noise = plan.round_plan.noise
    except ParameterError:
        return  # nobody honest would remain, or no graph is safe
    assert noise is not None
    assert plan.release is not None
    left = [
        (clients - lost - plan.terms.readers) * noise.left(lost)
        for lost in range(plan.terms.dropouts + 1)
    ]
    assert min(left) >= plan.release.variance
    assert max((clients - lost) * noise.left(lost) for lost in range(len(left))) <= plan.most_noise
    # What a client adds at first is its share, all of it needed when all tolerated ones are lost.
    assert sum(noise.components()) == plan.share


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
    plan = plan_tally(HUNDRED.costing(Budget(0.002, 1e-5)), TOP_5)
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
    plan = plan_tally(Terms.of(clients, budget), TOP_5)
    assert plan.ring_bits == bits
    assert plan.needed <= 1 << (bits - 1)
    assert bits == 16 or plan.needed > 1 << (bits // 2 - 1)


def test_a_ring_has_one_of_three_widths() -> None:
    with pytest.raises(ParameterError, match="16, 32 or 64 bits, got 24"):
        replace(plan_tally(HUNDRED, TOP_5), ring_bits=24)


def test_the_weaker_relation_must_be_asked_for_and_takes_less_noise() -> None:
    weaker = plan_tally(Terms.of(100, BUDGET, adjacency=Adjacency.ZERO_OUT_CLIENT), TOP_5)
    default = plan_tally(HUNDRED, TOP_5)
    assert default.terms.adjacency is Adjacency.REPLACE_ONE_CLIENT
    assert default.noise_std / weaker.noise_std == pytest.approx(math.sqrt(2), rel=0.02)


def test_the_rounds_of_a_series_share_the_budget() -> None:
    one, nine = plan_tally(HUNDRED, TOP_5), plan_tally(HUNDRED, TOP_5, rounds=9)
    assert nine.noise_std == pytest.approx(3 * one.noise_std, rel=1e-3)
    assert nine.whole_epsilon <= BUDGET.epsilon
    assert Repeated(nine.release, 9).cost().at(BUDGET.delta) == nine.whole_epsilon


def test_the_same_sum_under_other_terms_keeps_what_is_summed(plan: TallyPlan) -> None:
    kept = replace(plan, removes_excess=False)
    cheaper = kept.under(kept.terms.costing(Budget(0.5, 1e-5)))
    assert cheaper.contribution is plan.contribution
    assert not cheaper.removes_excess
    assert cheaper.terms == plan.terms.costing(Budget(0.5, 1e-5))
    assert cheaper.noise_std > plan.noise_std


@pytest.mark.parametrize("what", [TOP_5, BoundedVector(30, 400)], ids=["ballots", "vectors"])
def test_a_sum_without_noise_is_exact_and_promises_nothing(
    what: Ballots | BoundedVector,
) -> None:
    exact = TallyPlan(Terms.of(50, BUDGET, dropout="1/10"), what, None, 16)
    assert (exact.release, exact.calibration) == (None, None)
    assert (exact.share, exact.scale, exact.noise_std, exact.most_noise) == (0, 1, 0.0, 0)
    assert exact.needed == 50 * what.reach
    assert exact.ring_bits == 16
    assert exact.whole_client_over(1) == math.inf
    assert exact.caveats_over(1) == ()
    assert exact.round_plan.noise is None
    mapping = exact.as_mapping()
    assert mapping["noise_variance_per_client"] is None
    assert mapping["epsilon"] is None
    json.dumps(mapping, allow_nan=False)


def test_a_plan_says_in_plain_values_what_it_is(plan: TallyPlan) -> None:
    mapping = json.loads(json.dumps(plan.as_mapping(), allow_nan=False))
    assert Terms.read({**mapping, "epsilon": mapping["budget"]}) == plan.terms
    assert (mapping["dropouts"], mapping["colluders"], mapping["honest_survivors"]) == (20, 10, 70)
    assert mapping["contribution"]["kind"] == "ballots"
    assert Fraction(mapping["noise_variance_per_client"]) == plan.share


class TestRecords:
    """What is said of a whole client where single records are protected."""

    terms = Terms.of(50, BUDGET, adjacency=Adjacency.REPLACE_ONE_RECORD)

    def test_one_shard_protects_the_whole_client_as_well(self) -> None:
        plan = plan_tally(self.terms, TOP_5)
        assert plan.calibration is not None
        assert plan.whole_client_over(1) == pytest.approx(plan.calibration.epsilon, rel=1e-9)
        assert ["as far as a whole client" in said for said in plan.caveats_over(1)] == [True]

    def test_more_shards_say_what_is_left_for_a_client(self) -> None:
        terms = replace(self.terms, shards=6)
        plan = plan_tally(terms, Ballots(TOP_5.shape, 6))
        assert 5 < plan.whole_client_over(1) < 20
        (said,) = plan.caveats_over(1)
        assert "NOT protected" in said
        assert "each client added up 6 contributions" in said
        assert plan.as_mapping()["whole_client_epsilon"] == plan.whole_client_over(1)

    def test_vectors_say_so_only_where_a_record_moves_less(self) -> None:
        known = BoundedVector(30, norm_squared=10**6, record_squared=100)
        plan = plan_tally(self.terms, known)
        assert ["NOT protected" in said for said in plan.caveats_over(1)] == [True]
        with pytest.raises(ParameterError, match="nothing is known of how far one record"):
            plan_tally(self.terms, replace(known, record_squared=None))

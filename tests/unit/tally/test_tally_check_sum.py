"""Opened sums: honest ones pass, what cannot be a sum is refused."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from urna.errors import InvalidSum
from urna.noise import FAMILIES, IntVector
from urna.privacy import Budget
from urna.randomness import ScriptedSecrets
from urna.systems.vote import Ballots, BallotShape
from urna.systems.vote.ballot import ScoreShape
from urna.tally import BoundedVector, TallyPlan, Terms, check_sum, plan_tally, to_grid
from urna.tally.mechanism import FALSE_ALARM, _tail_bound, sum_of

TERMS = Terms.of(30, Budget(1.0, 1e-5))
KINDS = {
    "top-k": Ballots(BallotShape.top_k(5, 100)),
    "scores": Ballots(ScoreShape.of(100, 4.0)),
    "vectors": BoundedVector(128, norm_squared=40_000),
}


def planned(kind: str, bits: int | None = None) -> TallyPlan:
    plan = plan_tally(TERMS, KINDS[kind])
    return replace(plan, ring_bits=bits or plan.ring_bits)


def noise(plan: TallyPlan, label: bytes) -> IntVector:
    """What all clients of a plan leave in a sum when nothing is removed."""
    table = plan.noise.table(plan.share * plan.clients)
    return table.draw(ScriptedSecrets(label).take(32), plan.dimension)


def extremes(plan: TallyPlan) -> list[IntVector]:
    """Exact sums at the very edges of their range."""
    zero = np.zeros(plan.dimension, dtype=np.int64)
    what = plan.contribution
    if isinstance(what, BoundedVector):
        spike, flat = zero.copy(), zero.copy()
        spike[0] = what.reach
        flat[:] = math.isqrt(what.norm_squared // plan.dimension)
        return [plan.clients * to_grid(v, plan) for v in (zero, spike, -spike, flat, -flat)]
    assert isinstance(what, Ballots)
    one = zero.copy()
    if isinstance(what.shape, BallotShape):
        one[:5] = 1
    else:
        one[0] = what.shape.most
    return [plan.clients * to_grid(v, plan) for v in (zero, one)]


def passes(total: IntVector, plan: TallyPlan, variance: Fraction) -> bool:
    try:
        check_sum(total, plan, plan.clients, variance)
    except InvalidSum:
        return False
    return True


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_sum_passes_even_at_the_edges(kind: str) -> None:
    """False-alarm rate: 200 times `FALSE_ALARM` for each exact sum, below a ten-millionth.

    The same sums held against a fiftieth of their noise are refused.
    """
    plan = planned(kind)
    variance = plan.share * plan.clients
    for exact in extremes(plan):
        totals = [exact + noise(plan, b"%d" % number) for number in range(200)]
        assert all(passes(total, plan, variance) for total in totals)
        if exact.any():  # the middle of a range of vectors has room on both sides
            assert not all(passes(total, plan, variance / 50) for total in totals)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "variance", [Fraction(1, 100), Fraction(1, 2), Fraction(9), Fraction(400), Fraction(250_000)]
)
@pytest.mark.parametrize("probability", [1e-3, FALSE_ALARM / 4, FALSE_ALARM / 40_000])
def test_noise_passes_its_bound_no_more_often_than_stated(
    family: str, variance: Fraction, probability: float
) -> None:
    """Beside the exact distribution, whose weights are integers."""
    half, _ = FAMILIES[family].distribution.half_weights(variance)
    bound = _tail_bound(variance, probability)
    beyond = Fraction(sum(half[bound + 1 :]), 2 * sum(half) - half[0])
    assert beyond <= probability
    assert bound < 20 * math.sqrt(variance) + 30, "and not by being useless"


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_garbage_is_refused_in_every_ring(kind: str, bits: int) -> None:
    """An entry lies in its range by chance at most half the time, all hundred never."""
    plan = planned(kind, bits)
    rng = np.random.default_rng(3)
    for _ in range(50):
        half = 1 << (bits - 1)
        total = rng.integers(-half, half - 1, size=plan.dimension, endpoint=True)
        with pytest.raises(InvalidSum, match="not what the protocol asks for"):
            check_sum(total, plan, plan.clients, plan.share * plan.clients)


def test_one_spoiled_entry_is_enough() -> None:
    plan = planned("top-k")
    good = extremes(plan)[1]
    for entry in (0, 57, 99):
        for far in (-2_000, 30 * plan.scale + 2_000):
            total = good.copy()
            total[entry] = far
            with pytest.raises(InvalidSum, match="an entry of the opened sum"):
                check_sum(total, plan, plan.clients, plan.share * plan.clients)


def test_entries_that_add_up_to_more_than_all_ballots_are_refused() -> None:
    """Every entry could be a candidate's, but thirty ballots of five give 150 votes in all."""
    plan = planned("top-k")
    total = np.full(100, 15 * plan.scale)
    with pytest.raises(InvalidSum, match="add up to more or less"):
        check_sum(total, plan, plan.clients, plan.share * plan.clients)
    fewer = np.full(100, -40 * plan.scale)
    with pytest.raises(InvalidSum, match="add up to more or less"):
        check_sum(fewer, plan, plan.clients, plan.share * plan.clients)


def test_an_exact_sum_is_held_to_its_range_exactly() -> None:
    plan = TallyPlan(TERMS, Ballots(BallotShape.top_k(2, 4)), None, 16)
    check_sum(np.array([30, 30, 0, 0]), plan, 30, Fraction(0))
    for wrong in ([31, 29, 0, 0], [30, 30, 1, 0], [30, 30, -1, 0]):
        with pytest.raises(InvalidSum):
            check_sum(np.array(wrong), plan, 30, Fraction(0))


def test_the_number_of_contributions_decides_the_range() -> None:
    plan = TallyPlan(TERMS, Ballots(BallotShape.top_k(1, 3)), None, 16)
    check_sum(np.array([30, 0, 0]), plan, 30, Fraction(0))
    with pytest.raises(InvalidSum):
        check_sum(np.array([30, 0, 0]), plan, 29, Fraction(0))


def test_a_refusal_tells_nothing_of_the_numbers() -> None:
    plan = planned("top-k", 64)
    total = np.full(100, 1_234_567_890_123)
    with pytest.raises(InvalidSum) as spoiled:
        check_sum(total, plan, plan.clients, plan.share * plan.clients)
    assert "1234567890123" not in str(spoiled.value).replace(",", "")


def test_totals_are_added_up_without_wrapping() -> None:
    edge = np.iinfo(np.int64).max
    assert sum_of(np.array([edge, edge, edge])) == 3 * edge
    assert sum_of(np.array([-edge, -edge])) == -2 * edge
    assert sum_of(np.arange(10)) == 45
    assert sum_of(np.zeros(0, dtype=np.int64)) == 0

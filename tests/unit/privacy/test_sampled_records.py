"""Sums of secret samples of records: exact small cases, other accountants, and the ledger."""

import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from scipy.special import ive

from urna.errors import BudgetExceeded
from urna.privacy import (
    Adjacency,
    Budget,
    GaussianRelease,
    Ledger,
    Repeated,
    Sampled,
    Sensitivity,
    SumRelease,
    Unit,
)
from urna.privacy.calibration import sampled_delta
from urna.privacy.sampling import sampled_epsilon

CLIP = 20  # grid steps
OTHERS: tuple[tuple[int, ...], ...] = ((), (7, -13, 20), (20, 20, 20), (-20, 5, 5))
"""Values of records that other clients hold, each drawn with the same probability."""

Law = npt.NDArray[np.float64]


def law_of_the_sum(values: tuple[int, ...], rate: float, variance: float) -> Law:
    """Return the exact law of one noisy sum, every value drawn by itself."""
    drawn = {0: 1.0}
    for value in values:
        after: dict[int, float] = {}
        for total, weight in drawn.items():
            after[total] = after.get(total, 0.0) + weight * (1 - rate)
            after[total + value] = after.get(total + value, 0.0) + weight * rate
        drawn = after
    reach = math.ceil(14 * math.sqrt(variance)) + 5 * CLIP
    places = np.arange(-reach, reach + 1)
    return np.asarray(
        sum(weight * ive(np.abs(places - total), variance) for total, weight in drawn.items())
    )


def hockey_stick(ours: Law, theirs: Law, epsilon: float) -> float:
    return float(np.maximum(ours - math.exp(epsilon) * theirs, 0.0).sum())


def event(multiplier: float, rate: Fraction, delta: float, *, replaced: bool) -> Sampled:
    share = Fraction(round((multiplier * CLIP) ** 2))
    return Sampled(SumRelease(Sensitivity(CLIP**2, 1), share, 1), rate, delta, replaced)


CASES = [(1.0, Fraction(1, 10)), (2.2, Fraction(1, 50)), (0.6, Fraction(3, 10))]


@pytest.mark.parametrize("replaced", [False, True], ids=["added or removed", "replaced"])
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("multiplier", "rate"), CASES)
def test_no_neighbours_are_told_apart_better_than_claimed_and_some_nearly_as_well(
    multiplier: float, rate: Fraction, rounds: int, *, replaced: bool
) -> None:
    """Two rounds are two independent sums, compared as pairs of numbers."""
    delta = 1e-4
    sampled = event(multiplier, rate, delta, replaced=replaced)
    assert isinstance(sampled.release, SumRelease)
    epsilon, variance = sampled.rounds(rounds).epsilon, float(sampled.release.variance)
    contents = (CLIP, -CLIP, CLIP // 2, 0)
    pairs = list(product(contents, contents)) if replaced else []
    ends = [((one,), (other,)) for one, other in pairs if one != other]
    ends += [pair for one in contents[:3] for pair in (((one,), ()), ((), (one,)))]
    worst = 0.0
    for others in OTHERS if rounds == 1 else OTHERS[:1]:
        for ours, theirs in ends:
            laws = [law_of_the_sum((*x, *others), float(rate), variance) for x in (ours, theirs)]
            if rounds == 2:
                laws = [np.outer(once, once) for once in laws]
            worst = max(worst, hockey_stick(laws[0], laws[1], epsilon))
    assert worst <= delta * (1 + 1e-6)
    assert worst > 0.75 * delta


def test_what_holds_for_removing_a_record_does_not_for_replacing_one() -> None:
    multiplier, rate, delta = 1.0, Fraction(1, 10), 1e-4
    removed = event(multiplier, rate, delta, replaced=False)
    assert isinstance(removed.release, SumRelease)
    laws = [
        law_of_the_sum((value,), float(rate), float(removed.release.variance))
        for value in (CLIP, -CLIP)
    ]
    assert hockey_stick(laws[0], laws[1], removed.rounds(1).epsilon) > 1.3 * delta


@pytest.mark.parametrize(
    ("multiplier", "rate", "rounds"),
    [
        (1.390, Fraction(1024, 60_000), 300),
        (0.826, Fraction(1024, 60_000), 300),
        (1.033, Fraction(2048, 60_000), 200),
    ],
)
def test_adding_or_removing_a_record_costs_what_dp_accounting_says(
    multiplier: float, rate: Fraction, rounds: int
) -> None:
    once = Sampled(GaussianRelease(multiplier), rate, 1e-5, replaced=False)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    sampled = PoissonSampledDpEvent(float(rate), GaussianDpEvent(multiplier))
    accountant.compose(SelfComposedDpEvent(sampled, rounds))
    theirs = accountant.get_epsilon(1e-5)
    assert Repeated(once, rounds).cost().epsilon == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("multiplier", "epsilon"), [(2.213, 1.0), (0.936, 3.0)], ids=["epsilon 1", "epsilon 3"]
)
def test_replacing_a_record_needs_more_noise_but_less_than_twice_as_much(
    multiplier: float, epsilon: float
) -> None:
    rate, rounds = Fraction(1024, 60_000), 300
    found = sampled_epsilon(1 / multiplier, rate, rounds, 1e-5, replaced=True)
    assert found == pytest.approx(epsilon, rel=0.005)
    removed = sampled_epsilon(1 / multiplier, rate, rounds, 1e-5, replaced=False)
    doubled = sampled_epsilon(2 / multiplier, rate, rounds, 1e-5, replaced=False)
    assert removed < found < doubled


def test_relations_are_selected_by_name() -> None:
    removed = Adjacency("add-or-remove-one-record")
    assert removed.unit is Unit.RECORD
    assert not removed.replaces
    assert Adjacency.REPLACE_ONE_RECORD.left_out is removed.left_out is removed
    assert Adjacency.REPLACE_ONE_CLIENT.left_out is Adjacency.ZERO_OUT_CLIENT


class TestTheLedger:
    cap = Budget(3.0, 1e-5)
    once = Sampled(GaussianRelease(1.5), Fraction(1024, 60_000), sampled_delta(cap), replaced=False)
    series = Repeated(once, 300)

    def test_takes_samples_of_records_with_no_part_set_aside(self, tmp_path: Path) -> None:
        ledger = Ledger.open(tmp_path / "l", self.cap)
        ledger.check(self.once)
        name = ledger.charge(self.series, label="training", rounds=1)
        ledger.charge(self.series, label="training", id=name, rounds=300)
        assert ledger.spent().epsilon == pytest.approx(self.series.cost().epsilon)
        assert ledger.spent().epsilon < 1
        # It took nearly all of delta: little may follow.
        with pytest.raises(BudgetExceeded):
            ledger.charge(GaussianRelease(2.0), label="a sum")
        with pytest.raises(BudgetExceeded):
            ledger.charge(self.series, label="another training", rounds=1)

    def test_gives_sums_after_it_what_it_left(self, tmp_path: Path) -> None:
        ledger = Ledger.open(tmp_path / "l", Budget(3.0, 2e-5))
        ledger.charge(self.series, label="training", rounds=1)
        left = ledger.left()
        assert left == pytest.approx(3.0 - self.series.cost().epsilon, rel=0.05)
        ledger.charge(GaussianRelease(4.0), label="a sum")
        # A round more of the series was paid for when it began.
        ledger.charge(self.series, label="training", id=ledger.entries()[0].id, rounds=2)
        with pytest.raises(BudgetExceeded):
            ledger.charge(GaussianRelease(2.0), label="a sum that is too exact")

    def test_refuses_it_after_a_sum_and_says_what_to_do(self, tmp_path: Path) -> None:
        ledger = Ledger.open(tmp_path / "l", Budget(3.0, 2e-5))
        ledger.charge(GaussianRelease(9.0), label="a sum")
        with pytest.raises(BudgetExceeded, match=r"declared-epsilon.*before all sums"):
            ledger.charge(self.series, label="training", rounds=1)

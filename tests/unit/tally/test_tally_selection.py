"""Shares of a sum for a leader and a helper: what each holds, and what both make of it."""

import numpy as np
import pytest
from scipy import stats

from urna.errors import ParameterError
from urna.privacy import Budget, SelectionRelease
from urna.protocols.secagg import run as run_round
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.tally import HelperSelection, SelectionPlan, SharedPlan, Terms, public_order
from urna.tally.selection_plan import helper_shares, leader_shares, mask_of

TERMS = Terms.of(6, Budget(9.0, 1e-5), dropout=0.2)


def planned(fineness: int = 0, start: tuple[int, ...] = (0, 2, 0, 1)) -> SelectionPlan:
    release = SelectionRelease(9.0, 6, 4, fineness=fineness)
    return SelectionPlan(TERMS, release, 3, start, public_order(b"four", 4))


def ballots() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(2)
    return {client: rng.integers(0, 4, 4) for client in range(6)}


@pytest.mark.parametrize("fineness", [0, 3])
def test_shares_add_up_to_the_sum_and_its_head_start(fineness: int) -> None:
    plan, secrets = planned(fineness), ScriptedSecrets(b"shares")
    mask = mask_of(secrets.take(32), plan)
    opened = run_round({**ballots(), plan.helper: mask}, plan.round_plan, secrets)
    both = leader_shares(opened.total, plan) + helper_shares(mask, plan)
    exact = sum(ballots().values()) * (1 << fineness) + np.array(plan.head_start)
    modulus = np.uint64((1 << plan.circuit.share_width) - 1)
    assert (both & modulus).tolist() == exact[list(plan.order)].tolist()


@pytest.mark.statistical
def test_what_the_leader_opens_is_uniform_whatever_the_ballots() -> None:
    """The false alarm is 1e-6; the sum without the mask fails the same check."""
    plan, high = planned(), []
    for number in range(300):
        mask = mask_of(b"%032d" % number, plan)
        total = sum(ballots().values()) + mask
        high += ((total % 65536) >> 12).tolist()
    counts = np.bincount(high, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.chisquare(np.bincount([0] * 1200, minlength=16)).pvalue < 1e-6


def test_the_largest_total_wins_under_weak_noise() -> None:
    plan = planned(start=(0, 0, 0, 0))
    votes = {client: np.array([0, 0, 3, 0]) for client in range(6)}
    found = HelperSelection("h").select(votes, plan, OsSecrets())
    assert found.winner == 2
    assert found.gap is not None
    assert found.accepted == frozenset(range(6))
    assert found.traffic > 10_000


def test_an_order_favours_no_corner_and_is_everybodys() -> None:
    order = public_order(b"a space", 50)
    assert order == public_order(b"a space", 50)
    assert sorted(order) == list(range(50))
    assert order != public_order(b"another", 50)


@pytest.mark.parametrize(
    ("start", "order"),
    [((0, 0, 0), (0, 1, 2, 3)), ((0, 0, 0, -1), (0, 1, 2, 3)), ((0,) * 4, (0, 1, 2, 2))],
)
def test_plans_that_do_not_fit_are_refused(start: tuple[int, ...], order: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError):
        SelectionPlan(TERMS, SelectionRelease(9.0, 6, 4), 3, start, order)


def test_a_voter_cannot_put_a_candidate_where_one_vote_decides() -> None:
    """The voter knows all other ballots but one, and keeps to no levels.

    It puts a candidate as far up as a total can be: one vote more must not make it nothing.
    """
    plan = planned(start=(0, 0, 0, 0))
    others = {client: ballot for client, ballot in ballots().items() if client < 4}
    top = (1 << plan.circuit.width) - 1
    evil = np.array([top, 0, 0, 0]) - np.sum(list(others.values()), axis=0)
    for level in (0, 1):
        votes = {**others, 4: np.array([level, 0, 0, 0]), 5: evil}
        found = {HelperSelection("h").select(votes, plan, OsSecrets()).winner for _ in range(4)}
        assert found == {0}


def test_shares_are_as_wide_as_what_is_added_up() -> None:
    """A head start that outgrows the votes needs a wider ring, or carries would be lost."""
    release = SelectionRelease(1e-4, 6, 4)
    plan = SelectionPlan(TERMS, release, 3, (0, 1 << 16, 0, 0), public_order(b"four", 4))
    assert plan.ring_bits == 32
    assert plan.circuit.share_width <= plan.ring_bits


def test_the_sum_holds_against_as_many_colluders_as_were_announced() -> None:
    """Ten clients and a helper: a tenth of eleven is two, and of ten it is one."""
    terms = Terms.of(11, Budget(9.0, 1e-5), colluding=0.1)
    release = SelectionRelease(9.0, 6, 4)
    order = public_order(b"four", 4)
    selection = SelectionPlan(terms.among(10), release, 3, (0, 0, 0, 0), order)
    assert (terms.colluders, selection.terms.colluders) == (2, 1)
    assert SharedPlan.of(terms, selection).round_plan.colluders == 2

from fractions import Fraction

import numpy as np
import pytest

from urna.errors import RoundAborted
from urna.privacy import SumRelease
from urna.randomness import SEED_BYTES
from urna.tally import ClearSummation, ClientId, Summation, TallyPlan
from urna.testing import ScriptedSecrets, SummationContract, ballots_for, unpriced_plan


class TestClearSummation(SummationContract):
    def make_summation(self, absent: frozenset[ClientId] = frozenset()) -> Summation:
        return ClearSummation(absent)


@pytest.fixture
def plan() -> TallyPlan:
    return unpriced_plan(
        clients=10,
        candidates=50,
        dropout=Fraction(1, 5),
        colluding=Fraction(1, 10),
        share=Fraction(41, 2),
    )


def test_the_clear_total_is_ballots_plus_noise_exactly(plan: TallyPlan) -> None:
    ballots = ballots_for(plan, np.random.default_rng(1))
    tallied = ClearSummation().tally(ballots, plan, ScriptedSecrets(b"regenerated"))
    again = ScriptedSecrets(b"regenerated")
    table = plan.noise.table(plan.share)
    noise = sum(table.draw(again.take(SEED_BYTES), plan.dimension) for _ in range(plan.clients))
    assert np.any(noise)
    assert (tallied.total - noise).tolist() == sum(ballots.values()).tolist()


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_the_clear_release_counts_the_noise_of_honest_survivors(plan: TallyPlan, gone: int) -> None:
    ballots = ballots_for(plan, np.random.default_rng(2))
    summation = ClearSummation(frozenset(range(gone)))
    tallied = summation.tally(ballots, plan, ScriptedSecrets(b"release"))
    # Of those who are left, the one colluder of ten counts for nothing.
    assert isinstance(tallied.release, SumRelease)
    assert tallied.release.shares == 10 - gone - 1
    assert tallied.release.share == plan.share
    assert tallied.noise_variance == (10 - gone) * plan.share
    assert plan.release is not None
    assert plan.release.shares == 7


def test_an_aborted_round_says_how_many_were_needed(plan: TallyPlan) -> None:
    ballots = ballots_for(plan, np.random.default_rng(3))
    with pytest.raises(RoundAborted, match=r"7 of 10 clients are left; the plan needs 8"):
        ClearSummation(frozenset({0, 4, 8})).tally(ballots, plan, ScriptedSecrets(b"abort"))


def test_an_absent_client_takes_no_randomness() -> None:
    quiet = unpriced_plan(clients=4, candidates=3, votes=1, dropout=Fraction(1, 2))
    ballots = ballots_for(quiet, np.random.default_rng(4))
    secrets, fresh = ScriptedSecrets(b"absent"), ScriptedSecrets(b"absent")
    ClearSummation(frozenset({1})).tally(ballots, quiet, secrets)
    fresh.take(3 * SEED_BYTES)
    assert secrets.take(8) == fresh.take(8)

"""The secure aggregation behind the seam every summation stands behind."""

from fractions import Fraction

import pytest

from urna.errors import ParameterError, RoundAborted
from urna.privacy import Budget, SumRelease
from urna.protocols.secagg import Removal, ServerModel, Stage
from urna.randomness import ScriptedSecrets
from urna.systems.vote import Ballots, BallotShape
from urna.tally import ClearSummation, SecureAggregation, Summation, TallyPlan, Terms, plan_tally
from urna.testing import SummationContract, ballots_for, unpriced_plan


class TestHonestButCurious(SummationContract):
    def make_summation(self, absent: frozenset[int] = frozenset()) -> Summation:
        return SecureAggregation(dropouts=dict.fromkeys(absent, Stage.MASK))


class TestDishonest(SummationContract):
    server = ServerModel.DISHONEST

    def make_summation(self, absent: frozenset[int] = frozenset()) -> Summation:
        return SecureAggregation(dict.fromkeys(absent, Stage.ADVERTISE))


def priced(clients: int, dropout: str = "0.2", colluding: str = "0.1", **more: str) -> TallyPlan:
    budget = Budget(1.0, 1e-3)
    terms = Terms.of(clients, budget, dropout=dropout, colluding=colluding, **more)  # type: ignore[arg-type]
    return plan_tally(terms, Ballots(BallotShape.top_k(2, 12)))


@pytest.mark.parametrize("gone", [0, 1, 4], ids=["nobody", "one", "all tolerated"])
def test_what_is_left_is_exactly_the_target_whoever_drops_out(gone: int) -> None:
    plan = priced(20)
    ballots = ballots_for(plan, TestDishonest().rng())
    summation = SecureAggregation(dropouts=dict.fromkeys(range(gone), Stage.MASK))
    tallied = summation.tally(ballots, plan, ScriptedSecrets(b"exact noise"))
    assert plan.release is not None
    assert isinstance(tallied.release, SumRelease)
    assert tallied.release.variance == plan.release.variance
    assert tallied.noise_variance <= plan.most_noise
    clear = ClearSummation(frozenset(range(gone))).tally(ballots, plan, ScriptedSecrets(b""))
    assert (tallied.noise_variance < clear.noise_variance) == (gone < 4)


def test_a_client_that_vanishes_after_its_vector_is_still_counted() -> None:
    plan = unpriced_plan(clients=12, candidates=6, dropout=Fraction(1, 4))
    ballots = ballots_for(plan, TestDishonest().rng())
    summation = SecureAggregation(dropouts={3: Stage.UNMASK})
    tallied = summation.tally(ballots, plan, ScriptedSecrets(b"late"))
    assert 3 in tallied.accepted
    assert dict(tallied.lost) == {}
    assert tallied.total.tolist() == sum(ballots.values()).tolist()


def test_one_dropout_more_than_planned_aborts() -> None:
    plan = priced(20)
    ballots = ballots_for(plan, TestDishonest().rng())
    summation = SecureAggregation(dropouts=dict.fromkeys(range(5), Stage.SHARE))
    with pytest.raises(RoundAborted):
        summation.tally(ballots, plan, ScriptedSecrets(b"too many"))


def test_removal_follows_family_and_number_of_dropouts() -> None:
    few, many = priced(20), priced(400)
    gaussian = priced(20, family="discrete-gaussian")
    removal = [plan.round_plan.noise for plan in (few, many, gaussian)]
    assert [noise.removal for noise in removal if noise] == [
        Removal.PRECISE,
        Removal.APPROXIMATE,
        Removal.NONE,
    ]


def test_the_protocols_plan_aims_at_the_calibrated_noise() -> None:
    plan = priced(20)
    noise = plan.round_plan.noise
    assert noise is not None
    assert plan.release is not None
    assert noise.target == plan.release.variance
    assert sum(noise.components()) == plan.share


def test_an_electorate_too_small_for_its_dropouts_is_refused() -> None:
    plan = priced(4, dropout="0.5", colluding="0.25")
    with pytest.raises(ParameterError, match="cannot be summed securely"):
        _ = plan.round_plan

"""Threshold encryption behind the seam every summation stands behind."""

from pathlib import Path

import numpy as np
import pytest

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import ServerModel
from urna.randomness import ScriptedSecrets
from urna.systems.vote import VoteSettings, search
from urna.tally import (
    BoundedVector,
    EncryptedSummation,
    Run,
    Summation,
    TallyPlan,
    Terms,
    Vanished,
)
from urna.testing import SummationContract, ballots_for, unpriced_plan


class TestEncryptedSummation(SummationContract):
    def make_summation(self, absent: frozenset[int] = frozenset()) -> Summation:
        return EncryptedSummation(dict.fromkeys(absent, Vanished.BEFORE_ITS_VECTOR))


class TestVanishedBeforeTheKey(SummationContract):
    def make_summation(self, absent: frozenset[int] = frozenset()) -> Summation:
        return EncryptedSummation(dict.fromkeys(absent, Vanished.BEFORE_THE_KEY))


def test_who_does_not_help_is_in_the_sum_and_others_open_it() -> None:
    plan = unpriced_plan(clients=6, candidates=5, dropout="1/3")
    ballots = ballots_for(plan, TestEncryptedSummation().rng())
    summation = EncryptedSummation({0: Vanished.BEFORE_OPENING, 4: Vanished.BEFORE_OPENING})
    tallied = summation.tally(ballots, plan, ScriptedSecrets(b"late"))
    assert tallied.accepted == frozenset(range(6))
    assert dict(tallied.lost) == {}
    assert tallied.total.tolist() == sum(ballots.values()).tolist()


def test_with_one_helper_less_the_sum_stays_closed_and_counts() -> None:
    plan = unpriced_plan(clients=6, candidates=5, dropout="1/3")
    ballots = ballots_for(plan, TestEncryptedSummation().rng())
    gone = dict.fromkeys((0, 4, 5), Vanished.BEFORE_OPENING)
    with pytest.raises(RoundUnfinished, match="3 clients helped to open the sum; 4 are needed"):
        EncryptedSummation(gone).tally(ballots, plan, ScriptedSecrets(b"closed"))


def test_where_nobody_may_drop_out_one_missing_aborts() -> None:
    plan = unpriced_plan(clients=4, candidates=5)
    ballots = ballots_for(plan, TestEncryptedSummation().rng())
    with pytest.raises(RoundAborted, match="3 of 4 clients are left; the plan needs 4"):
        EncryptedSummation({1: Vanished.BEFORE_ITS_VECTOR}).tally(
            ballots, plan, ScriptedSecrets(b"all")
        )


def test_a_plan_against_a_dishonest_server_is_refused() -> None:
    plan = unpriced_plan(clients=4, candidates=5, server=ServerModel.DISHONEST)
    ballots = ballots_for(plan, TestEncryptedSummation().rng())
    with pytest.raises(ParameterError, match="honest-but-curious"):
        EncryptedSummation().tally(ballots, plan, ScriptedSecrets(b"server"))


def test_sums_beyond_the_widest_plaintext_are_refused() -> None:
    terms = Terms.of(3, Budget(1.0, 1e-5))
    plan = TallyPlan(terms, BoundedVector(2, norm_squared=1 << 92), None, 64)
    vectors = dict.fromkeys(range(3), np.zeros(2, dtype=np.int64))
    with pytest.raises(ParameterError, match=r"exact modulo 2\^46"):
        EncryptedSummation().tally(vectors, plan, ScriptedSecrets(b"wide"))


def test_a_vote_runs_on_it_and_is_counted(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "cap.ledger", Budget(3.0, 1e-3), subject="made up")
    result = search(
        {"x": [1, 2, 3]},
        lambda candidate, data: abs(candidate["x"] - data),
        [2] * 8,
        budget=Budget(3.0, 1e-3),
        dropout=0.25,
        summation=EncryptedSummation({5: Vanished.BEFORE_ITS_VECTOR}),
        settings=VoteSettings(votes=1),
        run=Run(ledger=ledger),
    )
    assert result.took_part == 7
    assert result.lost == {5: "dropped out before it sent its vector"}
    assert "threshold encryption" in str(result.privacy)
    assert "any 6 of the 8 clients" in str(result.privacy)
    assert 0 < ledger.spent().epsilon <= 3.0

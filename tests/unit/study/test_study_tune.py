"""Tune, then average, under one budget and one ledger."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import tuned as tuned_with

from urna.data import Samples
from urna.errors import BudgetExceeded, ParameterError
from urna.privacy import Adjacency, Budget, Ledger
from urna.randomness import ScriptedSecrets
from urna.space import Space
from urna.study import AverageStage, Division, Tuned
from urna.systems.average import Schema, Sizes
from urna.systems.average.objective import BlindObjective, candidate_learner, default_space
from urna.tally import ClearSummation

RECORD = Adjacency.REPLACE_ONE_RECORD
SCHEMA = Schema(4, (0, 1, 2))
CENTRES = np.array([[3.0, 0, 0, 1], [0, 3, 0, -1], [0, 0, 3, 0]])


def clients(count: int, records: int = 20) -> list[Samples]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        y = rng.integers(3, size=records)
        made.append(Samples(CENTRES[y] + 0.5 * rng.normal(size=(records, 4)), y))
    return made


def tuned(parts: list[Samples], **more: Any) -> Tuned:
    said: dict[str, Any] = {
        "budget": Budget(4.0, 1e-5),
        "adjacency": RECORD,
        "summation": ClearSummation(),
        **more,
    }
    stage = AverageStage(SCHEMA, said.pop("learner", "softmax"), settings=said.pop("own", {}))
    if "share" in said:
        said["division"] = Division.of(said["budget"], said.pop("share"))
    return tuned_with(stage, parts, said)


def test_vote_and_model_share_one_budget(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(4.0, 1e-5), adjacency=RECORD)
    kept: list[Any] = []
    done = tuned(clients(60), ledger=ledger, between=kept.append, keep=kept.append)
    assert [type(k).__name__ for k in kept] == ["VoteResult", "VoteResult", "ModelResult"]
    vote, model = (entry.id for entry in ledger.entries())
    assert (done.vote.entry, done.result.entry) == (vote, model)
    # The statement is that of both, and the ledger's.
    assert done.result.privacy.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-3)
    assert 3.5 < done.result.privacy.epsilon <= 4.0
    assert done.result.privacy.epsilon > done.vote.privacy.epsilon
    assert done.result.learner.regularisation == done.vote.best["regularisation"]
    assert done.result.tuned["best"] == done.vote.best
    assert "together" in str(done.result)
    with pytest.raises(BudgetExceeded):
        tuned(clients(60), ledger=ledger)
    assert len(ledger.entries()) == 2


def test_nothing_is_spent_where_there_is_no_room_for_both(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(2.0, 1e-5), adjacency=RECORD)
    with pytest.raises(BudgetExceeded):
        tuned(clients(30), ledger=ledger)
    assert not ledger.entries()


def test_a_good_setting_wins_against_hopeless_ones() -> None:
    space = Space(regularisation=[1e-5, 0.05, 3e-6])
    done = tuned(clients(80), space=space, secrets=ScriptedSecrets(b"good"), share=0.5)
    assert done.vote.best["regularisation"] == 0.05
    assert not done.result.privacy.private


def test_losses_are_finite_but_for_who_cannot_vote() -> None:
    base = tuned(clients(20), secrets=ScriptedSecrets(b"losses")).result.learner
    terms = tuned(clients(20), secrets=ScriptedSecrets(b"losses")).result.terms
    objective, space = BlindObjective(base, terms), default_space(base)
    assert np.isfinite(objective.losses(clients(1)[0], space, seed=1)).all()
    few = Samples(np.zeros((1, 4)), np.array([0]))
    assert np.isnan(objective.losses(few, space, seed=1)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"learner": "moments"},
        {"share": 1.0},
        {"space": Space(depth=[1, 2])},
        {"space": Space(regularisation=[-1.0, 2.0])},
        {"own": {"sizes": Sizes.SMALLEST, "points": -1}},
    ],
    ids=["moments", "share", "axis", "value", "points"],
)
def test_what_cannot_be_is_refused_before_the_vote(tmp_path: Path, wrong: dict[str, Any]) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(8.0, 1e-5), adjacency=RECORD)
    with pytest.raises(ParameterError):
        tuned(clients(20), ledger=ledger, **wrong)
    assert not ledger.entries()


def test_candidates_set_radius_and_clip_as_said() -> None:
    base = tuned(clients(20), secrets=ScriptedSecrets(b"x")).result.learner
    made = candidate_learner(base, {"clip": 2.0, "regularisation": 0.5, "radius_part": 0.1})
    assert made.schema.rows.clip == 2.0
    assert made.radius == pytest.approx(0.1 * 2**0.5 * 2.0 / 0.5, rel=1e-3)


def test_a_vote_that_cannot_succeed_is_not_held_unless_asked_for(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(8.0, 1e-5), adjacency=RECORD)
    hopeless: dict[str, Any] = {"budget": Budget(0.05, 1e-5), "ledger": ledger}
    with pytest.raises(ParameterError, match="cannot succeed"):
        tuned(clients(5), **hopeless)
    assert not ledger.entries()
    assert tuned(clients(5), **hopeless, force=True).result.took_part == 5

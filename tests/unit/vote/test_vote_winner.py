"""Votes of which only the winner is opened, end to end in memory."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grouped import grouped

from urna.errors import BudgetExceeded, ParameterError, RoundAborted, UnknownName
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Stage
from urna.randomness import ScriptedSecrets
from urna.report import load_result, page
from urna.space import Space
from urna.systems.vote import ArgmaxDecoder, Reveal, VoteResult, VoteSettings, plan_vote, search
from urna.tally import HelperSelection, Terms

SPACE = Space(lr=[0.1, 0.2, 0.3, 0.4])
BUDGET = Budget(4.0, 1e-5)
CLIENTS = [0.2] * 12


def loss(candidate: dict[str, float], data: float) -> float:
    return abs(candidate["lr"] - data)


ALONE = Reveal("winner", "hospital-7")
VERIFIED = Reveal("winner", "hospital-7", verified=True)


def held(**more: Any) -> VoteResult:
    found = search(SPACE, loss, CLIENTS, **grouped({"budget": BUDGET, "reveal": ALONE} | more))
    assert found.revealed.counts is None
    return found


def test_a_clear_favourite_wins_and_the_gap_says_so() -> None:
    result = held()
    assert result.best == {"lr": 0.2}
    assert result.revealed.gap is not None
    assert result.revealed.gap >= 10
    assert result.privacy.private
    assert result.privacy.epsilon == 4.0
    assert result.privacy.delta < 1e-15
    assert "the leader and hospital-7 not colluding" in str(result)


def test_ballots_are_verified_where_that_is_asked_for() -> None:
    result = held(reveal=VERIFIED)
    assert result.best == {"lr": 0.2}
    assert "every ballot counted was verified" in str(result.privacy)
    shown = page(result, title="a vote")
    assert "refuse clients without cause" in shown
    assert "different lists" not in shown
    assert "different lists" in page(held(), title="a vote")
    assert "different lists" not in page(held(server="dishonest"), title="a vote")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", 7])
def test_a_helper_has_a_name_that_can_be_printed(name: object) -> None:
    with pytest.raises(ParameterError, match="a helper's name is text"):
        Reveal("winner", name)  # type: ignore[arg-type]


def test_nothing_is_planned_against_a_server_that_sums_nothing() -> None:
    with pytest.raises(ParameterError, match="not summed under masks"):
        held(reveal=VERIFIED, server="dishonest")


def test_dropouts_are_left_out_and_named() -> None:
    result = held(
        dropout=0.2, selection=HelperSelection("hospital-7", {3: Stage.MASK, 5: Stage.SHARE})
    )
    assert result.best == {"lr": 0.2}
    assert result.took_part == 10
    assert sorted(result.lost) == [3, 5]


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.MASK])
def test_a_lost_helper_aborts_before_anything_is_opened(stage: Stage, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "a.ledger", BUDGET)
    lost = HelperSelection("hospital-7", {12: stage})
    with pytest.raises(RoundAborted, match="client 12 is lost, without whom"):
        held(dropout=0.2, selection=lost, ledger=ledger)
    assert ledger.spent().epsilon == 0.0
    assert ledger.entries()[0].withdrawn


def test_it_is_counted_before_it_is_opened(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "a.ledger", BUDGET)
    result = held(ledger=ledger)
    assert result.entry == ledger.entries()[0].id
    assert ledger.spent().epsilon == 4.0
    with pytest.raises(BudgetExceeded):
        held(ledger=ledger)


def test_scripted_coins_are_not_private() -> None:
    result = held(secrets=ScriptedSecrets(b"winner"))
    assert not result.privacy.private
    assert result.as_json() == held(secrets=ScriptedSecrets(b"winner")).as_json()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"votes": 3}, "leave `votes` out"),
        ({"decoder": ArgmaxDecoder(), "ballot": "ranked"}, "leave `ballot` and `decoder` out"),
        ({"selection": HelperSelection("other")}, "the selection names other"),
        ({"budget": Budget(0.01, 1e-5)}, "cannot succeed"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(more: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        held(**more)


def test_what_may_be_revealed_is_counts_or_a_winner_with_a_helper() -> None:
    for wrong in ({"helper": "x"}, {"verified": True}):
        with pytest.raises(ParameterError, match="only helps to reveal the winner"):
            Reveal(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="takes a helper"):
        Reveal("winner")
    with pytest.raises(UnknownName, match="winner"):
        Reveal("winer")
    with pytest.raises(ParameterError, match="nobody helps"):
        search(SPACE, loss, CLIENTS, budget=BUDGET, selection=HelperSelection("x"))


def test_a_plan_reveals_what_its_mechanism_can() -> None:
    terms = Terms.of(12, BUDGET)
    counts, alone = plan_vote(terms, SPACE), plan_vote(terms, SPACE, VoteSettings(reveal=ALONE))
    for plan, reveal in ((counts, ALONE), (alone, Reveal())):
        with pytest.raises(ParameterError, match="a winner alone is selected"):
            replace(plan, reveal=reveal)
    with pytest.raises(ParameterError, match="there is no noisy sum"):
        print(alone.tally)
    with pytest.raises(ParameterError, match="no winner is selected"):
        print(counts.selection)
    with pytest.raises(ParameterError, match="name the candidates"):
        plan_vote(terms, 4, VoteSettings(reveal=ALONE))
    dishonest = replace(plan_vote(terms, SPACE, VoteSettings(reveal=ALONE)), reveal=VERIFIED)
    with pytest.raises(ParameterError, match="not summed under masks"):
        plan_vote(
            Terms.of(12, BUDGET, server="dishonest"), SPACE, VoteSettings(reveal=dishonest.reveal)
        )


def test_a_winner_alone_has_no_counts() -> None:
    result = held()
    assert result.credible_set == (result.winner,)
    assert result.confidence is None
    for ask in (lambda: result.votes, lambda: result.cv_results_, result.ranking):
        with pytest.raises(ParameterError, match="there are no counts"):
            ask()


def test_a_result_is_read_back_and_shown(tmp_path: Path) -> None:
    result = held()
    path = tmp_path / "result.json"
    path.write_text(result.as_json(), encoding="utf-8")
    again = load_result(path)
    assert isinstance(again, VoteResult)
    assert again.as_mapping() == json.loads(result.as_json())
    shown = page(again, title="a vote")
    first_screen = shown[: shown.index("by cheating")]
    assert "the leader and hospital-7 not colluding" in first_screen
    assert "the exact sum of all ballots" in first_screen
    with pytest.raises(ParameterError, match="cannot be read"):
        VoteResult.read(json.loads(result.as_json()) | {"lost": 3})
    lies: tuple[dict[str, Any], ...] = (
        {"winner": -1},
        {"winner": len(again.space)},
        {"revealed": {**again.revealed.as_mapping(), "gap": "many"}},
        {"revealed": {**again.revealed.as_mapping(), "gap": math.inf}},
        {"revealed": {**again.revealed.as_mapping(), "helper": None}},
        {"revealed": {**again.revealed.as_mapping(), "kind": "counts"}},
        {"credible_set": []},
    )
    for lie in lies:
        with pytest.raises(ParameterError, match="cannot be read"):
            VoteResult.read(again.as_mapping() | lie)


def test_the_best_case_is_that_of_the_fewest_ballots() -> None:
    sure = plan_vote(Terms.of(100, Budget(1.0, 1e-5)), SPACE, VoteSettings(reveal=ALONE)).best_case
    half = plan_vote(
        Terms.of(100, Budget(1.0, 1e-5), dropout="1/2"), SPACE, VoteSettings(reveal=ALONE)
    ).best_case
    none = plan_vote(Terms.of(2, Budget(0.001, 1e-5)), SPACE, VoteSettings(reveal=ALONE)).best_case
    assert sure > half > none
    assert none == pytest.approx(0.25, abs=0.01)

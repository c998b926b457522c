import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grouped import grouped

from urna.errors import BudgetExceeded, ParameterError
from urna.local import Losses, Progress
from urna.privacy import Adjacency, Budget, Ledger, compose
from urna.randomness import ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.vote import VoteResult, search_twice
from urna.tally import ClearSummation, Run

SPACE = Space(lr=Axis.log_range(1e-4, 1.0, 10), momentum=[0.0, 0.5, 0.9])
BUDGET = Budget(8.0, 1e-3)
CLIENTS = list(range(40))


class Bowl:
    """Losses around the seventh learning rate; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def losses(
        self, data: int, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        del seed, progress
        self.asked += 1
        rng = np.random.default_rng(data)
        places = np.arange(len(space)) // 3
        return np.asarray((places - 6.0) ** 2 + 0.1 * rng.standard_normal(len(space)))


def test_the_second_round_votes_inside_the_first_rounds_region() -> None:
    objective = Bowl()
    found = search_twice(SPACE, objective, CLIENTS, budget=BUDGET, summation=ClearSummation())
    assert objective.asked == len(CLIENTS) + 1  # one to see whether it works at all
    assert len(found.first.space) == 30
    assert len(found.second.space) == 4
    inside = [dict(candidate) for candidate in found.first.space]
    assert all(candidate in inside for candidate in found.second.space)
    assert found.second.best["lr"] == SPACE.axes["lr"].values[6]


def test_both_rounds_together_keep_within_the_budget(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", cap=BUDGET, adjacency=Adjacency.REPLACE_ONE_CLIENT)
    found = search_twice(
        SPACE, Bowl(), CLIENTS, budget=BUDGET, summation=ClearSummation(), run=Run(ledger=ledger)
    )
    spent = [entry.release for entry in ledger.entries()]
    assert len(spent) == 2
    epsilon = compose(spent, BUDGET.delta).epsilon
    assert 0.98 * BUDGET.epsilon <= epsilon <= BUDGET.epsilon
    assert found.second.privacy.epsilon == pytest.approx(epsilon)
    assert "both rounds together" in str(found.second.privacy)
    with pytest.raises(BudgetExceeded):
        search_twice(SPACE, Bowl(), CLIENTS, budget=BUDGET, run=Run(ledger=ledger))
    assert len(ledger.entries()) == 2


def test_the_first_round_is_handed_over_before_the_second_may_fail(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", cap=BUDGET, adjacency=Adjacency.REPLACE_ONE_CLIENT)
    kept: list[VoteResult] = []

    def keep(first: VoteResult) -> None:
        kept.append(first)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        search_twice(SPACE, Bowl(), CLIENTS, budget=BUDGET, between=keep, run=Run(ledger=ledger))
    (first,) = kept
    (entry,) = ledger.entries()
    assert first.privacy.epsilon == pytest.approx(
        compose([entry.release], BUDGET.delta).epsilon, rel=1e-6
    )


def test_rounds_that_cannot_be_read_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfit(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr("urna.systems.vote.posterior.PosteriorDecoder.winner", unfit)
    ledger = Ledger.open(tmp_path / "ledger", cap=BUDGET, adjacency=Adjacency.REPLACE_ONE_CLIENT)
    bowl = Bowl()
    with pytest.raises(MemoryError):
        search_twice(SPACE, bowl, CLIENTS, budget=BUDGET, run=Run(ledger=ledger))
    assert (bowl.asked, ledger.entries()) == (0, [])


def test_a_ledger_that_holds_only_one_round_refuses_both(tmp_path: Path) -> None:
    cap = Budget(6.0, 1e-3)
    ledger = Ledger.open(tmp_path / "ledger", cap=cap, adjacency=Adjacency.REPLACE_ONE_CLIENT)
    objective = Bowl()
    with pytest.raises(BudgetExceeded):
        search_twice(SPACE, objective, CLIENTS, budget=BUDGET, run=Run(ledger=ledger))
    assert (ledger.entries(), objective.asked) == ([], 0)


def test_a_ledger_of_another_relation_is_refused_before_any_work(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "l", cap=BUDGET, adjacency=Adjacency.ZERO_OUT_CLIENT)
    objective = Bowl()
    with pytest.raises(ParameterError, match="do not add up"):
        search_twice(SPACE, objective, CLIENTS, budget=BUDGET, run=Run(ledger=ledger))
    fitting = Ledger.open(tmp_path / "m", cap=BUDGET, adjacency=Adjacency.REPLACE_ONE_CLIENT)
    scripted = ScriptedSecrets(b"rounds")
    with pytest.raises(BudgetExceeded):
        search_twice(
            SPACE, objective, CLIENTS, budget=BUDGET, run=Run(ledger=fitting, secrets=scripted)
        )
    assert objective.asked == 0


def test_scripted_rounds_claim_nothing() -> None:
    found = search_twice(
        SPACE,
        Bowl(),
        CLIENTS,
        budget=BUDGET,
        summation=ClearSummation(),
        run=Run(secrets=ScriptedSecrets(b"rounds")),
    )
    assert math.isinf(found.second.privacy.epsilon)


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"first_share": 0.0}, "lie in"),
        ({"kept": 1.0}, "lie in"),
        ({"adjacency": Adjacency.REPLACE_ONE_RECORD}, "shards"),
    ],
)
def test_rounds_that_cannot_be_are_refused(terms: dict[str, object], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        search_twice(SPACE, Bowl(), CLIENTS, budget=BUDGET, **grouped(terms))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["raises", "too few"])
def test_a_client_whose_evaluation_fails_abstains_in_both_rounds(how: str) -> None:
    class Odd(Bowl):
        def losses(
            self, data: int, space: Space, *, seed: int, progress: Progress | None = None
        ) -> Losses:
            losses = super().losses(data, space, seed=seed, progress=progress)
            if data == 7 and how == "raises":
                raise ValueError
            return losses[:-1] if data == 7 else losses

    found = search_twice(SPACE, Odd(), CLIENTS, budget=BUDGET, summation=ClearSummation())
    assert (found.first.took_part, found.second.took_part) == (40, 40)
    assert found.second.best["lr"] == SPACE.axes["lr"].values[6]


def test_the_second_rounds_result_is_handed_over_as_well() -> None:
    seen: list[tuple[str, VoteResult]] = []
    found = search_twice(
        SPACE,
        Bowl(),
        CLIENTS,
        budget=BUDGET,
        summation=ClearSummation(),
        between=lambda result: seen.append(("first", result)),
        run=Run(keep=lambda result: seen.append(("second", result))),
    )
    assert [name for name, _ in seen] == ["first", "second"]
    assert seen[0][1].votes.tolist() == found.first.votes.tolist()
    assert seen[1][1].votes.tolist() == found.second.votes.tolist()


def test_rounds_without_hope_are_refused_unless_they_are_held_anyway() -> None:
    objective = Bowl()
    few, tiny = CLIENTS[:4], Budget(0.1, 1e-3)
    with pytest.raises(ParameterError, match="this vote cannot succeed"):
        search_twice(SPACE, objective, few, budget=tiny)
    assert objective.asked == 0
    found = search_twice(SPACE, objective, few, budget=tiny, run=Run(force=True))
    assert found.second.took_part == 4


def test_a_second_round_says_among_how_many_its_winner_leads() -> None:
    kept: list[VoteResult] = []
    found = search_twice(
        SPACE, Bowl(), CLIENTS, budget=BUDGET, summation=ClearSummation(), run=Run(keep=kept.append)
    )
    assert found.first.among == ""
    assert [found.second.first_round, kept[0].first_round] == [30, 30]
    sure = replace(found.second, confidence=0.5)
    assert sure.certainty.endswith("50.0 % among the 4 of 30 that were kept")
    assert VoteResult.read(found.second.as_mapping()).among == " among the 4 of 30 that were kept"

"""Studies whose vote opens its winner alone: read, divided, counted, and told whom they trust."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped, tuned

from urna.data import Samples
from urna.errors import BudgetExceeded, LedgerError, ParameterError
from urna.privacy import Budget, Ledger
from urna.space import Axis, Space
from urna.study import AverageStage, Division
from urna.study.file import parse_study
from urna.study.plan import plan_study
from urna.study.prepare import prepare, reveal_of
from urna.study.stages import check_same
from urna.systems.average import Schema
from urna.systems.vote import (
    COUNTS,
    ArgmaxDecoder,
    Reveal,
    VoteResult,
    VoteSettings,
    plan_vote,
    search,
)
from urna.tally import HelperSelection, Terms, VerifiedSelection

BUDGET = Budget(4.0, 1e-5)
SPACE = Space(lr=Axis.log([0.01, 0.1, 1.0]))
HELPER = "hospital-7"
ALONE = Reveal("winner", HELPER)
AVERAGE = AverageStage(Schema(4, (0, 1, 2)))
LEAST = '[data]\nsource = "digits"\n[privacy]\nepsilon = 1\ndelta = 1e-5\n[vote]\n'
WINNER = f'{LEAST}opens = "winner"\nhelper = "{HELPER}"\n'
FLOWER = '[engine]\nkind = "flower"\n'
DEPLOYED = f'{FLOWER}federation = "here"\nnodes = 5\n'


def clients(count: int) -> list[Samples]:
    rng = np.random.default_rng(0)
    centres = np.array([[3.0, 0, 0, 1], [0, 3, 0, -1], [0, 0, 3, 0]])
    made = []
    for _ in range(count):
        y = rng.integers(3, size=20)
        made.append(Samples(centres[y] + 0.5 * rng.normal(size=(20, 4)), y))
    return made


def distance(candidate: dict[str, float], data: float) -> float:
    return abs(candidate["lr"] - data)


def voted(**more: Any) -> VoteResult:
    return search(SPACE, distance, [0.1] * 12, budget=BUDGET, **grouped(more, reveal=ALONE))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{LEAST}opens = "winner"\n', "study.toml:7: opening only the winner takes a helper"),
        (f'{LEAST}opens = "winner"\nhelper = " "\n', "takes a helper"),
        (f'{LEAST}helper = "x"\n', "study.toml:7: only a winner is opened with a helper"),
        (f"{LEAST}verified = true\n", "study.toml:7: only a winner is opened with a helper"),
        (f'{WINNER}ballot = "top-k"\n', "study.toml:9: where only the winner is opened ballots"),
        (f"{WINNER}votes = 3\n", "study.toml:9: where only the winner is opened ballots"),
        (f'{WINNER}decoder = "argmax"\n', "leave `decoder` out"),
        (f'{WINNER}summation = "clear"\n', "study.toml:9: only the winner is opened of secret"),
        (f'{LEAST}opens = "loser"\n', "`vote.opens` is one of 'tally', 'winner'"),
        (f"{WINNER}verified = true\n{FLOWER}", "study.toml:9: verified ballots are signed"),
        (f"{WINNER}{DEPLOYED}", "study.toml:8: nodes believe a helper's name only where"),
        (f"{WINNER}{FLOWER}".replace(HELPER, "7"), "study.toml:8: over Flower a helper is a node"),
        (f"{WINNER}{FLOWER}".replace(HELPER, "a b"), "study.toml:8: over Flower a helper is"),
        (WINNER.replace(HELPER, "x" * 65), "a helper's name has 64 signs at most"),
    ],
    ids=lambda value: str(value)[-28:],
)
def test_what_does_not_go_with_what_is_opened_is_told_with_its_line(
    text: str, message: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        parse_study(text, Path("study.toml"))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_over_flower_the_noise_around_a_winner_is_never_scripted() -> None:
    text = WINNER.replace("[vote]", 'scripted_secrets = "x"\n[vote]')
    assert parse_study(text, Path("study.toml")).vote.winner  # in memory it may be
    with pytest.raises(ParameterError, match="never scripted"):
        parse_study(text + FLOWER, Path("study.toml"))


def test_a_study_says_what_is_opened_and_who_helps() -> None:
    found = reveal_of(parse_study(WINNER, Path("study.toml")))
    assert found == ALONE
    assert isinstance(found.selection(), HelperSelection)
    verified = reveal_of(parse_study(f"{WINNER}verified = true\n", Path("study.toml")))
    assert isinstance(verified.selection(), VerifiedSelection)
    assert reveal_of(parse_study(LEAST, Path("study.toml"))) == COUNTS
    with pytest.raises(ParameterError, match="nobody helps"):
        COUNTS.selection()


@pytest.mark.parametrize("part", [0.05, 0.5])
def test_what_follows_has_the_same_whatever_the_vote_opens(part: float) -> None:
    tally, after_tally = COUNTS.divide(BUDGET, part)
    winner, after_winner = ALONE.divide(BUDGET, part)
    assert after_winner == after_tally
    assert winner.epsilon + after_winner.epsilon <= BUDGET.epsilon < tally.epsilon + 4.0
    assert winner.epsilon < tally.epsilon  # what a pure epsilon costs the rest


def test_a_vote_is_read_as_what_it_is_and_told_from_another(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    held = voted(ledger=ledger, entry="vote")
    assert held.entry == "vote"
    again = VoteResult.read(held.as_mapping())
    assert again == held
    voting = plan_vote(Terms.of(12, BUDGET), SPACE, VoteSettings(reveal=ALONE))
    check_same(again, voting, SPACE, ledger)
    smaller = plan_vote(Terms.of(12, Budget(3.0, 1e-5)), SPACE, VoteSettings(reveal=ALONE))
    counts = plan_vote(Terms.of(12, BUDGET), SPACE)
    for other in (smaller, counts):
        with pytest.raises(ParameterError, match="another one"):
            check_same(again, other, SPACE, ledger)
    with pytest.raises(ParameterError, match="not counted in"):
        check_same(again, voting, SPACE, Ledger.open(tmp_path / "other", BUDGET))


def killed(_: object) -> None:
    """Stand for a process that ends while it writes its result."""
    raise KeyboardInterrupt


def test_a_winner_that_was_begun_before_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its circuit starts."""
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)

    def early(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("urna.tally.selection.run_round", early)
        with pytest.raises(KeyboardInterrupt):
            voted(ledger=ledger, entry="vote")
        ledger.withdraw("vote", reason="it never happened")
        with pytest.raises(KeyboardInterrupt):
            voted(ledger=ledger, entry="vote")
    assert voted(ledger=ledger, entry="vote").entry == "vote-2"
    assert ledger.spent().epsilon == 4.0
    with pytest.raises(BudgetExceeded):
        voted(ledger=ledger, entry="another")


def test_settings_of_an_average_are_chosen_by_a_winner_alone(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    kept: list[Any] = []
    space = Space(regularisation=[1e-5, 0.05, 3e-6])
    common: dict[str, Any] = {
        "budget": BUDGET,
        "space": space,
        "division": Division.of(BUDGET, 0.5, ALONE),
        "ledger": ledger,
        "reveal": ALONE,
        "entries": ("vote", "model"),
    }
    done = tuned(AVERAGE, clients(60), common, between=kept.append)
    assert done.vote.revealed.kind == "winner"
    assert kept == [done.vote]
    assert done.result.learner.as_mapping()["regularisation"] == done.vote.best["regularisation"]
    assert done.result.privacy.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-3)
    assert 3.9 < done.result.privacy.epsilon <= 4.0
    assert f"{HELPER} not colluding" in str(done.result.privacy)
    assert [entry.id for entry in ledger.entries()] == ["vote", "model"]
    with pytest.raises(LedgerError, match=r"'model' .* was revealed already"):
        tuned(AVERAGE, clients(60), common, vote=done.vote)
    with pytest.raises(LedgerError, match=r"'vote' .* was revealed already"):
        tuned(AVERAGE, clients(60), common)
    assert len(ledger.entries()) == 2


def test_a_vote_that_was_held_is_not_held_again_for_the_average(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    kept: list[Any] = []
    common: dict[str, Any] = {
        "budget": BUDGET,
        "space": Space(regularisation=[1e-5, 0.05, 3e-6]),
        "division": Division.of(BUDGET, 0.5, ALONE),
        "ledger": ledger,
        "reveal": ALONE,
        "entries": ("vote", "model"),
    }
    with pytest.raises(KeyboardInterrupt):
        tuned(AVERAGE, clients(60), common, between=kept.append, keep=killed)
    vote = VoteResult.read(kept[0].as_mapping())
    again = tuned(AVERAGE, clients(60), common, vote=vote)
    assert again.vote == vote
    assert len(ledger.entries()) == 2


def test_what_only_counts_have_is_refused_in_python_as_well() -> None:
    with pytest.raises(ParameterError, match="leave `decoder` out"):
        tuned(AVERAGE, clients(10), budget=BUDGET, reveal=ALONE, decoder=ArgmaxDecoder())
    with pytest.raises(ParameterError, match="the selection names other"):
        voted(selection=HelperSelection("other"))


def test_a_plan_prices_the_winner_and_compares_both_openings() -> None:
    text = f"{WINNER}[then]\nwhat = 'combine'\n[space]\neta0 = [0.01, 0.1, 1.0]\n"
    text = text.replace("[privacy]", "clients = 20\n[privacy]\nvote_share = 0.4")
    found = plan_study(prepare(parse_study(text, Path("study.toml"))))
    vote, rest = found.stages
    assert 0.999 < vote.budget.epsilon + rest.budget.epsilon <= 1.0
    assert found.vote.selection.release.epsilon == vote.budget.epsilon
    assert "basic composition" in found.accountant
    assert found.openings is not None
    assert found.openings.winner.epsilon == vote.budget.epsilon
    assert found.openings.tally.epsilon == COUNTS.divide(Budget(1.0, 1e-5), 0.4)[0].epsilon
    said = found.as_mapping()
    assert said["openings"]["better"] in ("winner", "tally", "either")
    assert said["vote"]["opens"] == "winner"
    other = plan_study(prepare(parse_study(text.replace("winner", "tally").replace(
        f'helper = "{HELPER}"', ""), Path("study.toml"))))  # fmt: skip
    assert other.openings == found.openings  # the same comparison, whatever the file opens

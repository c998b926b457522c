import hashlib
import json
import math
import random
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from urna.errors import BudgetExceeded, CountedAlready, LedgerError, ParameterError
from urna.privacy import (
    Adjacency,
    Budget,
    Cover,
    DeclaredRelease,
    GaussianRelease,
    Ledger,
    NonPrivateRelease,
    Release,
    Repeated,
    Sampled,
    SelectionRelease,
    Sensitivity,
    SumRelease,
    gaussian_std,
)
from urna.privacy.calibration import sampled_delta
from urna.privacy.cost import Cost

CAP = Budget(epsilon=1.0, delta=1e-5)
FEW = GaussianRelease(40.0)
"""Of these the cap admits more than a hundred."""
MOST = GaussianRelease(3.8)
"""Of these it admits one."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger", CAP, subject="digits of 60 clients")


@pytest.fixture
def parted(tmp_path: Path) -> Ledger:
    """Return a ledger with half of its epsilon for what other programs declare."""
    return Ledger.open(tmp_path / "parted", CAP, declared=Budget(0.5, 5e-6))


def raw(ledger: Ledger, statement: str, *values: object) -> None:
    """Do something to the file behind the ledger's back."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute(statement, values)


def test_a_new_ledger_has_spent_nothing(ledger: Ledger) -> None:
    assert ledger.entries() == []
    assert ledger.spent().epsilon == 0
    assert ledger.left() == CAP.epsilon
    assert (ledger.cap, ledger.subject) == (CAP, "digits of 60 clients")
    assert ledger.adjacency is Adjacency.REPLACE_ONE_CLIENT


def test_what_is_entered_is_read_back_in_order(ledger: Ledger) -> None:
    releases: list[Release] = [
        FEW,
        Repeated(GaussianRelease(80.0), 4),
        SumRelease(Sensitivity(2560, 10), Fraction(4567), 100),
        SumRelease(Sensitivity(4, 1000), Fraction(10**5), 40),
    ]
    for number, release in enumerate(releases):
        ledger.charge(release, label=f"release {number}", id=str(number))
    entries = Ledger(ledger.path).entries()
    assert [entry.release for entry in entries] == releases
    assert [entry.id for entry in entries] == ["0", "1", "2", "3"]
    assert [entry.label for entry in entries] == [f"release {n}" for n in range(4)]
    assert not any(entry.withdrawn for entry in entries)
    assert [entry.written for entry in entries] == sorted(entry.written for entry in entries)


def test_releases_are_taken_up_to_the_cap_and_not_beyond(ledger: Ledger) -> None:
    quarter = GaussianRelease(2 * gaussian_std(CAP, sensitivity=1.0) * 1.000001)
    for _ in range(4):
        ledger.charge(quarter, label="a quarter")
    assert 0.99 < ledger.spent().epsilon <= CAP.epsilon
    with pytest.raises(BudgetExceeded, match="Nothing was released") as refused:
        ledger.charge(quarter, label="one too many")
    assert refused.value.cap == CAP.epsilon
    assert refused.value.spent == ledger.spent().epsilon < refused.value.after
    assert len(ledger.entries()) == 4


def test_declared_releases_have_the_part_that_was_set_apart(parted: Ledger) -> None:
    for _ in range(2):
        parted.charge(DeclaredRelease(0.25, 2e-6), label="half of it")
    for more in (DeclaredRelease(0.01, 0.0), DeclaredRelease(1e-9, 2e-6)):
        with pytest.raises(BudgetExceeded):
            parted.charge(more, label="beyond its part")
    whole = gaussian_std(Budget(0.5, 5e-6), sensitivity=1.0)
    parted.charge(GaussianRelease(whole * 1.000001), label="the other half")
    assert parted.spent().epsilon <= CAP.epsilon
    assert parted.left() < 1e-2


def test_without_a_part_set_apart_declared_releases_are_refused_with_a_reason(
    ledger: Ledger,
) -> None:
    with pytest.raises(BudgetExceeded, match="sets no part of its cap apart"):
        ledger.charge(DeclaredRelease(0.01, 0.0), label="somebody else's")


def test_a_part_is_within_the_cap_and_for_life(tmp_path: Path, parted: Ledger) -> None:
    with pytest.raises(LedgerError, match="within the cap"):
        Ledger.open(tmp_path / "other", CAP, declared=Budget(1.5, 1e-6))
    assert Ledger.open(parted.path, CAP).declared == Budget(0.5, 5e-6)
    with pytest.raises(LedgerError, match="leaves nothing for sums"):
        Ledger.open(tmp_path / "all", CAP, declared=Budget(0.5, CAP.delta))
    with pytest.raises(LedgerError, match="A cap is for life"):
        Ledger.open(parted.path, CAP, declared=Budget(0.4, 5e-6))


def test_what_is_left_can_be_spent_but_for_rounding(ledger: Ledger) -> None:
    ledger.charge(GaussianRelease(10.0), label="training")
    left = ledger.left()
    assert 0 < left < CAP.epsilon
    std = gaussian_std(Budget(left, CAP.delta), sensitivity=1.0)
    with pytest.raises(BudgetExceeded):
        ledger.check(GaussianRelease(0.999 * std))
    ledger.charge(GaussianRelease(1.0001 * std), label="the rest")
    assert ledger.left() < 0.02


def test_a_series_is_one_entry_that_is_counted_round_by_round(ledger: Ledger) -> None:
    series = Repeated(GaussianRelease(40.0), 200)
    for done in (1, 2, 2, 1, 5):  # asking again for what is counted changes nothing
        ledger.charge(series, label="training", id="t", rounds=done)
    (entry,) = Ledger(ledger.path).entries()
    assert (entry.release, entry.rounds) == (series, 5)
    assert ledger.spent().epsilon == pytest.approx(
        Repeated(GaussianRelease(40.0), 5).cost().at(CAP.delta), rel=1e-9
    )
    with pytest.raises(BudgetExceeded):
        ledger.charge(series, label="training", id="t", rounds=199)
    assert ledger.entries()[0].rounds == 5


def test_what_may_be_charged_once_is_refused_the_second_time(ledger: Ledger) -> None:
    series = Repeated(FEW, 9)
    for rounds in (1, 2, 3):
        ledger.charge(series, label="training", id="t", rounds=rounds, once=True)
        for again in range(1, rounds + 1):
            with pytest.raises(CountedAlready):
                ledger.charge(series, label="training", id="t", rounds=again, once=True)
    ledger.charge(FEW, label="a sum", id="s", once=True)
    with pytest.raises(CountedAlready):
        ledger.charge(FEW, label="a sum", id="s", once=True)
    ledger.withdraw("s", reason="aborted")
    with pytest.raises(CountedAlready):
        ledger.charge(FEW, label="a sum", id="s", once=True)


def test_the_bound_that_fails_is_named(tmp_path: Path) -> None:
    wide = Ledger.open(tmp_path / "wide", Budget(20.0, 1e-6))
    few_bits = SumRelease(Sensitivity(10, 10), Fraction(4), 10, "discrete-gaussian")
    with pytest.raises(BudgetExceeded, match=r"differ from exact noise .* of the cap"):
        wide.charge(few_bits, label="a sum with coarse draws")
    with pytest.raises(BudgetExceeded, match="sum of squares of μ of all sums would be"):
        wide.charge(GaussianRelease(0.1), label="too little noise")
    with pytest.raises(BudgetExceeded, match="epsilon of declared releases would be"):
        wide.charge(DeclaredRelease(1.0, 1e-9), label="declared")


@pytest.mark.parametrize("declared", [None, CAP])
def test_what_is_admitted_has_a_finite_epsilon(tmp_path: Path, declared: Budget | None) -> None:
    """Draws need a little of delta: a sampled release with all of it does not fit."""
    ledger = Ledger.open(tmp_path / "ledger", CAP, declared=declared)
    exact = SumRelease(Sensitivity(1, 1), Fraction(9), 30)
    with pytest.raises(BudgetExceeded, match="delta of"):
        ledger.charge(Sampled(exact, Fraction(1, 10), CAP.delta), label="all of delta")
    ledger.charge(Sampled(exact, Fraction(1, 10), sampled_delta(CAP)), label="all but what draws")
    assert 0 < ledger.spent().epsilon <= CAP.epsilon


def test_a_series_ends_where_it_was_planned_to(ledger: Ledger) -> None:
    ledger.charge(Repeated(FEW, 3), label="three rounds", id="t", rounds=1)
    with pytest.raises(LedgerError, match="has 3 rounds"):
        ledger.charge(Repeated(FEW, 3), label="three rounds", id="t", rounds=4)
    with pytest.raises(LedgerError, match="is no series"):
        ledger.charge(FEW, label="alone", rounds=1)


def test_a_round_that_did_not_happen_is_taken_back_alone(ledger: Ledger) -> None:
    series = Repeated(FEW, 9)
    name = ledger.charge(series, label="training", rounds=3)
    ledger.withdraw(name, reason="the third was aborted", rounds=2)
    assert ledger.entries()[0].rounds == 2
    ledger.withdraw(name, reason="all of it")
    assert ledger.entries()[0].withdrawn
    with pytest.raises(LedgerError, match="withdrawn"):
        ledger.charge(series, label="training", id=name, rounds=3)


def test_a_sampled_series_is_counted_as_a_whole_when_it_begins(parted: Ledger) -> None:
    once = Sampled(GaussianRelease(4.0), Fraction(1, 20), 1e-6, replaced=False)
    series = Repeated(once, 10)
    name = parted.charge(series, label="sampled training", rounds=1)
    (entry,) = parted.entries()
    assert entry.rounds == 1
    assert entry.cost == series.cost()
    parted.charge(series, label="sampled training", id=name, rounds=10)
    assert parted.entries()[0].cost == entry.cost


def test_where_a_result_was_kept_stands_in_its_entry(ledger: Ledger, tmp_path: Path) -> None:
    name = ledger.charge(FEW, label="a vote")
    ledger.note_result(name, tmp_path / "result.json", "ab" * 32)
    (entry,) = Ledger(ledger.path).entries()
    assert entry.result is not None
    assert entry.result.path == str(tmp_path / "result.json")
    assert entry.result.sha256 == "ab" * 32


class TestWhatIsNotedIsNotReleasedAgain:
    def test_an_id_is_entered_again_until_its_result_is_noted(self, ledger: Ledger) -> None:
        for _ in range(2):  # killed in between
            ledger.charge(FEW, label="a vote", id="vote")
        ledger.note_revealed("vote", "ab" * 32)
        with pytest.raises(LedgerError) as refused:
            Ledger(ledger.path).charge(FEW, label="a vote", id="vote")
        for said in ("'vote' (a vote)", "names no file", "ab" * 32, "under a new id"):
            assert said in str(refused.value)
        with pytest.raises(LedgerError, match="revealed already"):
            ledger.check(FEW, FEW, FEW, ids=[None, "unknown", "vote"])
        with pytest.raises(LedgerError, match="revealed already"):
            ledger.free_id("vote", FEW)
        assert len(ledger.entries()) == 1

    def test_a_file_with_the_result_is_enough_and_is_named(
        self, ledger: Ledger, tmp_path: Path
    ) -> None:
        ledger.charge(FEW, label="a vote", id="vote")
        ledger.note_result("vote", tmp_path / "vote.json", "cd" * 32)
        with pytest.raises(LedgerError) as refused:
            ledger.charge(FEW, label="a vote", id="vote")
        for said in (str(tmp_path / "vote.json"), "cd" * 32, "put it back if it is gone"):
            assert said in str(refused.value)

    def test_another_result_of_the_same_id_is_refused(self, ledger: Ledger) -> None:
        ledger.charge(FEW, label="a vote", id="vote")
        for _ in range(2):
            ledger.note_revealed("vote", "ab" * 32)
        with pytest.raises(LedgerError, match="paid for once"):
            ledger.note_revealed("vote", "cd" * 32)
        (entry,) = ledger.entries()
        assert (entry.revealed, entry.digest) == (1, "ab" * 32)
        (said,) = ledger.as_mapping()["entries"]
        assert (said["revealed"], said["digest"]) == (1, "ab" * 32)

    def test_what_was_started_is_over_unless_its_result_is_noted_once(self, ledger: Ledger) -> None:
        ledger.charge(FEW, label="a vote", id="vote")
        ledger.note_started("vote")
        assert ledger.entries()[0].unfinished
        for again in (
            lambda: ledger.note_started("vote"),
            lambda: ledger.charge(FEW, label="a vote", id="vote"),
            lambda: ledger.free_id("vote", FEW),
            lambda: ledger.check(FEW, ids=["vote"]),
        ):
            with pytest.raises(LedgerError, match="started, and no result of it was noted"):
                again()
        with pytest.raises(LedgerError, match="it happened and is not withdrawn"):
            ledger.withdraw("vote", reason="to have it back")
        ledger.note_revealed("vote", "ab" * 32)
        with pytest.raises(LedgerError, match="paid for once"):
            ledger.note_revealed("vote", "cd" * 32)
        (entry,) = Ledger(ledger.path).entries()
        assert (entry.revealed, entry.digest, entry.unfinished) == (1, "ab" * 32, False)

    def test_what_was_withdrawn_is_not_started(self, ledger: Ledger) -> None:
        ledger.charge(FEW, label="a vote", id="vote")
        ledger.withdraw("vote", reason="aborted")
        with pytest.raises(LedgerError, match="was withdrawn"):
            ledger.note_started("vote")

    def test_what_was_revealed_counts_whoever_withdrew_it_and_when(self, ledger: Ledger) -> None:
        for name in ("seen", "gone"):
            ledger.charge(FEW, label="a vote", id=name)
        ledger.note_revealed("seen", "ab" * 32)
        with pytest.raises(LedgerError, match="it happened and is not withdrawn"):
            ledger.withdraw("seen", reason="to have it back")
        ledger.withdraw("gone", reason="aborted")
        free = ledger.spent().epsilon
        ledger.note_revealed("gone", "cd" * 32)
        assert ledger.spent().epsilon > 1.3 * free

    def test_a_round_that_another_process_took_back_counts_once_it_is_noted(
        self, ledger: Ledger
    ) -> None:
        ledger.charge(Repeated(FEW, 9), label="a training", id="t", rounds=1)
        ledger.withdraw("t", reason="another process aborted", rounds=0)
        ledger.note_revealed("t", "ab" * 32, number=1, counted=1)
        (entry,) = ledger.entries()
        assert (entry.rounds, entry.revealed) == (1, 1)
        with pytest.raises(LedgerError, match="it happened and is not withdrawn"):
            ledger.withdraw("t", reason="to have it back", rounds=0)

    def test_a_result_in_a_copy_of_the_folder_is_not_taken_for_the_one_noted(
        self, ledger: Ledger, tmp_path: Path
    ) -> None:
        ledger.charge(FEW, label="a vote", id="seen")
        ledger.note_result("seen", tmp_path / "a" / "vote.json", "ab" * 32)
        ledger.note_result("seen", tmp_path / "a" / "result.json", "cd" * 32)
        ledger.note_result("seen", tmp_path / "moved" / "result.json", "cd" * 32)
        with pytest.raises(LedgerError, match="was revealed already"):
            ledger.note_result("seen", tmp_path / "copy" / "vote.json", "ef" * 32)

    def test_rounds_of_a_series_are_noted_one_by_one(self, ledger: Ledger) -> None:
        series = Repeated(FEW, 9)
        for number in range(1, 4):
            for _ in range(2):  # killed before it was noted
                ledger.charge(series, label="a training", id="t", rounds=number)
            ledger.note_revealed("t", f"{number:064x}", number=number)
            with pytest.raises(LedgerError, match="an older copy"):
                ledger.charge(series, label="a training", id="t", rounds=number)
        with pytest.raises(LedgerError, match="not withdrawn"):
            ledger.withdraw("t", reason="the last two", rounds=1)
        ledger.charge(series, label="a training", id="t", rounds=4)
        ledger.withdraw("t", reason="aborted", rounds=3)
        (entry,) = Ledger(ledger.path).entries()
        assert (entry.rounds, entry.revealed) == (3, 3)

    def test_a_series_goes_on_from_where_it_is_or_from_the_round_that_was_killed(
        self, ledger: Ledger
    ) -> None:
        series = Repeated(FEW, 9)
        for number in (1, 2, 3):
            ledger.charge(series, label="a training", id="t", rounds=number)
        ledger.note_revealed("t", number=2)  # read from a checkpoint
        assert ledger.free_id("t", series, done=2, counted=3) == "t"
        with pytest.raises(LedgerError, match=r"counts 3 rounds and knows of 2 .* only 1"):
            ledger.free_id("t", series, done=1, counted=2)
        with pytest.raises(LedgerError, match="an older copy"):  # without any note
            ledger.free_id("t", series, done=2, counted=2)

    def test_where_few_rounds_count_they_are_told_apart_by_their_number(
        self, ledger: Ledger
    ) -> None:
        series = Repeated(FEW, 2)
        for number in range(1, 6):
            ledger.charge(series, label="few", id="t", rounds=1, number=number)
            ledger.note_revealed("t", f"{number:064x}", number=number)
        with pytest.raises(LedgerError, match="an older copy"):
            ledger.charge(series, label="few", id="t", rounds=1, number=5)
        ledger.charge(series, label="few", id="t", rounds=2, number=6)


def test_a_release_without_a_guarantee_is_never_taken(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge(NonPrivateRelease("scripted secrets"), label="a test run")
    assert refused.value.after == math.inf
    assert ledger.entries() == []


class SumUnderCoins(Release):
    """A verified sum under clients' coins, as version 0.2 wrote it into a ledger."""

    def cost(self) -> Cost:
        return Cost(mu=0.14150809330442177, slip=9.438516719953636e-13)

    def as_mapping(self) -> dict[str, Any]:
        moved = {"kind": "coins", "l2_squared": 4, "coordinates": 4}
        noise = {"weights": [1] * 24, "shares": 34, "largest": 1, "tail": 1.1798145899942045e-13}
        return moved | noise


def test_a_sum_under_coins_counts_by_its_price_and_is_not_taken_again(ledger: Ledger) -> None:
    name = ledger.charge(SumUnderCoins(), label="verified tally")
    spent, again = ledger.spent(), Ledger(ledger.path)
    assert 0 < spent.epsilon < CAP.epsilon
    assert again.spent() == spent
    (entry,) = again.entries()
    assert entry.release.as_mapping() == SumUnderCoins().as_mapping()
    again.note_revealed(name, "00" * 32)
    with pytest.raises(BudgetExceeded):
        again.charge(entry.release, label="once more")


def test_asking_enters_nothing(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    ledger.check(FEW)
    with pytest.raises(BudgetExceeded):
        ledger.check(GaussianRelease(1.0))
    assert ledger.path.read_bytes() == before


def test_a_refused_release_leaves_the_file_as_it_was(ledger: Ledger) -> None:
    ledger.charge(FEW, label="first")
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded):
        ledger.charge(GaussianRelease(0.5), label="far too much")
    assert ledger.path.read_bytes() == before
    assert list(ledger.path.parent.iterdir()) == [ledger.path]


def test_the_same_id_counts_once(ledger: Ledger) -> None:
    names = {ledger.charge(FEW, label="again", id="round 7") for _ in range(3)}
    assert names == {"round 7"}
    assert len(ledger.entries()) == 1
    assert ledger.spent().epsilon < 0.11


def test_the_same_id_counts_once_even_when_nothing_more_would_fit(ledger: Ledger) -> None:
    whole = MOST
    ledger.charge(whole, label="nearly all", id="only")
    assert ledger.charge(whole, label="nearly all", id="only") == "only"


def test_releases_without_an_id_are_different_releases(ledger: Ledger) -> None:
    assert ledger.charge(FEW, label="one") != ledger.charge(FEW, label="another")
    assert len(ledger.entries()) == 2


def test_an_id_names_one_release_only(ledger: Ledger) -> None:
    ledger.charge(FEW, label="first", id="a")
    with pytest.raises(LedgerError, match="'a' already names another release"):
        ledger.charge(GaussianRelease(50.0), label="second", id="a")
    assert [entry.release for entry in ledger.entries()] == [FEW]


def test_a_withdrawn_release_stays_written_and_no_longer_counts(ledger: Ledger) -> None:
    ledger.charge(FEW, label="kept", id="kept")
    ledger.charge(MOST, label="aborted", id="aborted")
    ledger.withdraw("aborted", reason="too few clients were left")
    ledger.withdraw("aborted", reason="said twice")
    assert {entry.id: entry.withdrawn for entry in ledger.entries()} == {
        "kept": False,
        "aborted": True,
    }
    assert ledger.spent().epsilon < 0.11
    ledger.charge(MOST, label="tried again")


def test_a_pure_release_is_won_back_only_before_sums_were_seen(tmp_path: Path) -> None:
    """Else who has seen a sum could choose: open the winner, or give it up for another sum."""
    cap = Budget(1.0, 1e-5)
    winner = SelectionRelease(0.5, 6, 8)
    rest = 0.999 * Cover(cap, first=Cost(epsilon=0.5)).mu
    early, late = Ledger.open(tmp_path / "early", cap), Ledger.open(tmp_path / "late", cap)
    for ledger in (early, late):
        ledger.charge(winner, label="a winner", id="winner")
    early.withdraw("winner", reason="given up")
    for ledger in (early, late):
        ledger.charge(GaussianRelease(1 / rest), label="a tally")
    late.withdraw("winner", reason="given up")
    early.charge(GaussianRelease(50.0), label="more")
    with pytest.raises(BudgetExceeded):
        late.charge(GaussianRelease(50.0), label="more")
    assert [entry.fixed for entry in late.entries()] == [True, False]
    assert [entry.fixed for entry in early.entries()] == [False, False, False]
    again = Ledger(tmp_path / "late")  # and a file that is read anew says the same
    assert again.spent() == late.spent()


def test_a_withdrawn_id_cannot_be_used_again(ledger: Ledger) -> None:
    ledger.charge(FEW, label="aborted", id="a")
    ledger.withdraw("a", reason="aborted")
    with pytest.raises(LedgerError, match="the release 'a' was withdrawn"):
        ledger.charge(FEW, label="again", id="a")


def test_only_what_was_entered_can_be_withdrawn(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="holds no release 'nothing'"):
        ledger.withdraw("nothing", reason="a mistake")


@pytest.mark.parametrize(
    ("cap", "adjacency"),
    [
        (Budget(2.0, 1e-5), Adjacency.REPLACE_ONE_CLIENT),
        (Budget(1.0, 1e-6), Adjacency.REPLACE_ONE_CLIENT),
        (CAP, Adjacency.ZERO_OUT_CLIENT),
    ],
    ids=["epsilon", "delta", "relation"],
)
def test_a_cap_and_its_relation_are_for_life(
    ledger: Ledger, cap: Budget, adjacency: Adjacency
) -> None:
    with pytest.raises(LedgerError, match=r"has the cap \(1, 1e-05\), replace-one-client; asked"):
        Ledger.open(ledger.path, cap, adjacency=adjacency)
    assert Ledger.open(ledger.path, CAP).cap == CAP


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE head SET cap = '{}'",
        "DELETE FROM head",
        "UPDATE line SET body = '{}'",
        "DELETE FROM line",
        "REPLACE INTO line VALUES (1, 'release', 'a', '{}', 0, '')",
    ],
)
def test_the_file_itself_refuses_changes(ledger: Ledger, statement: str) -> None:
    ledger.charge(FEW, label="kept", id="a")
    with closing(sqlite3.connect(ledger.path)) as connection:
        # SQLite fires delete triggers for REPLACE only when asked to.
        connection.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|for life"):
            connection.execute(statement)
    assert [entry.release for entry in ledger.entries()] == [FEW]
    assert Ledger(ledger.path).cap == CAP


def test_a_missing_file_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no ledger at .*Create one with a cap first"):
        Ledger(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="there is no ledger at"):
        Ledger(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_vanishes_is_not_made_anew(ledger: Ledger) -> None:
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="cannot be used"):
        ledger.charge(FEW, label="into nothing")
    assert not ledger.path.exists()


def test_a_ledger_cannot_be_made_where_there_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "no folder" / "ledger", tmp_path / "file" / "ledger"):
        with pytest.raises(LedgerError, match="cannot create a ledger at"):
            Ledger.open(place, CAP)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE ledger (epsilon REAL)")
    text = tmp_path / "text"
    text.write_text("epsilon = 1\n" * 100, encoding="utf-8")
    empty = tmp_path / "empty"
    empty.touch()
    for path in (foreign, text, empty):
        before = path.read_bytes()
        with pytest.raises(LedgerError, match=r"is no Urna ledger|is not a database"):
            Ledger.open(path, CAP)
        assert path.read_bytes() == before


def test_a_newer_version_is_refused(ledger: Ledger) -> None:
    raw(ledger, "PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="is no Urna ledger of version 2"):
        Ledger(ledger.path)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(ledger: Ledger, kept: float) -> None:
    for number in range(30):
        ledger.charge(GaussianRelease(900.0), label="x" * 200, id=str(number))
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(LedgerError, match=r"cannot be used|is no Urna ledger|damaged"):
        Ledger(ledger.path).charge(FEW, label="one more")


def forge(ledger: Ledger, kind: str, body: object) -> None:
    """Add a line with the right digests, as a newer program or a forger could."""
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        lines, digest = connection.execute("SELECT lines, digest FROM head").fetchone()
        line = (lines + 1, kind, "a", body, 1.5)
        after = hashlib.sha256(f"{digest}\0{json.dumps(line)}".encode()).hexdigest()
        connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)", (*line, after))
        connection.execute("UPDATE head SET lines = ?, digest = ?", (lines + 1, after))


def release_line(release: str) -> str:
    price = '{"mu": 0.1, "epsilon": 0, "delta": 0, "slip": 0}'
    return f'{{"label": "", "release": {release}, "price": {price}, "rounds": null}}'


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("release", release_line('{"kind": "quantum"}'), "unknown kind 'quantum'.*newer Urna"),
        ("release", release_line('{"kind": "gaussian", "noise_multiplier": -1}'), "cannot be read"),
        ("release", release_line('{"kind": "declared", "epsilon": 1}'), "cannot be read"),
        ("release", release_line("7"), "damaged"),
        ("release", '{"kind": ', "damaged"),
        ("release", "[]", "damaged"),
        ("release", "{}", "damaged"),
        ("advance", '{"rounds": 3}', "damaged"),
        ("teleport", "{}", "damaged"),
    ],
    ids=["kind", "value", "field", "number", "json", "no object", "empty", "nobody", "line"],
)
def test_a_line_that_cannot_be_read_is_never_skipped(
    ledger: Ledger, kind: str, text: str, says: str
) -> None:
    forge(ledger, kind, text)
    for action in (ledger.entries, ledger.spent, lambda: ledger.charge(FEW, label="more")):
        with pytest.raises(LedgerError, match=says):
            action()


def test_a_line_of_an_unknown_kind_is_a_newer_programs(ledger: Ledger) -> None:
    ledger.charge(FEW, label="known", id="a")
    forge(ledger, "teleport", "{}")
    with pytest.raises(LedgerError, match="newer"):
        ledger.spent()


def test_no_flipped_bit_lowers_what_was_spent_unnoticed(ledger: Ledger) -> None:
    """Every bit of the lines and the head in turn: refused, or no change in what is read."""
    for number in range(3):
        ledger.charge(GaussianRelease(20.0), label=f"vote {number}", id=f"v{number}")
    ledger.withdraw("v0", reason="aborted")
    whole, spent = ledger.path.read_bytes(), ledger.spent().epsilon
    entries = [(e.id, e.release, e.withdrawn) for e in ledger.entries()]
    rng = random.Random(12)
    noticed = 0
    for place in sorted(rng.sample(range(len(whole)), 700)):
        if not whole[place]:
            continue  # room that holds nothing
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        ledger.path.write_bytes(bytes(changed))
        try:
            found = Ledger(ledger.path)
            assert found.spent().epsilon >= spent
            assert [(e.id, e.release, e.withdrawn) for e in found.entries()] == entries
        except LedgerError:
            noticed += 1
    assert noticed > 20


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM line WHERE number = 3",
        "DELETE FROM line WHERE number = 2",
        "UPDATE line SET body = replace(body, '20.0', '90.0') WHERE number = 1",
        "UPDATE line SET id = 'v1' WHERE kind = 'withdraw'",
        "UPDATE head SET lines = 2",
        "UPDATE head SET cap = replace(cap, '1.0', '9.0')",
        "DELETE FROM head",
    ],
)
def test_a_line_that_was_changed_or_cut_off_is_noticed(ledger: Ledger, statement: str) -> None:
    for number in range(2):
        ledger.charge(GaussianRelease(20.0), label=f"vote {number}", id=f"v{number}")
    ledger.withdraw("v0", reason="aborted")
    for trigger in ("cap_keeps", "head_stays", "line_keeps", "line_stays"):
        raw(ledger, f"DROP TRIGGER {trigger}")
    raw(ledger, statement)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(ledger.path)


def test_the_ledger_is_plain_json(ledger: Ledger) -> None:
    ledger.charge(GaussianRelease(20.0), label="training", id="t")
    ledger.charge(FEW, label="aborted", id="d")
    ledger.withdraw("d", reason="nothing was sent")
    shown = json.loads(json.dumps(ledger.as_mapping(), allow_nan=False))
    assert shown["cap"] == {"epsilon": 1.0, "delta": 1e-5}
    # Releases compose better than by addition.
    assert 1.0 < shown["spent"] + shown["left"] < 1.3
    assert [(e["id"], e["withdrawn"]) for e in shown["entries"]] == [("t", False), ("d", True)]
    assert shown["entries"][0]["release"] == {"kind": "gaussian", "noise_multiplier": 20.0}
    assert shown["entries"][0]["epsilon"] == pytest.approx(shown["spent"])
    assert shown["entries"][1]["epsilon"] == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeclaredRelease(math.nan, 0.0),
        lambda: DeclaredRelease(math.inf, 0.0),
        lambda: DeclaredRelease(0.0, 0.0),
        lambda: DeclaredRelease(1.0, 1.0),
        lambda: DeclaredRelease(1.0, math.nan),
        lambda: GaussianRelease(0.0),
        lambda: GaussianRelease(math.nan),
        lambda: Repeated(GaussianRelease(1.0), 0),
    ],
)
def test_a_release_with_impossible_numbers_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ParameterError):
        make()


def test_another_attempt_with_other_clients_gets_an_id_of_its_own(ledger: Ledger) -> None:
    one, other = Repeated(FEW, 1), Repeated(GaussianRelease(41.0), 1)
    assert ledger.free_id("vote", one) == "vote"
    ledger.charge(one, label="vote", id="vote", rounds=0)
    assert [entry.counts for entry in ledger.entries()] == [False]  # no round of it was held
    assert ledger.free_id("vote", one) == "vote"  # a run that was killed goes on
    assert ledger.free_id("vote", other) == "vote-2"
    ledger.charge(other, label="vote", id="vote-2", rounds=1)
    assert [entry.counts for entry in ledger.entries()] == [False, True]
    assert ledger.free_id("vote", other) == "vote-2"
    assert ledger.free_id("vote", Repeated(GaussianRelease(42.0), 1)) == "vote-3"

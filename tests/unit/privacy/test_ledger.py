import json
import math
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from urna.errors import BudgetExceeded, LedgerError, ParameterError
from urna.privacy import (
    Adjacency,
    Budget,
    DeclaredRelease,
    GaussianRelease,
    Ledger,
    NonPrivateRelease,
    Release,
    SkellamVectorRelease,
    TallyRelease,
    gaussian_std,
)

CAP = Budget(epsilon=1.0, delta=1e-5)
TENTH = DeclaredRelease(0.1, 0.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger", CAP, subject="digits of 60 clients")


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
        TENTH,
        GaussianRelease(80.0, rounds=4),
        TallyRelease(((16, 10),), Fraction(4567, 2), 100),
        SkellamVectorRelease(l2_squared=4.0, l1=4.0, variance=1e6, rounds=3),
    ]
    for number, release in enumerate(releases):
        ledger.enter(release, label=f"release {number}", id=str(number))
    entries = Ledger(ledger.path).entries()
    assert [entry.release for entry in entries] == releases
    assert [entry.id for entry in entries] == ["0", "1", "2", "3"]
    assert [entry.label for entry in entries] == [f"release {n}" for n in range(4)]
    assert not any(entry.withdrawn for entry in entries)
    assert [entry.written for entry in entries] == sorted(entry.written for entry in entries)


def test_releases_are_taken_up_to_the_cap_and_not_beyond(ledger: Ledger) -> None:
    for _ in range(4):
        ledger.enter(DeclaredRelease(0.249, 0.0), label="a quarter")
    assert 0.99 < ledger.spent().epsilon <= CAP.epsilon
    with pytest.raises(BudgetExceeded, match="Nothing was released") as refused:
        ledger.enter(DeclaredRelease(0.249, 0.0), label="one too many")
    assert refused.value.cap == CAP.epsilon
    assert refused.value.spent == ledger.spent().epsilon < refused.value.after
    assert len(ledger.entries()) == 4


def test_a_release_that_costs_the_whole_cap_is_taken(ledger: Ledger) -> None:
    ledger.enter(DeclaredRelease(CAP.epsilon, CAP.delta), label="all of it")
    assert ledger.spent().epsilon <= CAP.epsilon * (1 + 1e-9)


def test_a_declared_delta_beyond_the_cap_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        ledger.enter(DeclaredRelease(0.01, 2e-5), label="too large a delta")
    assert refused.value.after == math.inf


def test_what_is_left_can_be_spent_but_for_rounding(ledger: Ledger) -> None:
    ledger.enter(GaussianRelease(10.0), label="training")
    left = ledger.left()
    assert 0 < left < CAP.epsilon
    std = gaussian_std(Budget(left, CAP.delta), sensitivity=1.0)
    with pytest.raises(BudgetExceeded):
        ledger.check(GaussianRelease(0.98 * std))
    ledger.enter(GaussianRelease(1.001 * std), label="the rest")
    assert ledger.left() < 0.1


def test_nothing_is_left_once_delta_is_spent(ledger: Ledger) -> None:
    ledger.enter(DeclaredRelease(0.5, CAP.delta), label="elsewhere")
    assert ledger.left() == 0


def test_a_release_without_a_guarantee_is_never_taken(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        ledger.enter(NonPrivateRelease("scripted secrets"), label="a test run")
    assert refused.value.after == math.inf
    assert ledger.entries() == []


def test_asking_enters_nothing(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    ledger.check(TENTH)
    with pytest.raises(BudgetExceeded):
        ledger.check(DeclaredRelease(1.1, 0.0))
    assert ledger.path.read_bytes() == before


def test_a_refused_release_leaves_the_file_as_it_was(ledger: Ledger) -> None:
    ledger.enter(TENTH, label="first")
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded):
        ledger.enter(DeclaredRelease(5.0, 0.0), label="far too much")
    assert ledger.path.read_bytes() == before
    assert list(ledger.path.parent.iterdir()) == [ledger.path]


def test_the_same_id_counts_once(ledger: Ledger) -> None:
    names = {ledger.enter(TENTH, label="again", id="round 7") for _ in range(3)}
    assert names == {"round 7"}
    assert len(ledger.entries()) == 1
    assert ledger.spent().epsilon < 0.11


def test_the_same_id_counts_once_even_when_nothing_more_would_fit(ledger: Ledger) -> None:
    whole = DeclaredRelease(0.99, 0.0)
    ledger.enter(whole, label="nearly all", id="only")
    assert ledger.enter(whole, label="nearly all", id="only") == "only"


def test_releases_without_an_id_are_different_releases(ledger: Ledger) -> None:
    assert ledger.enter(TENTH, label="one") != ledger.enter(TENTH, label="another")
    assert len(ledger.entries()) == 2


def test_an_id_names_one_release_only(ledger: Ledger) -> None:
    ledger.enter(TENTH, label="first", id="a")
    with pytest.raises(LedgerError, match="'a' already names another release"):
        ledger.enter(DeclaredRelease(0.2, 0.0), label="second", id="a")
    assert [entry.release for entry in ledger.entries()] == [TENTH]


def test_a_withdrawn_release_stays_written_and_no_longer_counts(ledger: Ledger) -> None:
    ledger.enter(TENTH, label="kept", id="kept")
    ledger.enter(DeclaredRelease(0.8, 0.0), label="aborted", id="aborted")
    ledger.withdraw("aborted", reason="too few clients were left")
    ledger.withdraw("aborted", reason="said twice")
    assert {entry.id: entry.withdrawn for entry in ledger.entries()} == {
        "kept": False,
        "aborted": True,
    }
    assert ledger.spent().epsilon < 0.11
    ledger.enter(DeclaredRelease(0.8, 0.0), label="tried again")


def test_a_withdrawn_id_cannot_be_used_again(ledger: Ledger) -> None:
    ledger.enter(TENTH, label="aborted", id="a")
    ledger.withdraw("a", reason="aborted")
    with pytest.raises(LedgerError, match="the release 'a' was withdrawn"):
        ledger.enter(TENTH, label="again", id="a")


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
        "UPDATE ledger SET epsilon = 100",
        "DELETE FROM ledger",
        "UPDATE entry SET release = '{}'",
        "DELETE FROM entry",
        "REPLACE INTO entry (number, id, label, release, written) VALUES (1, 'a', '', '{}', 0)",
    ],
)
def test_the_file_itself_refuses_changes(ledger: Ledger, statement: str) -> None:
    ledger.enter(TENTH, label="kept", id="a")
    with closing(sqlite3.connect(ledger.path)) as connection:
        # SQLite fires delete triggers for REPLACE only when asked to.
        connection.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    assert [entry.release for entry in ledger.entries()] == [TENTH]
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
        ledger.enter(TENTH, label="into nothing")
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
    raw(ledger, "PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="is no Urna ledger of version 1"):
        Ledger(ledger.path)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_refused(ledger: Ledger, kept: float) -> None:
    for number in range(30):
        ledger.enter(DeclaredRelease(0.001, 0.0), label="x" * 200, id=str(number))
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(LedgerError, match=r"cannot be used|is no Urna ledger"):
        Ledger(ledger.path).enter(TENTH, label="one more")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"kind": "quantum", "qubits": 3}', "unknown kind 'quantum'.*newer Urna"),
        ('{"kind": "gaussian", "noise_multiplier": -1}', "cannot be read"),
        ('{"kind": "declared", "epsilon": 1}', "cannot be read"),
        (
            '{"kind": "tally", "shifts": [[1, 2]], "share": "x", "shares": 1, "family": "skellam"}',
            "read",
        ),
        (
            '{"kind": "tally", "shifts": [[1, 2]], "share": "1", "shares": 1, "family": "?"}',
            "family",
        ),
        ('{"kind": ', "cannot be read"),
        ("[]", "cannot be read"),
    ],
    ids=["kind", "value", "field", "fraction", "family", "json", "no object"],
)
def test_an_event_that_cannot_be_read_is_never_skipped(
    ledger: Ledger, text: str, says: str
) -> None:
    values = ("INSERT INTO entry (id, label, release, written) VALUES ('a', '', ?, 0)", text)
    raw(ledger, *values)
    for action in (ledger.entries, ledger.spent, lambda: ledger.enter(TENTH, label="more")):
        with pytest.raises(LedgerError, match=says):
            action()


def test_a_cap_that_cannot_be_read_is_a_ledger_error(tmp_path: Path, ledger: Ledger) -> None:
    raw(ledger, "DROP TRIGGER ledger_keeps")
    raw(ledger, "UPDATE ledger SET adjacency = 'replace-one-galaxy'")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(ledger.path)
    raw(ledger, "DROP TRIGGER ledger_stays")
    raw(ledger, "DELETE FROM ledger")
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(ledger.path)


def test_the_ledger_is_plain_json(ledger: Ledger) -> None:
    ledger.enter(GaussianRelease(20.0), label="training", id="t")
    ledger.enter(DeclaredRelease(0.1, 0.0), label="aborted", id="d")
    ledger.withdraw("d", reason="nothing was sent")
    shown = json.loads(json.dumps(ledger.as_mapping(), allow_nan=False))
    assert shown["cap"] == {"epsilon": 1.0, "delta": 1e-5}
    # Releases compose better than by addition.
    assert 1.0 < shown["spent"] + shown["left"] < 1.3
    assert [(e["id"], e["withdrawn"]) for e in shown["entries"]] == [("t", False), ("d", True)]
    assert shown["entries"][0]["release"] == {
        "kind": "gaussian",
        "noise_multiplier": 20.0,
        "rounds": 1,
    }


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
        lambda: GaussianRelease(1.0, rounds=0),
    ],
)
def test_a_release_with_impossible_numbers_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ParameterError):
        make()

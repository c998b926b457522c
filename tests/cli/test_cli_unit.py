"""The unit of protection on the command line: said, checked and printed."""

import json
from pathlib import Path
from shlex import split

import pytest
from commands import Command

PLAN = "plan --clients 12 --candidates 3 --votes 1 --epsilon 0.5 --delta 1e-3 --forecast 0"
SEARCH = (
    "search --clients 12 --votes 1 --epsilon 0.5 --delta 1e-3 --quiet --set objective.cache=false"
)


@pytest.fixture
def space(tmp_path: Path) -> str:
    file = tmp_path / "space.toml"
    file.write_text("[axes]\neta0 = [1e-6, 0.1, 1e3]\n")
    return str(file)


@pytest.mark.audit
def test_a_search_over_records_names_the_unit(urna: Command, space: str) -> None:
    done = urna(*split(f"{SEARCH} --unit record --shards 6"), "--space", space)
    assert done.code == 0, done.stderr
    assert "(0.5, 0.001)-DP, replace-one-record (one record of one client replaced)" in done.stdout
    assert "A whole client is NOT protected at this epsilon" in done.stdout


def test_twelve_clients_of_many_records_find_what_twelve_ballots_cannot(
    urna: Command, space: str, tmp_path: Path
) -> None:
    terms = ("--space", space, "--output", str(tmp_path / "out"), "--format", "json")
    shown = urna(*split(f"{SEARCH} --unit record --shards 11"), *terms).json()
    assert shown["best"] == {"eta0": 0.1}
    assert shown["plan"]["shards"] == 11
    assert shown["privacy"]["unit"] == "record"
    assert max(shown["revealed"]["counts"]) > 12 + 4 * shown["standard_error"]
    kept = json.loads((tmp_path / "out" / "result.json").read_text())
    assert kept.pop("run")["version"]
    assert 0 < kept.pop("baseline") < 0.2
    assert kept == shown
    assert "NOT protected" in (tmp_path / "out" / "report.html").read_text()


def test_a_plan_over_records_says_what_a_whole_client_gets(urna: Command) -> None:
    text = urna(*split(f"{PLAN} --unit record --shards 5")).stdout
    assert "a record: one record of one client replaced" in text
    assert "proven for a whole client" in text
    shown = urna(*split(f"{PLAN} --unit record --shards 5 --format json")).json()
    assert (shown["unit"], shown["shards"], shown["adjacency"]) == (
        "record",
        5,
        "replace-one-record",
    )
    assert shown["whole_client_epsilon"] > 5 * shown["epsilon"]


def test_a_plan_counts_agreement_in_ballots(urna: Command) -> None:
    """60 clients of 2 shards: a quarter of 120 ballots. More shards would do instead."""
    priced = "--clients 60 --candidates 3 --votes 1 --epsilon 0.2 --delta 1e-2"
    done = urna(*split(f"plan {priced} --unit record --shards 2 --agreement 0.25 --forecast 0"))
    assert "a gap of 30 votes" in done.stdout
    assert "or shards of each" in done.stdout


def test_the_unit_is_the_client_unless_said(urna: Command) -> None:
    shown = urna(*split(f"{PLAN} --format json")).json()
    assert (shown["unit"], shown["shards"], shown["adjacency"]) == (
        "client",
        1,
        "replace-one-client",
    )
    assert shown == urna(*split(f"{PLAN} --unit client --format json")).json()
    assert "a client: all data of one client replaced" in urna(*split(PLAN)).stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--shards 3", 'say unit = "record" as well'),
        ("--shards 3 --unit client", 'say unit = "record" as well'),
        ("--unit client --set privacy.adjacency=replace-one-record", "leave one of them out"),
        ("--unit record --set privacy.adjacency=zero-out-client", "leave one of them out"),
        ("--unit record --shards 0", "--shards is a whole number, 1 or more; got the number 0"),
        ("--unit person", "person"),
    ],
)
@pytest.mark.parametrize("command", [PLAN, SEARCH], ids=["plan", "search"])
def test_a_contradiction_is_one_line(urna: Command, command: str, options: str, says: str) -> None:
    assert says in urna(*split(f"{command} {options}")).refused(2)


def test_clients_too_small_for_their_shards_are_named(urna: Command, space: str) -> None:
    done = urna(*split(f"{SEARCH} --unit record --shards 13"), "--space", space)
    assert "client 0: 13 shards of at least 10 records need 130, got 120" in done.refused(2)


def test_a_ledger_of_clients_takes_no_records(urna: Command, space: str, tmp_path: Path) -> None:
    for relation, ends in (("replace-one-client", 2), ("replace-one-record", 0)):
        file = str(tmp_path / relation)
        urna(*split(f"ledger create --epsilon 1 --delta 1e-3 --adjacency {relation}"), file)
        done = urna(
            *split(f"{SEARCH} --unit record --shards 2"), "--space", space, "--ledger", file
        )
        assert done.code == ends, done.stderr
    assert "replace-one-record" in urna("ledger", "show", file).stdout

"""Every command, as text and as JSON."""

import json
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest
from commands import Command
from forks import environment

from urna.cli.output import print_table, table

CONTRACT = "--clients 100 --candidates 100 --votes 5 --delta 1e-5 --dropout 0 --colluding 0"


def test_python_m_urna_keeps_the_contract_of_a_plan() -> None:
    """The one contract other programs rely on, in a process without any help of ours."""
    arguments = [*split(f"plan {CONTRACT} --epsilon 1 --forecast 0"), "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "urna", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stderr == ""
    shown = json.loads(done.stdout)
    assert {
        "epsilon",
        "delta",
        "adjacency",
        "accountant",
        "noise_std",
        "gap_for_95_percent",
    } <= shown.keys()
    assert 11.75 <= shown["noise_std"] <= 12.0
    assert 0.99 < shown["epsilon"] <= 1.0
    assert shown["delta"] == 1e-5
    assert shown["adjacency"] == "replace-one-client"
    assert "PLD" in shown["accountant"]


def test_a_plan_under_strong_privacy_keeps_the_contract(urna: Command) -> None:
    arguments = split(f"plan {CONTRACT} --epsilon 0.1 --forecast 0 --format json")
    assert 97 <= urna(*arguments).json()["noise_std"] <= 99


def test_a_plan_inverts_what_it_is_asked(urna: Command) -> None:
    priced = "--clients 60 --candidates 3 --votes 1 --epsilon 0.2 --delta 1e-2"
    asked = split(f"plan {priced} --forecast 0")
    shown = urna(*asked, "--agreement", "0.5", "--format", "json").json()
    assert shown["given_gap"] == 30
    assert 0 < shown["success_probability"] <= 1
    assert 0 < shown["epsilon_needed"] < 1
    assert shown["clients_needed"] in range(30, 60)
    assert shown["gap"] == shown["gap_for_95_percent"]
    text = urna(*asked, "--agreement", "0.5").stdout
    for part in ("replace-one-client", "PLD", "30 votes", "clients needed", "epsilon at which"):
        assert part in text


def test_a_plan_says_what_dropouts_cost(urna: Command) -> None:
    asked = "plan --clients 60 --votes 1 --dropout 0.2 --colluding 0.1 --forecast 0"
    text = urna(*split(asked)).stdout
    assert "honest others sure to remain" in text
    assert "42" in text
    assert "with what colluders add" in text
    assert "neighbours, shares that rebuild" in text


def test_a_plan_forecasts_the_vote_it_plans(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[axes.lr]\nkind = "log"\nvalues = [0.001, 0.01, 0.1, 1.0]\n')
    asked = split("plan --clients 40 --epsilon 0.5 --forecast 8")
    shown = urna(*asked, "--space", file, "--format", "json").json()
    assert shown["candidates"] == 4
    assert shown["forecast"]["space"] == "Space(lr=log[4]: 4 candidates)"
    assert shown["forecast"]["known"] == "neighbours along lr, and where lr may work"
    assert shown["forecast"]["decoder"] == "posterior"
    votes = shown["forecast"]["votes"]
    assert votes["as planned"]["held"] == 8
    assert {each["held"] for name, each in votes.items() if name != "as planned"} == {4}
    assert {"twice the clients", "twice the epsilon", "… clients far apart"} <= votes.keys()
    assert all(w["low"] <= w["rate"] <= w["high"] for w in votes["as planned"]["within"])
    text = urna(*asked, "--space", file).stdout
    assert "the decoder knows neighbours along lr, and where lr may work" in text
    for part in ("Theorem V.1, argmax only", "not a guarantee", "a candidate by", "≤ 3 %"):
        assert part in text
    figures = text[text.index("Simulated votes") :].splitlines()
    (planned,) = [line for line in figures if line.startswith("as planned")]
    half = 196 * votes["as planned"]["standard_error"]
    assert planned.endswith(f"{100 * votes['as planned']['regret']:.1f} ± {half:.1f}")
    assert max(map(len, figures[:9])) <= 80


def test_figures_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("", "what", *[f">figure {number}" for number in range(9)])
    rows.add_row("a text that gives way", *["123456.7 ± 8.9"] * 9)
    print_table(rows)
    shown = capsys.readouterr().out
    assert shown.count("123456.7 ± 8.9") == 9
    assert "that gives" in shown


def test_a_hopeless_plan_is_called_hopeless(urna: Command) -> None:
    asked = "plan --clients 3 --candidates 20 --epsilon 0.2 --forecast 20"
    hopeless = urna(*split(asked)).stdout
    assert "This plan is hopeless" in hopeless
    assert "urna search --rehearse" in hopeless
    fine = urna(*split("plan --clients 60 --candidates 4 --epsilon 20 --forecast 12")).stdout
    assert "hopeless" not in fine


def test_the_version_and_help_are_printed(urna: Command) -> None:
    assert urna("--version").stdout.startswith("urna 0.")
    top = urna("--help")
    assert top.code == 0
    for name in ("search", "plan", "ledger", "data"):
        assert name in top.stdout
        below = urna(name, "--help")
        assert (below.code, below.stderr) == (0, "")
        assert "Usage" in below.stdout


def test_without_a_command_the_help_is_shown(urna: Command) -> None:
    done = urna()
    assert done.code == 2
    assert "Usage" in done.stdout + done.stderr


def test_a_search_prints_a_table_and_says_what_it_costs(
    urna: Command, few: tuple[str, ...]
) -> None:
    done = urna("search", *few)
    assert done.code == 0
    for part in ("eta0", "noisy votes", "best: eta0="):
        assert part in done.stdout
    assert ("truly ahead" in done.stdout) is not ("cannot tell" in done.stdout)
    assert "(0.5, 0.001)-DP, replace-one-client" in done.stdout
    assert "secure aggregation" in done.stdout
    assert done.stderr == ""  # progress is for terminals


def test_a_second_search_reuses_losses_unless_told_not_to(
    urna: Command, few: tuple[str, ...], tmp_path: Path
) -> None:
    again = ("search", *few, "--quiet", "--seed", "5", "--scripted-secrets", "x")
    first, second, anew = (
        urna(*again, *more) for more in ((), (), ("--set", "objective.cache=false"))
    )
    assert first.stdout == second.stdout == anew.stdout
    kept = list((Path(environment()["XDG_CACHE_HOME"]) / "urna" / "losses").rglob("*.json"))
    assert len(kept) >= 12


def test_a_sum_in_the_clear_is_called_so(urna: Command, few: tuple[str, ...]) -> None:
    done = urna("search", *few, "--quiet", "--set", "privacy.summation=clear")
    assert "The sum was made in the clear" in done.stdout


def test_a_search_as_json_keeps_stdout_clean(urna: Command, few: tuple[str, ...]) -> None:
    done = urna("search", *few, "--format", "json")
    shown = done.json()
    assert set(shown["best"]) == {"eta0"}
    assert len(shown["revealed"]["counts"]) == 3
    assert shown["privacy"]["private"] is True
    assert done.stderr == ""


def test_a_quiet_search_writes_its_result_whole(
    urna: Command, few: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "[folder]"
    done = urna("search", *few, "--quiet", "--output", folder)
    assert (done.code, done.stderr) == (0, "")
    assert f"and {folder / 'result.json'}" in done.stdout.replace("\n", "")
    assert {path.name for path in folder.iterdir()} == {
        *("report.html", "result.json", "vote.json", "ledger"),
        *("study.toml", "study.json", ".lock"),
    }
    text = (folder / "result.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    again = urna("search", *few, "--quiet", "--output", folder, "--format", "json")
    written = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    run, _ = written.pop("run"), written.pop("baseline")
    assert written == again.json()  # and nothing was spent
    assert run["command"].startswith("urna search --data digits")
    assert run["title"].startswith("digits, 12 clients (iid)")
    assert written["revealed"] == json.loads(text)["revealed"]
    other = urna("search", *few, "--quiet", "--output", folder, "--seed", 1)
    assert "holds another study" in other.refused(2)


def test_a_scripted_search_repeats_and_says_it_is_not_private(
    urna: Command, few: tuple[str, ...]
) -> None:
    first, again = (
        urna("search", *few, "--scripted-secrets", "demo", "--format", "json").json()
        for _ in range(2)
    )
    assert first == again
    assert first["privacy"]["epsilon"] is None
    assert "scripted" in first["privacy"]["caveats"][0]


@pytest.mark.parametrize("how", ["dirichlet", "quantity", "feature"])
def test_a_search_takes_every_split(urna: Command, few: tuple[str, ...], how: str) -> None:
    done = urna("search", *few, "--split", how, "--quiet")
    assert done.code == 0
    assert f"12 clients ({how})" in done.stdout


def test_a_search_is_counted_in_a_ledger_until_its_cap(
    urna: Command, few: tuple[str, ...], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    urna("ledger", "create", ledger, "--epsilon", 0.6, "--delta", "1e-3")
    assert urna("search", *few, "--quiet", "--ledger", ledger).code == 0
    shown = urna("ledger", "show", ledger, "--format", "json").json()
    assert [entry["label"] for entry in shown["entries"]] == ["vote on 3 candidates"]
    assert 0.499 < shown["spent"] <= 0.5
    refused = urna("search", *few, "--ledger", ledger).refused(1)
    assert "the ledger's cap is 0.6" in refused
    assert len(urna("ledger", "show", ledger, "--format", "json").json()["entries"]) == 1


def test_a_ledger_is_created_extended_and_shown(urna: Command, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    made = urna(
        *("ledger", "create", ledger, "--epsilon", 1, "--delta", "1e-5", "--subject", "digits"),
        *("--declared-epsilon", "0.3", "--declared-delta", "1e-6"),
    )
    assert made.stdout == f"{ledger}: cap epsilon 1, delta 1e-05, replace-one-client\n"
    added = urna("ledger", "add", ledger, "--label", "a histogram", "--epsilon", "0.25")
    assert added.stdout.startswith("counted; spent epsilon 0.25 of 1 at delta 1e-05")
    shown = urna(
        *("ledger", "add", ledger, "--label", "training", "--noise-multiplier", "30"),
        *("--rounds", "4", "--format", "json"),
    ).json()
    assert [e["release"]["kind"] for e in shown["entries"]] == ["declared", "repeated"]
    assert shown == urna("ledger", "show", ledger, "--format", "json").json()
    assert shown["subject"] == "digits"
    assert 0.25 < shown["spent"] < 1
    text = urna("ledger", "show", ledger).stdout
    for part in (
        "digits",
        "a histogram",
        "training",
        "spent epsilon",
        "a further sum may cost up to",
    ):
        assert part in text


def test_a_new_ledger_is_shown_as_json(urna: Command, tmp_path: Path) -> None:
    shown = urna(
        *("ledger", "create", tmp_path / "l", "--epsilon", 1, "--delta", "1e-5"),
        *("--adjacency", "zero-out-client", "--format", "json"),
    ).json()
    assert shown["cap"] == {"epsilon": 1.0, "delta": 1e-5}
    assert (shown["spent"], shown["left"], shown["entries"]) == (0.0, 1.0, [])
    assert shown["adjacency"] == "zero-out-client"


def test_data_sets_are_listed(urna: Command) -> None:
    shown = urna("data", "--format", "json").json()["data_sets"]
    text = urna("data").stdout
    assert {"digits", "mnist", "adult", "cifar10"} <= {entry["name"] for entry in shown}
    assert all(entry["name"] in text for entry in shown)
    assert all(word in text for entry in shown for word in entry["licence"].split())
    assert max(map(len, text.splitlines())) <= 80


def test_one_data_set_and_its_split_are_described(urna: Command) -> None:
    asked = split("data digits --clients 60 --split dirichlet --beta 0.5")
    shown = urna(*asked, "--format", "json").json()
    assert (shown["train"], shown["test"], shown["classes"]) == (1438, 359, 10)
    assert 10 <= shown["smallest"] <= shown["median"] <= shown["largest"]
    text = urna(*asked).stdout
    assert "dirichlet" in text
    assert str(shown["smallest"]) in text


def test_a_search_that_opens_the_winner_says_whom_it_trusts(
    urna: Command, few: tuple[str, ...], tmp_path: Path
) -> None:
    few = tuple(word for word in few if word not in ("--votes", "1"))
    opened = ("--opens", "winner", "--helper", "hospital-7", "--quiet")
    folder = tmp_path / "out"
    found = urna("search", *few, *opened, "--force", "--output", str(folder))
    assert found.code == 0
    assert "the leader and hospital-7 not colluding" in " ".join(found.stdout.split())
    kept = json.loads((folder / "result.json").read_text())
    assert kept["revealed"]["kind"] == "winner"
    assert "votes" not in kept
    assert "not colluding" in (folder / "report.html").read_text()


def test_what_does_not_go_with_opening_the_winner_is_wrong_use(
    urna: Command, few: tuple[str, ...]
) -> None:
    both = urna("search", *few, "--opens", "winner", "--helper", "x")  # with --votes
    assert both.code == 2
    few = tuple(word for word in few if word not in ("--votes", "1"))
    alone = urna("search", *few, "--opens", "winner")
    assert alone.code == 2
    assert "takes a helper" in " ".join(alone.stderr.split())
    tally = urna("search", *few, "--helper", "x")
    assert tally.code == 2
    assert 'say opens = "winner"' in tally.stderr
    over = ("--opens", "winner", "--helper", "x", "--set", "engine.kind=flower")
    refused = urna("search", *few, *over, "--set", "vote.verified=true").refused(2)
    assert "verified ballots are signed" in refused


def test_a_plan_says_which_opening_suits(urna: Command) -> None:
    found = urna(
        "plan",
        "--clients",
        "60",
        "--candidates",
        "3",
        "--votes",
        "1",
        "--epsilon",
        "0.2",
        "--delta",
        "1e-2",
        "--format",
        "json",
    )
    said = json.loads(found.stdout)
    alone = said["openings"]["alone in its ledger"]
    assert alone["winner"]["epsilon"] == alone["tally"]["epsilon"] == 0.2
    assert alone["better"] in ("winner", "tally", "either")


def test_a_search_over_verified_ballots_names_who_could_read_them(
    urna: Command, few: tuple[str, ...]
) -> None:
    few = tuple(word for word in few if word not in ("--votes", "1"))
    opened = (
        "--opens",
        "winner",
        "--helper",
        "hospital-7",
        "--set",
        "vote.verified=true",
        "--quiet",
    )
    found = urna("search", *few, *opened, "--force")
    assert found.code == 0
    said = " ".join(found.stdout.split())
    assert "the leader and hospital-7 not colluding" in said
    assert "every ballot counted was verified" in said
    tally = urna("search", *few, "--set", "vote.verified=true")
    assert tally.code == 2
    assert 'say opens = "winner"' in tally.stderr

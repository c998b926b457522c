"""Studies whose vote opens its winner alone, as people run them; and run again after a kill."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from cli_studies import STUDY
from commands import Command
from forks import ForkServer

from urna.privacy import Ledger

pytest.importorskip("torch", reason="what follows these votes is torch's")

WINNER = STUDY.replace("[vote]\n", '[vote]\nopens = "winner"\nhelper = "hospital-7"\n')
TRUSTED = "the leader and hospital-7 not colluding"


def written(folder: Path, text: str = WINNER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def said(study: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((study.parent / "results" / name).read_text())
    return found


def spent_once(study: Path) -> None:
    """Check that the ledger holds one winner by its epsilon and one training, in the budget."""
    winner, training = Ledger(study.parent / "results" / "ledger").entries()
    assert winner.label.startswith("winner of a vote on 3 candidates")
    assert (winner.cost.epsilon, winner.cost.mu) == (
        said(study, "vote.json")["terms"]["epsilon"],
        0,
    )
    assert training.rounds == 2
    assert training.cost.mu > 0
    spent = Ledger(study.parent / "results" / "ledger").spent()
    assert 19.9 < spent.epsilon <= 20.0


def test_a_study_opens_its_winner_and_trains_with_it(urna: Command, tmp_path: Path) -> None:
    study = written(tmp_path)
    planned = urna("plan", study, "--format", "json").json()
    vote, training = planned["stages"]
    assert vote["epsilon"] + training["epsilon"] <= 20.0
    assert planned["openings"]["winner"]["epsilon"] == vote["epsilon"]
    assert "the leader and hospital-7" in urna("plan", study).stdout
    assert urna("check", study).code == 0
    assert not (tmp_path / "results").exists()
    done = urna("run", study)
    assert done.code == 0, done.stderr
    assert "the vote chose: lr=" in done.stdout
    assert TRUSTED in " ".join(done.stdout.split())
    assert said(study, "vote.json")["revealed"]["kind"] == "winner"
    assert said(study, "vote.json")["terms"]["epsilon"] == vote["epsilon"]
    spent_once(study)
    page = (tmp_path / "results" / "report.html").read_text()
    assert page.index("not colluding") < page.index('id="privacy"')  # in the first part
    assert urna("report", tmp_path / "results").code == 0
    assert "Vote: The winner" in (tmp_path / "results" / "report.html").read_text()
    again = urna("run", study, "--format", "json").json()
    assert again["vote"] == said(study, "vote.json")
    spent_once(study)


@pytest.mark.audit
def test_a_killed_study_goes_on_and_spends_once(
    urna: Command, commands: ForkServer, tmp_path: Path
) -> None:
    study = written(tmp_path)
    winners = []
    for point in ("paid", "tallied", "trained", "model"):
        child = commands.start("cli_commands:killed", point, "run", str(study), "--quiet")
        assert child.wait() == -signal.SIGKILL, child.stderr.read_text()
        assert not (tmp_path / "results" / "result.json").exists()
        assert (tmp_path / "results" / "vote.json").exists() is (point != "paid")
        if point != "paid":
            winners.append(said(study, "vote.json"))
    assert urna("run", study).code == 0
    assert winners == [said(study, "vote.json")] * 3  # what was seen is what counts
    spent_once(study)


def test_a_winner_alone_with_every_ballot_checked(urna: Command, tmp_path: Path) -> None:
    text = WINNER.replace("lr = {", "eta0 = {").partition("[train]")[0]
    study = written(tmp_path, f"{text}verified = true\n")
    done = urna("run", study, "--format", "json").json()
    assert done["result"] is None
    assert done["privacy"]["epsilon"] == 20.0
    assert "every ballot counted was verified" in " ".join(done["privacy"]["caveats"])
    assert (
        "together they could read every single ballot"
        in (tmp_path / "results" / "report.html").read_text()
    )
    (entry,) = Ledger(tmp_path / "results" / "ledger").entries()
    assert entry.cost.epsilon == 20.0


def test_a_helper_lost_before_the_circuit_costs_nothing_and_the_study_may_be_run_again(
    urna: Command, tmp_path: Path, commands: ForkServer
) -> None:
    study = written(tmp_path)
    child = commands.start("cli_commands:without_helper", "run_round", "run", str(study), "--quiet")
    assert child.wait() == 1
    assert "the helper is lost" in child.stderr.read_text()
    (entry,) = Ledger(tmp_path / "results" / "ledger").entries()
    assert entry.withdrawn
    assert urna("run", study).code == 0
    _, winner, training = Ledger(tmp_path / "results" / "ledger").entries()
    assert winner.id == f"{entry.id}-2"
    assert not winner.withdrawn
    assert training.rounds == 2


def test_a_helper_lost_within_the_circuit_costs_the_vote_and_the_study_says_so(
    urna: Command, tmp_path: Path, commands: ForkServer
) -> None:
    study = written(tmp_path)
    child = commands.start(
        "cli_commands:without_helper", "run_hidden", "run", str(study), "--quiet"
    )
    assert child.wait() == 1
    assert "no winner was opened, and the vote counts" in child.stderr.read_text()
    ledger = Ledger(tmp_path / "results" / "ledger")
    (entry,) = ledger.entries()
    assert not entry.withdrawn
    again = urna("run", study)
    assert again.code == 2
    assert "was paid for and came to nothing" in again.stderr
    assert ledger.entries() == [entry]

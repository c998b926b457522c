"""What a command prints, its JSON, its report and its card say the same of one run."""

import json
import re
from pathlib import Path

import pytest
from cli_studies import STUDY
from commands import Command
from pages import read

from urna.privacy import Ledger
from urna.privacy.budget import rounded_up

pytest.importorskip("torch", reason="what follows these votes is torch's")

QUICK = ("--data", "digits", "--clients", 20, "--force")
AVERAGE = ("average", "--data", "breast-cancer", "--clients", 8, "--unit", "record")
SEARCHES = Path(__file__).parents[2] / "examples" / "combining" / "searches.csv"
COMBINE = ("combine", SEARCHES, "--strategy", "mean")
SPACE = SEARCHES.with_name("space.toml")

COMMANDS = {
    "search": ("search", *QUICK, "--space", "eta0=0.1,1:log", "--epsilon", 0.3),
    "average": (*AVERAGE, "--epsilon", 0.001),
    "train": (
        "train",
        "--data",
        "digits",
        "--clients",
        20,
        "--rounds",
        1,
        "--set",
        "train.force=true",
    ),
    "combine": (*COMBINE, "--no-compare"),
    "combine, encrypted": (*COMBINE, "--guarantee", "encryption", "--no-compare"),
    "combine, dp": (*COMBINE, "--guarantee", "dp", "--space", SPACE, "--epsilon", 4),
}


def head_of(text: str) -> str:
    """Return the line that stands at the head of an output, a report and a card."""
    (found,) = set(re.findall(r"(?:SIMULATED|FEDERATION) · .*? · ledger: [\w.-]+", text))
    return str(found)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_says_the_same_everywhere(
    urna: Command, tmp_path: Path, words: tuple[object, ...]
) -> None:
    folder = tmp_path / "out"
    done = urna(*words, "--set", f"output.folder={folder}")
    assert done.code == 0, done.stderr
    result = json.loads((folder / "result.json").read_text())
    page = read((folder / "report.html").read_text(encoding="utf-8")).text
    printed = " ".join(done.stdout.split())
    head, privacy = head_of(printed), result["privacy"]
    assert head == head_of(page)
    assert head.startswith("SIMULATED · ")
    assert f"unit: one {privacy['unit']}" in head
    if privacy["private"]:
        epsilon, delta = rounded_up(privacy["epsilon"]), rounded_up(privacy["delta"])
        assert f"ε = {epsilon} · δ = {delta}" in head
        assert float(epsilon) > 0
        assert f"({epsilon}, {delta})-DP" in printed
        assert f"epsilon {epsilon} " in page
        assert "ledger: ledger" in head
        spent = rounded_up(Ledger(folder / "ledger").spent().epsilon)
        assert f"spent, all releases together epsilon {spent}" in page
        assert "No privacy ledger was used" not in page
    else:
        assert "NOT PRIVATE" in head
        assert "No privacy ledger was used" in page
    assert not ("Nothing was hidden" in page and "cannot read other clients" in page)
    card = folder / "MODEL_CARD.md"
    if card.is_file():
        text = card.read_text()
        assert head_of(text).partition(" · ledger")[0] == head.partition(" · ledger")[0]
        assert f"ledger: entry {result['entry']}" in text
        assert "  private: false\n  simulated: true\n" in text
        assert f"  epsilon: {float(rounded_up(privacy['epsilon']))}\n" in text


def test_a_study_counts_its_stages_once_and_promises_what_follows(
    urna: Command, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    done = urna("run", study)
    assert done.code == 0, done.stderr
    again = urna("run", study, "--format", "json").json()
    folder = tmp_path / "results"
    page = read((folder / "report.html").read_text(encoding="utf-8")).text
    assert again["simulated"] is True
    assert Path(again["ledger"]) == folder / "ledger"
    assert head_of(" ".join(done.stdout.split())) == head_of(page)
    assert "What is trained with the winner" not in page  # it is a stage, under the same epsilon
    assert "Predictions. Using the model" in page
    confidence = again["vote"]["confidence"]
    assert ("Inconclusive" in page) == (confidence is None)
    assert ("the vote is inconclusive" in done.stdout) == (confidence is None)
    assert ("the vote chose: lr=" in done.stdout) == (confidence is not None)
    assert "for good" not in page
    assert "regardless of their background knowledge" in page
    assert "At most 0 clients colluded with it." in page

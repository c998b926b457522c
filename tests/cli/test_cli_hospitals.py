"""Four files of four organisations, and what a user types at first."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Command

from urna.errors import OutputError
from urna.privacy import Ledger
from urna.study import journal, read_study, run_study


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Write four files with two columns and a label."""
    rng, folder = np.random.default_rng(7), tmp_path / "hospitals"
    folder.mkdir()
    for number in range(4):
        rows = rng.normal(size=(120, 2))
        lines = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in rows]
        text = "\n".join(["age,dose,target", *lines])
        (folder / f"hospital-{number}.csv").write_text(text + "\n", encoding="utf-8")
    return folder


def test_a_vote_that_is_probably_inconclusive_is_refused_and_spends_nothing(
    urna: Command, hospitals: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    typed = ("search", "--data", hospitals, "--epsilon", 6, "--quiet", "--output", folder)
    refused = urna(*typed).refused(1)
    assert "wins with at least 0 %" in refused
    for remedy in ("--unit record --shards 12", "urna average --unit record", "--force"):
        assert remedy in refused
    assert not (folder / "vote.json").exists()
    assert not any(entry.counts for entry in Ledger(folder / "ledger").entries())
    assert urna(*typed[:-1], tmp_path / "forced", "--force").code == 0
    sharded = urna(*typed[:-1], tmp_path / "sharded", "--unit", "record", "--shards", 12)
    assert sharded.code == 0, sharded.stderr


def test_plan_check_and_run_refuse_the_same_vote(
    urna: Command, hospitals: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    text = f'[data]\nsource = "{hospitals}"\nclasses = [0, 1]\n'
    text += "[privacy]\nepsilon = 6.0\ndelta = 1e-5\n[vote]\n"
    study.write_text(text, encoding="utf-8")
    assert "`urna run` refuses it" in urna("plan", study).stdout
    for command in ("check", "run"):
        assert "probably be inconclusive" in urna(command, study).refused(1)
    study.write_text(f"{text}force = true\n", encoding="utf-8")
    assert "refuses it" not in urna("plan", study).stdout
    assert urna("check", study).code == 0


def test_training_records_says_how_their_clip_is_named(urna: Command, hospitals: Path) -> None:
    typed = ("train", "--data", hospitals, "--unit", "record", "--rounds", 2, "--quiet")
    assert "--set train.record_clip=1.0" in urna(*typed).refused(2)
    assert urna(*typed, "--set", "train.record_clip=1.0", "--force").code == 0
    clients = urna("train", "--data", hospitals, "--set", "train.record_clip=1.0").refused(2)
    assert "--set train.record_clip: " in clients


@pytest.mark.parametrize("spelling", [".001", "1e-3", "0.001", "001e-3"])
def test_numbers_have_every_spelling_that_python_reads(urna: Command, spelling: str) -> None:
    typed = ("plan", "--clients", 60, "--candidates", 3, "--epsilon", "5.", "--format", "json")
    said = urna(*typed, "--delta", spelling).json()
    assert (said["epsilon"], said["delta"]) == (pytest.approx(5.0, rel=0.01), 0.001)


def test_a_disk_that_fills_up_after_the_charge_costs_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        '[data]\nsource = "digits"\nclients = 12\n[space]\neta0 = [0.01, 0.1]\n'
        "[objective]\nepochs = 1\ncache = false\n"
        "[privacy]\nepsilon = 20.0\ndelta = 1e-3\n[vote]\n",
        encoding="utf-8",
    )
    write: Callable[..., str] = journal.write_json

    def full(where: Path, values: dict[str, object]) -> str:
        if where.name == "vote.json":
            raise OutputError(f"cannot write {where}: {os.strerror(28)}")
        return write(where, values)

    monkeypatch.setattr(journal, "write_json", full)
    study = read_study(path)
    with pytest.raises(OutputError, match="No space left"):
        run_study(study, version="test")
    ledger = Ledger(study.folder / "ledger")
    spent = [entry.id for entry in ledger.entries() if entry.counts]
    monkeypatch.undo()
    assert run_study(study, version="test").vote is not None
    assert [entry.id for entry in ledger.entries() if entry.counts] == spent
    assert len(spent) == 1

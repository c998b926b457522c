# ruff: noqa: E501 - messages stand here as they are printed
"""Studies as people run them: init, plan, check, run, and run again after a kill."""

import csv
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_studies import STUDY
from commands import Command, Done
from forks import ForkServer

from urna.privacy import Ledger

pytest.importorskip("torch", reason="what follows these votes is torch's")

SCRIPTED = STUDY.replace("[vote]", 'scripted_secrets = "a script"\n[vote]')
AUTHORS = ("MODEL_CARD.md", "model.safetensors", "report.html", "result.json", "vote.json")


def written(folder: Path, text: str = STUDY) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def killed(commands: ForkServer, point: str, study: Path) -> None:
    child = commands.start("cli_commands:killed", point, "run", str(study), "--quiet")
    assert child.wait() == -signal.SIGKILL, child.stderr.read_text()


def results(study: Path) -> Path:
    return study.parent / "results"


def said(study: Path, name: str = "result.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results(study) / name).read_text())
    return found


def spent_once(study: Path) -> None:
    """Check that a study's ledger holds one vote and one training, within the budget."""
    ledger = Ledger(results(study) / "ledger")
    assert [(entry.label.split(" of ")[0].split(" on ")[0], entry.rounds) for entry in
            ledger.entries()] == [("vote", 1), ("training", 2)]  # fmt: skip
    assert ledger.spent().epsilon <= 20.0
    for entry in ledger.entries():
        assert entry.result is not None
        assert Path(entry.result.path).parent == results(study).absolute()


def test_a_study_votes_trains_and_leaves_everything(urna: Command, tmp_path: Path) -> None:
    study = written(tmp_path)
    done = urna("run", study)
    assert done.code == 0, done.stderr
    assert ": lr=" in done.stdout
    found = {path.name for path in results(study).iterdir()}
    assert {*AUTHORS, "ledger", "study.toml", "study.json", "training"} <= found
    assert said(study)["privacy"]["epsilon"] <= 20.0
    assert "of a vote on hyperparameters and of 2 rounds" in done.stdout.replace("\n", " ")
    head = (results(study) / "MODEL_CARD.md").read_text().split("---")[1]
    assert "privacy:\n" in head
    assert "epsilon: 20.0" in head
    spent_once(study)
    again = urna("run", study, "--format", "json")
    assert again.json()["best"] == said(study, "vote.json")["best"]
    spent_once(study)
    changed = written(tmp_path, STUDY.replace("epsilon = 20.0", "epsilon = 30.0"))
    assert "holds another study" in urna("run", changed).refused(2)


@pytest.mark.parametrize("name", ["vote.json", "result.json"])
def test_what_was_written_and_is_gone_is_not_held_again(
    urna: Command, tmp_path: Path, name: str
) -> None:
    """Two tallies that were both seen would be paid for once."""
    study = written(tmp_path)
    assert urna("run", study).code == 0
    page = (results(study) / "report.html").read_text()
    assert "One model for all" in page
    assert urna("report", results(study) / "result.json").code == 0  # all stages again
    assert "Vote: " in (results(study) / "report.html").read_text()
    (results(study) / name).rename(tmp_path / "elsewhere")
    assert f"{name} was written and is gone: put it back" in urna("run", study).refused(2)
    spent_once(study)
    (tmp_path / "elsewhere").rename(results(study) / name)
    assert urna("run", study).code == 0


def test_a_killed_study_goes_on_and_spends_once(
    urna: Command, commands: ForkServer, tmp_path: Path
) -> None:
    study = written(tmp_path)
    for point in ("paid", "tallied", "trained", "model"):
        killed(commands, point, study)
        assert not (results(study) / "result.json").exists()
    done = urna("run", study)
    assert done.code == 0, done.stderr
    spent_once(study)


@pytest.mark.audit
def test_a_killed_study_with_scripted_secrets_ends_the_same(
    urna: Command, commands: ForkServer, tmp_path: Path
) -> None:
    straight, broken = written(tmp_path / "a", SCRIPTED), written(tmp_path / "b", SCRIPTED)
    assert urna("run", straight).code == 0
    for point in ("summed", "tallied", "trained", "model"):
        killed(commands, point, broken)
    assert urna("run", broken).code == 0
    for name in AUTHORS:
        one, other = (results(study) / name for study in (straight, broken))
        assert one.read_bytes() == other.read_bytes(), name
    assert said(broken)["privacy"]["epsilon"] is None
    assert not (results(broken) / "ledger").exists()


@pytest.mark.audit
@pytest.mark.timeout(3600)
def test_a_study_killed_at_ten_random_moments_spends_once(
    urna: Command, commands: ForkServer, tmp_path: Path
) -> None:
    straight = written(tmp_path / "straight", SCRIPTED)
    begun = time.monotonic()
    assert urna("run", straight).code == 0
    whole = time.monotonic() - begun
    rng, kills = random.Random(0), 0
    for number in range(10):
        private = number % 2
        study = written(tmp_path / str(number), STUDY if private else SCRIPTED)
        for _ in range(20):
            child = commands.start("cli_commands:command", "run", str(study), "--quiet")
            time.sleep(rng.random() * 0.7 * whole)  # a few may end before they are killed
            child.send(signal.SIGKILL)
            killed = child.wait() == -signal.SIGKILL
            kills += killed
            if not killed:  # the machine had more to do when the first one was timed
                whole *= 0.7
            if rng.random() < 0.7:
                break
        done = urna("run", study)
        assert done.code == 0, done.stderr
        if private:
            spent_once(study)
        else:
            for name in AUTHORS:
                one, other = (results(s) / name for s in (straight, study))
                assert one.read_bytes() == other.read_bytes(), name
    assert kills >= 8


def test_init_and_run_on_a_folder_nobody_prepared(urna: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "wards").mkdir()
    for ward in range(3):
        with (tmp_path / "wards" / f"ward {ward}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["patient", "age", "sex", "blood pressure", "outcome"])
            for number in range(160):
                age, ill = rng.integers(18, 95), "NA"
                ill = "ill" if rng.random() < 1 / (1 + np.exp(-(age - 55) / 8)) else "well"
                rows.writerow([f"{ward}-{number}", age if number % 9 else "", rng.choice(["F", "M"]),
                               "NA" if number % 7 == 0 else f"{rng.normal(120, 15):.0f}", ill])  # fmt: skip
    asked = (
        "init",
        tmp_path,
        "--data",
        "wards",
        "--model",
        "sklearn.linear_model:LogisticRegression",
    )
    done = urna(*asked)
    assert done.code == 0, done.stderr
    assert "Left out: patient (holds ids)." in done.stdout
    text = (tmp_path / "study.toml").read_text()
    for line in ('label = "outcome"', 'classes = ["ill", "well"]', 'sex = ["F", "M"]',
                 'unit = "record"', 'record_column = "patient"', "age = [10.0, 100.0]", "[space]"):  # fmt: skip
        assert line in text
    assert "there already: say --force" in urna(*asked).refused(2)
    # Two candidates and few shards: this test is about the way, not about the answer.
    text = text.replace("values = [0.001, 0.01, 0.1, 1.0, 10.0]", "values = [0.001, 10.0]")
    text = text.replace("shards = 8", "shards = 3").replace("epsilon = 2.0", "epsilon = 20.0")
    (tmp_path / "study.toml").write_text(text)
    checked = urna("check", tmp_path, "--format", "json").json()
    assert checked["spent"] == 0
    assert all(loss is not None for loss in checked["losses"])
    planned = urna("plan", tmp_path / "study.toml")
    assert planned.code == 0, planned.stderr
    assert max(map(len, planned.stdout.splitlines()[:9])) <= 80
    assert not (tmp_path / "results").exists()
    ran = urna("run", tmp_path)
    assert ran.code == 0, ran.stderr
    assert said(tmp_path / "study.toml")["privacy"]["adjacency"] == "replace-one-record"


def test_a_search_on_a_file_of_ones_own(urna: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with (tmp_path / "my.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "outcome"])
        for _ in range(240):
            a, b = rng.normal(size=2)
            rows.writerow([f"{a:.3f}", f"{b:.3f}", int(a + 0.5 * rng.normal() > 0)])
    own = ("search", "--data", tmp_path / "my.csv", "--label", "outcome", "--clients", 12, "--votes", 1, "--force",
           "--epsilon", 0.5, "--delta", 1e-3, "--model", "sklearn.linear_model:LogisticRegression")  # fmt: skip
    done = urna(
        *own, "--space", "C=0.001,0.1,10:log", "--scripted-secrets", "x", "--format", "json"
    )
    assert done.json()["space"]["axes"][0] == {
        "name": "C",
        "kind": "log",
        "values": [0.001, 0.1, 10],
    }
    assert "classes = (0, 1)" in done.stderr.replace("[", "(").replace("]", ")")
    for more, message in (
        ((), "LogisticRegression has no candidates of its own: name some"),
        (("--space", "C"), "a space file ends in .json or .toml"),
        (
            ("--space", "tool=1,2"),
            "unknown parameter of LogisticRegression 'tool'; did you mean 'tol'?",
        ),
    ):
        refused = urna(*own, *more)
        assert refused.code == 2
        assert message in refused.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("epsilon = 20.0", "epsilo = 20.0", "study.toml:11: unknown key `privacy.epsilo`; did you mean `epsilon`?"),
        ("[train]", "[trian]", "study.toml:15: unknown key or section `trian`; did you mean `train`?"),
        ("clients = 12", 'clients = "12"', "study.toml:4: `data.clients` is a whole number; got the text '12'"),
        ("[vote]", "decoder = 'x'\n[vote]", "study.toml:14: unknown key `privacy.decoder`; there is `vote.decoder`"),
        ("epsilon = 20.0", "epsilon = -1.0", "study.toml:11: `privacy.epsilon` is a number, above 0; got the number -1.0"),
        ("[0.01, 0.1, 1.0]", "[0.01, 0.0]", "study.toml:6: axis 'lr': a log axis holds positive numbers"),
        ("lr = {", "leraning_rate = {", "study.toml:6: unknown"),
        ("epochs = 1", 'model = "nowhere_to_be_found:make"', "study.toml:8: there is no module 'nowhere_to_be_found'"),
        ("epochs = 1", 'model = "math:sqrt"', "math:sqrt"),
        ('source = "digits"', 'source = "digitss"', "study.toml:3: there is no file or folder"),
        ("delta = 1e-3", "", "study.toml:10: [privacy] must name `delta`"),
        ("[data]", "[data", "study.toml:2: this is no TOML"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_what_is_wrong_in_a_study_is_told_with_its_line(
    urna: Command, tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in STUDY
    study = written(tmp_path, STUDY.replace(before, after))
    refused = urna("run", study).refused(2)
    assert message in refused
    assert not (results(study) / "vote.json").exists()


HOPELESS = STUDY.replace("epsilon = 20.0", "epsilon = 0.01").replace("force = true", "")
HOPELESS = HOPELESS.replace("epochs = 1", 'epochs = 1\nmodel = "mlp"')


@pytest.mark.parametrize("command", [pytest.param("check", marks=pytest.mark.audit), "run"])
def test_a_hopeless_plan_is_refused_before_anything_is_spent(
    urna: Command, tmp_path: Path, command: str
) -> None:
    only_vote = HOPELESS.partition("[train]")[0]
    for text in (only_vote, *((HOPELESS,) if command == "run" else ())):
        study = written(tmp_path / str(len(text)), text)
        refused: Done = urna(command, study)
        assert refused.code == 2
        assert "Traceback" not in refused.stderr
        line = refused.stderr.replace("\n", " ")
        assert "cannot succeed" in line or "drown" in line or "cannot be summed" in line
        assert not (results(study) / "vote.json").exists()


def test_a_study_that_paid_nothing_may_be_put_right(urna: Command, tmp_path: Path) -> None:
    study = written(tmp_path, HOPELESS)
    assert urna("run", study).code == 2
    written(tmp_path, SCRIPTED)
    done = urna("run", study, "--format", "json")
    assert done.json()["result"]["rounds"] == 2


def test_a_missing_study_says_how_to_get_one(urna: Command, tmp_path: Path) -> None:
    assert "`urna init` writes one" in urna("run", tmp_path / "none.toml").refused(2)


@pytest.mark.parametrize("follow", ["average", "combine", "nothing"])
def test_what_else_may_follow(urna: Command, tmp_path: Path, follow: str) -> None:
    text = SCRIPTED.partition("[train]")[0] + (f"[{follow}]\n" if follow != "nothing" else "")
    if follow == "average":
        text = text.replace('[space]\nlr = { kind = "log", values = [0.01, 0.1, 1.0] }\n',
                            '[space]\nclip = { kind = "log", values = [0.5, 1.0] }\n')  # fmt: skip
    else:
        text = text.replace("lr =", "alpha =").replace("epochs = 1", 'model = "linear"')
    study = written(tmp_path, text)
    done = urna("run", study)
    assert done.code == 0, done.stderr
    kinds = {"average": "model", "combine": "combination", "nothing": "vote"}
    assert said(study)["kind"] == kinds[follow]
    first = (results(study) / "result.json").read_bytes()
    (results(study) / "result.json").unlink()  # as if killed before its last line
    journal = said(study, "study.json") | {"finished": False}
    (results(study) / "study.json").write_text(json.dumps(journal))
    assert urna("run", study).code == 0
    assert (results(study) / "result.json").read_bytes() == first

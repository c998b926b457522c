"""`urna train` and `urna plan train`, as people use them."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

from urna.privacy import Ledger

pytest.importorskip("torch", reason="training needs torch")

SMALL = ("--clients", 20, "--rounds", 3, "--dropout", "0.2", "--delta", 1e-3)


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_a_training_leaves_a_model_its_page_and_its_card(urna: Command, tmp_path: Path) -> None:
    out, ledger = tmp_path / "run", tmp_path / "ledger"
    assert urna("ledger", "create", ledger, "--epsilon", 6, "--delta", 1e-3).code == 0
    done = urna("train", *SMALL, "--output", out, "--ledger", ledger)
    assert done.code == 0, done.stderr
    assert "all planned rounds were held" in done.stdout
    assert {file.name for file in out.iterdir()} == {
        *(".lock", "study.toml", "study.json", "training"),
        *("model.safetensors", "result.json", "report.html", "MODEL_CARD.md"),
    }
    said = result(out)
    assert len(said["history"]) == 3
    card = (out / "MODEL_CARD.md").read_text()
    assert "| epsilon | 6 |" in card
    assert "replace-one-client" in card
    assert "How it learned" in (out / "report.html").read_text()

    from safetensors.numpy import load_file  # noqa: PLC0415 - an extra

    assert sum(t.size for t in load_file(out / "model.safetensors").values()) == 650

    again = urna("train", *SMALL, "--output", out, "--ledger", ledger)
    assert again.code == 0, again.stderr
    assert "this study is finished; nothing was spent now" in again.stdout
    assert result(out) == said
    for more in (("--lr", 0.2), ("--split", "dirichlet")):
        changed = urna("train", *SMALL, "--output", out, "--ledger", ledger, *more)
        assert "holds another study" in changed.refused(2)
    other = urna("train", *SMALL, "--output", tmp_path / "other", "--ledger", ledger)
    assert other.code == 1
    assert "Nothing was released" in other.stderr
    (entry,) = Ledger(ledger).entries()
    assert (entry.label, entry.rounds) == ("training of 650 parameters, 3 rounds", 3)


def test_tuning_and_training_share_one_budget(urna: Command, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    urna("ledger", "create", ledger, "--epsilon", 6, "--delta", 1e-3)
    done = urna("train", "--tune", *SMALL, "--ledger", ledger, "--output", tmp_path / "run")
    assert done.code == 0, done.stderr
    assert "of the budget (squares of mu) the vote gets" in done.stderr
    assert ": lr=" in done.stderr
    assert "privacy: (6, 0.001)-DP" in done.stdout.replace("\n", " ")
    assert "of a vote on hyperparameters and of 3 rounds" in done.stdout.replace("\n", " ")
    said = result(tmp_path / "run")
    together = said["tuned"]
    assert said["privacy"] == together["privacy"]
    assert together["training"]["epsilon"] < together["privacy"]["epsilon"]
    for page in ("MODEL_CARD.md", "report.html"):
        text = (tmp_path / "run" / page).read_text()
        assert "of a vote on hyperparameters and of 3 rounds" in text
    from urna.systems.train.checkpoint import read_tensors  # noqa: PLC0415 - an extra

    _, kept = read_tensors(tmp_path / "run" / "model.safetensors")
    assert kept["privacy"] == together["privacy"]
    assert together["privacy"]["epsilon"] <= 6
    assert together["division"]["vote_epsilon"] + together["division"]["train_epsilon"] > 6
    assert [entry.label for entry in Ledger(ledger).entries()] == [
        "vote on 5 candidates",
        "training of 650 parameters, 3 rounds",
    ]


def test_scripted_trainings_are_the_same_and_not_private(urna: Command) -> None:
    runs = [urna("train", *SMALL, "--scripted-secrets", "x", "--format", "json") for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert json.loads(runs[0].stdout)["privacy"]["epsilon"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "nothing"), "unknown model 'nothing'"),
        (("--model", "nowhere.py:make"), "there is no file nowhere.py"),
        (("--set", "train.stop_early=true"), "say validate as well"),
        (("--epsilon", 0.01), "cannot be summed"),
        (("--set", "train.optimiser=adam"), "is one of 'fedavg', 'fedavgm', 'fedadam'"),
        (("--resume",), "No such option"),
        (("--unit", "record"), "record_clip"),
        (("--clients", 1), "at least"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said_in_one_sentence(
    urna: Command, arguments: tuple[object, ...], message: str
) -> None:
    done = urna("train", *arguments)
    assert done.code in (1, 2)
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_plans_of_trainings(urna: Command) -> None:
    asked = ("plan", "train", "--clients", 539, "--dimension", 6634, "--rounds", 40)
    done = urna(*asked, "--delta", 1e-3, "--format", "json")
    assert done.code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["ring_bits"] == 32
    assert said["noise_multiplier"] == pytest.approx(7.57, abs=0.1)
    shown = urna(*asked, "--delta", 1e-3, "--sampling", "poisson", "--part", 0.1)
    assert "nobody may know who was drawn" in shown.stdout
    refused = urna("plan", "train", "--clients", 16, "--dimension", 2**24, "--epsilon", 0.01)
    assert refused.code == 2
    assert "16,777,216 entries of 16 clients a round cannot be summed" in refused.stderr
    refused = urna(*asked[:-1], 100_000_000, "--sampling", "poisson")
    assert refused.code == 2
    assert "at most 20,000 sampled rounds" in refused.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(): return 5", "makes int, which is no estimator and no torch module"),
        ("def make(): raise RuntimeError('no')", "cannot be made: RuntimeError: no"),
        ("import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError"),
        ("def (", "cannot be loaded: SyntaxError"),
        ("import torch\ndef make(): return torch.nn.Linear(3, 10)", "does not fit 'digits'"),
        ("import torch\ndef make(): return torch.nn.Linear(64, 3)", "does not fit 'digits'"),
        ("import torch\ndef make(): return torch.nn.Flatten()", "no parameters to train"),
    ],
    ids=["number", "raises", "import", "syntax", "rows", "classes", "empty"],
)
def test_a_model_of_ones_own_is_tried_before_anything_is_spent(
    urna: Command, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "own_model.py").write_text(text + "\n")
    done = urna("train", *SMALL, "--model", f"{tmp_path / 'own_model.py'}:make")
    assert done.code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_rows_and_a_model_of_ones_own_are_trained(urna: Command, tmp_path: Path) -> None:
    rows = [f"{n % 7},{n % 5},{('yes', 'no')[n % 2]}" for n in range(120)]
    (tmp_path / "rows.csv").write_text("a,b,outcome\n" + "\n".join(rows) + "\n")
    (tmp_path / "own_model.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(2, 2)\n"
    )
    own = ("--data", tmp_path / "rows.csv", "--label", "outcome", "--clients", 6)
    model = (
        "--model",
        f"{tmp_path / 'own_model.py'}:make",
        "--rounds",
        2,
        "--epsilon",
        30,
        "--force",
    )
    done = urna("train", *own, *model, "--format", "json")
    assert done.json()["rounds"] == 2
    assert "read off these data, and so as public as your command line" in done.stderr
    assert "classes = ('no', 'yes')" in done.stderr


@pytest.mark.parametrize("stage", ["train", "average"])
def test_a_stage_alone_is_planned_and_run_from_a_file(
    urna: Command, tmp_path: Path, stage: str
) -> None:
    """The same study by a file and by a command: the same result."""
    more = "rounds = 2\n" if stage == "train" else ""
    (tmp_path / "study.toml").write_text(
        '[data]\nsource = "digits"\nclients = 20\n[privacy]\nepsilon = 6.0\ndelta = 1e-3\n'
        f'scripted_secrets = "x"\n[{stage}]\n{more}'
    )
    planned = urna("plan", tmp_path / "study.toml", "--format", "json").json()
    assert (planned["vote"], planned["division"]) == (None, None)
    assert planned["stages"][0]["epsilon"] == 6
    ran = urna("run", tmp_path, "--format", "json").json()
    assert ran["vote"] is None
    asked = ("--clients", 20, "--delta", 1e-3, "--scripted-secrets", "x", "--format", "json")
    once = urna(stage, *asked, *(("--rounds", 2) if stage == "train" else ())).json()
    assert ran["result"] == once

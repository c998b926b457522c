"""A study from its file over a real federation on loopback: vote, training, resume."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="a federation is Flower's")
pytest.importorskip("torch", reason="what is trained is torch's")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "deployment"))

from federation import Federation, Site

from urna.privacy import Ledger

STUDY = """\
title = "over a federation"
[data]
source = "rows of each site"
label = "outcome"
classes = ["well", "ill"]
ranges = { age = [0, 120] }
categories = { sex = ["F", "M"] }
[space]
lr = { kind = "log", values = [0.003, 0.3] }
[privacy]
epsilon = 40
delta = 1e-3
dropout = 0.2
colluding = 0.1
vote_share = 0.3
[then]
what = "train"
rounds = 2
force = true
[engine]
kind = "flower"
federation = "here"
nodes = 5
least_clients = 4
directory = "../directory.toml"
server_key = "../server.key"
stage_seconds = 120.0
"""


def write_rows(site: Site, rng: np.random.Generator) -> Path:
    path = site.folder / "rows.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sex", "age", "outcome"])
        for _ in range(200):
            age = rng.integers(18, 95)
            ill = rng.random() < 1 / (1 + np.exp(-(age - 55) / 8))
            rows.writerow([rng.choice(["F", "M"]), age, "ill" if ill else "well"])
    return path


@pytest.mark.audit
@pytest.mark.timeout(1800)
def test_a_study_over_a_federation_on_loopback(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.toml").write_text(STUDY)
    with Federation(tmp_path, sites=5) as federation:
        for site in federation.sites:
            federation.write_policy(site, "fewest_clients = 3", epsilon=41.0, delta=1e-3)
            federation.start_node(site, more=f'urna-data="{write_rows(site, rng)}"')

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "urna", "run", str(study), "--format", "json"],
                env=federation._environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=1500,
            )

        done = run()
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout)
        assert said["best"] == {"lr": 0.3}
        assert said["result"]["rounds"] == 2
        assert said["privacy"]["epsilon"] == 40
        assert {"report.html", "model.safetensors", "MODEL_CARD.md"} <= set(said["files"])
        labels = [entry.label for entry in Ledger(study / "results" / "ledger").entries()]
        assert len(labels) == 2
        spent = [Ledger(site.ledger).spent().epsilon for site in federation.sites]
        assert max(spent) <= 41
        again = run()  # it is finished: no node is asked
        assert json.loads(again.stdout)["vote"] == said["vote"]
        assert [Ledger(site.ledger).spent().epsilon for site in federation.sites] == spent
    assert federation.leftovers() == []


@pytest.mark.audit
@pytest.mark.timeout(1800)
def test_a_study_that_opens_its_winner_over_a_federation_with_a_helper(tmp_path: Path) -> None:
    """The helper is a SuperNode that `urna helper` runs; it gets the study's app and no data."""
    rng = np.random.default_rng(0)
    study = tmp_path / "study"
    study.mkdir()
    text = STUDY.replace("epsilon = 40", "epsilon = 16")
    text = text.replace("[then]", '[vote]\nopens = "winner"\nhelper = "helper"\n[then]')
    (study / "study.toml").write_text(text)
    with Federation(tmp_path, sites=5, helper=True) as federation:
        assert federation.helper is not None
        for site in [*federation.sites, federation.helper]:
            limits = "fewest_clients = 3\nmost_missing = 1"
            federation.write_policy(site, limits, epsilon=17.0, delta=1e-3)
        for site in federation.sites:
            federation.start_node(site, more=f'urna-data="{write_rows(site, rng)}"')
        federation.start_helper()
        done = subprocess.run(
            [sys.executable, "-m", "urna", "run", str(study), "--format", "json"],
            env=federation._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout)
        assert (said["vote"]["revealed"]["kind"], said["vote"]["took_part"]) == ("winner", 5)
        assert said["vote"]["revealed"]["helper"] == "helper"
        assert said["result"]["rounds"] == 2
        assert said["privacy"]["epsilon"] == 16
        assert "helper not colluding" in (study / "results" / "report.html").read_text()
        winner, _ = Ledger(study / "results" / "ledger").entries()
        (helped,) = Ledger(federation.helper.ledger).entries()
        assert helped.cost.epsilon == winner.cost.epsilon
        assert max(Ledger(site.ledger).spent().epsilon for site in federation.sites) <= 17
    assert federation.leftovers() == []

"""Votes on recorded losses from a terminal."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.__main__ import app
from typer.testing import CliRunner

from urna.space import Space

SPACE = Space(lr=[0.1, 0.2, 0.3, 0.4], momentum=[0.0, 0.9])


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    quality = np.array([0.1, 0.1, 0.5, 0.6, 0.9, 0.8, 0.2, 0.1])
    accuracies = quality + 0.05 * rng.standard_normal((12, 8))
    np.savez(tmp_path / "recorded.npz", accuracies=accuracies, federated=quality)
    (tmp_path / "space.json").write_text(SPACE.as_json(), encoding="utf-8")
    return (str(tmp_path / "recorded.npz"), "--space", str(tmp_path / "space.json"))


def shown_by(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["replay", *arguments])
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_replay_says_how_good_the_winners_are(recorded: tuple[str, ...]) -> None:
    asked = ("--epsilon", "inf", "--epsilon", "20", "--draws", "4", "--quiet", "--format", "json")
    shown = shown_by(*recorded, *asked)
    first, second = shown["results"]
    assert first["epsilon"] == "inf"
    assert first["mean_federated_accuracy"] == pytest.approx(0.9)
    assert (first["regret"], first["top1_rate"]) == (pytest.approx(0.0), 1.0)
    assert second["adjacency"] == "replace-one-client"
    assert "never private" in shown["warning"]


def test_the_papers_mechanism_is_two_flags_away(recorded: tuple[str, ...]) -> None:
    asked = ("--epsilon", "20", "--ballot", "top-k", "--decoder", "argmax", "--draws", "3")
    shown = shown_by(*recorded, *asked, "--format", "json", "--quiet")
    assert shown["decoder"] == "argmax"
    assert shown["ballot"] == "top-k: 5 equal votes"
    assert math.isfinite(shown["mean_federated_accuracy"])


def test_a_replay_warns_that_nothing_is_private(recorded: tuple[str, ...]) -> None:
    done = CliRunner().invoke(
        app, ["replay", *recorded, "--epsilon", "inf", "--draws", "2", "--quiet"]
    )
    assert "never private" in done.stderr
    assert "nothing is private" in done.stdout


SIMULATION = (
    "--clients 40 --candidates 10 --votes 1 --votes 2 --epsilon 0.5 --repetitions 4 --quiet"
)


def simulated(arguments: str) -> str:
    done = CliRunner().invoke(app, ["simulate", *arguments.split()])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_votes_are_simulated_with_the_defaults_unless_told_otherwise() -> None:
    asked = "--clients 30 --candidates 12 --epsilon 1 --repetitions 3 --quiet"
    shown = json.loads(simulated(f"{asked} --format json"))
    assert {(o["ballot"][:6], o["decoder"]) for o in shown["outcomes"]} == {("scored", "posterior")}
    assert [o["clients_are"] for o in shown["outcomes"]] == ["much alike", "apart", "far apart"]
    text = simulated(f"{asked} --ballot ranked --votes 2 --decoder argmax --decoder posterior")
    for part in ("ranked", "top-k: 2", "argmax", "posterior", "not a guarantee"):
        assert part in text
    assert "scored" not in text


@pytest.mark.parametrize("vary", ["spread", "good"])
def test_figure_2_is_a_table(vary: str) -> None:
    text = simulated(f"{SIMULATION} --vary {vary}")
    assert "k=1" in text
    assert "k=2" in text
    assert "epsilon 0.5, delta 1e-05, replace-one-client, 40 clients" in text


def test_figure_2_is_json_and_repeats_by_seed() -> None:
    first, again, other = (
        json.loads(simulated(f"{SIMULATION} --figure-2 --seed {seed} --format json"))["outcomes"]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 12
    assert all(o["rate_low"] <= o["rate"] <= o["rate_high"] for o in first)

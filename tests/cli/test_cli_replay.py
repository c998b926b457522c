import math
from pathlib import Path

import numpy as np
import pytest
from commands import Command

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


def test_a_replay_says_how_good_the_winners_are(urna: Command, recorded: tuple[str, ...]) -> None:
    asked = ("--epsilon", "inf", "--epsilon", "20", "--draws", "4", "--quiet", "--format", "json")
    shown = urna("replay", *recorded, *asked).json()
    first, second = shown["results"]
    assert first["epsilon"] == "inf"
    assert first["mean_federated_accuracy"] == pytest.approx(0.9)
    assert (first["regret"], first["top1_rate"]) == (pytest.approx(0.0), 1.0)
    assert second["adjacency"] == "replace-one-client"
    assert "never private" in shown["warning"]


def test_the_papers_mechanism_is_two_flags_away(urna: Command, recorded: tuple[str, ...]) -> None:
    asked = ("--epsilon", "20", "--ballot", "top-k", "--decoder", "argmax", "--draws", "3")
    shown = urna("replay", *recorded, *asked, "--format", "json", "--quiet").json()
    assert shown["decoder"] == "argmax"
    assert shown["ballot"] == "top-k: 5 equal votes"
    assert math.isfinite(shown["mean_federated_accuracy"])


def test_a_replay_warns_that_nothing_is_private(urna: Command, recorded: tuple[str, ...]) -> None:
    done = urna("replay", *recorded, "--epsilon", "inf", "--draws", "2", "--quiet")
    assert "never private" in done.stderr
    assert "nothing is private" in done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--draws", "0"), "draws"),
        (("--epsilon", "-1"), "epsilon"),
        (("--delta", "2"), "delta"),
        (("--noise-std", "0"), "noise"),
        (("--ballot", "ranked", "--votes", "3"), "top-k"),
    ],
)
def test_wrong_use_of_a_replay_is_one_line(
    urna: Command, recorded: tuple[str, ...], flags: tuple[str, ...], says: str
) -> None:
    assert says in urna("replay", *recorded, *flags).refused(2)


def test_a_search_records_what_a_replay_reads(urna: Command, tmp_path: Path) -> None:
    file, space = tmp_path / "losses.npz", tmp_path / "space.toml"
    space.write_text('[axes]\neta0 = {kind = "log", values = [0.001, 0.1, 1.0]}\n')
    asked = ("--space", space, "--clients", "20", "--summation", "clear", "--quiet", "--no-cache")
    done = urna("search", "--epsilon", "8", *asked, "--record", file, "--format", "json")
    assert "NOT PRIVATE" in done.stderr
    assert done.json()["privacy"]["private"]
    flags = ("--epsilon", "inf", "--epsilon", "1", "--draws", "5", "--quiet")
    shown = urna("replay", file, *flags, "--format", "json").json()
    assert shown["neighbours_known"]
    assert (shown["clients"], shown["candidates"]) == (20, 3)
    for row in shown["results"]:
        assert sum(winner["wins"] for winner in row["winners"]) == 5
        assert all(winner["candidate"]["eta0"] in (0.001, 0.1, 1.0) for winner in row["winners"])
    text = urna("replay", file, *flags)
    assert "who won" in text.stdout
    assert "100 %  eta0=" in text.stdout
    assert "No --space was named" not in text.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--ledger", "study.ledger"), "record without --ledger"),
        (("--unit", "record", "--shards", "2"), "leave --unit record out"),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_once(
    urna: Command, tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    done = urna("search", "--record", tmp_path / "losses.npz", *flags)
    assert done.code == 2
    assert says in done.stderr
    assert not (tmp_path / "losses.npz").exists()

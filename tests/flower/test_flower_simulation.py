"""The same search in Flower's simulation engine, from the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")
pytest.importorskip("ray", reason="the simulation engine needs Ray")

from forks import environment
from grouped import grouped

from urna.cli.app import app
from urna.errors import ParameterError
from urna.flower.simulation import simulate
from urna.privacy import Budget
from urna.systems.vote import Reveal

SEARCH = ("search", "--clients", "20", "--epsilon", "8", "--dropout", "0.2", "--votes", "3",
          "--scripted-secrets", "both engines", "--format", "json", "--quiet")  # fmt: skip


def test_twenty_simulated_nodes_vote_like_twenty_clients_in_memory(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text("[axes]\neta0 = [0.001, 0.1, 10.0]\nalpha = [0.0001, 0.1]\n")
    found = {}
    for engine in ("memory", "flower"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "urna",
                *SEARCH,
                "--space",
                str(space),
                "--set",
                f"engine.kind={engine}",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        found[engine] = json.loads(done.stdout)
    same = (
        "best",
        "revealed",
        "winner",
        "confidence",
        "standard_error",
        "took_part",
        "lost",
        "plan",
    )
    assert {k: found["flower"][k] for k in same} == {k: found["memory"][k] for k in same}
    assert found["flower"]["took_part"] == 20
    assert not found["flower"]["privacy"]["private"]
    assert "over Flower" in " ".join(found["flower"]["privacy"]["caveats"])


def test_one_virtual_node_more_helps_to_open_the_winner(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text("[axes]\neta0 = [0.001, 0.1, 10.0]\nalpha = [0.0001, 0.1]\n")
    words = ("search", "--clients", "6", "--epsilon", "8", "--opens", "winner", "--helper", "h-7",
             "--set", "engine.kind=flower", "--format", "json", "--quiet",
             "--space", space)  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "urna", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["revealed"]["kind"], found["revealed"]["helper"]) == ("winner", "h-7")
    assert (found["took_part"], found["lost"], found["faults"]) == (6, {}, {})
    assert found["terms"]["clients"] == 6
    assert found["privacy"]["epsilon"] == 8
    assert "h-7 not colluding" in " ".join(found["privacy"]["caveats"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"reveal": Reveal("winner", "5")}, "simulated clients are called 0 to 5"),
        ({"reveal": Reveal("winner", "a b")}, "a node's name"),
        ({"reveal": Reveal("winner", "h"), "script": "x"}, "never scripted"),
        ({"reveal": Reveal("winner", "h"), "votes": 2}, "leave `votes` out"),
    ],
)
def test_a_helper_that_a_simulation_cannot_have_is_refused(
    more: dict[str, Any], message: str
) -> None:
    space, budget = {"lr": [0.1, 0.2]}, Budget(8, 1e-5)
    with pytest.raises(ParameterError, match=message):
        simulate(space, lambda c, d: c["lr"], [0.1] * 6, budget=budget, **grouped(more))


@pytest.mark.parametrize("key", ["privacy.summation=clear", "privacy.server=dishonest"])
def test_what_the_simulation_cannot_do_is_refused(key: str) -> None:
    with pytest.raises(ParameterError, match=r"summed by masks|a directory of keys"):
        app(["search", "--set", "engine.kind=flower", "--set", key], standalone_mode=False)


@pytest.mark.timeout(300)
def test_the_readmes_lines_work_in_the_simulation_with_and_without_a_policy(tmp_path: Path) -> None:
    """A file is found where there is one, and every simulated node has its own ledger."""
    script = Path(__file__).with_name("readme_app.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    without, _, first, counted, second = json.loads(done.stdout.splitlines()[-1])
    assert (without["took_part"], without["lost"]) == (40, 0)
    assert (first["took_part"], first["lost"]) == (40, 0)
    assert counted == {"files": 40, "entries": [1]}
    assert "privacy budget is too little" in second["error"]


@pytest.mark.timeout(300)
def test_simulated_nodes_combine_their_searches_encrypted_and_with_noise(tmp_path: Path) -> None:
    script = Path(__file__).with_name("settings_app.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["exact"]["setting"] == found["clear"]
    assert (found["exact"]["took_part"], found["noisy"]["took_part"]) == (6, 6)
    assert found["noisy"]["privacy"]["epsilon"] <= 8.0
    assert len(found["noisy"]["opened"]) == 1

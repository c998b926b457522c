"""A study over Flower that opens its winner alone: voters, a helper, a server that is killed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="a federation is Flower's")
pytest.importorskip("torch", reason="what is trained is torch's")

from flower_grid import LocalGrid, Node
from flower_nodes import federation, make_keys
from flwr.clientapp import ClientApp
from forks import environment

from urna.errors import ParameterError, RoundAborted, RoundUnfinished
from urna.privacy import Ledger
from urna.study.node import node_of
from urna.study.run import StudyOutcome, StudyRun
from urna.study.server import serve_study
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

VOTERS = 4
HELPER = f"site-{VOTERS}"
MASK, HELP = 3, 5  # letters a helper gets before it is asked for its mask, and to garble
STUDY = f"""\
title = "a winner over nodes"
[data]
source = "digits"
[space]
lr = {{ kind = "log", values = [0.003, 0.3] }}
[objective]
epochs = 1
[privacy]
epsilon = 16
delta = 1e-3
dropout = 0.25
vote_share = 0.3
[vote]
opens = "winner"
helper = "{HELPER}"
[then]
what = "train"
rounds = 2
force = true
[engine]
kind = "flower"
federation = "here"
nodes = {VOTERS}
least_clients = 3
directory = "directory.toml"
stage_seconds = 60.0
"""
POLICY = """\
[privacy]
epsilon = {epsilon}
delta = 1e-3
[limits]
fewest_clients = 2
least_colluding = 0
largest_dropout = 0.5
[grant.winner]
names = ["{helper}"]
[grant.verified]
names = ["{helper}"]
[grant.update]
most_entries = 1000
most_rounds = 5
[identity]
key = "{number}.key"
directory = "directory.toml"
"""


def deployed(folder: Path, faults: dict[int, str] | None = None, text: str = STUDY) -> LocalGrid:
    """Nodes that each have the study's app, their own policy and ledger; the last one helps."""
    if not (folder / "directory.toml").exists():
        make_keys(folder, VOTERS + 1)
    (folder / "study.toml").write_text(text)
    nodes = []
    for number in range(VOTERS + 1):
        policy = folder / f"policy-{number}.toml"
        policy.write_text(POLICY.format(epsilon=16.5, helper=HELPER, number=number))
        helps: dict[str, Any] = {"urna-helper": True} if number == VOTERS else {
            "partition-id": number, "num-partitions": VOTERS,
        }  # fmt: skip
        app = ClientApp()
        node_of(folder / "study.toml").mount(app)
        config = {"urna-policy": str(policy), **helps}
        nodes.append(Node(app, config, (faults or {}) if number == VOTERS else {}))
    return federation(*nodes)


def served(grid: LocalGrid, folder: Path) -> StudyOutcome:
    return serve_study(
        grid, folder / "study.toml", folder / "results", base=folder, version="a test"
    )


def ledger_of(folder: Path, number: int) -> Ledger:
    (found,) = folder.glob(f"policy-{number}*.ledger")
    return Ledger(found)


@pytest.mark.parametrize("verified", [False, True], ids=["masked", "verified"])
def test_nodes_vote_with_a_helper_and_train_without_it(tmp_path: Path, verified: bool) -> None:
    text = STUDY.replace("[then]", "verified = true\n[then]") if verified else STUDY
    done = served(deployed(tmp_path, text=text), tmp_path)
    assert done.vote.revealed.counts is None
    assert isinstance(done.follow, TrainResult)
    assert (done.vote.took_part, done.vote.lost) == (VOTERS, {})
    assert done.privacy.epsilon == 16
    assert f"{HELPER} not colluding" in str(done.privacy)
    winner, training = Ledger(tmp_path / "results" / "ledger").entries()
    assert winner.cost.epsilon == done.vote.privacy.epsilon
    assert training.rounds == 2
    for number in range(VOTERS):
        vote, update = ledger_of(tmp_path, number).entries()
        assert vote.cost.epsilon == done.vote.privacy.epsilon  # pure, for it came first
        assert update.rounds == 2
    (helped,) = ledger_of(tmp_path, VOTERS).entries()
    assert helped.cost.epsilon == done.vote.privacy.epsilon
    assert ("every ballot counted was verified" in str(done.privacy)) is verified
    again = served(deployed(tmp_path, text=text), tmp_path)
    assert again.again
    assert again.vote == done.vote


def test_a_winner_is_kept_before_nodes_are_told_and_not_opened_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transcript's digest names the winner to who tries all: by then it must be on disk."""
    grid = deployed(tmp_path)

    class Killed(BaseException):
        pass

    real = StudyRun.keep_vote

    def dies(self: StudyRun, vote: Any) -> None:
        real(self, vote)
        assert not any(node.letters[-1].kind.name == "END" for node in grid.nodes.values())
        raise Killed

    monkeypatch.setattr(StudyRun, "keep_vote", dies)
    with pytest.raises(Killed):
        served(grid, tmp_path)
    kept = json.loads((tmp_path / "results" / "vote.json").read_text())
    monkeypatch.undo()
    asked = len(grid.nodes[1000 - VOTERS].letters)
    done = served(grid, tmp_path)
    assert done.vote == VoteResult.read(kept)
    kinds = [letter.kind.name for letter in grid.nodes[1000 - VOTERS].letters[asked:]]
    assert "HELP" not in kinds
    assert len(Ledger(tmp_path / "results" / "ledger").entries()) == 2


def test_a_vote_whose_helper_is_lost_before_the_circuit_is_held_again_for_the_same_price(
    tmp_path: Path,
) -> None:
    only_vote = STUDY.replace('what = "train"', 'what = "nothing"').replace("= 60.0", "= 2.0")
    text = only_vote.replace("epsilon = 16", "epsilon = 8").replace("lr =", "eta0 =")
    with pytest.raises(RoundAborted):
        served(deployed(tmp_path, {MASK: "silent"}, text), tmp_path)
    (entry,) = Ledger(tmp_path / "results" / "ledger").entries()
    assert entry.withdrawn
    done = served(deployed(tmp_path, text=text), tmp_path)
    assert done.vote.entry == f"{entry.id}-2"
    assert Ledger(tmp_path / "results" / "ledger").spent().epsilon == 8.0
    # All voters signed that they forgot the first: nobody can open it any more.
    assert [one.cost.epsilon for one in ledger_of(tmp_path, 0).entries()] == [0.0, 8.0]


def test_a_vote_whose_helper_is_lost_within_the_circuit_is_paid_for(tmp_path: Path) -> None:
    only_vote = STUDY.replace('what = "train"', 'what = "nothing"').replace("= 60.0", "= 2.0")
    text = only_vote.replace("epsilon = 16", "epsilon = 8").replace("lr =", "eta0 =")
    with pytest.raises(RoundUnfinished, match="no winner was opened"):
        served(deployed(tmp_path, {HELP: "silent"}, text), tmp_path)
    assert Ledger(tmp_path / "results" / "ledger").spent().epsilon == 8.0
    assert [one.cost.epsilon for one in ledger_of(tmp_path, 0).entries()] == [8.0]
    with pytest.raises(ParameterError, match="was paid for and came to nothing"):
        served(deployed(tmp_path, text=text), tmp_path)


@pytest.mark.audit
@pytest.mark.timeout(300)
def test_the_simulation_has_a_helper_among_its_nodes(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the simulation engine needs Ray")
    text = STUDY.replace('source = "digits"', f'source = "digits"\nclients = {VOTERS}')
    lines = [line for line in text.splitlines() if not line.startswith(
        ("federation", "nodes", "least_clients", "directory"))]  # fmt: skip
    (tmp_path / "study.toml").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "urna", "run", str(tmp_path), "--format", "json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["vote"]["revealed"]["kind"], found["vote"]["took_part"]) == ("winner", VOTERS)
    assert found["vote"]["lost"] == {}
    assert found["result"]["rounds"] == 2
    assert found["privacy"]["epsilon"] == 16
    assert "not colluding" in (tmp_path / "results" / "report.html").read_text()

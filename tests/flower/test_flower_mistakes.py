"""A mistake in an app: nothing is spent on it, and whoever owns the data is told what it was."""

import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

from flower_grid import Node
from flower_mistakes import MISTAKES, STEPS, Mistaken, MistakenTraining, ends, good_pair, no_file
from flower_nodes import BUDGET, OPEN, QUICK, announced, app_of, ask, begin, federation, node
from flwr.app import Context
from forks import environment
from sklearn.linear_model import LogisticRegression

from urna.errors import ParameterError, RoundAborted
from urna.flower import Federation, Grant, Participant, poll
from urna.flower.vote_subject import VoteSubject
from urna.privacy import Ledger
from urna.space import Space
from urna.systems.vote import BallotShape
from urna.tally import Run

SPACE = Space(C=[0.1, 1.0, 10.0])
OWN = "own code failed"
POLICY = replace(OPEN, grants={"vote": Grant(), "update": Grant(most_rounds=9)})


def mistaken(number: int = 0, **changes: Any) -> Node:
    part = Participant([Mistaken(), MistakenTraining()], policy=replace(POLICY, **changes))
    return Node(app_of(part), {"partition-id": number})


# Deployed: the node's own log alone


@pytest.mark.parametrize(
    "place",
    [
        # Two in processes of their own, as on any deployed node; the others here, to be quick.
        pytest.param(place, marks=[pytest.mark.apart] if loader in (no_file, ends) else [])
        for place, (_, loader, _) in enumerate(MISTAKES)
    ],
)
def test_a_deployed_nodes_own_log_has_the_traceback_and_its_answer_nothing_of_it(
    place: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = VoteSubject(SPACE, BallotShape.top_k(1, len(SPACE)), seed=place)
    final = announced(subject, names=list("0123"), seconds=120.0)
    deployed = mistaken(forgets=False, ledger=tmp_path / "node.ledger")
    with caplog.at_level(logging.DEBUG):
        reply = ask(deployed, begin(final))
    (record,) = [r for r in caplog.records if OWN in r.getMessage()]
    assert record.name.startswith("urna.")  # Flower may send its own log elsewhere
    assert re.search(MISTAKES[place][2], caplog.text), caplog.text
    assert "Traceback" in caplog.text
    assert (reply.body != b"", reply.refused, reply.trace) == (True, "", "")
    assert Ledger(tmp_path / "node.ledger").entries() == []


def test_a_node_that_reports_failures_refuses_and_says_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    final = announced(VoteSubject(SPACE, BallotShape.top_k(1, 3), seed=8), names=list("0123"))
    reply = ask(mistaken(reports_failures=True), begin(final))
    assert reply.refused == "this node's own code failed; its own log says why"
    assert (reply.body, reply.trace) == (b"", "")
    assert "learning_rate" in caplog.text


def test_where_all_nodes_report_failures_nothing_is_spent(tmp_path: Path) -> None:
    own = Ledger.open(tmp_path / "server.ledger", BUDGET)
    sites = [tmp_path / f"{n}.ledger" for n in range(4)]
    nodes = [
        mistaken(n, reports_failures=True, forgets=False, ledger=path)
        for n, path in enumerate(sites)
    ]
    with pytest.raises(RoundAborted, match="own code failed"):
        poll(federation(*nodes), SPACE, budget=BUDGET, seed=8, run=Run(ledger=own, force=True))
    assert [Ledger(path).spent().epsilon for path in (own.path, *sites)] == [0] * 5


def test_a_node_may_not_speak_as_a_simulated_one(caplog: pytest.LogCaptureFixture) -> None:
    """A trace in a deployed node's answer is neither printed nor believed."""

    def trick(answer: Any, letter: Any, context: Context) -> Any:
        return replace(answer(letter, context), trace="\x1b[31mall fail")

    nodes = [node(n, trick=trick) for n in range(8)]
    found = poll(federation(*nodes), {"lr": [0.1, 0.3, 0.5]}, budget=BUDGET, run=Run(force=True),
                 federation=Federation(deadlines=replace(QUICK, evaluate=9.0)))  # fmt: skip
    assert found.took_part == 8
    assert "all fail" not in caplog.text


def test_what_reports_failures_is_true_or_false() -> None:
    with pytest.raises(ParameterError, match="`reports_failures` is true or false, got 'no'"):
        replace(OPEN, reports_failures="no")


def test_loaders_may_return_pairs_and_frames() -> None:
    nodes = [node(n, objective=LogisticRegression(), data=good_pair, policy=OPEN) for n in range(6)]
    found = poll(federation(*nodes), SPACE, budget=BUDGET, run=Run(force=True))
    assert found.took_part == 6
    assert max(found.votes) > 0


# Simulated: one person owns everything


def test_in_simulation_every_mistake_is_printed_and_spends_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the simulation engine needs Ray")
    script = Path(__file__).with_name("mistakes_app.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=280,
        cwd=tmp_path, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    for sentence, why in zip(told, [each[-1] for each in (*MISTAKES, *STEPS)], strict=True):
        assert "the app's code fails on all 2 nodes" in sentence
        assert "Nothing was spent" in sentence
        assert re.search(why, done.stderr), why
    assert done.stderr.count("own code of 2 simulated nodes failed") == len(told)
    assert Ledger(tmp_path / "server.ledger").spent().epsilon == 0
    nodes = list(tmp_path.glob("policy.simulated/*/*.ledger"))
    assert len(nodes) == 2
    assert {Ledger(file).spent().epsilon for file in nodes} == {0}


# Tried by its owner


def test_an_owner_tries_the_app_on_the_nodes_own_data(tmp_path: Path) -> None:
    module = tmp_path / "my_app.py"
    module.write_text(APP)
    (tmp_path / "pyproject.toml").write_text(PROJECT)

    def urna(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "urna", "policy", "try", str(tmp_path), *words],
            capture_output=True, text=True, check=False, timeout=120, env=environment(),
        )  # fmt: skip

    asked = ("--space", "my_app:SPACE", "--node-config", "partition-id=0 rows=20")
    good = urna(*asked)
    assert good.returncode == 0, good.stderr
    assert "candidate {'C': 0.1}: loss 0.1" in good.stdout
    step = urna("--model", "my_app:weights", "--config", "lr=0.5", "--node-config", "rows=20")
    assert step.returncode == 0, step.stderr
    assert "an update of norm 0.707" in step.stdout
    bad = urna("--space", "my_app:SPACE", "--node-config", "partition-id=0")
    assert bad.returncode == 1
    assert "KeyError: 'rows'" in bad.stderr
    assert "my_app.py" in bad.stderr
    assert urna().returncode == 2


PROJECT = """
[project]
name = "my-app"
[tool.flwr.app.components]
clientapp = "my_app:app"
serverapp = "my_app:server"
[tool.flwr.app.config]
scale.of = 2
"""
APP = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from urna.flower import Participant, Updates, Votes
from urna.flower.encrypted import EncryptedParty

SPACE = {"C": [0.1, 1.0]}
app = ClientApp()


def weights():
    return {"w": np.zeros(2, dtype=np.float32)}


def load(context):
    assert context.run_config["scale.of"] == 2
    return np.ones((context.node_config["rows"], 2)), np.arange(context.node_config["rows"]) % 2


def train(message, context):
    lr = message.content["config"]["lr"]
    new = message.content["arrays"]["w"].numpy() + lr * load(context)[0].mean(axis=0)
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(new)})}), reply_to=message)


def loss(candidate, data):
    return candidate["C"]


Participant([Votes(loss, load), Updates(train)]).mount(app)
EncryptedParty(lambda context: None).mount(app)
"""

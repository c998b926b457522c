"""One message, one model among nodes: learnt, refused, lost nodes, ledgers; and the example."""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, QUICK, app_of
from forks import environment
from grouped import grouped

from urna.data import Samples
from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower import Averages, AverageSubject, Grant, Participant, average
from urna.flower.subjects import read_subject, size_of
from urna.privacy import Adjacency, Budget, Ledger, Unit
from urna.systems.average import ModelResult, Moments, RowRule, Schema

RECORD = Adjacency.REPLACE_ONE_RECORD
SCHEMA = Schema(3, (0, 1, 2))
BUDGET = Budget(8.0, 1e-5)
CENTRES = np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]])
GRANTS = {"average": Grant(most_entries=200)}
LEARNER = Moments(SCHEMA, Unit.RECORD, 20, group=2)
MASK = 3  # letters: the announcement, keys, shares, then the masked vector


def samples(number: int, records: int = 20) -> Samples:
    rng = np.random.default_rng(number)
    y = rng.integers(3, size=records)
    return Samples(CENTRES[y] + 0.3 * rng.normal(size=(records, 3)), y)


def member(
    number: int,
    *,
    faults: Mapping[int, str] | None = None,
    schema: Schema | None = SCHEMA,
    data: Any = None,
    **changes: Any,
) -> Node:
    said = {"relation": RECORD, "smallest_shard": 5, "grants": GRANTS, "delta": 1e-5} | changes
    limits = replace(OPEN, **said)
    own = Averages(data or (lambda context: samples(number)), schema)
    return Node(app_of(Participant([own], policy=limits)), {"partition-id": number}, faults or {})


def averaged(nodes: list[Node], **more: Any) -> ModelResult:
    asked: dict[str, Any] = {
        "budget": BUDGET,
        "records": 20,
        "adjacency": RECORD,
        "dropout": 0.2,
        "colluding": 0,
        "deadlines": QUICK,
        **more,
    }
    grid = LocalGrid({100 + place: node for place, node in enumerate(nodes)})
    return average(grid, SCHEMA, **grouped(asked))


@pytest.mark.parametrize("learner", ["auto", "moments", "softmax"])
def test_nodes_learn_one_model_from_one_message_each(learner: str, tmp_path: Path) -> None:
    kept: list[ModelResult] = []
    ledger = Ledger.open(tmp_path / "server", BUDGET, adjacency=RECORD)
    result = averaged(
        [member(n) for n in range(10)], learner=learner, ledger=ledger, keep=kept.append
    )
    assert kept == [result]
    test = samples(1000, 200)
    assert result.score(test.features, test.targets) > 0.8
    assert result.took_part == 10
    assert result.privacy.private
    assert result.privacy.epsilon <= 8
    assert "over Flower" in str(result)
    assert len(ledger.entries()) == 1


def test_every_node_counts_the_model_in_its_own_ledger(tmp_path: Path) -> None:
    nodes = [member(n, forgets=False, ledger=tmp_path / f"{n}.ledger") for n in range(6)]
    result = averaged(nodes, learner="moments", dropout=0)
    for number in range(6):
        (entry,) = Ledger(tmp_path / f"{number}.ledger").entries()
        assert "model: moments" in entry.label
    assert result.took_part == 6


def test_nodes_that_vanish_are_named_and_the_noise_is_as_planned() -> None:
    nodes = [member(n, faults={MASK: "silent"} if n < 2 else None) for n in range(10)]
    result = averaged(nodes, learner="moments")
    assert set(result.lost) == {100, 101}
    made = result.learner
    truth = np.sum([v for _, v in made.vectors([samples(n) for n in range(2, 10)])], axis=0)
    assert result.release is not None
    away = np.abs(result.release - truth) / result.noise_std
    assert away.max() < 8
    assert result.noise_std <= result.plan["noise_std"] * (1 + 1e-9)


def test_a_node_refuses_what_is_not_its_own_and_others_go_on() -> None:
    other = Schema(3, (0, 1, 2), rows=RowRule(intercept=0.5))
    small = {"average": Grant(most_entries=5)}
    strangers = [member(8, schema=other), member(9, grants=small), member(10, grants={})]
    result = averaged([*(member(n) for n in range(8)), *strangers], learner="moments")
    assert result.took_part == 8
    assert set(result.lost) == {108, 109, 110}
    assert "schema" in result.lost[108]


def test_nodes_whose_data_fail_abstain_unseen() -> None:
    def broken(context: Any) -> Samples:
        raise OSError("no disk")

    odd = Samples(np.full((20, 3), np.nan), np.full(20, 99))
    nodes = [member(8, data=broken), member(9, data=lambda context: odd)]
    result = averaged([*(member(n) for n in range(8)), *nodes], learner="softmax")
    assert result.took_part == 10
    assert not result.lost
    assert np.isfinite(result.weights).all()


def test_too_few_nodes_reveal_nothing() -> None:
    faults = [{MASK: "silent"}] * 4 + [None] * 6
    with pytest.raises(RoundAborted):
        averaged([member(n, faults=f) for n, f in enumerate(faults)], learner="moments")


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 0},
        {"learner": "svm", "settings": {"regularisation": -1.0}},
        {"learner": "moments", "settings": {"radius": 2.0}},
        {"group": 0},
        {"learner": LEARNER, "group": 3},
        {"learner": LEARNER, "settings": {"points": 10}},
        {"learner": replace(LEARNER, schema=Schema(3, (0, 1)))},
    ],
)
def test_what_cannot_be_is_refused_before_any_letter(wrong: dict[str, Any]) -> None:
    nodes = [member(n) for n in range(4)]
    with pytest.raises(ParameterError):
        averaged(nodes, **wrong)
    assert not any(node.letters for node in nodes)


@pytest.mark.parametrize("learner", ["moments", "softmax"])
def test_subjects_are_read_back_and_their_size_is_told_beforehand(learner: str) -> None:
    made = averaged([member(n) for n in range(6)], learner=learner, group=2)
    subject = AverageSubject(made.learner)
    assert read_subject("average", subject.as_mapping()) == subject
    assert size_of("average", subject.as_mapping()) >= made.learner.dimension
    assert "2 records of one client together" in str(made)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ((), "kind", "forest"),
        ((), "points", 1e300),
        ((), "weight", "much"),
        (("schema",), "features", "many"),
        (("schema",), "classes", [[1], [2]]),
        (("schema", "rows"), "projected", -5),
        (("schema", "rows"), "clip", 1e200),
    ],
)
def test_subjects_that_cannot_be_are_no_subjects(
    where: tuple[str, ...], name: str, value: object
) -> None:
    mapping: Any = AverageSubject(Moments(SCHEMA, Unit.RECORD, 20)).as_mapping()
    inner = mapping["learner"]
    for key in where:
        inner = inner[key]
    inner[name] = value
    with pytest.raises(ProtocolError):
        read_subject("average", mapping)


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "one-message" / "one_message.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["memory", pytest.param("flower", marks=pytest.mark.audit)])
def test_the_example_runs_as_it_stands(where: str) -> None:
    pytest.importorskip("ray", reason="the simulation engine needs Ray")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *(["--flower"] if where == "flower" else [])],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    (accuracy,) = re.findall(r"public test data: ([0-9.]+)", done.stdout)
    # Accuracies of this model lie around .92; one below .75 was not seen in hundreds of draws.
    assert float(accuracy) > 0.75
    assert "replace-one-record" in done.stdout
    assert ("over Flower" in done.stdout) == (where == "flower")

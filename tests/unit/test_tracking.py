"""What trackers are told of a result: what was released, and nothing else."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from grouped import grouped

from urna.errors import DataMissing
from urna.privacy import Adjacency, Budget, PrivacyStatement
from urna.randomness import ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import Combination, Guarantee
from urna.systems.combine.frame import Frame
from urna.systems.combine.result import Point
from urna.systems.train import RoundReport, TrainResult
from urna.systems.vote import VoteResult, search
from urna.tally import ClearSummation, Terms
from urna.tracking import log_to_mlflow, log_to_tensorboard

PRIVATE = PrivacyStatement(0.5, 1e-5, Adjacency.REPLACE_ONE_CLIENT, "GDP")


def voted(**settings: Any) -> VoteResult:
    return search(
        {"x": [1.0, 2.0], "layers": [(8,), (8, 8)]},
        lambda candidate, data: abs(candidate["x"] - data) + len(candidate["layers"]),
        [1.0] * 30,
        budget=Budget(4, 1e-3),
        summation=ClearSummation(),
        **grouped(settings),
    )


def trained() -> TrainResult:
    report = RoundReport(1, 9, 1, 1, 0.25, 1.0, 0.5, 1.0, test=(1.5, 0.75))
    terms = Terms.of(10, Budget(1.0, 1e-5))
    return TrainResult(np.zeros(3, np.float32), (report,), "rounds", PRIVATE, terms, {})


class Recorder(ModuleType):
    """MLflow's functions, as far as they are called; keeps what it was told."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.params: dict[str, Any] = {}
        self.tags: dict[str, str] = {}
        self.metrics: dict[tuple[str, int | None], float] = {}
        self.files: dict[str, Any] = {}

    def set_tags(self, tags: dict[str, str]) -> None:
        self.tags |= tags

    def log_params(self, params: dict[str, Any]) -> None:
        self.params |= params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics |= {(name, step): value for name, value in metrics.items()}

    def log_dict(self, dictionary: dict[str, Any], artifact_file: str) -> None:
        self.files[artifact_file] = json.loads(json.dumps(dictionary, allow_nan=False))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", recorder)
    return recorder


def test_a_vote_is_logged_with_winner_cost_and_file(mlflow: Recorder) -> None:
    result = voted()
    log_to_mlflow(result)
    assert mlflow.params == result.best_params_
    assert mlflow.metrics[("epsilon", None)] == result.privacy.epsilon
    assert mlflow.metrics[("delta", None)] == 1e-3
    assert mlflow.metrics[("standard_error", None)] == result.standard_error
    assert mlflow.tags["urna.private"] == "true"
    assert mlflow.tags["urna.privacy"] == str(result.privacy)
    assert mlflow.files["result.json"] == json.loads(result.as_json())


def test_what_is_not_private_has_no_epsilon(mlflow: Recorder) -> None:
    log_to_mlflow(voted(secrets=ScriptedSecrets(b"tracking")))
    assert mlflow.tags["urna.private"] == "false"
    assert ("epsilon", None) not in mlflow.metrics


def test_a_training_is_logged_round_by_round(mlflow: Recorder) -> None:
    log_to_mlflow(trained())
    assert mlflow.metrics[("round/epsilon", 1)] == 0.25
    assert mlflow.metrics[("round/test_accuracy", 1)] == 0.75
    assert mlflow.metrics[("accuracy", None)] == 0.75
    assert mlflow.params == {}


def test_clients_own_settings_are_not_logged(mlflow: Recorder) -> None:
    frame = Frame.of(Space(lr=Axis.log([0.1, 1.0])))
    points = (Point(3, (0.7,), 0.9, -1),)
    clear = Combination({"lr": 0.5}, "mean", Guarantee.NONE, frame, PRIVATE, 5, 5, points=points)
    log_to_mlflow(clear)
    assert clear.as_mapping()["points"]
    assert mlflow.files["result.json"]["points"] == []
    assert mlflow.params == {"lr": 0.5}


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own, of protobuf
def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = voted()
    log_to_tensorboard(result, tmp_path / "vote")
    log_to_tensorboard(trained(), tmp_path / "training")
    seen = reader.EventAccumulator(str(tmp_path / "vote"))
    seen.Reload()
    assert seen.Scalars("epsilon")[0].value == pytest.approx(result.privacy.epsilon)
    assert {"x/text_summary", "urna.privacy/text_summary"} <= set(seen.Tags()["tensors"])
    assert json.loads((tmp_path / "vote" / "result.json").read_text()) == json.loads(
        result.as_json()
    )
    rounds = reader.EventAccumulator(str(tmp_path / "training"))
    rounds.Reload()
    assert [(e.step, e.value) for e in rounds.Scalars("round/epsilon")] == [(1, 0.25)]


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_a_missing_tracker_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    result = trained()
    with pytest.raises(DataMissing, match=f"needs {name}; install it with: pip install {name}"):
        _ = log_to_mlflow(result) if name == "mlflow" else log_to_tensorboard(result, tmp_path)

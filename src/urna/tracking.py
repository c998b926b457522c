"""Results in trackers of experiments: MLflow, TensorBoard.

Only what was released is logged: what a result holds was computed from noisy sums and public
facts, but for the clients' own settings in a combination without any guarantee, which are left
out. A result that is not private is marked so, and has no epsilon.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from urna.display import package
from urna.files import write_json
from urna.privacy import PrivacyStatement

__all__ = ["Tracked", "log_to_mlflow", "log_to_tensorboard"]

_FIGURES = ("standard_error", "noise_std", "confidence", "took_part", "accuracy")
_ROUND = ("epsilon", "noise_std", "took_part")


class Tracked(Protocol):
    """A result of any kind that `urna.load_result` reads."""

    @property
    def privacy(self) -> PrivacyStatement:
        """What it cost."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values."""
        ...


def log_to_mlflow(result: Tracked) -> None:
    """Log a result to MLflow's active run, or to a new one where none is active.

    The winner's values are parameters, epsilon, delta and the noise metrics, and the whole
    result the artifact `result.json`.

    Raises:
        DataMissing: MLflow is not installed.
    """
    mlflow = package("mlflow", "logging to MLflow")
    mlflow.set_tags(_tags(result))
    mlflow.log_params(_parameters(result))
    mlflow.log_metrics(_metrics(result))
    for number, figures in _rounds(result):
        mlflow.log_metrics(figures, step=number)
    mlflow.log_dict(_released(result), "result.json")


def log_to_tensorboard(result: Tracked, folder: Path | str) -> None:
    """Log a result into a folder that TensorBoard shows.

    Epsilon, delta and the noise are scalars, the winner's values and the statement texts; the
    whole result lies beside, in `result.json`.

    Raises:
        DataMissing: PyTorch or TensorBoard is not installed.
    """
    package("tensorboard", "logging to TensorBoard")
    board = package("torch.utils.tensorboard", "logging to TensorBoard")
    with board.SummaryWriter(str(folder)) as writer:
        for name, value in (_parameters(result) | _tags(result)).items():
            writer.add_text(name, str(value))
        for name, value in _metrics(result).items():
            writer.add_scalar(name, value)
        for number, figures in _rounds(result):
            for name, value in figures.items():
                writer.add_scalar(name, value, number)
    write_json(Path(folder) / "result.json", _released(result))


def _released(result: Tracked) -> dict[str, Any]:
    mapping = result.as_mapping()
    return mapping | {"points": []} if "points" in mapping else mapping


def _parameters(result: Tracked) -> dict[str, Any]:
    return dict(getattr(result, "best_params_", None) or {})


def _tags(result: Tracked) -> dict[str, str]:
    said = result.privacy
    return {
        "urna.private": str(said.private).lower(),
        "urna.privacy": str(said),
        "urna.adjacency": str(said.adjacency),
        "urna.accountant": said.accountant,
    }


def _metrics(result: Tracked) -> dict[str, float]:
    mapping: Mapping[str, Any] = {name: getattr(result, name, None) for name in _FIGURES}
    found = {name: float(value) for name, value in mapping.items() if value is not None}
    if result.privacy.private:
        found |= {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _rounds(result: Tracked) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield what is known of each round of a training."""
    for report in getattr(result, "history", ()):
        found = {f"round/{name}": getattr(report, name) for name in _ROUND}
        if report.test is not None:
            found |= {"round/test_loss": report.test[0], "round/test_accuracy": report.test[1]}
        yield report.number, {n: float(v) for n, v in found.items() if v is not None}

"""Where a training stands: one safetensors file, written whole or not at all."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.files import write_whole
from urna.systems.train.learner import Vector
from urna.systems.train.result import RoundReport, TrainResult
from urna.systems.train.torch_learner import TorchLearner

__all__ = ["Progress", "read_tensors", "write_model", "write_tensors"]

FILE = "checkpoint.safetensors"
_TENSORS = ("weights", "tail", "spent")
_VERSION = 2
_KEY = "urna"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training stands between two rounds."""

    fingerprint: str
    """Digest of everything that must not change in a training that is taken up again."""
    entry: str
    """The series' id in the ledger."""
    weights: Vector = field(repr=False)
    slots: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False)
    """What the server's optimiser remembers."""
    tail: npt.NDArray[np.float64] | None = field(default=None, repr=False)
    """Sum of the weights of the last rounds, where they are averaged."""
    tailed: int = 0
    """How many rounds that sum holds."""
    clip_norm: float = 1.0
    done: int = 0
    """Rounds that count."""
    revealed: str = ""
    """SHA-256 of what the last of them revealed."""
    history: tuple[RoundReport, ...] = ()
    spent: npt.NDArray[np.float64] | None = field(default=None, repr=False)
    """Squares of μ that each client's rounds really cost so far."""
    lost: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    besides: Mapping[str, Any] = field(default_factory=dict)
    """Plain values that the caller keeps with it."""
    counted: bool = False
    """Whether its rounds are counted in a ledger, under `entry`."""

    @property
    def model(self) -> Vector:
        """The weights as they would be handed out now."""
        if self.tail is None:
            return self.weights
        return np.asarray(self.tail / self.tailed, dtype=np.float32)

    def write(self, folder: Path | None) -> None:
        """Write it, synced, in place of the one before; nowhere where there is no folder."""
        if folder is None:
            return
        said: dict[str, Any] = {"version": _VERSION}
        tensors = {f"slot {name}": slot for name, slot in self.slots.items()}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                tensors[each.name] = value
            elif each.name == "history":
                said[each.name] = [asdict(report) for report in value]
            elif each.name not in ("slots", *_TENSORS):
                said[each.name] = dict(value) if isinstance(value, Mapping) else value
        write_tensors(folder / FILE, tensors, said)

    @classmethod
    def read(cls, folder: Path) -> "Progress | None":
        """Read it; None where there is none.

        Raises:
            ParameterError: There is a file, and it is no checkpoint.
        """
        path = folder / FILE
        if not path.exists():
            return None
        tensors, said = read_tensors(path)
        try:
            if said.pop("version") != _VERSION:
                raise ParameterError(f"{path} is a checkpoint of another version")
            slots = {
                name.removeprefix("slot "): slot.astype(np.float64)
                for name, slot in tensors.items()
                if name.startswith("slot ")
            }
            said["history"] = tuple(RoundReport.read(report) for report in said["history"])
            arrays: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
            arrays["weights"] = tensors["weights"].astype(np.float32)
            return cls(**said, **arrays, slots=slots)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(f"{path} is no checkpoint of a training: {error!r}") from error

    def after(self, **changed: Any) -> "Progress":  # noqa: ANN401 - fields of this class
        """Return where it stands after something changed."""
        return replace(self, **changed)


def write_model(path: Path, learner: TorchLearner, result: TrainResult) -> str:
    """Write a trained model, and what was promised with it; return the file's digest."""
    said = {
        "privacy": result.privacy.as_mapping(),
        "weights": result.digest,
        "result": result.as_mapping(),
    }
    return write_tensors(path, learner.tensors(result.weights), said)


def write_tensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], said: Mapping[str, Any]
) -> str:
    """Write tensors and plain values as one safetensors file; return its digest."""
    save = _safetensors("safetensors.numpy").save
    plain = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return write_whole(path, save(plain, {_KEY: json.dumps(said, allow_nan=False)}))


def read_tensors(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read what `write_tensors` wrote."""
    package = _safetensors("safetensors")
    try:
        with package.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            said = json.loads((file.metadata() or {}).get(_KEY, "{}"))
    except (OSError, ValueError, package.SafetensorError) as error:
        raise ParameterError(f"{path} cannot be read: {error}") from error
    return tensors, said


def _safetensors(module: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ParameterError(
            "models are kept as safetensors files: pip install 'urna[train]'"
        ) from error

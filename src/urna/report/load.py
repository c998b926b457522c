"""Results as files: what kind of result a file holds, and what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from urna.average import ModelResult
from urna.combine import Combination
from urna.errors import ParameterError
from urna.files import read_json
from urna.train import TrainResult
from urna.vote import Result, WinnerResult

__all__ = ["AnyResult", "FailedRound", "load_result"]


@dataclass(frozen=True, slots=True)
class FailedRound:
    """A round that was paid for and gave nothing that may be read."""

    kind: str
    """`spoiled` or `unfinished`."""
    reason: str
    lost: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "FailedRound":
        """Read what a command wrote."""
        return cls(
            str(mapping["kind"]),
            str(mapping["reason"]),
            dict(mapping["lost"]),
            dict(mapping["faults"]),
        )


AnyResult = Result | WinnerResult | ModelResult | Combination | TrainResult | FailedRound

_READERS: Mapping[str, Callable[[Mapping[str, Any]], AnyResult]] = {
    "model": ModelResult.read,
    "vote": Result.read,
    "winner": WinnerResult.read,
    "combination": Combination.read,
    "training": TrainResult.read,
    "spoiled": FailedRound.read,
    "unfinished": FailedRound.read,
}


def load_result(path: Path | str) -> AnyResult:
    """Load a result that a command or a program wrote.

    Raises:
        ParameterError: The file is not there, or holds no result this version can read.
    """
    mapping = read_json(Path(path))
    reader = _READERS.get(str(mapping.get("kind")))
    if reader is None:
        raise ParameterError(
            f"{path} holds no result: its kind is {mapping.get('kind')!r}, known are "
            f"{', '.join(_READERS)}"
        )
    try:
        return reader(mapping)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParameterError(f"{path} cannot be read: {error}") from error

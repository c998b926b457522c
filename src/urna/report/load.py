"""Results as files: what kind of result a file holds, and what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from urna.errors import ParameterError
from urna.files import read_json
from urna.privacy import PrivacyStatement
from urna.report.run import Provenance
from urna.report.study import READERS, StageResult, StudyResult
from urna.systems.average import ModelResult
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

__all__ = ["AnyResult", "FailedRound", "load_result", "load_run", "load_whole"]


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


AnyResult = StageResult | StudyResult | FailedRound


def _two_rounds(mapping: Mapping[str, Any]) -> StudyResult:
    """Read the votes in two rounds that version 0.2 could hold."""
    first, second = (VoteResult.read(mapping[name]) for name in ("first", "second"))
    both = (("first round", first), ("second round", second))
    return StudyResult(both, second.privacy, second.when)


_READERS: Mapping[str, Callable[[Mapping[str, Any]], AnyResult]] = {
    **READERS,
    "rounds": _two_rounds,
    "study": StudyResult.read,
    "spoiled": FailedRound.read,
    "unfinished": FailedRound.read,
}


def load_result(path: Path | str) -> AnyResult:
    """Load a result that a command or a program wrote, whatever kind it is.

    The weights of a training stand in a file of their own (`model.safetensors`); those of the
    result that is loaded here are not numbers.

    Args:
        path: A `result.json`, or the folder that holds one.

    Raises:
        ParameterError: The file is not there, or holds no result this version can read.
    """
    path = Path(path)
    path = path / "result.json" if path.is_dir() else path
    mapping = read_json(path)
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


def load_run(path: Path | str) -> Provenance | None:
    """Load how a result came about; None where its file does not say.

    Raises:
        ParameterError: The file is not there, or what it says of it cannot be read.
    """
    said = read_json(Path(path)).get("run")
    if said is None:
        return None
    try:
        return Provenance.read(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParameterError(f"{path} says how it came about, in no known way: {error}") from error


def load_whole(path: Path | str) -> AnyResult:
    """Load a result with the stages before it that its folder holds.

    A vote that decided what was trained stands beside the model; what both cost together stands
    in the last. Files that belong to another result are left alone.

    Raises:
        ParameterError: A file is not there, or holds no result this version can read.
    """
    path = Path(path)
    last = load_result(path)
    tuned = read_json(path).get("tuned")
    in_study = path.with_name("study.json").is_file()
    if isinstance(last, ModelResult) and last.tuned is not None:
        name, stages = "vote.json", ("vote", "model")
    elif isinstance(last, TrainResult) and (tuned or in_study):
        name, stages = "vote.json", ("vote", "training")
    elif isinstance(last, Combination) and in_study:
        name, stages = "vote.json", ("vote", "combination")
    else:
        return last
    beside = path.with_name(name)
    first = load_result(beside) if beside.is_file() else None
    if not isinstance(first, VoteResult) or not _belongs(first, last):
        return last
    second = last
    if isinstance(last, TrainResult) and tuned:
        second = replace(last, privacy=PrivacyStatement.read(tuned["training"]))
    return StudyResult(((stages[0], first), (stages[1], second)), last.privacy, last.when)


def _belongs(vote: VoteResult, last: StageResult) -> bool:
    """Say whether a vote was held before a result, as far as public facts can tell."""
    if last.terms is None:  # a combination without any guarantee follows no vote
        return False
    delta = vote.terms.budget.delta  # a winner's own promise has hardly any
    same = vote.terms.clients == last.terms.clients and delta == last.privacy.delta
    if isinstance(last, ModelResult) and last.tuned is not None:
        return same and dict(last.tuned["best"]) == vote.best
    return same

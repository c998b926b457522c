"""The result of a whole study: several stages that were paid for by one budget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError
from urna.privacy import PrivacyStatement
from urna.systems.average import ModelResult
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult

__all__ = ["KIND", "READERS", "VERSION", "StageResult", "StudyResult"]

KIND, VERSION = "study", 1
"""What a file that holds a study's result says it is."""

StageResult = VoteResult | ModelResult | Combination | TrainResult

READERS: Mapping[str, Callable[[Mapping[str, Any]], StageResult]] = {
    "vote": VoteResult.read,
    "winner": VoteResult.read,  # as version 0.2 called a vote of which nothing else was revealed
    "model": ModelResult.read,
    "combination": Combination.read,
    "training": TrainResult.read,
}


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Stages in the order in which they were held, and what they promise together."""

    stages: tuple[tuple[str, StageResult], ...]
    """Each with its name, such as `vote` or `train`."""
    privacy: PrivacyStatement
    """Of all stages together."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ParameterError("a study has at least one stage, got none")

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, from which `read` makes it again."""
        return {
            "kind": KIND,
            "version": VERSION,
            "privacy": self.privacy.as_mapping(),
            "stages": [
                {"name": name, "result": result.as_mapping()} for name, result in self.stages
            ],
            "when": self.when,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "StudyResult":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: It is no study's result, or of a newer version.
        """
        if (mapping.get("kind"), mapping.get("version")) != (KIND, VERSION):
            raise ParameterError(
                f"this is no result of a study of version {VERSION}: kind {mapping.get('kind')!r}, "
                f"version {mapping.get('version')!r}"
            )
        try:
            return cls(
                tuple(
                    (str(stage["name"]), READERS[stage["result"]["kind"]](stage["result"]))
                    for stage in mapping["stages"]
                ),
                PrivacyStatement.read(mapping["privacy"]),
                mapping["when"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(f"the result of a study cannot be read: {error!r}") from error

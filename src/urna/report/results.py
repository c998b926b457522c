"""Results read back from files: what kind each is, and how it came about."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from urna.errors import ParameterError
from urna.files import read_json
from urna.privacy import Ledger, PrivacyStatement
from urna.study.journal import LEDGER
from urna.systems.average import ModelResult
from urna.systems.combine import Combination
from urna.systems.train import TrainResult
from urna.systems.vote import VoteResult


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What a ledger said when the result was kept."""

    name: str
    subject: str
    epsilon: float
    """Of its cap."""
    delta: float
    adjacency: str
    spent: float | None
    """None where it is infinite."""
    left: float
    releases: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a result comes from; none of it is needed to read the result.

    Guarantee:
        Nothing in it depends on how long anything took. Times depend on clients' data, and
        epsilon does not cover them.
    """

    version: str
    """Of Urna."""
    title: str = ""
    """What its page is called."""
    command: str = ""
    study: str | None = None
    """The study file's text."""
    study_name: str | None = None
    simulated: bool | None = None
    """Whether all clients were on one machine; None where it is not known."""
    account: LedgerSummary | None = None

    @property
    def about(self) -> dict[str, str]:
        """What the study file's `[about]` states, by key; empty without one."""
        return self.stated("about")

    def stated(self, section: str) -> dict[str, str]:
        """Return the texts and numbers that a section of the study file names, in its order."""
        try:
            said = tomllib.loads(self.study or "").get(section, {})
            pairs = said.items() if isinstance(said, dict) else ()
            plain = {name: str(each) for name, each in pairs if isinstance(each, str | int | float)}
        except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
            return {}
        return {name: " ".join(each.split()) for name, each in plain.items() if each}

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON, from which `read` makes it again."""
        return asdict(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Provenance":
        """Read what `as_mapping` wrote; what another version wrote beside it is left out.

        Files of version 0.2 hold times of stages.

        Raises:
            TypeError: It is none.
        """
        known = {name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping}
        account, simulated = known.pop("account", None), known.pop("simulated", None)
        if not all(isinstance(each, str | None) for each in known.values()):
            raise TypeError("texts were expected")
        if account is not None:
            summary = LedgerSummary(**account)
            numbers = (summary.epsilon, summary.delta, summary.left, summary.spent or 0.0)
            if not all(math.isfinite(each) and each >= 0 for each in numbers):
                raise ValueError("a ledger's numbers are finite and not negative")
            account = replace(summary, releases=int(summary.releases))
        return cls(
            **known, simulated=None if simulated is None else bool(simulated), account=account
        )


def account_of(ledger: Ledger) -> LedgerSummary:
    """Return what a ledger says now."""
    said = ledger.as_mapping()
    return LedgerSummary(
        name=ledger.path.name,
        subject=ledger.subject,
        epsilon=ledger.cap.epsilon,
        delta=ledger.cap.delta,
        adjacency=str(ledger.adjacency),
        spent=said["spent"],
        left=said["left"],
        releases=sum(not entry["withdrawn"] for entry in said["entries"]),
    )


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
    """Load how a result came about; None where neither its file nor a ledger beside it says.

    A study counts in a ledger of its own, beside its result, unless it names another one.

    Raises:
        ParameterError: The file is not there, or what it says of it cannot be read.
    """
    path = Path(path)
    said, own = read_json(path).get("run"), path.with_name(LEDGER)
    if said is None and not own.is_file():
        return None
    try:
        run = Provenance.read(said or {"version": ""})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParameterError(f"{path} says how it came about, in no known way: {error}") from error
    if run.account is None and own.is_file():
        return replace(run, account=account_of(Ledger(own)))
    return run


def load_whole(path: Path | str) -> AnyResult:
    """Load a result with the stages before it that its folder holds.

    A vote that decided what was trained stands beside the model; what both cost together stands
    in the last. Files that belong to another result are left alone.

    Raises:
        ParameterError: A file is not there, or holds no result this version can read.
    """
    path = Path(path)
    last, beside, said = load_result(path), path.with_name("vote.json"), read_json(path)
    tuned = said.get("tuned")
    together = tuned is not None or path.with_name("study.json").is_file()
    if not isinstance(last, ModelResult | TrainResult | Combination):
        return last
    first = load_result(beside) if together and beside.is_file() else None
    if not isinstance(first, VoteResult) or not _belongs(first, last):
        return last
    second = last
    if isinstance(last, TrainResult) and tuned:
        second = replace(last, privacy=PrivacyStatement.read(tuned["training"]))
    return StudyResult((("vote", first), (said["kind"], second)), last.privacy, last.when)


def _belongs(vote: VoteResult, last: StageResult) -> bool:
    """Say whether a vote was held before a result, as far as public facts can tell."""
    if last.terms is None:  # a combination without any guarantee follows no vote
        return False
    delta = vote.terms.budget.delta  # a winner's own promise has hardly any
    same = vote.terms.clients == last.terms.clients and delta == last.privacy.delta
    if isinstance(last, ModelResult) and last.tuned is not None:
        return same and dict(last.tuned["best"]) == vote.best
    return same

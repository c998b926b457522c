"""What an averaging returns: a model people can use, what it cost, its file and its card."""

import datetime
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from urna.data import Coding
from urna.errors import ParameterError
from urna.files import write_whole
from urna.privacy import PrivacyStatement, Unit
from urna.privacy.budget import rounded_up
from urna.systems.average.moments import Moments
from urna.systems.average.plan import AverageLearner, read_learner
from urna.systems.average.schema import Matrix, Schema, Vector
from urna.systems.result import Result, written
from urna.tally import Terms
from urna.tally.card import card_head, privacy_block

_HEAD = "head"
_LARGEST = 1 << 31  # bytes of a model file that is read


@dataclass(frozen=True, slots=True, eq=False)
class ModelResult(Result):
    """A linear model, computed from one noisy sum and public facts alone.

    It predicts from columns as the clients' tables hold them: how they are coded, and what is
    done to rows, is part of it.
    """

    kind: ClassVar[str] = "model"
    version: ClassVar[int] = 1
    later: ClassVar[tuple[str, ...]] = ("columns", "coding")
    learner: AverageLearner
    """What each client computed, and how the sum became the model."""
    weights: Matrix
    """(width, outputs), for rows as `schema.rows` makes them."""
    privacy: PrivacyStatement
    terms: Terms
    took_part: int
    """How many clients' contributions are in the sum."""
    lost: Mapping[int, str]
    """Who is not in the sum, and why."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Who broke the protocol, in the sum or not, and how."""
    noise_std: float = 0.0
    """Standard deviation of the noise in an entry of the sum."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else was read from the sum."""
    release: Vector | None = field(default=None, repr=False)
    """The noisy sum itself, where it is kept: it is public, and can be read again."""
    described: str = ""
    """What each client computed, in a few words."""
    why: str = ""
    """Why this learner, where it was chosen for the user."""
    tuned: Mapping[str, Any] | None = None
    """What a private vote chose before, where one did."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Figures on public test data, where somebody gave them."""
    plan: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The plan as plain values."""
    entry: str | None = None
    """Its id in the ledger, where there is one."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run."""
    columns: tuple[str, ...] = ()
    """The columns of the clients' tables, in order, where these are coded before anything else."""
    coding: Coding = field(default_factory=Coding)
    """How these columns become features."""

    @property
    def schema(self) -> Schema:
        """What the model's features, classes and rows are."""
        return self.learner.schema

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, in the order of the scores; a regression has none."""
        if self.schema.classes is None:
            raise AttributeError("a regression has no classes")
        return np.asarray(self.schema.classes)

    def decision_function(self, features: Any) -> Matrix:  # noqa: ANN401 - arrays and frames
        """Return the scores of records: a column for each class, or the value on its scale."""
        if self.columns:
            features = self.coding.rows(self.columns, features)
        return np.asarray(self.schema.rows.rows(np.asarray(features)) @ self.weights)

    def predict(self, features: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - arrays and frames
        """Return the classes or the values of records."""
        return self.schema.decoded(self.decision_function(features))

    def score(self, features: Any, targets: npt.NDArray[Any]) -> float:  # noqa: ANN401
        """Return the accuracy on test data, or R² of a regression."""
        found, wanted = self.predict(features), np.asarray(targets)
        if self.schema.classes is not None:
            return float((found == wanted).mean())
        total = float(np.square(wanted - wanted.mean()).sum())
        return 1 - float(np.square(wanted - found).sum()) / max(total, 1e-300)

    def with_ridge(self, ridge: float) -> "ModelResult":
        """Read the model out of the same moments with another ridge: free, the sum is public."""
        if not isinstance(self.learner, Moments) or self.release is None:
            raise ParameterError("only kept sums of moments can be read again")
        learner = replace(self.learner, ridge=ridge)
        again = learner.solved(self.release, clients=self.took_part, std=self.noise_std)
        return replace(self, learner=learner, weights=again.weights, facts=again.facts)

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, from which `read` makes it again."""
        return {**self._head(), "weights": self.weights.tolist()}

    def _head(self) -> dict[str, Any]:
        said = written(replace(self, weights=np.zeros(0), release=None))
        del said["weights"], said["release"]
        describe = {"describe": said.pop("described")}
        return {"kind": self.kind, "version": self.version, **said, **describe}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "ModelResult":
        """Read what `as_mapping` wrote; refuse another kind or version, and what cannot be."""
        return cls._whole(mapping, np.array(mapping["weights"], dtype=np.float64), None)

    @classmethod
    def _whole(
        cls, mapping: Mapping[str, Any], weights: Matrix, release: Vector | None
    ) -> "ModelResult":
        cls._check_kind(mapping)
        # Models of version 0.2 may have been trained by SGD, which learners no longer are.
        learner = read_learner({**mapping["learner"], "trainer": "certified"})
        if weights.shape != (learner.schema.width, learner.schema.outputs):
            raise ParameterError(f"a model of {learner.schema} has other weights than these")
        if not np.isfinite(weights).all():
            raise ParameterError("a model's weights are finite")
        said = {**mapping, "weights": weights, "release": release, "learner": learner}
        said["described"] = str(mapping["describe"])
        own = dict.fromkeys(("weights", "release", "learner"), lambda value: value)
        return cls._read(said, **own)

    def save(self, path: Path | str) -> str:
        """Write the model as one .npz file without pickle, whole; return its digest.

        It holds `weights`, the noisy sum as `release` where that is kept, and all the rest as
        JSON bytes in `head`: the privacy statement travels with the model.
        """
        head = np.frombuffer(json.dumps(self._head(), allow_nan=False).encode(), dtype=np.uint8)
        arrays: dict[str, npt.NDArray[Any]] = {_HEAD: head, "weights": self.weights}
        if self.release is not None:
            arrays["release"] = self.release
        room = io.BytesIO()
        np.savez(room, **arrays)  # type: ignore[arg-type] # names are our own
        return write_whole(Path(path), room.getvalue())

    def __str__(self) -> str:
        schema = self.schema
        what = f"{len(schema.classes)} classes" if schema.classes is not None else f"{schema.span}"
        lines = [
            f"{self.described}; {schema.features} features, {what}, "
            f"{self.took_part} of {self.terms.clients} clients.",
            *([f"Selected automatically: {self.why}."] if self.why else []),
            *([f"Tuned by a private vote: {_said(self.tuned['best'])}."] if self.tuned else []),
            *(f"{name}: {value:.4g}" for name, value in self.measured.items()),
            str(self.privacy),
        ]
        return "\n".join(lines)


def _said(best: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in best.items()
    )


def load_model(path: Path | str) -> ModelResult:
    """Load a model that `ModelResult.save` wrote. Nothing in the file is run.

    Raises:
        ParameterError: The file is not there, or holds no such model.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise ParameterError(f"{path} is too large for a model")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            head = json.loads(archive[_HEAD].tobytes())
            weights = np.asarray(archive["weights"], dtype=np.float64)
            release = archive["release"] if "release" in archive.files else None
        return ModelResult._whole(head, weights, release)
    except ParameterError:
        raise
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # whatever a damaged archive makes of its readers
        raise ParameterError(f"{path} holds no model: {type(error).__name__}") from error


def model_card(result: ModelResult, *, name: str, played: bool | None = None) -> str:
    """Return the card as Markdown with a YAML head, for a README.md beside the model's file.

    The head has a `privacy:` block with the numbers and the relation they hold for; the text
    says them in words. Nothing in it was computed from data but by way of the noisy sum, and
    figures on public test data where somebody gave them. `played` says whether all parties were
    on one machine; by default as the privacy statement says.
    """
    return f"{card_head(_head(result, name, played))}\n{_text(result, name)}"


def _head(result: ModelResult, name: str, played: bool | None) -> dict[str, Any]:
    schema, privacy = result.schema, result.privacy
    classes = schema.classes is not None
    task = "tabular-classification" if classes else "tabular-regression"
    head: dict[str, Any] = {"library_name": "urna", "pipeline_tag": task}
    head["tags"] = ["differential-privacy", "federated-learning", "secure-aggregation", "linear"]
    head["privacy"] = privacy_block(
        privacy, result.terms, _unit(result), result.entry, played=played
    )
    if result.measured:
        metrics = [
            {"type": key, "value": round(float(value), 4)} for key, value in result.measured.items()
        ]
        head["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {"name": "public test data", "type": "test"},
                        "metrics": metrics,
                    }
                ],
            }
        ]
    return head


def _unit(result: ModelResult) -> str:
    if result.terms.adjacency.unit is Unit.CLIENT:
        return "all data of one client"
    if result.learner.group > 1:
        return f"{result.learner.group} records of one client together"
    return "one record of one client"


def _text(result: ModelResult, name: str) -> str:
    schema = result.schema
    targets = (
        f"classes: {', '.join(map(str, schema.classes[:20]))}{' …' * (len(schema.classes) > 20)}"
        if schema.classes is not None
        else f"a value, trained on targets in {schema.span}"
    )
    made = ""
    if result.when is not None:
        day = datetime.datetime.fromtimestamp(result.when, datetime.UTC)
        made = f" on {day:%Y-%m-%d}"
    columns = f"columns {', '.join(result.columns)[:200]}" if result.columns else "raw features"
    rule = json.dumps(schema.rows.as_mapping())
    why = f"\nIt was selected automatically: {result.why}.\n" if result.why else ""
    tuned = ""
    if result.tuned is not None:
        tuned = (
            f"\nIts settings were chosen by a private vote of the same clients "
            f"({json.dumps(result.tuned['best'])}); the epsilon above is that of both.\n"
        )
    measured = "".join(f"- {key}: {float(value):.4f}\n" for key, value in result.measured.items())
    figures = ""
    if measured:
        figures = f"\n## Figures\n\nOn public test data, which nobody trained on:\n\n{measured}"
    promise = "\n".join(
        f"- {caveat.rstrip('.')}." for caveat in (_promise(result), *result.privacy.caveats)
    )
    return (
        f"# {name}\n\n"
        f"A linear model of {schema.features} features ({targets}), computed{made} from one "
        f"message of each of {result.took_part} clients: {result.described}.\n"
        f"{why}{tuned}\n"
        f"## Privacy\n\n{promise}\n{figures}\n"
        f"## How to use it\n\n"
        f"```python\nfrom urna.systems.average import load_model\n\n"
        f'model = load_model("model.npz")      # no pickle: nothing in the file is run\n'
        f"model.predict(features)               # {columns}; rows are made by {rule}\n```\n\n"
        f"## What it does not promise\n\n"
        f"Differential privacy bounds what the model tells about one protected unit, the one named "
        f"above, and nothing else: what is true of many records shows, as it must. Other releases "
        f"about the same data add up; the clients' ledgers count them. Nothing bounds what a "
        f"malicious client puts into the sum.\n"
    )


def _promise(result: ModelResult) -> str:
    privacy = result.privacy
    if not privacy.private:
        return "**NOT PRIVATE**: nothing is promised"
    return (
        f"({rounded_up(privacy.epsilon)}, {rounded_up(privacy.delta)})-differential privacy for "
        f"{_unit(result)} ({privacy.adjacency}), accountant: {privacy.accountant}"
    )

"""What training returns, how it is kept, and its model card in Hugging Face's format."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from urna.display import as_frame, axes_for, card
from urna.errors import ParameterError
from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_up
from urna.systems.train.learner import Vector
from urna.tally import Terms
from urna.tally.card import card_head, privacy_block

__all__ = ["REASONS", "RoundReport", "TrainResult", "digest_weights", "model_card"]

KIND, VERSION = "training", 1
"""The kind and version in the file of a result."""

REASONS: Mapping[str, str] = {
    "rounds": "all planned rounds were held",
    "budget": "the next round would have passed the ledger's cap",
    "dropouts": "a round lost more clients than planned, as often as it was held",
    "validation": "the private validation loss had stopped falling",
}
"""Why training may end, in words."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round's figures; all of them from noisy sums and public facts."""

    number: int
    took_part: int
    """How many clients' vectors are in the sum."""
    lost: int
    attempts: int
    """How often the round was tried until it came to an end."""
    epsilon: float | None
    """What all rounds so far cost by the noise left in each; None where nothing is private."""
    clip_norm: float
    noise_std: float
    """Standard deviation of the noise in one entry of the mean update."""
    noise_ratio: float
    """Variance of the noise that honest survivors left over the planned one: at least one."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Private measurements, of the model that the round started from."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """Their standard deviations, from noise."""
    test: tuple[float, float] | None = None
    """Loss and accuracy on public rows after the round, where there are any."""
    failed: str = ""
    """Why the round gave nothing though it counts."""

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "RoundReport":
        """Read what `asdict` made of one."""
        test = mapping["test"]
        return cls(**{**mapping, "test": None if test is None else (test[0], test[1])})


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A trained model, how it came about, and what it cost: from noisy sums and public facts."""

    weights: Vector = field(repr=False)
    history: tuple[RoundReport, ...]
    stopped: str
    """Why training ended: a key of `REASONS`."""
    privacy: PrivacyStatement
    """What all rounds promise."""
    terms: Terms
    """Of each round's sum."""
    plan: Mapping[str, Any] = field(repr=False)
    """The training's plan as plain values."""
    description: str = ""
    entry: str | None = None
    """Its id in the ledger, where there is one."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run: those are all the same."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Who is not in the last sum, and why."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Who broke the protocol in any round, and how."""
    weights_sha256: str = ""
    """Of the weights, where these stand in a file of their own and were not read."""

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return len(self.history)

    @property
    def achieved_epsilon(self) -> float:
        """What the rounds really cost; infinite where nothing is private."""
        last = self.history[-1].epsilon if self.history else 0.0
        return math.inf if last is None else last

    @property
    def accuracy(self) -> float | None:
        """Accuracy on public rows, where there are any."""
        found = [report.test for report in self.history if report.test is not None]
        return found[-1][1] if found else None

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, whether they were read or not."""
        return self.weights_sha256 or digest_weights(self.weights)

    def to_frame(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return the rounds as a pandas frame, one row each."""
        rounds = [_columns(report) for report in self.history]
        names = list(dict.fromkeys(name for each in rounds for name in each))
        return as_frame({name: [each.get(name) for each in rounds] for name in names})

    def plot(self, axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
        """Draw accuracy on public rows, or else the epsilon so far, by round; return the axes."""
        axes = axes_for(axes)
        shown, drawn = "epsilon so far", [report.epsilon for report in self.history]
        if self.accuracy is not None:
            shown = "accuracy on public rows"
            drawn = [None if report.test is None else report.test[1] for report in self.history]
        rounds = [report.number for report in self.history]
        axes.plot(rounds, [math.nan if value is None else value for value in drawn])
        axes.set_xlabel("rounds")
        axes.set_ylabel(shown)
        axes.set_title("private training" if self.privacy.private else "NOT PRIVATE")
        return axes

    def _repr_html_(self) -> str:
        first, *rest = str(self).splitlines()
        return card(first, rest, private=self.privacy.private)

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON; the weights stand in a file of their own."""
        achieved = self.achieved_epsilon
        return {
            "kind": KIND,
            "version": VERSION,
            "description": self.description,
            "stopped": self.stopped,
            "rounds": self.rounds,
            "parameters": len(self.weights),
            "weights_sha256": self.digest,
            "history": [asdict(report) for report in self.history],
            "privacy": self.privacy.as_mapping(),
            "achieved_epsilon": achieved if math.isfinite(achieved) else None,
            "terms": self.terms.as_mapping(),
            "plan": dict(self.plan),
            "lost": {str(client): reason for client, reason in self.lost.items()},
            "faults": {str(client): deed for client, deed in self.faults.items()},
            "entry": self.entry,
            "when": self.when,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "TrainResult":
        """Read what `as_mapping` wrote; the weights, which are not in it, are not numbers.

        Raises:
            ParameterError: It is no result of a training, or of a newer version.
        """
        if (mapping.get("kind"), mapping.get("version")) != (KIND, VERSION):
            raise ParameterError(
                f"this is no result of a training of version {VERSION}: kind "
                f"{mapping.get('kind')!r}, version {mapping.get('version')!r}"
            )
        try:
            return cls(
                weights=np.full(int(mapping["parameters"]), np.nan, np.float32),
                weights_sha256=str(mapping["weights_sha256"]),
                history=tuple(RoundReport.read(report) for report in mapping["history"]),
                stopped=str(mapping["stopped"]),
                privacy=PrivacyStatement.read(mapping["privacy"]),
                terms=Terms.read(mapping["terms"]),
                plan=dict(mapping["plan"]),
                description=str(mapping["description"]),
                entry=mapping["entry"],
                when=mapping["when"],
                lost={int(client): str(why) for client, why in mapping["lost"].items()},
                faults={int(client): str(why) for client, why in mapping["faults"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ParameterError(f"the result of a training cannot be read: {error!r}") from error

    def as_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        lines = [f"trained: {self.description}, {self.rounds} rounds; {REASONS[self.stopped]}"]
        if self.accuracy is not None:
            lines.append(f"accuracy on public test rows: {100 * self.accuracy:.1f} %")
        if math.isfinite(self.achieved_epsilon):
            achieved = rounded_up(self.achieved_epsilon)
            lines.append(f"epsilon of the rounds by the noise left in each: {achieved}")
        lines.append(f"privacy: {self.privacy}")
        return "\n".join(lines)


def _columns(report: RoundReport) -> dict[str, Any]:
    """Return one round's figures, each under a name."""
    plain = asdict(report)
    measured, errors, test = (plain.pop(name) for name in ("measured", "errors", "test"))
    loss, accuracy = test or (None, None)
    found = {f"measured_{name}": value for name, value in measured.items()}
    spread = {f"std_{name}": value for name, value in errors.items()}
    return {**plain, "test_loss": loss, "test_accuracy": accuracy, **found, **spread}


def digest_weights(weights: Vector) -> str:
    """Return the digest of weights, the same on every machine."""
    return hashlib.sha256(np.ascontiguousarray(weights, dtype="<f4").tobytes()).hexdigest()


def model_card(
    result: TrainResult, *, title: str, data: str = "", played: bool | None = None
) -> str:
    """Return the card as Markdown with a YAML head, whose `privacy:` block has the numbers.

    `played` says whether all parties were on one machine; as the statement says by default.
    """
    privacy, terms, plan = result.privacy, result.terms, result.plan
    epsilon = rounded_up(privacy.epsilon) if privacy.private else "infinite: NOT PRIVATE"
    achieved, right = result.achieved_epsilon, result.accuracy
    last = result.history[-1] if result.history else None
    optimiser, sampling = (plan["settings"][name] for name in ("optimiser", "sampling"))
    block: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": f"{privacy.delta:g}",
        "neighbouring relation": str(privacy.adjacency),
        "protected": f"a {privacy.adjacency.unit}: {privacy.adjacency.described}",
        "accountant": privacy.accountant,
        "epsilon of the rounds by the noise left in each": (
            rounded_up(achieved) if math.isfinite(achieved) else "infinite"
        ),
        "noise": f"{terms.family}, made by the clients, "
        f"{plan['noise_multiplier']:.3g} times the clip norm in each sum",
        "amplification by sampling": (
            "yes: see below" if sampling["kind"] in ("lots", "poisson", "records") else "none"
        ),
        "ledger entry": result.entry or "none",
    }
    trained = {
        "model": result.description,
        "parameters": f"{len(result.weights):,}",
        "data": data or "not said",
        "clients": f"{plan['all_clients']}, {terms.clients} in each round",
        "rounds": f"{result.rounds} of {plan['rounds']}: {REASONS[result.stopped]}",
        "server optimiser": ", ".join(
            str(v) if k == "name" else f"{k} {v}" for k, v in optimiser.items()
        ),
        "clip norm of the last round": f"{last.clip_norm:.4g}" if last else "-",
        "accuracy on public test rows": "-" if right is None else f"{100 * right:.1f} %",
        "SHA-256 of the weights": result.digest,
    }
    caveats = "".join(f"- {caveat.rstrip('.')}.\n" for caveat in privacy.caveats)
    return (
        f"{card_head(_head(result, title, played))}\n"
        f"# {title}\n\n{_table(trained)}\n## Privacy\n\n{_table(block)}\n{caveats}"
        "\nUsing, publishing or training further on public data costs no more privacy. Training "
        "further on the same clients' data does: enter it in the same ledger.\n"
    )


def _head(result: TrainResult, title: str, played: bool | None) -> dict[str, Any]:
    privacy = result.privacy
    head: dict[str, Any] = {
        "library_name": "urna",
        "tags": ["differential-privacy", "federated-learning", "secure-aggregation", "pytorch"],
        "privacy": privacy_block(
            privacy, result.terms, privacy.adjacency.described, result.entry, played=played
        ),
    }
    if result.accuracy is not None:
        metrics = [{"type": "accuracy", "value": round(result.accuracy, 4)}]
        dataset = {"name": "public test data", "type": "test"}
        results = [{"dataset": dataset, "metrics": metrics}]
        head["model-index"] = [{"name": title, "results": results}]
    return head


def _table(said: dict[str, Any]) -> str:
    rows = "".join(f"| {name} | {value} |\n" for name, value in said.items())
    return f"| | |\n|---|---|\n{rows}"

"""What a combination returns, and how it is kept."""

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from urna.display import card
from urna.errors import ParameterError
from urna.privacy import PrivacyStatement
from urna.systems.combine.frame import Frame
from urna.systems.combine.strategies import Cluster
from urna.tally import Terms

KIND, VERSION = "combination", 1
"""What a file that holds a result says it is."""


class Guarantee(enum.StrEnum):
    """What is promised to a client whose search is combined."""

    NONE = "none"
    """Nothing: whoever combines sees every setting and score."""
    ENCRYPTION = "encryption"
    """Only the result is opened, exactly. It may tell about single clients all the same."""
    DP = "dp"
    """Sums carry noise: what is opened is differentially private. Added up by masks."""
    BOTH = "both"
    """The same noise, added up under threshold encryption."""

    @property
    def private(self) -> bool:
        """Whether it is differential privacy."""
        return self in (Guarantee.DP, Guarantee.BOTH)


class Point(NamedTuple):
    """One setting that a client kept; known only where everything is in the clear."""

    client: int
    values: tuple[float, ...]
    score: float
    cluster: int
    """Its place in `Combination.clusters`; −1 for none."""


@dataclass(frozen=True, slots=True)
class Combination:
    """One setting for all clients, how it was found, and what that cost."""

    setting: Mapping[str, float]
    strategy: str
    guarantee: Guarantee
    frame: Frame
    """The axes, on the scale they were combined on."""
    privacy: PrivacyStatement
    clients: int
    """How many were invited."""
    took_part: int
    clusters: tuple[Cluster, ...] = ()
    """The best first, as far as they became known."""
    points: tuple[Point, ...] = field(default=(), repr=False)
    """Kept settings, without any guarantee only."""
    cell: float | None = None
    """Length of the cells settings were counted in."""
    opened: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    """Everything that was opened, step by step."""
    noise: tuple[float, ...] = ()
    """Standard deviation of the noise in each opened sum."""
    terms: Terms | None = None
    lost: Mapping[int, str] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    """Bytes, where they were counted."""
    entries: tuple[str, ...] = ()
    """Ids in the ledger, where there is one."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run."""

    @property
    def entry(self) -> str | None:
        """The last of its ids in the ledger."""
        return self.entries[-1] if self.entries else None

    @property
    def best_params_(self) -> dict[str, float]:
        """The setting, by scikit-learn's name."""
        return dict(self.setting)

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, from which `read` makes it again."""
        return {"kind": KIND, "version": VERSION, **_fields(self)}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Combination":
        """Read what `as_mapping` wrote; refuse another kind or a newer version."""
        if (mapping.get("kind"), mapping.get("version")) != (KIND, VERSION):
            raise ParameterError(
                f"this is no combination of version {VERSION}: kind {mapping.get('kind')!r}, "
                f"version {mapping.get('version')!r}"
            )
        try:
            return cls(
                setting={str(k): float(v) for k, v in mapping["setting"].items()},
                strategy=str(mapping["strategy"]),
                guarantee=Guarantee(mapping["guarantee"]),
                frame=Frame.read(mapping["frame"]),
                privacy=PrivacyStatement.read(mapping["privacy"]),
                clients=int(mapping["clients"]),
                took_part=int(mapping["took_part"]),
                clusters=tuple(
                    Cluster(
                        {str(k): float(v) for k, v in each["setting"].items()},
                        math.nan if each["score"] is None else float(each["score"]),
                        each["points"],
                        tuple(tuple(map(int, cell)) for cell in each["cells"]),
                    )
                    for each in mapping["clusters"]
                ),
                points=tuple(
                    Point(int(client), tuple(map(float, values)), float(score), int(label))
                    for client, values, score, label in mapping["points"]
                ),
                cell=mapping["cell"],
                opened=tuple(tuple(entries) for entries in mapping["opened"]),
                noise=tuple(map(float, mapping["noise"])),
                terms=None if mapping["terms"] is None else Terms.read(mapping["terms"]),
                lost={int(client): str(why) for client, why in mapping["lost"].items()},
                # Files of version 0.2 hold CPU times beside bytes.
                cost={k: float(v) for k, v in mapping["cost"].items() if not k.endswith("seconds")},
                entries=tuple(map(str, mapping["entries"])),
                when=mapping["when"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ParameterError(f"the combination cannot be read: {error!r}") from error

    def as_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.as_mapping(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        setting = ", ".join(f"{name}={value:.4g}" for name, value in self.setting.items())
        return (
            f"setting: {setting}\n"
            f"from: {self.took_part} of {self.clients} clients by {self.strategy}"
            f"{self._clusters()}\n"
            f"privacy: {self.privacy}"
        )

    def _repr_html_(self) -> str:
        first, *rest = str(self).splitlines()
        return card(first, rest, private=self.privacy.private)

    def _clusters(self) -> str:
        if not self.clusters:
            return ""
        best = self.clusters[0]
        many = f"{len(self.clusters)} cluster{'s' if len(self.clusters) > 1 else ''}"
        scored = f", mean score {best.score:.3f}" if math.isfinite(best.score) else ""
        return f", {many}{scored}"


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a result holds
    """Return a value as JSON has it; what is not a number becomes null."""
    match value:
        case enum.StrEnum():
            return str(value)
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case Cluster():
            return _fields(value)
        case Frame() | PrivacyStatement() | Terms():
            return value.as_mapping()
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""What a combination returns, and how it is kept."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from urna.privacy import PrivacyStatement
from urna.systems.combine.frame import Frame
from urna.systems.combine.strategies import Cluster
from urna.systems.result import Result
from urna.tally import Terms


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

    @classmethod
    def read(cls, said: Sequence[Any]) -> "Point":
        """Read a point as a list of its fields."""
        client, values, score, cluster = said
        return cls(int(client), tuple(map(float, values)), float(score), int(cluster))


@dataclass(frozen=True, slots=True)
class Combination(Result):
    """One setting for all clients, how it was found, and what that cost."""

    kind: ClassVar[str] = "combination"
    version: ClassVar[int] = 1

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

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Combination":
        """Read what `as_mapping` wrote; refuse another kind or a newer version."""
        cls._check_kind(mapping)
        return cls._read(
            mapping,
            clusters=lambda some: tuple(map(Cluster.read, some)),
            points=lambda some: tuple(map(Point.read, some)),
            # Files of version 0.2 hold CPU times beside bytes.
            cost=lambda cost: {k: float(v) for k, v in cost.items() if not k.endswith("seconds")},
        )

    def __str__(self) -> str:
        setting = ", ".join(f"{name}={value:.4g}" for name, value in self.setting.items())
        return (
            f"setting: {setting}\n"
            f"from: {self.took_part} of {self.clients} clients by {self.strategy}"
            f"{self._clusters()}\n"
            f"privacy: {self.privacy}"
        )

    def _clusters(self) -> str:
        if not self.clusters:
            return ""
        best = self.clusters[0]
        many = f"{len(self.clusters)} cluster{'s' if len(self.clusters) > 1 else ''}"
        scored = f", mean score {best.score:.3f}" if math.isfinite(best.score) else ""
        return f", {many}{scored}"

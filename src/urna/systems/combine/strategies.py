"""Ways to combine clients' searches into one setting, in the clear.

A strategy sees everybody's settings and scores. Those that are sums of clients' vectors, the mean
(`Averaging`) and density clusters counted in cells (`cells.Clustering`), are there under encryption
as well, and the mean with differential privacy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import PLACE_BITS, Floats, Frame, Integers, mean_of
from urna.systems.combine.searches import (
    KeepingRule,
    KeptSettings,
    LocalSearch,
    Searches,
    keep_best,
)

TOP_SHARE = 0.05
"""The part of its settings a client keeps for the mean and median of the best."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of settings, as far as it became known."""

    setting: dict[str, float]
    """Its centre."""
    score: float
    """Mean score of its settings; not a number where it is not known."""
    points: float
    """How many settings are in it; noisy where they were counted with noise."""
    cells: tuple[tuple[int, ...], ...] = ()
    """Dense cells it is made of, where a grid was laid over the settings."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Cluster":
        """Read a mapping of its fields; a score that is not known is null."""
        return cls(
            {str(name): float(value) for name, value in said["setting"].items()},
            math.nan if said["score"] is None else float(said["score"]),
            said["points"],
            tuple(tuple(map(int, cell)) for cell in said["cells"]),
        )


@dataclass(frozen=True, slots=True)
class Combined:
    """One setting for all, and the clusters it was chosen from where there were any."""

    setting: dict[str, float]
    clusters: tuple[Cluster, ...] = ()
    """The best first."""
    labels: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """In the clear: for each client, the cluster of each setting it kept; −1 for none."""


class Strategy(Protocol):
    """A way to combine searches."""

    @property
    def name(self) -> str:
        """What tables and commands call it."""
        ...

    def combine(self, searches: Searches) -> Combined:
        """Return one setting for all clients; refuse searches that leave nothing to combine."""
        ...


@dataclass(frozen=True, slots=True)
class MeanSetting:
    """The mean of each client's best setting, or of a share of its settings, the best ones."""

    share: float | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        return _named("mean", self.share)

    def combine(self, searches: Searches) -> Combined:
        """Return the mean."""
        frame = searches.frame
        sums = [keep_best(client, self.share).sums(frame) for client in searches.clients]
        return Combined(frame.setting(mean_of(np.sum(sums, axis=0))))


@dataclass(frozen=True, slots=True)
class Averaging:
    """What everybody agrees on for a mean: axes, and what clients keep. All of it is public."""

    frame: Frame
    share: float | None = None
    most: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 10_000:
            raise ParameterError(f"a client keeps 1 to 10,000 settings, got {self.most}")

    @property
    def name(self) -> str:
        """What tables call it."""
        return _named("mean", self.share)

    @property
    def dimension(self) -> int:
        """Entries of a client's vector: one sum per axis, and a count."""
        return len(self.frame.rulers) + 1

    def vector(self, search: LocalSearch) -> Integers:
        """Return a client's sums and its count; refuse to keep more settings than agreed."""
        kept = keep_best(search, self.share)
        if (count := round(kept.weights.sum())) > self.most:
            raise ParameterError(
                f"a client would keep {count} settings; {self.most} were agreed on"
            )
        return kept.sums(self.frame)

    def read(self, total: Integers) -> Combined:
        """Return the mean of everybody's sums and counts."""
        return Combined(self.frame.setting(mean_of(total)))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"frame": self.frame.as_mapping(), "share": self.share, "most": self.most}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Averaging":
        """Read what `as_mapping` wrote."""
        share = mapping["share"]
        frame = Frame.read(mapping["frame"])
        return cls(frame, None if share is None else float(share), int(mapping["most"]))


@dataclass(frozen=True, slots=True)
class Median:
    """The median of each axis, over each client's best setting or its best ones."""

    share: float | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        return _named("median", self.share)

    def combine(self, searches: Searches) -> Combined:
        """Return the median."""
        kept = KeptSettings.together(keep_best(each, self.share) for each in searches.clients)
        units = searches.frame.units(kept.settings)
        middle = [_weighted_median(column, kept.weights) for column in units.T]
        return Combined(searches.frame.setting(middle))


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each axis without a part of its largest and of its smallest values."""

    name: ClassVar[str] = "trimmed mean"
    trimmed: float = 0.1

    def combine(self, searches: Searches) -> Combined:
        """Return the trimmed mean: each client's best, equals averaged first."""
        rows = []
        for client in searches.clients:
            kept = keep_best(client)
            if len(kept):
                units = searches.frame.units(kept.settings)
                rows.append(kept.weights @ units / kept.weights.sum())
        if not rows:
            raise ParameterError("no client kept a setting, so there is nothing to combine")
        ordered = np.sort(np.array(rows), axis=0)
        cut = int(self.trimmed * len(ordered))
        return Combined(searches.frame.setting(ordered[cut : len(ordered) - cut].mean(axis=0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dbscan(KeepingRule):
    """DBSCAN over clients' good settings; the centre of the cluster of best mean score.

    In the clear: it needs everybody's settings in one place. Neighbours of a setting, itself
    included, make it the core of a cluster from `min_points` on. As in the paper settings are
    counted, whoever kept them; where clients are protected, `FederatedDbscan` counts clients.

    Args:
        reach: Settings this close, in parts of an axis, are neighbours.
        stretched: Whether axes go from the smallest to the largest setting that was kept, as
            in the authors' code, and not from end to end of the public axis.
        by_rule: Whether `min_points` is twice the number of axes and `reach` the knee of the
            settings' distances to their nearest ones, the paper's Appendix A.
    """

    name: ClassVar[str] = "dbscan"
    reach: float = 0.3
    stretched: bool = False
    by_rule: bool = False

    def __post_init__(self) -> None:
        if self.min_points < 1 or self.most < 1:
            raise ParameterError(
                f"min_points and most are positive, got {self.min_points} and {self.most}"
            )
        if not self.reach > 0:
            raise ParameterError(f"neighbours have a positive reach, got {self.reach}")

    def combine(self, searches: Searches) -> Combined:
        """Return the centre of the best cluster."""
        # First used here: scikit-learn takes a second to import.
        from sklearn.cluster import DBSCAN  # noqa: PLC0415

        kept = [self.kept(client) for client in searches.clients]
        whole = KeptSettings.together(kept)
        points = searches.frame.units(whole.settings)
        if self.stretched:
            low, width = points.min(axis=0), np.ptp(points, axis=0)
            points = (points - low) / np.where(width > 0, width, 1.0)
        reach, few = self.reach, self.min_points
        if self.by_rule:
            few = 2 * points.shape[1]
            reach = knee_of(points, few)
        found = DBSCAN(eps=reach, min_samples=few).fit(points).labels_
        clusters, order = ranked(searches.frame, whole, found)
        if not clusters:
            raise ParameterError(
                f"no {few} settings lie within {reach:g} of each other; lower min_points or "
                "widen the reach"
            )
        renamed = np.array([order.get(int(label), -1) for label in found])
        ends = np.cumsum([len(part) for part in kept])[:-1]
        labels = tuple(tuple(map(int, part)) for part in np.split(renamed, ends))
        return Combined(clusters[0].setting, clusters, labels)


def knee_of(points: Floats, neighbours: int) -> float:
    """Return the distance at which the curve of distances to a neighbour bends upwards.

    The curve holds every point's distance to its nearest ones, so many and itself among them, in
    order; it bends where it lies farthest below the line from its first to its last value.

    Raises:
        ParameterError: There are fewer points.
    """
    if len(points) < neighbours:
        raise ParameterError(
            f"by the paper's rule {neighbours} settings make a cluster, and {len(points)} were kept"
        )
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    away, _ = NearestNeighbors(n_neighbors=neighbours).fit(points).kneighbors(points)
    curve = np.sort(away[:, -1])
    chord = np.linspace(curve[0], curve[-1], len(curve))
    bend = float(curve[int(np.argmax(chord - curve))])
    # Equal distances are equal but for rounding; settings in one place are neighbours.
    return max(bend * (1 + 1e-9), 2.0**-PLACE_BITS)


def ranked(
    frame: Frame, kept: KeptSettings, labels: npt.NDArray[np.integer]
) -> tuple[tuple[Cluster, ...], dict[int, int]]:
    """Return clusters, the best mean score first, and the new number of each label."""
    places = frame.places(kept.settings)
    found = []
    for label in sorted(set(labels.tolist()) - {-1}):
        inside = labels == label
        count = int(inside.sum())
        setting = frame.setting(mean_of(np.append(places[inside].sum(axis=0), count)))
        cluster = Cluster(setting, float(kept.scores[inside].mean()), count)
        found.append((label, cluster))
    found.sort(key=lambda each: (-each[1].score, -each[1].points, each[0]))
    order = {label: number for number, (label, _) in enumerate(found)}
    return tuple(cluster for _, cluster in found), order


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Return the middle value; between the two middle ones if the weights split evenly."""
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    half = below[-1] / 2
    first = int(np.searchsorted(below, half - 1e-9))
    second = int(np.searchsorted(below, half + 1e-9))
    return float((values[first] + values[min(second, len(values) - 1)]) / 2)


def _named(name: str, share: float | None) -> str:
    return name if share is None else f"{name} of the best {100 * share:g} %"

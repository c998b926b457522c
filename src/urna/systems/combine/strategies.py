"""Ways to combine clients' searches into one setting, in the clear.

A strategy sees everybody's settings and scores. Those that are sums of clients' vectors
(`mean`, federated density clusters) are also there under encryption and with differential
privacy: `urna.systems.combine.encrypted`, `urna.systems.combine.private`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from urna.errors import ParameterError
from urna.systems.combine.frame import Floats, mean_of
from urna.systems.combine.searches import KeptSettings, LocalSearch, Searches, keep_best

__all__ = [
    "TOP_SHARE",
    "Cluster",
    "Combined",
    "MeanSetting",
    "Median",
    "Strategy",
    "TrimmedMean",
]

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
        """Return one setting for all clients.

        Raises:
            ParameterError: These searches leave nothing to combine.
        """
        ...


def pooled(searches: Searches, keep: Callable[[LocalSearch], KeptSettings]) -> KeptSettings:
    """Return what all clients keep, as one list.

    Raises:
        ParameterError: Nobody keeps anything.
    """
    kept = KeptSettings.together(keep(client) for client in searches.clients)
    if not len(kept):
        raise ParameterError("no client kept a setting, so there is nothing to combine")
    return kept


@dataclass(frozen=True, slots=True)
class MeanSetting:
    """The mean of each client's best setting, or of its best ones.

    Args:
        share: Which part of its settings each client keeps; the one best by default.
    """

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
class Median:
    """The median of each axis, over each client's best setting or its best ones."""

    share: float | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        return _named("median", self.share)

    def combine(self, searches: Searches) -> Combined:
        """Return the median."""
        kept = pooled(searches, lambda client: keep_best(client, self.share))
        units = searches.frame.units(kept.settings)
        middle = [_weighted_median(column, kept.weights) for column in units.T]
        return Combined(searches.frame.setting(middle))


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each axis without its largest and smallest values.

    Args:
        trimmed: Part of the values left out at each end.
    """

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

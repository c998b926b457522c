"""Combined settings beside each other: how far each is from the federation's own optimum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.systems.combine import Frame, LocalSearch

__all__ = ["Judged", "judge"]


@dataclass(frozen=True, slots=True)
class Judged:
    """How good a combined setting is, by the federation's own search."""

    strategy: str
    setting: Mapping[str, float] | None
    """None where the strategy found nothing to combine."""
    distance: Mapping[str, float]
    """Absolute distance from the federated optimum, by axis, as PrivTuna measures it."""
    away: float
    """Distance in parts of the axes, on their scales, all axes together."""
    accuracy: float
    """Accuracy of the nearest setting that the federation tried."""
    regret: float
    """What the federation's best has more."""

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not known is null."""

        def known(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "strategy": self.strategy,
            "setting": None if self.setting is None else dict(self.setting),
            "distance": {name: known(value) for name, value in self.distance.items()},
            "away": known(self.away),
            "accuracy": known(self.accuracy),
            "regret": known(self.regret),
        }


def judge(
    name: str, setting: Mapping[str, float] | None, federated: LocalSearch, frame: Frame
) -> Judged:
    """Hold a setting against the federation's own search.

    The nearest federated setting is the nearest in parts of the axes; where several runs
    share it (other batch sizes), the best of them counts.
    """
    best = int(np.nanargmax(federated.scores))
    optimum, top = federated.settings[best], float(federated.scores[best])
    if setting is None:
        nothing = dict.fromkeys(frame.names, math.inf)
        return Judged(name, None, nothing, math.inf, math.nan, math.nan)
    row = frame.row(setting)
    units = _units(frame, np.stack([row, optimum]))
    away = np.sqrt(((_units(frame, federated.settings) - units[0]) ** 2).sum(axis=1))
    nearest = away <= away.min() + 1e-9
    accuracy = float(np.nanmax(federated.scores[nearest]))
    distance = dict(zip(frame.names, np.abs(row - optimum).tolist(), strict=True))
    between = float(np.sqrt(((units[0] - units[1]) ** 2).sum()))
    return Judged(name, setting, distance, between, accuracy, top - accuracy)


def _units(frame: Frame, settings: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return settings as parts of the axes; beyond the ends they are at the ends."""
    low = np.array([ruler.low for ruler in frame.rulers])
    high = np.array([ruler.high for ruler in frame.rulers])
    return frame.units(np.clip(settings, low, high))

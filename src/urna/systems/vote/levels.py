"""Ballots of levels: what a client gives each candidate where only the winner is opened.

No noise is added to such a ballot and none of its coordinates pays for another, so a client may
give every good candidate the top level. The privacy of a selection depends on the largest level
alone (`urna.privacy.SelectionRelease`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import SelectionRelease
from urna.space import Space
from urna.systems.vote.ballot import reference_loss
from urna.systems.vote.windows import windows_of

__all__ = ["LEVELS", "LevelShape", "choose_levels", "fill_levels", "head_start"]

LEVELS = 3
"""The top level: two bits a candidate. Finer ones find nothing more."""

PARTS = {0.32: 0.5, 0.12: 0.7}
"""Noise over what all ballots can give a candidate, and the part from which the top level is
given above it; below all of them only the best get it."""

_POWER = 2.0  # how sharply levels fall with the loss
_TRUST = 2.0  # exponent of what is expected of an axis: more than once was better


@dataclass(frozen=True, slots=True)
class LevelShape:
    """A ballot of levels: each candidate gets a whole number from 0 to `levels`.

    Args:
        candidates: How many candidates there are.
        part: From which part of the way from the reference to the best loss on a candidate
            gets the top level.
        levels: The top level.
    """

    candidates: int
    part: float = 1.0
    levels: int = LEVELS

    def __post_init__(self) -> None:
        if type(self.candidates) is not int or self.candidates < 1:
            raise ParameterError(f"levels need a candidate, got {self.candidates}")
        if not 0 < self.part <= 1:
            raise ParameterError(f"the top level begins at a part in (0, 1], got {self.part}")
        if type(self.levels) is not int or not 1 <= self.levels <= 255:
            raise ParameterError(f"the top level is a whole number in 1..255, got {self.levels}")

    @property
    def reach(self) -> int:
        """How far one unit moves the difference of two candidates' totals.

        Guarantee:
            Replaced or left out, a ballot moves each total by at most `levels`, in either
            direction (`hidden.Circuit` folds sums that others have pushed beyond theirs, and
            a folded one moves backwards), so a difference of two moves by twice that.
        """
        return 2 * self.levels

    def check(self, ballot: npt.NDArray[np.integer], ballots: int = 1) -> None:
        """Raise ParameterError unless this is a valid ballot, or can be a sum of so many."""
        most = ballots * self.levels
        if ballot.shape != (self.candidates,) or int(ballot.min()) < 0 or int(ballot.max()) > most:
            raise ParameterError(f"ballots of levels give {self.candidates} candidates 0 to {most}")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes the same shape."""
        return {"levels": self.levels, "part": self.part}

    @classmethod
    def read(cls, mapping: Mapping[str, Any], candidates: int) -> "LevelShape":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: It is no ballot of levels.
        """
        if mapping.keys() != {"levels", "part"} or not isinstance(mapping["part"], float):
            raise ParameterError(f"a ballot of levels has levels and part; got {sorted(mapping)}")
        return cls(candidates, mapping["part"], mapping["levels"])

    def __str__(self) -> str:
        if self.part == 1:
            return f"levels 0 to {self.levels}, the top one for the best"
        way = f"{self.part:.0%} of the way to the best loss"
        return f"levels 0 to {self.levels}, the top one from {way} on"


def choose_levels(candidates: int, *, noise_std: float, ballots: int) -> LevelShape:
    """Return ballots as wide as the noise asks for; how wide was fixed on simulated landscapes.

    Example:
        >>> choose_levels(100, noise_std=6.0, ballots=100).part
        1.0
    """
    noise = noise_std / (ballots * LEVELS)
    return LevelShape(candidates, next((p for least, p in PARTS.items() if noise > least), 1.0))


def fill_levels(losses: npt.NDArray[np.float64], shape: LevelShape) -> IntVector:
    """Return a client's ballot: min(1, (reference − loss)/(part·(reference − best)))² in levels.

    The reference is that of scored ballots (`reference_loss`): neither the scale of the losses
    matters nor how bad the bad ones are. Losses that are not finite (diverged, failed) get
    nothing. A client for which all are alike, or that has no finite loss, abstains: its ballot
    is empty.

    Example:
        >>> fill_levels(np.array([0.1, np.nan, 0.9, 0.2, 0.8]), LevelShape(5))
        array([3, 0, 0, 1, 0])
    """
    if losses.shape != (shape.candidates,):
        raise ParameterError(
            f"a ballot over {shape.candidates} candidates needs as many losses, got shape "
            f"{losses.shape}"
        )
    best, reference, scaled = reference_loss(np.where(np.isfinite(losses), losses, np.inf))
    if reference <= best:
        return np.zeros(shape.candidates, dtype=np.int64)
    ahead = np.maximum(reference - scaled, 0.0) / (reference - best)  # within [0, 1]
    score = np.minimum(ahead / shape.part, 1.0) ** _POWER
    return np.asarray(np.rint(shape.levels * score), dtype=np.int64)


def head_start(space: Space, release: SelectionRelease) -> tuple[int, ...]:
    """Return what each candidate is given in advance, in steps of the noise's grid.

    Where an axis works may be said or, by its name, expected (`urna.systems.vote.windows`); nobody
    knows it. What is expected of a candidate is averaged over those windows, and one of prior
    weight b starts 2·ln b behind, in units in which the noise falls by a factor e: noise then
    makes it win b² times as often as others, since what fails once here mostly fails for all
    clients. It depends on the public space and noise alone.
    """
    weight = np.ones(len(space))
    for name, axis in space.axes.items():
        windows = windows_of(name, axis, [candidate[name] for candidate in space])
        weight *= sum(window.weight * window.expected for window in windows)
    behind = _TRUST * np.log(weight) / release.rate
    return tuple(int(steps) for steps in np.rint(behind - behind.min()))

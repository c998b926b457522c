"""A private sum of vectors with entries in [0, 1]: what clients send who do not vote."""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import FAMILIES, Table
from urna.privacy import Budget, Calibration, Sensitivity, calibrate
from urna.tally import Terms

__all__ = ["BoundedSum", "check_scores", "in_steps", "noise_of_all"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BoundedSum:
    """Sums of vectors with entries in [0, 1], one client moving only some of them.

    Guarantee:
        The sum is as private as `budget` says when one client is replaced. Each moved entry
        changes by at most one unit, whichever way its rounding falls, so the sum moves by at
        most √`moved` in L2.

    Args:
        clients: How many clients contribute.
        moved: How many entries of the sum one client can change.
        budget: What the sum may cost; None for no noise at all.
    """

    clients: int
    moved: int
    budget: Budget | None

    def calibration(self) -> Calibration | None:
        """Return the noise that meets the budget, or None without one."""
        if self.budget is None:
            return None
        shares = Terms(self.clients, self.budget).honest
        return calibrate(self.budget, Sensitivity(self.moved, self.moved), shares=shares)

    def noisy(
        self, values: Floats, rng: np.random.Generator, weights: Floats | None = None
    ) -> Floats:
        """Return one noisy sum of the clients' vectors.

        Args:
            values: Clients × entries; clipped to [0, 1] here, NaN counts as 0.
            rng: Public generator of roundings and noise.
            weights: Zeros and ones, clients × entries: which of them each client sends.
        """
        clipped = np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0)
        if weights is not None:
            clipped = clipped * weights
        found = self.calibration()
        if found is None:
            total: Floats = clipped.sum(axis=0)
            return total
        steps = in_steps(clipped, found.scale, rng.random(clipped.shape)).sum(axis=0)
        noise = noise_of_all(found, self.clients).draw(rng.bytes(32), clipped.shape[1])
        noisy: Floats = (steps + noise) / found.scale
        return noisy


def in_steps(values: Floats, scale: int, lots: Floats) -> Floats:
    """Round values in [0, 1] to whole grid steps, up or down by lot.

    The mean stays what it was, however coarse the grid, and no entry leaves [0, scale].

    Args:
        values: Entries in [0, 1].
        scale: Grid steps per unit.
        lots: One number in [0, 1) for each entry.
    """
    steps: Floats = np.floor(values * scale + lots)
    return steps


@functools.lru_cache(maxsize=256)
def noise_of_all(found: Calibration, clients: int) -> Table:
    """Return what draws the noise of a sum that nobody dropped out of, in grid steps.

    Everybody's share is in it, that of the readers whom accounting leaves out as well.
    """
    release = found.release
    return FAMILIES[release.family].table(release.share * clients)


def check_scores(scores: npt.NDArray[np.floating]) -> Floats:
    """Return scores as clients × candidates in float64.

    Raises:
        ParameterError: They are not a matrix of at least two clients.
    """
    if scores.ndim != 2 or scores.shape[0] < 2 or scores.shape[1] < 1:
        raise ParameterError(
            f"scores must be a matrix of clients by candidates, got shape {scores.shape}"
        )
    return scores.astype(np.float64)

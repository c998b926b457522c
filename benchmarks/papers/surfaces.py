"""FLoRA's unified loss surfaces (Zhou et al. 2023): fit, then take the lowest candidate.

All four see every client's settings and losses: searches whose scores are negative losses. Their
regressors are PrivTuna's: random forests, and a Gaussian process where uncertainty is asked for. A
process has one more parameter here, the noise of a loss, because clients measure the same settings
differently, and without it the equations are singular.
"""

import warnings
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from benchmarks.papers.federations import candidates

from urna.errors import ParameterError
from urna.systems.combine import (
    LocalSearch,
    Searches,
)
from urna.systems.combine.frame import Floats
from urna.systems.combine.strategies import Combined

__all__ = ["Surface", "SurfaceKind"]

_SEED = 12  # the authors' own, public


class SurfaceKind(StrEnum):
    """How a surface is made of clients' losses."""

    SGM = "sgm"
    """One forest on all pairs."""
    SGM_U = "sgm+u"
    """One Gaussian process on all pairs: its mean and some of its deviation."""
    MPLM = "mplm"
    """The largest of one forest per client."""
    APLM = "aplm"
    """The mean of one forest per client."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Take the candidate at which a fitted surface of losses is lowest.

    Args:
        kind: Which surface.
        alpha: Deviations of the Gaussian process that are added to its mean.
        trees: Trees of a forest.
    """

    kind: SurfaceKind
    alpha: float = 0.1
    trees: int = 100

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"flora {self.kind}"

    def combine(self, searches: Searches) -> Combined:
        """Return the lowest candidate among those that some client tried."""
        tried = candidates(searches)
        grid = searches.frame.units(tried)
        clients = [_finite(searches, client) for client in searches.clients]
        known = [(points, losses) for points, losses in clients if len(losses)]
        if not known:
            raise ParameterError("no client has a finite loss, so no surface can be fitted")
        if self.kind in (SurfaceKind.SGM, SurfaceKind.SGM_U):
            points = np.concatenate([each for each, _ in known])
            losses = np.concatenate([each for _, each in known])
            if self.kind is SurfaceKind.SGM:
                surface = self._forest(points, losses, grid)
            else:
                surface = self._process(points, losses, grid)
        else:
            each = np.array([self._forest(points, losses, grid) for points, losses in known])
            surface = each.max(axis=0) if self.kind is SurfaceKind.MPLM else each.mean(axis=0)
        lowest = tried[int(np.argmin(surface))]
        return Combined(dict(zip(searches.frame.names, lowest.tolist(), strict=True)))

    def _forest(self, points: Floats, losses: Floats, grid: Floats) -> Floats:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415

        forest: Any = RandomForestRegressor(n_estimators=self.trees, random_state=_SEED)
        return np.asarray(forest.fit(points, losses).predict(grid))

    def _process(self, points: Floats, losses: Floats, grid: Floats) -> Floats:
        """Fit to the mean loss of each distinct setting: the same process, far fewer points."""
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel  # noqa: PLC0415

        distinct, inverse = np.unique(points, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        counts = np.bincount(inverse)
        means = np.bincount(inverse, weights=losses) / counts
        middle, spread = float(means.mean()), float(means.std()) or 1.0
        within = float(np.mean((losses - means[inverse]) ** 2)) / spread**2
        process: Any = GaussianProcessRegressor(
            kernel=ConstantKernel(1.0, (1e-7, 1e7)) * RBF(0.5, (0.05, 10.0)),
            alpha=np.maximum(within / counts, 1e-8),
            random_state=_SEED,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a range at its end is an answer
            process.fit(distinct, (means - middle) / spread)
        mean, std = process.predict(grid, return_std=True)
        return np.asarray(mean + self.alpha * std)


def _finite(searches: Searches, client: LocalSearch) -> tuple[Floats, Floats]:
    """Return a client's points and losses; a run that failed counts as its worst."""
    losses = np.where(np.isfinite(client.scores), -client.scores, np.inf)
    if not np.isfinite(losses).any():
        return np.zeros((0, len(searches.frame.rulers))), np.zeros(0)
    worst = losses[np.isfinite(losses)].max()
    return searches.frame.units(client.settings), np.where(np.isfinite(losses), losses, worst)

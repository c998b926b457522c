"""Density clusters of clients' good settings (Ester et al. 1996), as PrivTuna uses them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.systems.combine.frame import PLACE_BITS, Floats, Frame, mean_of
from urna.systems.combine.searches import KeptSettings, Searches, keep_good
from urna.systems.combine.strategies import Cluster, Combined

__all__ = ["Dbscan"]


@dataclass(frozen=True, slots=True)
class Dbscan:
    """DBSCAN over clients' good settings; the centre of the cluster of best mean score.

    In the clear: it needs everybody's settings in one place. `FederatedDbscan` counts in
    cells instead.

    Args:
        reach: Settings this close, in parts of an axis, are neighbours.
        min_points: Neighbours, itself included, that make a setting the core of a cluster. As
            in the paper settings are counted, whoever kept them; where clients are protected,
            `FederatedDbscan` counts clients.
        tolerance: Clients keep what is within this part of their best score.
        most: How many settings a client keeps at most.
        least: A client whose best score is lower keeps nothing.
        stretched: Whether axes go from the smallest to the largest setting that was kept, as
            in the authors' code, and not from end to end of the public axis.
        by_rule: Whether `min_points` is twice the number of axes and `reach` the knee of the
            settings' distances to their nearest ones, the paper's Appendix A.
    """

    name: ClassVar[str] = "dbscan"
    reach: float = 0.3
    min_points: int = 4
    tolerance: float = 0.15
    most: int = 10
    least: float = 0.0
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

        kept = [
            keep_good(client, tolerance=self.tolerance, most=self.most, least=self.least)
            for client in searches.clients
        ]
        whole = KeptSettings.together(kept)
        if not len(whole):
            raise ParameterError("no client kept a setting, so there is nothing to combine")
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

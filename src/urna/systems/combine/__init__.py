"""Combining local searches (PrivTuna): every client has searched alone; what should all use?

`combine` takes everybody's searches, a strategy and a guarantee. In the clear there are all of
PrivTuna's and FLoRA's strategies and one of our own; the mean and density clusters are also there
under threshold encryption and with differential privacy.
"""

from urna.systems.combine.anchored import FEDAVGM, Anchored
from urna.systems.combine.combining import STRATEGIES, agreed_on, combine, strategy_named
from urna.systems.combine.density import Dbscan
from urna.systems.combine.federated import Averaging, Clustering, FederatedDbscan
from urna.systems.combine.frame import Frame, Ruler
from urna.systems.combine.grid import Grid
from urna.systems.combine.judged import Judged, compare, judge
from urna.systems.combine.private import PrivateRun, private_dbscan, private_mean
from urna.systems.combine.recorded import Recorded, read_searches
from urna.systems.combine.result import Combination, Guarantee, Point
from urna.systems.combine.run import PlayedRun, play
from urna.systems.combine.searches import KeptSettings, LocalSearch, Searches, keep_best, keep_good
from urna.systems.combine.server import EncryptedOutcome, conduct
from urna.systems.combine.strategies import (
    TOP_SHARE,
    Cluster,
    Combined,
    MeanSetting,
    Median,
    Strategy,
    TrimmedMean,
)
from urna.systems.combine.surfaces import Surface, SurfaceKind
from urna.systems.combine.tasks import Task

__all__ = [
    "FEDAVGM",
    "STRATEGIES",
    "TOP_SHARE",
    "Anchored",
    "Averaging",
    "Cluster",
    "Clustering",
    "Combination",
    "Combined",
    "Dbscan",
    "EncryptedOutcome",
    "FederatedDbscan",
    "Frame",
    "Grid",
    "Guarantee",
    "Judged",
    "KeptSettings",
    "LocalSearch",
    "MeanSetting",
    "Median",
    "PlayedRun",
    "Point",
    "PrivateRun",
    "Recorded",
    "Ruler",
    "Searches",
    "Strategy",
    "Surface",
    "SurfaceKind",
    "Task",
    "TrimmedMean",
    "agreed_on",
    "combine",
    "compare",
    "conduct",
    "judge",
    "keep_best",
    "keep_good",
    "play",
    "private_dbscan",
    "private_mean",
    "read_searches",
    "strategy_named",
]

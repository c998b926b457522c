"""Combining local searches (PrivTuna): every client has searched alone; what should all use?"""

from urna.combine.anchored import FEDAVGM, Anchored
from urna.combine.density import Dbscan
from urna.combine.federated import Averaging, Clustering, FederatedDbscan
from urna.combine.frame import Frame, Ruler
from urna.combine.grid import Grid
from urna.combine.searches import Kept, LocalSearch, Searches, keep_best, keep_good
from urna.combine.strategies import (
    TOP_SHARE,
    Cluster,
    Combined,
    Mean,
    Median,
    Strategy,
    TrimmedMean,
)
from urna.combine.surfaces import Surface, SurfaceKind

__all__ = [
    "FEDAVGM",
    "TOP_SHARE",
    "Anchored",
    "Averaging",
    "Cluster",
    "Clustering",
    "Combined",
    "Dbscan",
    "FederatedDbscan",
    "Frame",
    "Grid",
    "Kept",
    "LocalSearch",
    "Mean",
    "Median",
    "Ruler",
    "Searches",
    "Strategy",
    "Surface",
    "SurfaceKind",
    "TrimmedMean",
    "keep_best",
    "keep_good",
]

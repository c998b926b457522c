"""Combining local searches (PrivTuna): every client has searched alone; what should all use?

`combine` takes everybody's searches, a strategy and a guarantee. In the clear there are means,
medians and density clusters; the mean and clusters are also there under threshold encryption, and
the mean with differential privacy.
"""

from urna.systems.combine.cells import Clustering, FederatedDbscan, Grid
from urna.systems.combine.combining import (
    STRATEGIES,
    agreed_on,
    averaged_on,
    combine,
    opened,
    strategy_named,
    task_for,
)
from urna.systems.combine.frame import Frame, Ruler
from urna.systems.combine.letters import RunName
from urna.systems.combine.memory import freeze, thaw
from urna.systems.combine.noisy import SettingsSum, noisy_mean
from urna.systems.combine.party import PartySession, Seat
from urna.systems.combine.recorded import Recorded, read_searches
from urna.systems.combine.result import Combination, Guarantee, Point
from urna.systems.combine.searches import LocalSearch, Searches
from urna.systems.combine.server import EncryptedOutcome, conduct, play
from urna.systems.combine.strategies import (
    Averaging,
    Cluster,
    Combined,
    Dbscan,
    MeanSetting,
    Median,
    Strategy,
    TrimmedMean,
)
from urna.systems.combine.tasks import Task

__all__ = [
    "STRATEGIES",
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
    "LocalSearch",
    "MeanSetting",
    "Median",
    "PartySession",
    "Point",
    "Recorded",
    "Ruler",
    "RunName",
    "Searches",
    "Seat",
    "SettingsSum",
    "Strategy",
    "Task",
    "TrimmedMean",
    "agreed_on",
    "averaged_on",
    "combine",
    "conduct",
    "freeze",
    "noisy_mean",
    "opened",
    "play",
    "read_searches",
    "strategy_named",
    "task_for",
    "thaw",
]

"""Combining local searches (PrivTuna): every client has searched alone; what should all use?

`combine` takes everybody's searches, a strategy and a guarantee. In the clear there are means,
medians and density clusters; the mean and clusters are also there under threshold encryption, and
the mean with differential privacy.
"""

from urna.systems.combine.cells import Clustering, FederatedDbscan
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
from urna.systems.combine.memory import freeze, play, thaw
from urna.systems.combine.noisy import SettingsSum, noisy_mean
from urna.systems.combine.party import PartySession, Seat
from urna.systems.combine.result import Combination, Guarantee
from urna.systems.combine.searches import LocalSearch, Recorded, Searches, read_searches
from urna.systems.combine.server import conduct
from urna.systems.combine.strategies import (
    Averaging,
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
    "Clustering",
    "Combination",
    "Dbscan",
    "FederatedDbscan",
    "Frame",
    "Guarantee",
    "LocalSearch",
    "MeanSetting",
    "Median",
    "PartySession",
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

"""A client alone with its data: objectives that judge every candidate.

Nothing computed here leaves the client, so nothing here costs privacy. Importing this
package does not import torch.
"""

from urna.local.cache import CachedObjective
from urna.local.engine import Recordings
from urna.local.engine.model import Speed, TorchLoss
from urna.local.functions import CallableObjective, EstimatorObjective, Metric
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import (
    ChecksSpace,
    Losses,
    Objective,
    Progress,
    check_objective,
    losses_of_each,
)
from urna.local.processes import Limits, losses_apart
from urna.local.recipe import Optimiser, Recipe, SuccessiveHalving
from urna.local.torch_modules import BatchedObjective, TorchObjective
from urna.local.training import ClientWeights, first_weights, train_clients

__all__ = [
    "BatchedObjective",
    "CachedObjective",
    "CallableObjective",
    "ChecksSpace",
    "ClientWeights",
    "EstimatorObjective",
    "Holdout",
    "Limits",
    "Losses",
    "Metric",
    "Objective",
    "Optimiser",
    "Progress",
    "Recipe",
    "Recordings",
    "Speed",
    "SuccessiveHalving",
    "TorchLoss",
    "TorchObjective",
    "check_objective",
    "first_weights",
    "hold_out",
    "losses_apart",
    "losses_of_each",
    "train_clients",
]

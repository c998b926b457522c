"""A client alone with its data: objectives that judge every candidate.

Nothing computed here leaves the client, so nothing here costs privacy. Importing this
package does not import torch.
"""

from urna.local.callable import CallableObjective
from urna.local.estimator import EstimatorObjective, Metric
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import Losses, Objective, Progress
from urna.local.recipe import Optimiser, Recipe
from urna.local.torch_sgd import TorchLoss, TorchObjective

__all__ = [
    "CallableObjective",
    "EstimatorObjective",
    "Holdout",
    "Losses",
    "Metric",
    "Objective",
    "Optimiser",
    "Progress",
    "Recipe",
    "TorchLoss",
    "TorchObjective",
    "hold_out",
]

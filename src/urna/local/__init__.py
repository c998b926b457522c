"""A client alone with its data: objectives that judge every candidate.

Nothing computed here leaves the client, so nothing here costs privacy. Importing this
package does not import torch.
"""

from urna.local.batched import BatchedObjective
from urna.local.cache import CachedObjective
from urna.local.callable import CallableObjective
from urna.local.estimator import EstimatorObjective, Metric
from urna.local.federated import FederatedScores, federated_averaging
from urna.local.holdout import Holdout, hold_out
from urna.local.models import adult_mlp, authors_space, cifar10_cnn, mnist_cnn
from urna.local.objective import Losses, ManyClients, Objective, Progress, losses_of_each
from urna.local.pool import Limits, PooledObjective
from urna.local.racing import (
    BallotAgreement,
    Race,
    SuccessiveHalving,
    ballot_agreement,
)
from urna.local.recipe import Optimiser, Recipe
from urna.local.torch_sgd import TorchLoss, TorchObjective

__all__ = [
    "BallotAgreement",
    "BatchedObjective",
    "CachedObjective",
    "CallableObjective",
    "EstimatorObjective",
    "FederatedScores",
    "Holdout",
    "Limits",
    "Losses",
    "ManyClients",
    "Metric",
    "Objective",
    "Optimiser",
    "PooledObjective",
    "Progress",
    "Race",
    "Recipe",
    "SuccessiveHalving",
    "TorchLoss",
    "TorchObjective",
    "adult_mlp",
    "authors_space",
    "ballot_agreement",
    "cifar10_cnn",
    "federated_averaging",
    "hold_out",
    "losses_of_each",
    "mnist_cnn",
]

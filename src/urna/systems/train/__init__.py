"""Private federated training: a series of secure sums of clipped updates, under one budget.

`fit` plays all clients on this machine; `urna.flower` trains among real nodes. `plan_training`
shows beforehand what it costs. Importing this package does not import torch.
"""

from urna.systems.train.fit import PublicScore, fit
from urna.systems.train.layout import Layout
from urna.systems.train.learner import FunctionLearner, Learner, RecordLearner
from urna.systems.train.optimisers import FedAdam, FedAvg, FedAvgM, ServerOptimiser, read_optimiser
from urna.systems.train.plan import TrainPlan, plan_training
from urna.systems.train.result import RoundReport, TrainResult
from urna.systems.train.rounds import Dropouts
from urna.systems.train.settings import (
    Clip,
    EarlyStop,
    Sampling,
    SamplingKind,
    Settings,
    Validation,
)
from urna.systems.train.torch_learner import TorchLearner

__all__ = [
    "Clip",
    "Dropouts",
    "EarlyStop",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FunctionLearner",
    "Layout",
    "Learner",
    "PublicScore",
    "RecordLearner",
    "RoundReport",
    "Sampling",
    "SamplingKind",
    "ServerOptimiser",
    "Settings",
    "TorchLearner",
    "TrainPlan",
    "TrainResult",
    "Validation",
    "fit",
    "plan_training",
    "read_optimiser",
]

"""Private federated training: a series of secure sums of clipped updates, under one budget.

`fit` plays all clients on this machine; `urna.flower` trains among real nodes. `plan_training` says
beforehand what it costs. Importing this package does not import torch.
"""

from urna.systems.train.clipping import AdaptiveClip, Clip, FixedClip
from urna.systems.train.contributions import Dropouts
from urna.systems.train.fit import PublicScore, TrainProgress, fit
from urna.systems.train.layout import Layout, Measurement, Summary
from urna.systems.train.learner import FunctionLearner, Learner, RecordLearner
from urna.systems.train.optimisers import FedAdam, FedAvg, FedAvgM, ServerOptimiser, read_optimiser
from urna.systems.train.plan import TrainPlan, plan_training
from urna.systems.train.result import RoundReport, TrainResult
from urna.systems.train.sampling import Cohorts, Everyone, PoissonSampling, Sampling
from urna.systems.train.settings import EarlyStop, Settings, Validation
from urna.systems.train.torch_learner import TorchLearner

__all__ = [
    "AdaptiveClip",
    "Clip",
    "Cohorts",
    "Dropouts",
    "EarlyStop",
    "Everyone",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FixedClip",
    "FunctionLearner",
    "Layout",
    "Learner",
    "Measurement",
    "PoissonSampling",
    "PublicScore",
    "RecordLearner",
    "RoundReport",
    "Sampling",
    "ServerOptimiser",
    "Settings",
    "Summary",
    "TorchLearner",
    "TrainPlan",
    "TrainProgress",
    "TrainResult",
    "Validation",
    "fit",
    "plan_training",
    "read_optimiser",
]

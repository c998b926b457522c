"""One message, one model: every client sends one vector, once, and the private sum is the model.

Blind averaging (Secure Distributed DP-Helmet) trains a model at every client and averages them;
pooled moments sum second moments of all records and solve for the model afterwards.
"""

from urna.systems.average.blind import Blind, Sizes
from urna.systems.average.certified import LossKind
from urna.systems.average.fit import fit
from urna.systems.average.model import ModelResult, load_model, model_card
from urna.systems.average.moments import Moments
from urna.systems.average.plan import (
    AverageLearner,
    AveragePlan,
    LearnerKind,
    LearnerSettings,
    choose,
    plan_average,
    read_learner,
)
from urna.systems.average.schema import RowRule, Schema

__all__ = [
    "AverageLearner",
    "AveragePlan",
    "Blind",
    "LearnerKind",
    "LearnerSettings",
    "LossKind",
    "ModelResult",
    "Moments",
    "RowRule",
    "Schema",
    "Sizes",
    "choose",
    "fit",
    "load_model",
    "model_card",
    "plan_average",
    "read_learner",
]

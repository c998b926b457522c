"""Studies under one budget and one ledger: settings by a private vote, then a model with them."""

from urna.study.tune import VOTE_SHARE, TunedModel, tune_then_fit
from urna.study.tune_and_train import Division, Tuned, divide, tune_and_train

__all__ = [
    "VOTE_SHARE",
    "Division",
    "Tuned",
    "TunedModel",
    "divide",
    "tune_and_train",
    "tune_then_fit",
]

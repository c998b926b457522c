"""Studies under one budget and one ledger: settings by a private vote, then a model with them."""

from urna.study.file import Study, read_study
from urna.study.prepare import Prepared, prepare
from urna.study.run import run_study
from urna.study.stages import Hooks, StudyOutcome
from urna.study.tune import VOTE_SHARE, TunedModel, tune_then_fit
from urna.study.tune_and_train import Division, Tuned, divide, tune_and_train

__all__ = [
    "VOTE_SHARE",
    "Division",
    "Hooks",
    "Prepared",
    "Study",
    "StudyOutcome",
    "Tuned",
    "TunedModel",
    "divide",
    "prepare",
    "read_study",
    "run_study",
    "tune_and_train",
    "tune_then_fit",
]

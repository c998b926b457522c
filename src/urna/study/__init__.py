"""Studies under one budget and one ledger: settings by a private vote, then a model with them."""

from urna.study.division import VOTE_SHARE, Division, divide
from urna.study.engines import run_study
from urna.study.file import Study, read_study
from urna.study.prepare import Prepared, prepare
from urna.study.run import Hooks, StudyOutcome
from urna.study.stages import AverageStage, CombineStage, TrainStage, VoteStage
from urna.study.tune import Tuned, tune

__all__ = [
    "VOTE_SHARE",
    "AverageStage",
    "CombineStage",
    "Division",
    "Hooks",
    "Prepared",
    "Study",
    "StudyOutcome",
    "TrainStage",
    "Tuned",
    "VoteStage",
    "divide",
    "prepare",
    "read_study",
    "run_study",
    "tune",
]

"""What a vote is compared with: other ways to choose, each as its authors describe it.

All of them work on recorded scores (clients × candidates), as an evaluation has them, and
return the winners of many independent draws. None of them is a way to run a private search:
the randomness is a public generator's.
"""

from urna.evaluation.baselines.bounded import BoundedSum
from urna.evaluation.baselines.central import CentralSelection
from urna.evaluation.baselines.feathers import Feathers
from urna.evaluation.baselines.mean_setting import MeanSetting
from urna.evaluation.baselines.raw_losses import RawLosses
from urna.evaluation.baselines.references import opt, rand_guess
from urna.evaluation.baselines.subsets import Subsets

__all__ = [
    "BoundedSum",
    "CentralSelection",
    "Feathers",
    "MeanSetting",
    "RawLosses",
    "Subsets",
    "opt",
    "rand_guess",
]

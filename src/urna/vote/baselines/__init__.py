"""What a vote is compared with: other ways to choose, each as its authors describe it.

All of them work on recorded scores (clients × candidates), as an evaluation has them, and
return the winners of many independent draws. None of them is a way to run a private search:
the randomness is a public generator's.
"""

from urna.vote.baselines.bounded import BoundedSum
from urna.vote.baselines.central import CentralSelection
from urna.vote.baselines.feathers import Feathers
from urna.vote.baselines.mean_setting import MeanSetting
from urna.vote.baselines.raw_losses import RawLosses
from urna.vote.baselines.references import opt, rand_guess
from urna.vote.baselines.subsets import Subsets

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

"""What a vote is compared with: other ways to choose, each as its authors describe it.

All of them work on recorded scores (clients × candidates), as an evaluation has them, and
return the winners of many independent draws. None of them is a way to run a private search:
the randomness is a public generator's.
"""

from benchmarks.papers.baselines.bounded import BoundedSum
from benchmarks.papers.baselines.central import CentralSelection
from benchmarks.papers.baselines.feathers import Feathers
from benchmarks.papers.baselines.mean_setting import MeanSetting
from benchmarks.papers.baselines.raw_losses import RawLosses
from benchmarks.papers.baselines.references import opt, rand_guess
from benchmarks.papers.baselines.subsets import Subsets

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

"""What the authors of DP-Hype published: figures to hold ours against.

From the paper, its slides and its public artefact (arXiv 2510.04902). Opt where a figure names
it in numbers; the paper shows most results as curves only.
"""

__all__ = [
    "DELTA",
    "EPSILONS",
    "LOCAL_SECONDS",
    "OPT",
    "RUNS",
    "SIGMA",
    "VOTES",
    "VOTE_KILOBYTES",
    "VOTE_SECONDS",
]

VOTES = 5
DELTA = 1e-5
RUNS = 20
EPSILONS = (0.1, 0.25, 0.5, 1.0, 3.0, float("inf"))
SIGMA = {0.1: 103.0, 0.25: 46.0, 0.5: 24.0, 1.0: 12.5, 3.0: 4.7, float("inf"): 0.0}
"""The authors' noise for five votes, by Rényi accounting."""
OPT = {
    "cifar10/50/iid": 0.675,
    "cifar10/100/iid": 0.603,
    "cifar10/250/iid": 0.550,
    "mnist/50/iid": 0.976,
    "mnist/250/iid": 0.947,
    "adult/50/iid": 0.860,
    "adult/250/iid": 0.845,
    "cifar10/100/0.5": 0.360,
    "mnist/100/0.5": 0.947,
    "adult/100/0.5": 0.773,
}
VOTE_SECONDS = {50: 16.66, 100: 28.36, 250: 193.13}
"""One vote through Flower's SecAgg+."""
VOTE_KILOBYTES = {50: 33.78 + 29.72, 100: 61.02 + 49.36, 250: 147.30 + 111.38}
"""Of one client in it, the two directions together."""
LOCAL_SECONDS = {
    ("mnist", 50): 120.22,
    ("cifar10", 50): 131.36,
    ("adult", 50): 50.52,
    ("mnist", 100): 63.78,
    ("cifar10", 100): 71.78,
    ("adult", 100): 27.05,
    ("mnist", 250): 26.53,
    ("cifar10", 250): 29.51,
    ("adult", 250): 12.74,
}
"""Local search of 100 candidates by one client, on a slice of an A100."""

"""How many devices of each kind are there? A private sum that is no vote.

python histogram.py             every device in this process
python histogram.py --flower    every device a node of Flower's simulation
"""

import sys

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from urna import tally
from urna.flower import Federation, Participant, Statistic, Statistics, Sums
from urna.flower.simulation import run_apps
from urna.noise import IntVector
from urna.privacy import Budget
from urna.randomness import OsSecrets

KINDS = ("phone", "tablet", "laptop", "watch")
KIND_OF = np.random.default_rng(0).choice(len(KINDS), size=100, p=[0.5, 0.2, 0.2, 0.1])
DEVICES, BUDGET, DROPOUT = len(KIND_OF), Budget(epsilon=2.0, delta=1e-5), 0.1
COUNTS = Statistic("devices", tally.BoundedVector(len(KINDS), norm_squared=1))  # one each


def vector(number: int) -> IntVector:
    """Return what one device puts in: a one at its kind. This is all that is yours to write."""
    return np.eye(len(KINDS), dtype=np.int64)[KIND_OF[number]]


def show(released: tally.Released, plan: tally.TallyPlan) -> None:
    """Print the noisy counts and what they cost."""
    counts = tally.in_units(released.tallied.total, plan).round(1).tolist()
    print(dict(zip(KINDS, counts, strict=True)), f"± {plan.most_noise_std:.1f}", released.privacy)


def in_memory() -> None:
    """Add up the vectors of all devices here."""
    terms, summation = tally.Terms.of(DEVICES, BUDGET, dropout=DROPOUT), tally.SecureAggregation()
    plan = tally.plan_tally(terms, COUNTS.vector)
    vectors = {number: tally.to_grid(vector(number), plan) for number in range(DEVICES)}
    sums = tally.Releases(plan, COUNTS.label, summation.describe(terms))
    show(sums.release(lambda: summation.tally(vectors, plan, OsSecrets())), plan)


def main(grid: Grid, context: Context) -> None:
    """Be the server, which learns nothing but the noisy counts and who took part."""
    nodes = Federation(wait_for=DEVICES)
    sums = Sums(grid, COUNTS, budget=BUDGET, dropout=DROPOUT, federation=nodes)
    show(sums.round(), sums.announcement.plan)


if __name__ == "__main__" and "--flower" not in sys.argv:
    in_memory()
elif __name__ == "__main__":
    app = ClientApp()
    count = Statistics({"devices": lambda context: vector(context.node_config["partition-id"])})
    Participant([count]).mount(app)  # a deployed node names its policy and ledger here
    run_apps(main, app, nodes=DEVICES)

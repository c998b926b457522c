"""Combining six nodes' searches in the simulation, encrypted and then with noise; prints JSON."""

import itertools
import json

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from urna.flower import Deadlines, Participant
from urna.flower.encrypted import EncryptedParty, combine_encrypted
from urna.flower.gathering import Federation
from urna.flower.settings import SettingsContributor, combine_settings
from urna.flower.simulation import run_apps
from urna.privacy import Budget
from urna.space import Axis, Space
from urna.systems.combine import FederatedDbscan, Frame, LocalSearch, Searches

NODES = 6
RATES, MOMENTA = [0.01, 0.1, 1.0], [0.0, 0.5, 0.9]
GRID = np.array(list(itertools.product(RATES, MOMENTA)))
FRAME = Frame.of(Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA)), log=True)
STRATEGY = FederatedDbscan(min_points=2)


def search_of(number: int) -> LocalSearch:
    """Return what a node found."""
    scores = np.random.default_rng(number).random(len(GRID)).round(3)
    return LocalSearch(GRID, scores)


def load(context: Context) -> LocalSearch:
    """Return what this node found."""
    return search_of(int(context.node_config["partition-id"]))


app = ClientApp()
Participant([SettingsContributor(load)]).mount(app)
EncryptedParty(load).mount(app)


def main(grid: Grid, _: Context) -> dict[str, object]:
    """Combine twice."""
    waits = Deadlines(gather=200.0, evaluate=200.0, stage=200.0)
    exact = combine_encrypted(grid, FRAME, STRATEGY, threshold=4, wait_for=NODES, deadlines=waits)
    noisy = combine_settings(
        grid,
        FRAME,
        "mean",
        budget=Budget(8.0, 1e-5),
        federation=Federation(wait_for=NODES, deadlines=waits),
    )
    clear = STRATEGY.combine(Searches(FRAME, tuple(search_of(n) for n in range(NODES))))
    return {
        "clear": clear.setting,
        "exact": exact.as_mapping(),
        "noisy": noisy.as_mapping(),
    }


if __name__ == "__main__":
    print(json.dumps(run_apps(main, app, nodes=NODES)))

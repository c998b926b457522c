"""Every mistake in one simulation: what the server is told, as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from flower_mistakes import MISTAKES, STEPS, Mistaken, MistakenTraining
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower

from urna.errors import RoundAborted
from urna.flower import Deadlines, Federation, Participant, PrivateTraining, poll
from urna.flower.simulation import run_apps
from urna.privacy import Budget, Ledger
from urna.tally import Run

CAP = Budget(9.0, 1e-5)
POLICY = """[privacy]
epsilon = 9.0
delta = 1e-5
[limits]
fewest_clients = 2
least_colluding = 0.0
[grant.vote]
[grant.update]
most_rounds = 9
"""
START = {"w": Array(np.zeros(2, dtype=np.float32))}


def main(grid: Grid, context: Context) -> list[str]:
    """Vote and train with each mistake; return what was raised."""
    ledger = Ledger.open(Path("server.ledger"), CAP)
    how = Federation(wait_for=2, deadlines=Deadlines(gather=200.0, evaluate=60.0))
    asked: dict[str, Any] = {"budget": Budget(8.0, 1e-5), "federation": how, "colluding": 0,
                             "run": Run(ledger=ledger, force=True)}  # fmt: skip
    told = []
    for place in range(len(MISTAKES)):
        try:
            poll(grid, {"C": [0.1, 1.0, 10.0]}, seed=place, **asked)
        except RoundAborted as aborted:
            told.append(str(aborted))
    for place in range(len(STEPS)):
        # In one folder: a series of which nothing was paid for begins anew.
        training = PrivateTraining(flower.FedAvg(), folder=Path("series"), **asked)
        config = ConfigRecord({"mistake": place})
        try:
            training.start(grid, ArrayRecord(START), num_rounds=3, train_config=config)
        except RoundAborted as aborted:
            told.append(str(aborted))
    return told


if __name__ == "__main__":
    Path("policy.toml").write_text(POLICY)
    app = ClientApp()
    Participant([Mistaken(), MistakenTraining()], policy="policy.toml").mount(app)
    print(json.dumps(run_apps(main, app, nodes=2)))

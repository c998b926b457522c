"""Twenty clinics, one classifier of tumours: each clinic sends one message, once.

python one_message.py             every clinic in this process
python one_message.py --flower    every clinic a node of Flower's simulation
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from sklearn.datasets import load_breast_cancer

from urna import flower
from urna.data import Samples
from urna.flower.simulation import run_apps
from urna.privacy import Adjacency, Budget
from urna.systems import average

X, Y = load_breast_cancer(return_X_y=True)
X = X / np.array([30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.3, 0.1] * 3)  # public scales
TEST = Samples(X[500:], Y[500:])  # public: nobody trains on it
CLINICS, BUDGET = 20, Budget(epsilon=4.0, delta=1e-4)
RULE = average.RowRule(intercept=0.3)  # rows of norm 1, a constant among them
SCHEMA = average.Schema(X.shape[1], classes=(0, 1), rows=RULE)
PROTECTED = Adjacency.REPLACE_ONE_RECORD  # one patient of one clinic


def clinic(number: int) -> Samples:
    """Return the patients of one clinic: 25 each."""
    return Samples(X[number:500:CLINICS], Y[number:500:CLINICS])


def show(result: average.ModelResult) -> None:
    """Print what the model is worth and what it cost; keep it, without pickle."""
    print(result)
    print(f"accuracy on public test data: {result.score(TEST.features, TEST.targets):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder) / "model.npz")
        again = average.load_model(Path(folder) / "model.npz")
    print(f"the first five of them: {again.predict(TEST.features[:5]).tolist()}")


def main(grid: Grid, context: Context) -> None:
    """Be the server, which learns nothing but the noisy sum and who took part."""
    show(
        flower.average(
            grid,
            SCHEMA,
            budget=BUDGET,
            records=25,
            adjacency=PROTECTED,
            federation=flower.Federation(wait_for=CLINICS),
        )
    )


if __name__ == "__main__" and "--flower" not in sys.argv:
    clinics = [clinic(number) for number in range(CLINICS)]
    show(average.fit(clinics, SCHEMA, budget=BUDGET, adjacency=PROTECTED, colluding=0.1))
elif __name__ == "__main__":
    policy = flower.Policy(
        epsilon=4.0,
        delta=1e-4,
        relation=PROTECTED,
        smallest_shard=10,
        forgets=True,  # a deployed node names its ledger here
        grants={"average": flower.Grant(most_entries=1_000)},
    )
    app = ClientApp()
    own = flower.Averages(lambda context: clinic(int(context.node_config["partition-id"])), SCHEMA)
    flower.Participant([own], policy=policy).mount(app)
    run_apps(main, app, nodes=CLINICS)

"""Train among Flower's nodes so that only noisy means leave them. Runs in the simulation.

python training.py

Nodes keep their own `@app.train()`; the server keeps its own strategy. The difference to a plain
app are two lines: `Trainer(...)` on the node, `PrivateTraining(...)` on the server.
"""

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM

from urna.data import Samples, load, split
from urna.flower import Federation, PrivateTraining, Trainer
from urna.flower.simulation import run_apps
from urna.privacy import Budget

NODES, ROUNDS, CLASSES = 30, 8, 10

Reals = npt.NDArray[np.float64]


def chances(weights: Reals, samples: Samples) -> Reals:
    """Return what a linear model says about rows."""
    logits = np.asarray(samples.features, dtype=np.float64) @ weights
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def train(message: Message, context: Context) -> Message:
    """Be the node's own training: some steps of gradient descent on its own rows."""
    parts = split(load("digits"), clients=NODES, how="iid", seed=0)
    rows = parts[int(context.node_config["partition-id"])]
    (weights,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    weights = weights.astype(np.float64)
    for _ in range(5):
        wrong = chances(weights, rows) - np.eye(CLASSES)[rows.targets]
        weights -= 0.5 * np.asarray(rows.features, dtype=np.float64).T @ wrong / len(rows)
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)})})
    content["metrics"] = MetricRecord({"num-examples": len(rows)})
    return Message(content, reply_to=message)


def main(grid: Grid, context: Context) -> PrivateTraining:
    """Be the server: the strategy it has, and a budget around it."""
    test = load("digits").test

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        right = chances(arrays["weights"].numpy(), test).argmax(axis=1) == test.targets
        print(f"round {number}: {100 * right.mean():.1f} % of public rows", flush=True)
        return MetricRecord({"accuracy": float(right.mean())})

    strategy = PrivateTraining(
        FedAvgM(server_learning_rate=1.0, server_momentum=0.5),
        budget=Budget(epsilon=10.0, delta=1e-3),
        clip=1.0,
        dropout=0.1,
        federation=Federation(wait_for=NODES),
    )
    weights = Array(np.zeros((test.features.shape[1], CLASSES)))
    first = ArrayRecord({"weights": weights})
    strategy.start(grid, first, num_rounds=ROUNDS, evaluate_fn=evaluate)
    return strategy


if __name__ == "__main__":
    app = ClientApp()
    Trainer(train).mount(app)  # a deployed node names its policy and ledger here
    print(run_apps(main, app, nodes=NODES).training)

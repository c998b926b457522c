"""The model and the data: logistic regression on handwritten digits, in NumPy."""

import functools

import numpy as np
import numpy.typing as npt
from flwr.app import Context

from urna.data import Samples, load, split
from urna.space import Axis, Space

__all__ = ["SPACE", "accuracy", "fresh_weights", "load_partition", "loss", "test_samples", "train"]

SPACE = Space(
    lr=Axis.log([0.001, 0.01, 0.1, 1.0, 10.0]),
    weight_decay=Axis.log([1e-5, 1e-4, 1e-3, 1e-2]),
)
"""What the nodes vote on."""

Weights = npt.NDArray[np.float64]

_CLASSES, _PIXELS, _BATCH = 10, 64, 16


def load_partition(context: Context) -> Samples:
    """Return this node's data. A real node would read its own files here."""
    parts = _parts(int(context.node_config["num-partitions"]))
    return parts[int(context.node_config["partition-id"])]


@functools.lru_cache(maxsize=1)
def _parts(count: int) -> list[Samples]:
    return split(load("digits"), clients=count, how="iid", seed=0)


def test_samples() -> Samples:
    """Return public test data, for the server."""
    return load("digits").test


def fresh_weights() -> Weights:
    """Return the weights training starts from."""
    return np.zeros((_PIXELS + 1, _CLASSES))


def train(
    weights: Weights, data: Samples, *, lr: float, weight_decay: float, epochs: int, seed: int
) -> Weights:
    """Return the weights after some epochs of gradient descent on one node's data."""
    rng = np.random.default_rng(seed)
    weights, inputs = weights.copy(), _inputs(data)
    wanted = np.eye(_CLASSES)[data.targets]
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(data)), max(1, len(data) // _BATCH)):
            error = _chances(weights, inputs[rows]) - wanted[rows]
            weights -= lr * (inputs[rows].T @ error / len(rows) + weight_decay * weights)
    return weights


def loss(candidate: dict[str, float], training: Samples, validation: Samples) -> float:
    """Judge one candidate on one node: train with it, return the validation loss."""
    weights = train(fresh_weights(), training, epochs=3, seed=0, **candidate)
    chances = _chances(weights, _inputs(validation))
    hit = chances[np.arange(len(validation)), validation.targets]
    return float(-np.log(np.maximum(hit, 1e-12)).mean())


def accuracy(weights: Weights, data: Samples) -> float:
    """Return the share of right answers."""
    return float((_chances(weights, _inputs(data)).argmax(axis=1) == data.targets).mean())


def _inputs(data: Samples) -> Weights:
    return np.hstack([data.features, np.ones((len(data), 1))])


def _chances(weights: Weights, inputs: Weights) -> Weights:
    scores = inputs @ weights
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))

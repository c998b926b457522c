"""What one message is measured against, on the same rows at the same epsilon.

Noise of baselines is drawn as Gaussians from a public seed: nobody's privacy rests on it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from urna.data import Samples
from urna.privacy import Budget, Cover
from urna.systems.average import Blind, Moments, Schema, plan_average
from urna.systems.average.moments import moments_of, unpack
from urna.systems.average.schema import PreparedRows
from urna.tally import Terms

__all__ = [
    "ada_ssp",
    "central_same_noise",
    "dp_sgd",
    "dp_sgd_by_opacus",
    "local_models",
    "no_noise",
    "pooled",
    "pooled_logistic",
]

Matrix = npt.NDArray[np.float64]
_ROUNDS = (1, 3, 10, 30)
_RATES = (0.03, 0.1, 0.3, 1.0, 3.0)


def pooled(clients: Sequence[Samples]) -> Samples:
    """Return all clients' records in one place."""
    features = np.concatenate([samples.features for samples in clients])
    return Samples(features, np.concatenate([samples.targets for samples in clients]))


def accuracy(weights: Matrix, test: PreparedRows) -> float:
    """Return the accuracy of a model (width, classes) on prepared rows."""
    return float((np.argmax(test.rows @ weights, axis=1) == test.targets).mean())


def pooled_logistic(clients: Sequence[Samples], schema: Schema, test: PreparedRows) -> float:
    """Return the accuracy of scikit-learn's logistic regression of all data: no privacy."""
    rows = schema.prepare(pooled(clients))
    model = LogisticRegression(C=1000.0, fit_intercept=False, max_iter=300)
    model.fit(rows.rows, rows.targets)
    return accuracy(model.coef_.T, test)


def no_noise(learner: Blind | Moments, clients: Sequence[Samples], test: PreparedRows) -> float:
    """Return the accuracy of the same sum without noise."""
    total = np.sum([vector for _, vector in learner.vectors(clients)], axis=0)
    if isinstance(learner, Moments):
        learner = replace(learner, ridge=1e-3)
    return accuracy(learner.solved(total, clients=len(clients), std=0.0).weights, test)


def central_same_noise(
    learner: Blind, terms: Terms, clients: Sequence[Samples], test: PreparedRows, *, draws: int
) -> float:
    """Return the accuracy of one model of all data under the averaged model's noise."""
    ((_, model),) = replace(learner, points=1).vectors([pooled(clients)])
    std = plan_average(terms, learner).noise_std / len(clients)
    rng = np.random.default_rng(11)
    found = [
        accuracy(
            (model + std * rng.normal(size=len(model))).reshape(learner.schema.outputs, -1).T, test
        )
        for _ in range(draws)
    ]
    return float(np.mean(found))


def local_models(learner: Blind, clients: Sequence[Samples], test: PreparedRows) -> float:
    """Return the mean accuracy of a hundred clients' own models: no noise, nothing shared."""
    shape = (learner.schema.outputs, -1)
    models = (vector.reshape(shape).T for _, vector in learner.vectors(clients[:100]))
    return float(np.mean([accuracy(model, test) for model in models]))


def ada_ssp(
    clients: Sequence[Samples], schema: Schema, budget: Budget, test: PreparedRows, *, draws: int
) -> float:
    """Return AdaSSP's accuracy (Wang 2018) where every client adds noise of its own.

    A third of the budget (of μ²) each for XᵀX, XᵀY and the smallest eigenvalue. One replaced
    record moves them by √2, by up to 1.9, of which √2 is counted in its favour, and by 1.
    """
    rng, mu = np.random.default_rng(12), Cover(budget).mu / math.sqrt(3)
    whole = moments_of(schema.prepare(pooled(clients)), schema, 1.0)
    square, cross = unpack(whole, schema.width, schema.outputs, 1.0)
    width, own = schema.width, math.sqrt(len(clients))
    std = math.sqrt(2) / mu * own
    found = []
    for _ in range(draws):
        noise = rng.normal(size=(width, width)) * std / math.sqrt(2)
        noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.normal(size=width) * std)
        least = float(np.linalg.eigvalsh(square)[0]) + rng.normal() / mu * own
        ridge = max(0.0, std * math.sqrt(width * math.log(2 * width**2 / 0.05)) - max(least, 0.0))
        noisy = cross + rng.normal(size=cross.shape) * std
        solved = np.linalg.solve(square + noise + ridge * np.eye(width), noisy)
        found.append(accuracy(np.asarray(solved, dtype=np.float64), test))
    return float(np.mean(found))


def dp_sgd(
    clients: Sequence[Samples],
    schema: Schema,
    budget: Budget,
    test: PreparedRows,
    *,
    tuned: bool = True,
) -> dict[str, Any]:
    """Return the paper's DP-FL: federated DP-SGD, every client noising its gradient alone.

    Softmax regression; in each round every client sends the sum of its records' clipped
    gradients under noise for its own (ε, δ), and the server averages. In its favour: one record
    is added or removed (half the sensitivity of replacing one), all rounds are priced by the
    exact Gaussian trade-off, and rounds and rate are the best of a grid on the test data. A
    gradient is an outer product, so clipping each by its norm is two products of matrices.
    """
    data = schema.prepare(pooled(clients))
    best: dict[str, Any] = {"accuracy": 0.0}
    for rounds in _ROUNDS if tuned else (10,):
        sigma = math.sqrt(rounds) / Cover(budget).mu * math.sqrt(len(clients))
        for rate in _RATES if tuned else (1.0,):
            found = _dp_sgd(data, schema, sigma, rounds, rate, test)
            if found > best["accuracy"]:
                best = {"accuracy": found, "rounds": rounds, "rate": rate, "noise": sigma}
    return best


def _dp_sgd(
    data: PreparedRows, schema: Schema, sigma: float, rounds: int, rate: float, test: PreparedRows
) -> float:
    rng = np.random.default_rng(13)
    rows, hot = data.rows, np.eye(schema.outputs)[data.targets.astype(int)]
    norms = np.linalg.norm(rows, axis=1)
    weights = np.zeros((schema.width, schema.outputs))
    for _ in range(rounds):
        scores = rows @ weights
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        slopes = odds / odds.sum(axis=1, keepdims=True) - hot
        lengths = np.linalg.norm(slopes, axis=1) * norms
        gradient = rows.T @ (slopes / np.maximum(lengths, 1.0)[:, None])
        gradient += sigma * rng.normal(size=gradient.shape)
        weights -= rate * len(weights) / len(rows) * gradient
    return accuracy(weights, test)


def dp_sgd_by_opacus(
    clients: Sequence[Samples],
    schema: Schema,
    test: PreparedRows,
    setting: dict[str, Any],
) -> float | None:
    """Train the same by Opacus's optimiser: same rounds, rate and noise; None without it."""
    try:
        import torch  # noqa: PLC0415
        from opacus import GradSampleModule  # noqa: PLC0415
        from opacus.optimizers import DPOptimizer  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    data = schema.prepare(pooled(clients))
    count = len(data.rows)
    torch.manual_seed(14)
    layer = torch.nn.Linear(schema.width, schema.outputs, bias=False)
    torch.nn.init.zeros_(layer.weight)
    model = GradSampleModule(layer)
    plain = torch.optim.SGD(model.parameters(), lr=setting["rate"] * schema.width)
    optimiser = DPOptimizer(
        plain,
        noise_multiplier=setting["noise"],  # that of all clients' own noise together
        max_grad_norm=1.0,
        expected_batch_size=count,
    )
    pieces = np.array_split(np.arange(count), max(1, count // 2_500))
    for _ in range(setting["rounds"]):
        for number, piece in enumerate(pieces):
            rows = torch.tensor(data.rows[piece], dtype=torch.float32, requires_grad=True)
            targets = torch.as_tensor(data.targets[piece].astype(np.int64))
            torch.nn.functional.cross_entropy(model(rows), targets).backward()
            optimiser.signal_skip_step(do_skip=number + 1 < len(pieces))
            optimiser.step()
            optimiser.zero_grad()
    return accuracy(layer.weight.detach().numpy().T.astype(np.float64), test)

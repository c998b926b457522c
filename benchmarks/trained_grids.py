"""Check the default vote on random grids on which small networks are really trained.

`landscapes.py` invents surfaces; here a network of one hidden layer is trained by SGD for every
candidate of a random grid (a learning rate and some of momentum, its decay, weight decay), on
each of 20 parts of a small real data set, and on all of them for the final accuracy. Each
part's ballot counts five times: 100 clients would leave too few rows. The regret of the
winners, in points of accuracy, is printed for the paper's mechanism (five equal votes, argmax,
its own noise), for the default, and for the default on the same grid with a learning rate that
does not say so by its name.

    python benchmarks/trained_grids.py --grids 100 --format json

Nothing of it is part of the evaluation, and nothing was chosen on it.
"""

import argparse
import json
import math
import sys
from collections import defaultdict

import numpy as np
import numpy.typing as npt
from landscapes import CLIENTS, NOISES, Array, Rng
from sklearn.datasets import load_breast_cancer, load_digits

from urna.space import Axis, Space
from urna.systems.vote import NoisyVotes, PosteriorDecoder, fill_ballot
from urna.systems.vote.settings import choose_ballot

PARTS = 20
COUNTED = CLIENTS // PARTS
PUBLISHED = {"ε=.1": 103.0, "ε=.25": 46.0, "ε=.5": 24.0}
"""The authors' noise for five equal votes."""
DRAWS = 4


def space_of(rng: Rng, lowest: tuple[float, float], highest: tuple[float, float]) -> Space:
    """Draw a grid of 20 to 130 candidates; the rate's ends are given in decades."""
    while True:
        low, high, count = rng.uniform(*lowest), rng.uniform(*highest), int(rng.integers(5, 13))
        even = rng.random() < 0.5
        exponents = (
            np.linspace(low, high, count) if even else np.sort(rng.uniform(low, high, count))
        )
        axes = {"lr": Axis.log([float(f"{10**e:.5g}") for e in exponents])}
        if rng.random() < 0.8:
            axes["momentum"] = Axis.linear(_some(rng, [0.0, 0.3, 0.5, 0.7, 0.9, 0.95], 2, 3))
        if rng.random() < 0.6:
            axes["decay"] = Axis.ordinal(_some(rng, [0.0, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0], 2, 4))
        if rng.random() < 0.4:
            axes["weight_decay"] = Axis.log([1e-5, 1e-3, 1e-1])
        space = Space(**axes)
        if 20 <= len(space) <= 130:
            return space


def _some(rng: Rng, values: list[float], fewest: int, most: int) -> list[float]:
    count = int(rng.integers(fewest, most + 1))
    return sorted(rng.choice(values, count, replace=False).tolist())


def train(
    space: Space, x: Array, y: npt.NDArray[np.int64], epochs: int, batch: int, rng: Rng
) -> list[Array]:
    """Train all candidates together from the same weights; return both layers' weights."""
    candidates = list(space)

    def column(name: str, usual: float) -> Array:
        return np.array([float(c.get(name, usual)) for c in candidates])[:, None, None]

    rate, momentum = column("lr", 0.0), column("momentum", 0.0)
    decay, penalty = column("decay", 1.0), column("weight_decay", 0.0)
    hidden, classes = 16, int(y.max()) + 1
    first = rng.normal(0, math.sqrt(2 / x.shape[1]), (1, x.shape[1], hidden))
    second = rng.normal(0, math.sqrt(1 / hidden), (1, hidden, classes))
    weights = [np.repeat(w, len(candidates), axis=0) for w in (first, second)]
    speeds = [np.zeros_like(w) for w in weights]
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(order) - batch + 1, batch):
            rows = order[start : start + batch]
            before = np.matmul(x[rows], weights[0])
            after = np.maximum(before, 0)
            logits = np.matmul(after, weights[1])
            chances = np.exp(logits - logits.max(axis=2, keepdims=True))
            chances /= chances.sum(axis=2, keepdims=True)
            slope = (chances - np.eye(classes)[y[rows]]) / batch
            back = np.matmul(slope, weights[1].transpose(0, 2, 1)) * (before > 0)
            slopes = (np.matmul(x[rows].T, back), np.matmul(after.transpose(0, 2, 1), slope))
            for layer, gradient in enumerate(slopes):
                moved = momentum * speeds[layer] + gradient + penalty * weights[layer]
                speeds[layer] = moved
                weights[layer] = weights[layer] - rate * decay**epoch * moved
    return weights


def accuracy(weights: list[Array], x: Array, y: npt.NDArray[np.int64]) -> Array:
    """Return every candidate's share of right answers; none for one that diverged."""
    logits = np.matmul(np.maximum(np.matmul(x, weights[0]), 0), weights[1])
    right = (np.nan_to_num(logits).argmax(axis=2) == y).mean(axis=1)
    return np.where(np.isfinite(logits).all(axis=(1, 2)), right, 0.0)


def trained(space: Space, rng: Rng) -> tuple[Array, Array]:
    """Return each part's accuracies, and the final accuracies."""
    x, y = (load_digits, load_breast_cancer)[int(rng.integers(2))](return_X_y=True)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    x, y = np.concatenate([x, np.ones((len(x), 1))], axis=1), y.astype(np.int64)
    order, epochs = rng.permutation(len(x)), int(rng.integers(3, 9))
    known, held = np.split(order, [len(x) * 3 // 4])
    seen = []
    for part in np.array_split(known, PARTS):
        judged, used = np.split(part, [max(6, len(part) // 4)])
        weights = train(space, x[used], y[used], epochs, 8, rng)
        seen.append(accuracy(weights, x[judged], y[judged]))
    final = accuracy(train(space, x[known], y[known], 2, 32, rng), x[held], y[held])
    return np.array(seen), final


def regrets(space: Space, seen: Array, final: Array, rng: Rng) -> dict[tuple[str, str], float]:
    """Return the mean regret of each method at each noise, in points."""
    regret = 100 * (final.max() - final)
    unnamed = Space(**{"axis" if n == "lr" else n: a for n, a in space.axes.items()})
    equal = np.zeros(len(space))
    for row in seen:
        order = np.lexsort((rng.random(len(space)), -row))
        equal[order[:5]] += COUNTED
    found: dict[tuple[str, str], float] = {}
    for name, published in PUBLISHED.items():
        shape = choose_ballot(None, candidates=len(space), noise=NOISES[name])
        total = sum(fill_ballot(-row, shape, rng.bytes(32)) for row in seen)
        votes, norm = COUNTED * np.asarray(total) / shape.vote, shape.norm / shape.vote
        std = NOISES[name] * CLIENTS * norm
        noise = rng.standard_normal((DRAWS, len(space)))
        decoder = PosteriorDecoder()
        for method, named in (("default", space), ("default, no rate named", unnamed)):
            tallies = [NoisyVotes(named, votes + std * z, std, CLIENTS, norm) for z in noise]
            found[method, name] = float(np.mean([regret[decoder.winner(t)] for t in tallies]))
        winners = [int(np.argmax(equal + published * z)) for z in noise]
        found["paper", name] = float(regret[winners].mean())
    return found


def main() -> None:
    """Print the mean regrets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--grids", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lowest", type=float, nargs=2, default=(-8, -3), help="decades")
    parser.add_argument("--highest", type=float, nargs=2, default=(-1.5, 0.5), help="decades")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    every: dict[tuple[str, str], list[float]] = defaultdict(list)
    with np.errstate(all="ignore"):  # many candidates diverge
        for number in range(given.grids):
            space = space_of(rng, tuple(given.lowest), tuple(given.highest))
            for key, value in regrets(space, *trained(space, rng), rng).items():
                every[key].append(value)
            print(f"\r{number + 1} of {given.grids}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = []
    for (method, noise), values in every.items():
        base = np.array(every["default", noise])
        apart = np.array(values) - base
        error = float(apart.std() / math.sqrt(len(apart)))
        rows.append(
            {
                "method": method,
                "noise": noise,
                "regret": round(float(np.mean(values)), 2),
                "more_than_default": round(float(apart.mean()), 2),
                "standard_error": round(error, 2),
            }
        )
    if given.format == "json":
        print(json.dumps({"grids": given.grids, "seed": given.seed, "rows": rows}))
        return
    for row in rows:
        more = f"{row['more_than_default']:+.1f} ± {row['standard_error']:.1f}"
        print(f"{row['noise']:6} {row['method']:24} {row['regret']:5.1f} points, {more}")


if __name__ == "__main__":
    main()

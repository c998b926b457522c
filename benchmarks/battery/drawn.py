"""Record tables on which rules may be chosen: drawn spaces, usual models, made-up data.

    python benchmarks/battery/drawn.py --each 8 --jobs 2
    python benchmarks/battery/run.py --tables local-data/drawn --clients 100 --part 0.2

The battery judges the default and must not shape it; these tables may. Each draws a model, the
ends and lengths of its axes (wide or narrow, centred or not), a data set of scikit-learn's
generators, its scale and how clients' rows differ, and trains every candidate at every client.
"""

import argparse
import functools
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folders above hold the package and its neighbours
    import sys

    sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (2, 1)]

from benchmarks.battery.learners import Chosen, Estimator, Learner, Network, Polynomial
from benchmarks.battery.sets import PARTS, SPLITS, deal
from benchmarks.battery.tables import Table
from sklearn.datasets import make_classification, make_friedman1, make_friedman2, make_regression
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

from urna.data import Samples
from urna.space import Axis, Space

__all__ = ["KINDS", "record"]

Array = npt.NDArray[np.float64]
Targets = npt.NDArray[np.int64] | Array
Rng = np.random.Generator
Ends = tuple[float, float]

_TEST = 500  # rows that winners are judged by
_FEWEST, _MOST = 12, 130  # candidates
_SVM = {"max_iter": 5000}
_SGD = {"max_iter": 20, "tol": None}
_DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
_LEAVES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_PARTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_NEIGHBOURS = (1, 2, 3, 4, 5, 7, 9, 12, 15, 18, 22)


@dataclass(frozen=True, slots=True)
class Drawer:
    """Draws axes."""

    rng: Rng

    def log(self, low: Ends, high: Ends, fewest: int, most: int) -> Axis:
        """Return values of equal ratios; the ends lie within these decades."""
        count = int(self.rng.integers(fewest, most + 1))
        places = np.linspace(self.rng.uniform(*low), self.rng.uniform(*high), count)
        return Axis.log([float(f"{10**place:.4g}") for place in places])

    def some(self, values: Sequence[Any], fewest: int, most: int) -> list[Any]:
        """Return some of the values, in their order."""
        count = int(self.rng.integers(fewest, most + 1))
        return [values[i] for i in sorted(self.rng.choice(len(values), count, replace=False))]


def _svm(d: Drawer) -> Space:
    return Space(C=d.log((-4, -1), (1, 5), 5, 10), gamma=d.log((-6, -3), (-0.5, 2), 5, 10))


def _regression_svm(d: Drawer) -> Space:
    return Space(
        C=d.log((-3, -1), (1, 4), 4, 8),
        gamma=d.log((-6, -3), (-0.5, 2), 4, 8),
        epsilon=d.log((-3, -2), (-0.5, 0.5), 2, 4),
    )


def _some_svms(d: Drawer) -> Space:
    space = Space(**_svm(d).axes, kernel=["rbf", "poly", "sigmoid", "linear"])
    return space.subset(min(60, len(space) - 1), d.rng)


def _elastic(d: Drawer) -> Space:
    shares = Axis.linear_range(0.05, 0.95, int(d.rng.integers(3, 7)))
    return Space(alpha=d.log((-5, -2), (0, 4), 6, 14), l1_ratio=shares)


def _logistic(d: Drawer) -> Space:
    shares = Axis.linear_range(0.0, 1.0, int(d.rng.integers(3, 6)))
    return Space(C=d.log((-5, -2), (1, 4), 6, 12), l1_ratio=shares)


def _forest(d: Drawer) -> Space:
    return Space(
        max_depth=d.some(_DEPTHS, 4, 6),
        min_samples_leaf=d.some(_LEAVES, 3, 5),
        max_features=Axis.linear(d.some(_PARTS, 3, 4)),
    )


def _boosting(d: Drawer) -> Space:
    return Space(
        learning_rate=d.log((-4, -2), (0, 1), 5, 9),
        max_depth=d.some(_DEPTHS[:6], 2, 3),
        n_estimators=d.some((3, 5, 8, 12, 20, 30), 2, 3),
    )


def _sampled_boosting(d: Drawer) -> Space:
    return Space(
        learning_rate=d.log((-4, -2), (0, 1), 5, 8),
        max_depth=d.some(_DEPTHS[:6], 2, 3),
        subsample=Axis.linear(d.some((0.2, 0.4, 0.6, 0.8, 1.0), 2, 3)),
    )


def _neighbours(d: Drawer) -> Space:
    return Space(
        n_neighbors=d.some(_NEIGHBOURS, 6, 9),
        weights=["uniform", "distance"],
        p=Axis.log([0.5, 1.0, 2.0, 4.0]),
    )


def _sgd(d: Drawer) -> Space:
    return Space(eta0=d.log((-10, -3), (-1, 2), 7, 12), alpha=d.log((-6, -5), (-2, 0), 2, 4))


def _tree(d: Drawer) -> Space:
    return Space(
        criterion=["gini", "entropy"],
        splitter=["best", "random"],
        max_depth=d.some(_DEPTHS, 4, 6),
        min_samples_leaf=d.some(_LEAVES, 2, 4),
    )


def _polynomial(d: Drawer) -> Space:
    degrees = list(range(1, int(d.rng.integers(4, 7))))
    return Space(degree=degrees, alpha=d.log((-8, -3), (1, 4), 8, 14))


def _chosen(d: Drawer) -> Space:
    models = ("logistic", "logistic-weak", "svm", "svm-linear", "neighbours", "tree", "bayes")
    return Space(
        scaler=["none", "standard", "range", "rows"][: int(d.rng.integers(2, 5))],
        features=["all", "pca", "square"],
        model=d.some((*models, "discriminant"), 4, 8),
    )


def _network(d: Drawer) -> Space:
    axes = {"lr": d.log((-8, -2), (-0.7, 1.5), 6, 11)}
    if d.rng.random() < 0.8:
        axes["momentum"] = Axis.linear(d.some((0.0, 0.3, 0.5, 0.7, 0.9, 0.95), 2, 3))
    if d.rng.random() < 0.6:
        axes["decay"] = Axis.ordinal(d.some((0.1, 0.25, 0.5, 0.9, 0.99, 1.0), 2, 4))
    if d.rng.random() < 0.4 or len(axes) == 1:
        axes["weight_decay"] = Axis.log([1e-5, 1e-3, 1e-1])
    return Space(**axes)


def _some_networks(d: Drawer) -> Space:
    space = Space(
        lr=d.log((-6, -2), (-0.7, 1.5), 8, 11),
        momentum=Axis.linear([0.0, 0.5, 0.8, 0.9]),
        weight_decay=Axis.log([1e-6, 1e-4, 1e-3, 1e-2, 1e-1]),
        decay=Axis.ordinal([0.5, 1.0]),
    )
    return space.subset(60, d.rng)


@dataclass(frozen=True, slots=True)
class Kind:
    """A model, how its space is drawn, and what it predicts."""

    space: Callable[[Drawer], Space]
    learner: Learner
    numbers: bool = False
    """Whether it predicts numbers; else classes."""
    scaled: bool = False
    """Whether its features are always standardised, as everybody does for networks."""


def _one_axis(name: str, low: Ends, high: Ends, fewest: int, most: int) -> Callable[..., Space]:
    return lambda d: Space(**{name: d.log(low, high, fewest, most)})


def _two_axes(d: Drawer) -> Space:
    return Space(alpha=d.log((-7, -3), (0, 3), 5, 10), gamma=d.log((-6, -3), (0, 2), 5, 10))


_pooled: Callable[..., Estimator] = functools.partial(Estimator, together=True)
KINDS = {
    "svm": Kind(_svm, Estimator(SVC, fixed=_SVM)),
    "svm-numbers": Kind(_regression_svm, Estimator(SVR, fixed=_SVM), numbers=True),
    "svm-subset": Kind(_some_svms, Estimator(SVC, fixed=_SVM)),
    "gamma": Kind(
        _one_axis("gamma", (-8, -4), (0, 3), 60, 120), Estimator(SVC, fixed=_SVM | {"C": 10.0})
    ),
    "logistic": Kind(
        _one_axis("C", (-6, -2), (1, 5), 12, 32),
        _pooled(LogisticRegression, fixed={"max_iter": 60}),
    ),
    "logistic-elastic": Kind(
        _logistic, _pooled(LogisticRegression, fixed={"max_iter": 60, "solver": "saga"})
    ),
    "ridge": Kind(_one_axis("alpha", (-6, -2), (2, 6), 15, 40), _pooled(Ridge), numbers=True),
    "elastic": Kind(_elastic, _pooled(ElasticNet, fixed={"max_iter": 200}), numbers=True),
    "kernels": Kind(_two_axes, Estimator(KernelRidge, fixed={"kernel": "rbf"}), numbers=True),
    "forest": Kind(_forest, Estimator(RandomForestClassifier, fixed={"n_estimators": 6})),
    "forest-numbers": Kind(
        _forest, Estimator(RandomForestRegressor, fixed={"n_estimators": 6}), numbers=True
    ),
    "boosting": Kind(
        _sampled_boosting, Estimator(GradientBoostingClassifier, fixed={"n_estimators": 8})
    ),
    "boosting-numbers": Kind(_boosting, Estimator(GradientBoostingRegressor), numbers=True),
    "neighbours": Kind(_neighbours, Estimator(KNeighborsClassifier)),
    "neighbours-numbers": Kind(_neighbours, Estimator(KNeighborsRegressor), numbers=True),
    "sgd": Kind(
        _sgd,
        _pooled(SGDClassifier, fixed=_SGD | {"loss": "log_loss", "learning_rate": "constant"}),
    ),
    "sgd-numbers": Kind(
        _sgd, _pooled(SGDRegressor, fixed=_SGD | {"learning_rate": "constant"}), numbers=True
    ),
    "tree": Kind(_tree, Estimator(DecisionTreeClassifier)),
    "polynomial": Kind(_polynomial, _pooled(Polynomial), numbers=True, scaled=True),
    "bayes": Kind(_one_axis("var_smoothing", (-12, -5), (0, 3), 16, 36), _pooled(GaussianNB)),
    "chosen": Kind(_chosen, Estimator(Chosen)),
    "network": Kind(_network, Network(), scaled=True),
    "network-subset": Kind(_some_networks, Network(metric="error"), scaled=True),
}
"""By name."""


def _classes(rng: Rng, rows: int) -> tuple[Array, Targets]:
    features, classes = int(rng.integers(6, 31)), int(rng.integers(2, 7))
    informative = min(features, max(5, int(features * rng.uniform(0.3, 0.9))))
    x, y = make_classification(
        rows,
        features,
        n_informative=informative,
        n_redundant=min(features - informative, int(rng.integers(0, 5))),
        n_classes=classes,
        n_clusters_per_class=int(rng.integers(1, 3)),
        class_sep=rng.uniform(0.7, 1.8),
        flip_y=rng.uniform(0, 0.15),
        random_state=int(rng.integers(1 << 30)),
    )
    return x, y.astype(np.int64)


def _numbers(rng: Rng, rows: int) -> tuple[Array, Targets]:
    kind, seed = int(rng.integers(3)), int(rng.integers(1 << 30))
    if kind == 0:
        x, y = make_friedman1(
            rows, int(rng.integers(5, 15)), noise=rng.uniform(0.2, 2), random_state=seed
        )
    elif kind == 1:
        x, y = make_friedman2(rows, noise=rng.uniform(10, 120), random_state=seed)
    else:
        x, y = make_regression(
            rows,
            int(rng.integers(4, 20)),
            n_informative=4,
            noise=rng.uniform(5, 60),
            random_state=seed,
        )
        y = y + 40 * np.sin(x[:, 0] * 2) * x[:, 1]
    if rng.random() < 0.5:
        return x, y
    return x, (y - y.mean()) / y.std() * 10 ** rng.uniform(-1, 2) + 5 * rng.normal()


def _data(kind: Kind, rng: Rng, rows: int) -> tuple[Samples, Samples]:
    """Draw a data set; return what clients have together and what winners are judged by."""
    x, y = (_numbers if kind.numbers else _classes)(rng, rows + _TEST)
    if kind.space is _polynomial:
        x = x[:, :4]  # products of more are too many
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    how = 0.0 if kind.scaled else rng.random()
    if how > 0.75:  # raw: features of any scale, away from zero
        x = x * 10 ** rng.uniform(-2, 2.5, x.shape[1]) + rng.normal(0, 1, x.shape[1])
    elif how > 0.55:
        x = (x - x.min(axis=0)) / np.ptp(x, axis=0)
    every = Samples(np.asarray(x, dtype=np.float64), y)
    return every.take(np.arange(rows)), every.take(np.arange(rows, rows + _TEST))


def record(name: str, number: int) -> Table:
    """Draw one table; equal names and numbers give equal tables. Odd ones have skewed labels."""
    kind, rng = KINDS[name], np.random.default_rng([zlib.crc32(name.encode()), number])
    while not _FEWEST <= len(space := kind.space(Drawer(rng))) <= _MOST:
        pass
    rows, split = PARTS * int(rng.integers(30, 70)), SPLITS[number % 2]
    (known, test), (elsewhere, tested) = _data(kind, rng, rows), _data(kind, rng, rows)
    clients = deal(known, split, number)
    learner = kind.learner
    losses = [learner.losses(client, space, i) for i, client in enumerate(clients)]
    trained = [known] if learner.together else clients[::2]
    public = [elsewhere] if learner.together else deal(elsewhere, "iid", number)[:4]
    final = [learner.scores(space, some, test, number) for some in trained]
    seen = [learner.scores(space, some, tested, number) for some in public]
    return Table(
        f"{name}-{number}",
        name,
        split,
        space,
        np.array(losses),
        np.mean(final, axis=0),
        np.mean(seen, axis=0),
        "drawn",
        "drawn",
    )


def _write(task: tuple[str, int, Path]) -> str:
    name, number, folder = task
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = record(name, number)
    table.write(folder)
    return f"{table.cell:28} {len(table.space):4} candidates, {time.monotonic() - start:5.1f} s"


def main() -> None:
    """Write the tables that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--each", type=int, default=8, help="tables of each kind")
    parser.add_argument("--only", default="", help="kinds whose names hold this text")
    parser.add_argument("--output", type=Path, default=Path("local-data/drawn"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    tasks = [
        (name, number, given.output)
        for number in range(given.each)
        for name in KINDS
        if given.only in name
        and not (given.output / f"{name}-{number}-{SPLITS[number % 2]}.npz").exists()
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for line in pool.map(_write, tasks):
            print(line, flush=True)


if __name__ == "__main__":
    main()

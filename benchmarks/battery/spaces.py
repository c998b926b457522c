"""The battery: spaces of many kinds, what is trained on them, and on which data."""

from dataclasses import dataclass

import numpy as np
from benchmarks.battery.learners import Chosen, Estimator, Learner, Network, Polynomial
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from urna.space import Axis, Space

__all__ = ["ENTRIES", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One space of the battery."""

    name: str
    kind: str
    space: Space
    learner: Learner
    data: str
    public: str
    """Another data set of the same kind, on which the space is searched without a vote."""


def _svm() -> Space:
    return Space(C=Axis.log_range(1e-3, 1e4, 8), gamma=Axis.log_range(1e-5, 1e1, 12))


def _rates(low: float, high: float, count: int, momenta: int = 3) -> Space:
    return Space(
        lr=Axis.log_range(low, high, count),
        momentum=Axis.linear([0.0, 0.5, 0.9][:momenta]),
        decay=Axis.ordinal([0.5, 0.8, 0.95, 1.0]),
    )


def _many_rates() -> Space:
    product = Space(
        lr=Axis.log_range(1e-4, 10, 10),
        momentum=Axis.linear([0.0, 0.5, 0.8, 0.9]),
        weight_decay=Axis.log([1e-6, 1e-4, 1e-3, 1e-2, 1e-1]),
        decay=Axis.ordinal([0.5, 1.0]),
    )
    return product.subset(60, np.random.default_rng(60))


_SGD = {"max_iter": 20, "tol": None}

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            "forest-digits",
            "estimator",
            Space(
                max_depth=[1, 2, 3, 5, 8, 12],
                min_samples_leaf=[1, 2, 4, 8],
                max_features=Axis.linear([0.05, 0.15, 0.4, 1.0]),
            ),
            Estimator(RandomForestClassifier, fixed={"n_estimators": 8}),
            "digits",
            "mnist",
        ),
        Entry(
            "forest-boston",
            "estimator",
            Space(
                max_depth=[1, 2, 3, 5, 8],
                min_samples_leaf=[1, 2, 4, 8, 16],
                max_features=Axis.linear([0.1, 0.3, 0.6, 1.0]),
            ),
            Estimator(RandomForestRegressor, fixed={"n_estimators": 8}),
            "boston",
            "mpg",
        ),
        Entry(
            "boosting-breast",
            "estimator",
            Space(
                learning_rate=Axis.log_range(1e-3, 10, 9),
                max_depth=[1, 2, 4],
                n_estimators=[4, 12, 36],
            ),
            Estimator(GradientBoostingClassifier),
            "breast",
            "wine",
        ),
        Entry("svm-digits", "estimator", _svm(), Estimator(SVC), "digits", "mnist"),
        Entry("svm-breast", "estimator", _svm(), Estimator(SVC), "breast", "wine"),
        Entry(
            "neighbours-mnist",
            "estimator",
            Space(
                n_neighbors=[1, 2, 3, 5, 8, 12, 18, 25],
                weights=["uniform", "distance"],
                p=Axis.log([0.5, 1.0, 2.0, 4.0]),
            ),
            Estimator(KNeighborsClassifier, metric="error"),
            "mnist",
            "digits",
        ),
        Entry(
            "kernels-mpg",
            "estimator",
            Space(alpha=Axis.log_range(1e-6, 1e2, 9), gamma=Axis.log_range(1e-5, 1e1, 9)),
            Estimator(KernelRidge, fixed={"kernel": "rbf"}),
            "mpg",
            "boston",
        ),
        Entry(
            "ridge-diabetes",
            "one axis",
            Space(alpha=Axis.log_range(1e-4, 1e5, 37)),
            Estimator(Ridge, together=True),
            "diabetes",
            "boston",
        ),
        Entry(
            "logistic-mnist",
            "one axis",
            Space(C=Axis.log_range(1e-6, 1e4, 31)),
            Estimator(LogisticRegression, fixed={"max_iter": 60}, together=True),
            "mnist",
            "digits",
        ),
        Entry(
            "bayes-digits",
            "one axis",
            Space(var_smoothing=Axis.log_range(1e-12, 1e3, 31)),
            Estimator(GaussianNB, together=True),
            "digits",
            "mnist",
        ),
        Entry(
            "gamma-digits",
            "long axis",
            Space(gamma=Axis.log_range(1e-7, 1e3, 200)),
            Estimator(SVC, fixed={"C": 10.0}),
            "digits",
            "mnist",
        ),
        Entry(
            "tree-breast",
            "categorical",
            Space(
                criterion=["gini", "entropy"],
                splitter=["best", "random"],
                max_features=["sqrt", "log2"],
                max_depth=[1, 2, 3, 4, 6, 9],
            ),
            Estimator(DecisionTreeClassifier),
            "breast",
            "wine",
        ),
        Entry(
            "chosen-breast",
            "categorical",
            Space(
                scaler=["none", "standard", "range", "rows"],
                features=["all", "pca", "square"],
                model=[
                    "logistic",
                    "logistic-weak",
                    "svm",
                    "svm-linear",
                    "neighbours",
                    "tree",
                    "bayes",
                    "discriminant",
                ],
            ),
            Estimator(Chosen),
            "breast-raw",
            "wine-raw",
        ),
        Entry(
            "sgd-boston",
            "diverging",
            Space(
                eta0=Axis.log_range(1e-10, 1e-1, 10),
                alpha=Axis.log([1e-6, 1e-3, 1.0]),
                learning_rate=["constant", "invscaling"],
            ),
            Estimator(SGDRegressor, fixed=_SGD, together=True),
            "boston-raw",
            "mpg-raw",
        ),
        Entry(
            "sgd-diabetes",
            "diverging",
            Space(eta0=Axis.log_range(1e-9, 1e2, 12), average=[False, True]),
            Estimator(SGDRegressor, fixed=_SGD | {"learning_rate": "constant"}, together=True),
            "diabetes-raw",
            "boston-raw",
        ),
        Entry(
            "sgd-breast",
            "diverging",
            Space(
                eta0=Axis.log_range(1e-9, 1e2, 12),
                alpha=Axis.log([1e-6, 1e-4, 1e-2, 1.0]),
            ),
            Estimator(
                SGDClassifier,
                fixed=_SGD | {"loss": "log_loss", "learning_rate": "constant"},
                together=True,
            ),
            "breast-raw",
            "wine-raw",
        ),
        Entry(
            "network-raw",
            "small end",
            _rates(1e-4, 30, 10, momenta=2),
            Network(),
            "digits-raw",
            "mnist-raw",
        ),
        Entry(
            "polynomial-mpg",
            "diverging",
            Space(degree=[1, 2, 3, 4, 5, 6, 7, 8], alpha=Axis.log_range(1e-8, 1e3, 12)),
            Estimator(Polynomial, together=True),
            "mpg-3",
            "boston-3",
        ),
        Entry("network-digits", "centred rate", _rates(1e-3, 3, 8), Network(), "digits", "mnist"),
        Entry(
            "network-mnist",
            "centred rate",
            _rates(1e-3, 3, 8),
            Network(metric="error"),
            "mnist",
            "digits",
        ),
        Entry("network-breast", "small end", _rates(1e-2, 30, 8), Network(), "breast", "wine"),
        Entry("network-small", "small end", _rates(1e-1, 300, 8), Network(), "digits", "mnist"),
        Entry("network-subset", "subset", _many_rates(), Network(), "breast", "wine"),
        Entry(
            "svm-subset",
            "subset",
            Space(
                C=Axis.log_range(1e-3, 1e4, 10),
                gamma=Axis.log_range(1e-5, 1e1, 10),
                kernel=["rbf", "poly", "sigmoid", "linear"],
            ).subset(60, np.random.default_rng(400)),
            Estimator(SVC),
            "digits",
            "mnist",
        ),
    )
}
"""By name."""

"""What clients train: estimators as `urna.local` fits them, and networks of a whole grid at once.

A learner gives two things: one client's validation losses, and every candidate's score in points
(accuracy, or R² cut off at zero) on rows nobody trained on.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, is_regressor
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from trained_grids import accuracy, train

from urna.data import Samples
from urna.local import EstimatorObjective, losses_of_each
from urna.local.holdout import hold_out
from urna.space import Space

__all__ = ["Chosen", "Estimator", "Learner", "Network", "Polynomial"]

Array = npt.NDArray[np.float64]


class Learner(Protocol):
    """Losses of a client, and scores of what is trained in the end."""

    @property
    def together(self) -> bool:
        """Whether winners are judged by one model of all rows; else by each client's own."""
        ...

    def losses(self, data: Samples, space: Space, seed: int) -> Array:
        """Return a client's validation losses."""
        ...

    def scores(self, space: Space, data: Samples, test: Samples, seed: int) -> Array:
        """Return the points of every candidate trained on `data`."""
        ...


@dataclass(frozen=True, slots=True)
class Estimator:
    """Anything with scikit-learn's interface."""

    make: Callable[..., Any]
    metric: str = "auto"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    together: bool = False

    def losses(self, data: Samples, space: Space, seed: int) -> Array:
        """Return what `urna.local` gives a client; none is finite if it has one class only."""
        objective = EstimatorObjective(self.make, metric=self.metric, fixed=self.fixed)
        each = losses_of_each(objective, [data], space, seeds=[seed], progress=lambda *_: None)
        return next(each)

    def scores(self, space: Space, data: Samples, test: Samples, seed: int) -> Array:
        """Fit each candidate; one that cannot be fitted has no points."""
        return np.array([self._points(dict(c), data, test, seed) for c in space])

    def _points(self, candidate: dict[str, Any], data: Samples, test: Samples, seed: int) -> float:
        model = self.make()
        settings = {**self.fixed, **candidate}
        if "random_state" in model.get_params():
            settings["random_state"] = seed
        model.set_params(**settings)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                model.fit(data.features, data.targets)
                predicted = np.asarray(model.predict(test.features))
            except ValueError:  # one class only, or diverged
                return 0.0
            if is_regressor(model):
                wrong = np.mean((predicted - test.targets) ** 2) / np.var(test.targets)
                return 100 * max(0.0, 1 - float(wrong)) if np.isfinite(wrong) else 0.0
            return 100 * float(np.mean(predicted == test.targets))


@dataclass(frozen=True, slots=True)
class Network:
    """A network of one hidden layer, trained by SGD for all candidates at once."""

    epochs: int = 6
    batch: int = 8
    metric: str = "log_loss"
    together: bool = True

    def losses(self, data: Samples, space: Space, seed: int) -> Array:
        """Train on four fifths of the rows, judge on the rest."""
        parts, classes = hold_out(data, seed=seed), int(np.max(data.targets)) + 1
        x, y = _with_ones(parts.train), np.asarray(parts.train.targets)
        with np.errstate(all="ignore"):
            weights = train(space, x, y, self.epochs, self.batch, np.random.default_rng(seed))
            held, truth = _with_ones(parts.validation), np.asarray(parts.validation.targets)
            if self.metric == "error":
                return 1 - accuracy(weights, held, truth)
            return _cross_entropy(weights, held, truth, classes)

    def scores(self, space: Space, data: Samples, test: Samples, seed: int) -> Array:
        """Train three epochs on all rows, in batches of 32."""
        with np.errstate(all="ignore"):
            weights = train(
                space,
                _with_ones(data),
                np.asarray(data.targets),
                3,
                32,
                np.random.default_rng(seed),
            )
            return 100 * accuracy(weights, _with_ones(test), np.asarray(test.targets))


def _with_ones(data: Samples) -> Array:
    return np.concatenate([data.features, np.ones((len(data), 1))], axis=1)


def _cross_entropy(weights: list[Array], x: Array, y: npt.NDArray[np.int64], classes: int) -> Array:
    """Return every candidate's mean loss, however large; infinite where nothing is a number."""
    logits = np.matmul(np.maximum(np.matmul(x, weights[0]), 0), weights[1])
    known = y < logits.shape[2]  # a label that the training rows did not hold
    most = logits.max(axis=2)
    total = most + np.log(np.exp(logits - most[:, :, None]).sum(axis=2))
    right = np.take_along_axis(logits, np.where(known, y, 0)[None, :, None], axis=2)[:, :, 0]
    loss = np.where(known, total - right, total - most + np.log(classes)).mean(axis=1)
    return np.where(np.isfinite(loss), loss, np.inf)


class Chosen(ClassifierMixin, BaseEstimator):
    """A scaler, a map of the features and a model, each chosen by its name."""

    def __init__(
        self, scaler: str = "none", features: str = "all", model: str = "tree", seed: int = 0
    ) -> None:
        self.scaler, self.features, self.model, self.seed = scaler, features, model, seed

    def fit(self, x: Array, y: npt.NDArray[np.generic]) -> "Chosen":
        """Build the pipeline and fit it."""
        scalers = {
            "none": FunctionTransformer,
            "standard": StandardScaler,
            "range": MinMaxScaler,
            "rows": Normalizer,
        }
        maps = {"all": FunctionTransformer(), "pca": PCA(3), "square": FunctionTransformer(_square)}
        models: dict[str, Any] = {
            "logistic": LogisticRegression(max_iter=50),
            "logistic-weak": LogisticRegression(C=1e3, max_iter=50),
            "svm": SVC(max_iter=500),
            "svm-linear": SVC(kernel="linear", max_iter=500),
            "neighbours": KNeighborsClassifier(),
            "tree": DecisionTreeClassifier(random_state=self.seed),
            "bayes": GaussianNB(),
            "discriminant": LinearDiscriminantAnalysis(),
        }
        self.fitted_ = make_pipeline(
            scalers[self.scaler](), maps[self.features], models[self.model]
        ).fit(x, y)
        return self

    def predict(self, x: Array) -> npt.NDArray[np.generic]:
        """Return the labels."""
        return np.asarray(self.fitted_.predict(x))


def _square(x: Array) -> Array:
    return np.concatenate([x, x**2], axis=1)


class Polynomial(Ridge):
    """Ridge regression on all products of features up to a degree."""

    def __init__(self, degree: int = 1, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)
        self.degree = degree

    def fit(self, x: Array, y: Array) -> "Polynomial":
        """Fit on the products."""
        super().fit(PolynomialFeatures(self.degree).fit_transform(x), y)
        return self

    def predict(self, x: Array) -> Array:
        """Return the values."""
        return np.asarray(super().predict(PolynomialFeatures(self.degree).fit_transform(x)))

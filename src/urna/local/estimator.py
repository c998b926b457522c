"""Estimators with scikit-learn's interface as objectives."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError, UnknownName
from urna.local.callable import judge_each
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import Losses, Progress
from urna.local.processes import Limits
from urna.space import Candidate, Space

__all__ = ["EstimatorObjective", "Metric"]


class Metric(StrEnum):
    """How a fitted estimator is judged on the validation rows."""

    AUTO = "auto"
    """Squared error for regressors; log loss where there are probabilities; else error rate."""
    LOG_LOSS = "log_loss"
    """Mean negative log-likelihood: breaks the many ties of an error rate on few rows."""
    ERROR = "error"
    """Share of wrong predictions."""
    SQUARED_ERROR = "squared_error"
    """Mean squared error."""


@dataclass(frozen=True, slots=True)
class EstimatorObjective:
    """Fit an estimator with each candidate's parameters and judge it on held-out rows.

    Anything with `fit`, `predict` and scikit-learn's `get_params`/`set_params` will do,
    gradient boosting libraries included. Every `random_state`, also of an estimator inside
    another, is set from the seed, and so are global generators, from which splitters draw that have
    none of their own: no fit draws from a generator that clients share.
    Features of more than two dimensions are flattened. A candidate whose fit raises has an
    infinite loss; warnings of a fit (no convergence, say) are silenced: the loss tells.

    Args:
        estimator: An estimator, its class, or a function without arguments that makes one.
        metric: How to judge; `Metric.AUTO` decides by what the estimator can do.
        fixed: Parameters that all candidates share.
        validation_fraction: Share of rows to validate on.
        limits: Fit candidates in processes of their own: how many at once, and what each may
            use. None fits one after the other in this process. Losses are the same.

    Raises:
        ParameterError: It is no estimator, or has no parameter of a name that is set.

    Example:
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> data = Samples(np.arange(40.0)[:, None] // 10, np.arange(40) // 10)
        >>> objective = EstimatorObjective(DecisionTreeClassifier, metric="error")
        >>> objective.losses(data, Space(max_depth=[1, 3]), seed=0).tolist()
        [0.5, 0.0]
    """

    estimator: Any
    metric: Metric | str = Metric.AUTO
    fixed: Mapping[str, Any] = field(default_factory=dict)
    validation_fraction: float = 0.2
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if self.metric not in list(Metric):
            raise UnknownName("metric", str(self.metric), Metric)
        _check_names(_prototype(self.estimator), self.fixed)

    def check(self, space: Space) -> None:
        """Refuse a space that this objective cannot judge, whatever the data.

        Raises:
            ParameterError: An axis is no parameter of the estimator.
        """
        _check_names(_prototype(self.estimator), space.axes)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the validation loss of every candidate's fit.

        Raises:
            ParameterError: An axis is no parameter of the estimator, or there are too few
                samples to split.
        """
        self.check(space)
        parts = hold_out(_flat(data), fraction=self.validation_fraction, seed=seed)
        prototype = _prototype(self.estimator)
        fit = Fit(prototype, Metric(self.metric), dict(self.fixed), parts, seed)
        return judge_each(fit, space, self.limits, progress, seed=seed)


@dataclass(frozen=True, slots=True)
class Fit:
    """All that one candidate's fit needs besides the candidate; travels to workers."""

    prototype: Any
    metric: Metric
    fixed: dict[str, Any]
    parts: Holdout
    seed: int

    def __call__(self, candidate: Candidate) -> float:
        """Return the candidate's loss; what a fit raises is this candidate's verdict, no more."""
        from sklearn.base import clone

        model = clone(self.prototype)
        # Copies: a fit may draw from a generator in what all candidates and clients share.
        settings = {k: clone(v, safe=False) for k, v in self.fixed.items()} | candidate
        for name in model.get_params():  # those of steps inside it as well
            if name.rpartition("__")[2] == "random_state" and name not in settings:
                settings[name] = self.seed % 2**32
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model.set_params(**settings)
            model.fit(self.parts.train.features, self.parts.train.targets)
            return _loss(model, self.metric, self.parts.validation)


def _prototype(estimator: Any) -> Any:  # noqa: ANN401 - estimators share no base class
    """Return an unfitted estimator from an instance, a class or a factory."""
    made = estimator
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        if not isinstance(estimator, Callable):  # type: ignore[arg-type]
            raise ParameterError(
                f"an estimator, its class or a function that makes one is needed, got "
                f"{type(estimator).__name__}"
            )
        made = estimator()
    missing = [n for n in ("fit", "predict", "get_params", "set_params") if not hasattr(made, n)]
    if missing:
        raise ParameterError(
            f"an estimator has fit, predict, get_params and set_params; {type(made).__name__} "
            f"has no {', '.join(missing)}. Wrap it in a CallableObjective instead."
        )
    return made


def _check_names(prototype: Any, names: Mapping[str, Any]) -> None:  # noqa: ANN401
    known = prototype.get_params()
    for name in names:
        if name not in known:
            raise UnknownName(f"parameter of {type(prototype).__name__}", name, sorted(known))


def _flat(data: Samples) -> Samples:
    if data.features.ndim == 2:
        return data
    return Samples(data.features.reshape(len(data), -1), data.targets)


def _loss(model: Any, metric: Metric, validation: Samples) -> float:  # noqa: ANN401
    targets = np.asarray(validation.targets)
    if metric is Metric.AUTO:
        from sklearn.base import is_regressor

        if is_regressor(model):
            metric = Metric.SQUARED_ERROR
        else:
            metric = Metric.LOG_LOSS if hasattr(model, "predict_proba") else Metric.ERROR
    if metric is Metric.LOG_LOSS:
        chances = np.asarray(model.predict_proba(validation.features), dtype=np.float64)
        return _log_loss(chances, np.asarray(model.classes_), targets)
    predicted = np.asarray(model.predict(validation.features))
    if metric is Metric.ERROR:
        return float(np.mean(predicted != targets))
    return float(np.mean((predicted - targets) ** 2))


def _log_loss(
    chances: npt.NDArray[np.float64], classes: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> float:
    """Return the mean negative log-likelihood; a class never trained on has chance zero.

    Chances are kept above float64's resolution, so that one row cannot make a fit infinite.
    """
    hit = targets[:, None] == classes[None, :]
    chance = np.where(hit, chances, 0.0).sum(axis=1)
    return float(-np.mean(np.log(np.maximum(chance, np.finfo(np.float64).eps))))

"""Functions and scikit-learn's estimators as objectives: one candidate at a time."""

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data import Samples
from urna.errors import ParameterError, UnknownName
from urna.local.generators import own_generators
from urna.local.holdout import Holdout, hold_out
from urna.local.objective import Losses, Progress
from urna.local.processes import ItemReply, Limits, in_processes
from urna.space import Candidate, Space

__all__ = ["CallableObjective", "EstimatorObjective", "Metric", "judge_each"]

Judge = Callable[[Candidate], float]


@dataclass(frozen=True, slots=True)
class CallableObjective:
    """Judge each candidate by a function of your own.

    The function is called as `function(candidate, data)`, or, when it takes three positional
    arguments, as `function(candidate, train, validation)` after a seeded local split. If it
    has a keyword `seed`, the public seed is passed as well. It returns a loss, lower is better: a
    number, or an array without dimensions of any library (NumPy, JAX, PyTorch).

    A function that raises for one candidate fails for that candidate only: its loss is
    infinite and it ranks last. If it raises for all of them, the first error is raised: the
    mistake is rarely a candidate's. The text of an error is not logged: it may hold data.

    Global generators (`random`, `numpy.random`, PyTorch's) begin at the public seed for each
    candidate, and are put back after it: what the function draws there is the same for all
    candidates and depends on nobody else's data. None of it is secret.

    With `limits` each candidate is judged in a process of its own: one that hangs, crashes or
    takes too much memory fails alone. What the function needs must be importable there.

    Args:
        function: What judges a candidate.
        validation_fraction: Share of rows to validate on, for three-argument functions.
        limits: How many processes, and what each may use; None judges in this process. Losses
            are the same if the function's result depends on its arguments and global generators
            alone.

    Example:
        >>> space = Space(x=[0.0, 1.0, 2.0])
        >>> nobody = Samples(np.zeros((2, 1)), np.zeros(2))
        >>> objective = CallableObjective(lambda candidate, data: (candidate["x"] - 1) ** 2)
        >>> objective.losses(nobody, space, seed=0).tolist()
        [1.0, 0.0, 1.0]
    """

    function: Callable[..., float]
    validation_fraction: float = 0.2
    limits: Limits | None = None

    def __post_init__(self) -> None:
        call_shape(self.function)

    def check(self, space: Space) -> None:
        """Accept any space: what a function can judge, only it can tell."""

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the function's value for every candidate, infinite where it raised."""
        arguments, keywords = call_arguments(
            self.function, data, fraction=self.validation_fraction, seed=seed
        )
        function = self.function

        def judge(candidate: Candidate) -> float:
            loss: Any = function(dict(candidate), *arguments, **keywords)
            # PyTorch warns of a number that is taken out of a graph.
            return float(loss.detach() if hasattr(loss, "detach") else loss)

        return judge_each(judge, space, self.limits, progress, seed=seed)


def judge_each(
    judge: Judge,
    candidates: Sequence[Candidate],
    limits: Limits | None = None,
    progress: Progress | None = None,
    *,
    seed: int,
) -> Losses:
    """Judge all candidates; a loss is infinite where one failed or is no number.

    With `limits` each is judged in a process of its own, to which `judge` travels by value.

    Raises:
        Exception: The first error, where all candidates failed.
    """
    judging = _Judging(judge, seed)
    losses = np.full(len(candidates), math.inf)
    failed, first = 0, None
    answers = (
        in_processes(judging, candidates, limits)
        if limits is not None
        else (_judged(judging, place, candidate) for place, candidate in enumerate(candidates))
    )
    for done, answer in enumerate(answers, start=1):
        if answer.numbers is None:
            failed, first = failed + 1, first or answer
        elif not np.isnan(answer.numbers):
            losses[answer.place] = answer.numbers.item()
        if progress is not None:
            progress(done, len(candidates))
    if first is not None and failed == len(candidates):
        raise first.raised or RuntimeError(f"all candidates failed: {first.trace or first.error}")
    return losses


def _judged(judge: "_Judging", place: int, candidate: Candidate) -> ItemReply:
    try:
        return ItemReply(place, np.array(judge(candidate), dtype=np.float64))
    except Exception as error:
        # Whatever a stranger's function raises is its own verdict on this candidate.
        return ItemReply(place, None, type(error).__name__, raised=error)


@dataclass(frozen=True, slots=True)
class _Judging:
    """What is done with one candidate, in this process or another."""

    judge: Judge
    seed: int

    def prepare(self) -> None:
        """Do nothing: unpickling has imported what is needed."""

    def __call__(self, item: Candidate) -> float:
        """Return the loss of one candidate."""
        with own_generators(self.seed):
            return self.judge(item)


def call_shape(function: Callable[..., float]) -> tuple[int, bool]:
    """Return how many positional arguments a function takes, and whether it takes a seed.

    Raises:
        ParameterError: It takes neither (candidate, data) nor (candidate, train, validation).
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2, False  # a built-in without a signature: the simplest call
    takes_seed = any(
        p.name == "seed" and p.kind is not inspect.Parameter.POSITIONAL_ONLY for p in parameters
    )
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "seed"
    ]
    required = sum(p.default is p.empty for p in positional)
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for count in (3, 2):
        if required == count or (count == 2 and required < 2 <= len(positional) + 2 * star):
            return count, takes_seed
    raise ParameterError(
        "an objective function takes (candidate, data) or (candidate, train, validation), and "
        f"may take a keyword `seed`; this one requires {required} positional arguments"
    )


def call_arguments(
    function: Callable[..., float], data: Samples, *, fraction: float, seed: int
) -> tuple[tuple[Samples, ...], dict[str, int]]:
    """Return what to pass to the function after the candidate."""
    count, takes_seed = call_shape(function)
    keywords = {"seed": seed} if takes_seed else {}
    if count == 2:
        return (data,), keywords
    parts = hold_out(data, fraction=fraction, seed=seed)
    return (parts.train, parts.validation), keywords


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

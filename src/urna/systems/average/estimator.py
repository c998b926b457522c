"""The same as scikit-learn estimators: `fit(X, y, groups)`, `predict`, pipelines.

The whole protocol runs inside `fit`. Grid searches and cross-validation fit many clones, and choose
by scores on rows that were held out. Epsilon of the last fit covers neither, so a clone refuses to
fit privately. With a `random_state` it fits, for public data, and its model is NOT PRIVATE; both
estimators then pass scikit-learn's `check_estimator`. Tags say `non_deterministic`, and
`poor_score`, because small sets drown in noise.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Ledger
from urna.randomness import OsSecrets, ScriptedSecrets, SecretSource
from urna.systems.average.fit import fit
from urna.systems.average.model import ModelResult
from urna.systems.average.schema import Class, RowRule, Schema
from urna.tally import ClearSummation, Run, SecureAggregation, Summation

_SEEN = (
    "The {} taken from the data as they are and stand in the model: epsilon does not cover them. "
    "Name `{}` in `fit` from what is public"
)


_CLONED = (
    "a clone of a private estimator is not fitted: grid searches, cross-validation and ensembles "
    "fit clones many times and look at scores on rows that were held out, and the epsilon of one "
    "fit covers neither. Make a new {name} with the settings you want and fit it once; let "
    "clients vote on settings with `urna.study.tune` or `urna average --tune`; or name a "
    "random_state, for public data: the model is then NOT PRIVATE"
)


class _Private(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What both estimators share."""

    result_: ModelResult
    _cloned = False

    def __sklearn_clone__(self) -> Self:
        """Return an estimator with the same parameters, which will not be fitted privately."""
        made: Self = super().__sklearn_clone__()
        made._cloned = True
        return made

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        unit: str = "record",
        learner: str = "auto",
        clients: int = 10,
        colluding: float | str = 0,
        dropout: float | str = 0,
        unit_rows: bool = True,
        clip: float = 1.0,
        intercept: float = 0.3,
        group: int = 1,
        secure: bool = True,
        ledger: Ledger | None = None,
        random_state: Any = None,  # noqa: ANN401 - scikit-learn's convention
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.learner = learner
        self.clients = clients
        self.colluding = colluding
        self.dropout = dropout
        self.unit_rows = unit_rows
        self.clip = clip
        self.intercept = intercept
        self.group = group
        self.secure = secure
        self.ledger = ledger
        self.random_state = random_state

    def _fit(self, x: Any, y: Any, groups: Any, schema: Schema, seen: str = "") -> Self:  # noqa: ANN401
        """Fit; `seen` says what of the schema was taken from the data."""
        if self._cloned and self.random_state is None:
            raise ParameterError(_CLONED.format(name=type(self).__name__))
        summation: Summation = SecureAggregation(workers=1) if self.secure else ClearSummation()
        by_record = str(self.unit) == "record"
        result = fit(
            self._parts(x, y, groups),
            schema,
            budget=Budget(self.epsilon, self.delta),
            learner=self.learner,
            group=self.group,
            summation=summation,
            adjacency=Adjacency.REPLACE_ONE_RECORD if by_record else Adjacency.REPLACE_ONE_CLIENT,
            colluding=self.colluding,
            dropout=self.dropout,
            run=Run(ledger=self.ledger, secrets=self._secrets(), progress=False),
        )
        if seen:
            caveats = (*result.privacy.caveats, seen)
            result = replace(result, privacy=replace(result.privacy, caveats=caveats))
        self.result_ = result
        return self

    def _rows(self) -> RowRule:
        return RowRule(clip=self.clip, unit=self.unit_rows, intercept=self.intercept)

    def _parts(self, x: Any, y: Any, groups: Any) -> list[Samples]:  # noqa: ANN401
        if groups is None:
            owners = np.arange(len(x)) % max(2, min(int(self.clients), len(x)))
        else:
            owners = np.asarray(groups)
            if owners.shape != (len(x),):
                raise ValueError(f"{len(x)} rows need as many groups, got {owners.shape}")
        # A client that has nothing is a client all the same, and two are the least.
        names = np.unique(owners)
        parts = [Samples(x[owners == name], y[owners == name]) for name in names]
        while len(parts) < 2:
            parts.append(Samples(x[:0], y[:0]))
        return parts

    def _secrets(self) -> SecretSource:
        if self.random_state is None:
            return OsSecrets()
        drawn = check_random_state(self.random_state).randint(0, 2**31 - 1, size=4)
        return ScriptedSecrets(b"estimator " + drawn.tobytes())

    @property
    def privacy_(self) -> Any:  # noqa: ANN401 - a PrivacyStatement
        """What the model promises, and on what that rests."""
        check_is_fitted(self)
        return self.result_.privacy

    def _features(self, x: Any) -> npt.NDArray[np.float64]:  # noqa: ANN401
        check_is_fitted(self)
        return np.asarray(validate_data(self, x, reset=False, dtype=np.float64))


class PrivateClassifier(ClassifierMixin, _Private):  # type: ignore[misc]
    """A linear classifier of all clients' rows, from one message of each.

    Args:
        epsilon: Privacy budget.
        delta: Privacy budget.
        unit: What is protected: `record` or `client`.
        learner: `auto`, `moments`, `softmax`, `svm` or `logistic`.
        clients: How many clients rows are dealt out to where `fit` gets no `groups`.
        colluding: Part of the clients that may tell the server their noise.
        dropout: Part of the clients that may drop out.
        unit_rows: Whether every row is scaled to the norm `clip`; otherwise longer ones are.
        clip: Norm of rows.
        intercept: A constant beside the features.
        group: Records of one client that are protected together.
        secure: Whether contributions are added up by secure aggregation.
        ledger: Where the release is counted.
        random_state: None draws from the operating system. Anything else is repeatable and so
            NOT PRIVATE; `result_.privacy` says so.

    Attributes:
        classes_: The classes. They are taken from `y`, which is public only if they are: name
            them by `classes` in `fit` where some may be rare.
        result_: The `ModelResult`, with the privacy statement; `result_.save(path)` keeps it.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> model = PrivateClassifier(epsilon=8.0, random_state=0).fit(x, y)
        >>> model.predict(x[:2]).shape, model.privacy_.private
        ((2,), False)
    """

    classes_: npt.NDArray[Any]

    def fit(
        self,
        X: Any,  # noqa: ANN401 - arrays and frames
        y: Any,  # noqa: ANN401
        groups: Any = None,  # noqa: ANN401
        *,
        classes: Any = None,  # noqa: ANN401
    ) -> Self:
        """Fit one model to the rows of all clients.

        Args:
            X: Features, a row for each record.
            y: Classes.
            groups: Whose each row is; dealt out evenly to `clients` by default.
            classes: All classes there may be; those of `y` by default.
        """
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y if classes is None else np.asarray(classes))
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least two classes, got one class: {len(self.classes_)}"
            )
        names: tuple[Class, ...] = tuple(range(len(self.classes_)))
        at = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(at, len(names) - 1)] == y
        places = np.where(known, at, -1)
        schema = Schema(x.shape[1], names, rows=self._rows())
        seen = "" if classes is not None else _SEEN.format("classes were", "classes")
        return self._fit(x, places, groups, schema, seen)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: ANN401
        """Return scores: a column for each class, or one number where there are two."""
        features = self._features(X)
        scores = self.result_.decision_function(features)
        return np.asarray(scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: ANN401
        """Return the classes of rows."""
        features = self._features(X)
        scores = self.result_.decision_function(features)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise: small sets are not learnt
        tags.non_deterministic = self.random_state is None
        return tags


class PrivateRegressor(RegressorMixin, _Private):  # type: ignore[misc]
    """A ridge regression of all clients' rows, from one message of each.

    Args and attributes are those of `PrivateClassifier`. Without a span that `fit` is given, the
    smallest and largest target are used, which are public only if they are.
    """

    def fit(
        self,
        X: Any,  # noqa: ANN401 - arrays and frames
        y: Any,  # noqa: ANN401
        groups: Any = None,  # noqa: ANN401
        *,
        span: tuple[float, float] | None = None,
    ) -> Self:
        """Fit one model to the rows of all clients, whose targets lie in a public `span`."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = span if span is not None else (float(y.min()), float(y.max()))
        if not low < high:
            high = low + 1.0
        schema = Schema(x.shape[1], span=(low, high), rows=self._rows())
        seen = "" if span is not None else _SEEN.format("smallest and largest target were", "span")
        return self._fit(x, y, groups, schema, seen)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: ANN401
        """Return the values of rows."""
        features = self._features(X)
        return self.result_.predict(features)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags

"""The same as scikit-learn estimators."""

import warnings
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import FitFailedWarning, SkipTestWarning
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from urna.average import load_model
from urna.average.estimator import PrivateClassifier, PrivateRegressor
from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Ledger

RECORD = Adjacency.REPLACE_ONE_RECORD
SKIPPED = {"check_pipeline_consistency", "check_array_api_input"}


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_it_passes_scikit_learns_checks_but_for_those_named(
    kind: type[PrivateClassifier | PrivateRegressor],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        found = check_estimator(kind(secure=False), on_fail=None)
    failed = [check["check_name"] for check in found if check["status"] == "failed"]
    skipped = {check["check_name"] for check in found if check["status"] == "skipped"}
    assert not failed
    assert skipped <= SKIPPED
    assert len(found) > 30


def test_it_learns_in_a_pipeline_and_says_what_it_cost(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    ledger = Ledger.open(tmp_path / "ledger", Budget(16.0, 1e-5), adjacency=RECORD)
    private = PrivateClassifier(epsilon=15.0, ledger=ledger, intercept=0.3)
    model = make_pipeline(StandardScaler(), private).fit(x, names)
    assert model.score(x, names) > 0.6
    assert private.privacy_.epsilon <= 15
    assert list(private.classes_) == ["setosa", "versicolor", "virginica"]
    assert private.decision_function(StandardScaler().fit_transform(x)).shape == (150, 3)
    assert len(ledger.entries()) == 1
    private.result_.save(tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").privacy == private.privacy_


def test_groups_say_whose_rows_are_and_classes_which_there_may_be() -> None:
    x, y = load_iris(return_X_y=True)
    model = PrivateClassifier(random_state=0, secure=False)
    model.fit(x, y, groups=np.arange(150) % 7, classes=[0, 1, 2, 3])
    assert model.result_.terms.clients == 7
    assert list(model.classes_) == [0, 1, 2, 3]
    assert "NOT PRIVATE" in str(model.result_)
    with pytest.raises(ValueError, match="as many groups"):
        model.fit(x, y, groups=[1, 2, 3])


def test_what_was_taken_from_the_data_is_said_beside_epsilon() -> None:
    x, y = load_iris(return_X_y=True)
    classifier, regressor = PrivateClassifier(secure=False), PrivateRegressor(secure=False)
    assert "epsilon does not cover them" in str(classifier.fit(x, y).privacy_)
    assert "epsilon does not cover them" in str(regressor.fit(x, x[:, 0]).privacy_)
    assert "cover" not in str(classifier.fit(x, y, classes=[0, 1, 2]).privacy_)
    assert "cover" not in str(regressor.fit(x, x[:, 0], span=(0.0, 10.0)).privacy_)


def test_whole_clients_and_values_work_as_well() -> None:
    x, y = load_diabetes(return_X_y=True)
    model = PrivateRegressor(epsilon=1000.0, random_state=1, secure=False)
    model.fit(x, y, span=(0.0, 400.0))
    assert model.score(x, y) > 0.2
    whole = PrivateClassifier(unit="client", random_state=1, secure=False).fit(x, y > 140)
    assert str(whole.privacy_.adjacency) == "replace-one-client"


GRID = {"privateclassifier__clip": [0.5, 1.0]}


def searching(estimator: PrivateClassifier, workers: int | None = None) -> GridSearchCV:
    pipeline = make_pipeline(FunctionTransformer(), estimator)
    return GridSearchCV(pipeline, GRID, cv=2, n_jobs=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_grid_search_by_private_scores_makes_no_model_that_states_a_guarantee(
    workers: int,
) -> None:
    """In this thread every fit is refused, in others the last one, which makes the model."""
    x, y = load_iris(return_X_y=True)
    search = searching(PrivateClassifier(epsilon=2.0, secure=False), workers)
    with (
        warnings.catch_warnings(action="ignore", category=FitFailedWarning),
        joblib.parallel_config("threading"),
        pytest.raises((ParameterError, ValueError), match="exact scores on private rows"),
    ):
        search.fit(x, y)
    assert not any(hasattr(model, "result_") for model in getattr(search, "best_estimator_", []))


@pytest.mark.parametrize(
    "choosing",
    [
        lambda model: RandomizedSearchCV(model, {"clip": [0.5, 1.0]}, n_iter=2),
        lambda model: SequentialFeatureSelector(model, n_features_to_select=1),
        TunedThresholdClassifierCV,
    ],
    ids=["settings", "features", "threshold"],
)
def test_other_choices_by_private_scores_are_refused(
    choosing: Callable[[PrivateClassifier], BaseEstimator],
) -> None:
    x, y = load_iris(return_X_y=True)
    with (
        warnings.catch_warnings(action="ignore", category=FitFailedWarning),
        pytest.raises((ParameterError, ValueError), match="exact scores on private rows"),
    ):
        choosing(PrivateClassifier(secure=False)).fit(x, y > 0)


def test_a_simulated_grid_search_says_that_its_model_is_not_private() -> None:
    x, y = load_iris(return_X_y=True)
    search = searching(PrivateClassifier(epsilon=8.0, random_state=0, secure=False)).fit(x, y)
    assert "NOT PRIVATE" in str(search.best_estimator_[-1].privacy_)


def test_cross_validation_chooses_nothing_and_goes_on() -> None:
    x, y = load_iris(return_X_y=True)
    assert len(cross_val_score(PrivateClassifier(epsilon=8.0, secure=False), x, y, cv=2)) == 2

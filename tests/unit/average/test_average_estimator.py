"""The same as scikit-learn estimators."""

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from urna.errors import ParameterError
from urna.privacy import Adjacency, Budget, Ledger
from urna.systems.average import load_model
from urna.systems.average.estimator import PrivateClassifier, PrivateRegressor

RECORD = Adjacency.REPLACE_ONE_RECORD
SKIPPED = {"check_array_api_input"}


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_it_passes_scikit_learns_checks_but_for_those_named(
    kind: type[PrivateClassifier | PrivateRegressor],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        found = check_estimator(kind(secure=False, random_state=0), on_fail=None)
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


def searched(estimator: object, **how: object) -> GridSearchCV:
    x, y = load_iris(return_X_y=True)
    grid = {"privateclassifier__clip": [0.5, 1.0], "privateclassifier__intercept": [0.1, 0.3, 0.5]}
    search = GridSearchCV(make_pipeline(StandardScaler(), estimator), grid, cv=3, **how)
    return search.fit(x, y, privateclassifier__classes=[0, 1, 2])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("scoring", [None, "accuracy"])
@pytest.mark.parametrize("jobs", [None, pytest.param(2, marks=pytest.mark.apart)])
def test_a_grid_search_ends_in_no_private_model(
    tmp_path: Path, scoring: str | None, jobs: int | None
) -> None:
    """Six settings and three folds are eighteen fits, and scores that no epsilon covers."""
    ledger = Ledger.open(tmp_path / "ledger", Budget(99.0, 1e-5), adjacency=RECORD)
    for counted in (None, ledger):
        private = PrivateClassifier(epsilon=2.0, secure=False, ledger=counted)
        with pytest.raises(ValueError, match="a clone of a private estimator is not fitted"):
            searched(private, scoring=scoring, n_jobs=jobs)
    assert not ledger.entries()


def test_a_grid_search_on_public_data_says_that_its_model_is_not_private() -> None:
    found = searched(PrivateClassifier(epsilon=50.0, secure=False, random_state=0))
    best = found.best_estimator_[-1]
    assert not best.privacy_.private
    assert "NOT PRIVATE" in str(best.result_)


def test_refitting_alone_and_cross_validating_are_refused_as_well() -> None:
    x, y = load_iris(return_X_y=True)
    private = PrivateClassifier(secure=False)
    for made in (clone(private), clone(clone(private)), pickle.loads(pickle.dumps(clone(private)))):
        with pytest.raises(ParameterError, match="Make a new PrivateClassifier"):
            made.fit(x, y)
    with pytest.raises(ParameterError, match="a clone"):
        cross_val_score(private, x, y, error_score="raise")
    with pytest.raises(ParameterError, match="Make a new PrivateRegressor"):
        clone(PrivateRegressor(secure=False)).fit(x, x[:, 0])
    assert private.fit(x, y, classes=[0, 1, 2]).privacy_.private  # the estimator itself is none
    assert PrivateClassifier(**private.get_params()).fit(x, y).privacy_.private
    public = clone(private).set_params(random_state=1).fit(x, y)
    assert not public.privacy_.private

import functools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from urna.data import Samples, split, split_records
from urna.errors import ParameterError, UnknownName
from urna.local import EstimatorObjective, Limits, Metric, hold_out, losses_of_each
from urna.space import Space

features, targets = load_breast_cancer(return_X_y=True)
CANCER = Samples(features / features.max(axis=0), targets)


def test_a_classifier_with_probabilities_is_judged_by_log_loss() -> None:
    losses = EstimatorObjective(LogisticRegression).losses(CANCER, Space(C=[0.01, 10.0]), seed=3)
    parts = hold_out(CANCER, seed=3)
    for loss, C in zip(losses, [0.01, 10.0], strict=True):
        model = LogisticRegression(C=C, random_state=3)
        model.fit(parts.train.features, parts.train.targets)
        chances = model.predict_proba(parts.validation.features)
        assert loss == pytest.approx(log_loss(parts.validation.targets, chances))


def test_a_classifier_without_probabilities_is_judged_by_its_errors() -> None:
    losses = EstimatorObjective(LinearSVC).losses(CANCER, Space(C=[1e-6, 1.0]), seed=0)
    assert losses[1] < losses[0] < 1
    assert losses[0] * 114 == pytest.approx(round(losses[0] * 114))  # 20 % of 569 rows


def test_steps_of_a_pipeline_draw_from_no_generator_that_clients_share() -> None:
    """They drew from numpy's: how much one client's fits drew changed the next one's losses."""
    model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=3))
    objective, space = EstimatorObjective(model), Space(mlpclassifier__alpha=[1e-4, 1.0])
    first, again, other = (objective.losses(CANCER, space, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_regressor_is_judged_by_squared_error() -> None:
    data = Samples(*load_diabetes(return_X_y=True))
    losses = EstimatorObjective(Ridge).losses(data, Space(alpha=[1e-3, 1e6]), seed=0)
    parts = hold_out(data, seed=0)
    assert losses[1] == pytest.approx(np.var(parts.validation.targets), rel=0.1)
    assert losses[0] < 0.8 * losses[1]


def test_random_estimators_follow_the_seed() -> None:
    objective = EstimatorObjective(RandomForestClassifier, fixed={"n_estimators": 5})
    space = Space(max_depth=[2, 3])
    first, again, other = (objective.losses(CANCER, space, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier,
        DecisionTreeClassifier(),
        functools.partial(DecisionTreeClassifier, criterion="gini"),
    ],
    ids=["class", "instance", "factory"],
)
def test_an_estimator_may_come_as(estimator: object) -> None:
    space = Space(max_depth=[1, 4])
    expected = EstimatorObjective(DecisionTreeClassifier).losses(CANCER, space, seed=0)
    assert np.array_equal(EstimatorObjective(estimator).losses(CANCER, space, seed=0), expected)


def test_a_fit_that_raises_fails_for_that_candidate_only() -> None:
    objective = EstimatorObjective(KNeighborsClassifier)
    losses = objective.losses(CANCER, Space(n_neighbors=[5, 100_000]), seed=0)
    assert math.isfinite(losses[0])
    assert losses[1] == math.inf


def test_a_client_with_one_class_has_nothing_to_vote_for() -> None:
    data = Samples(CANCER.features[:20], np.zeros(20, dtype=int))
    space, objective = Space(C=[1.0, 2.0]), EstimatorObjective(LogisticRegression)
    with pytest.raises(ValueError, match="one class"):
        objective.losses(data, space, seed=0)
    each = losses_of_each(objective, [data], space, seeds=[0], progress=lambda *_: None)
    assert np.isnan(next(each)).all()


def test_a_class_that_is_missing_from_training_gives_a_finite_loss() -> None:
    targets = np.array([0] * 10 + [1] * 10 + [2])
    data = Samples(np.arange(21.0)[:, None], targets)
    objective = EstimatorObjective(DecisionTreeClassifier, validation_fraction=0.5)
    losses = [objective.losses(data, Space(max_depth=[2]), seed=s)[0] for s in range(8)]
    assert all(math.isfinite(loss) for loss in losses)
    assert any(loss > 1 for loss in losses)  # some split held the lone row out


def test_images_are_flattened() -> None:
    images = Samples(CANCER.features.reshape(-1, 5, 6), CANCER.targets)
    objective = EstimatorObjective(DecisionTreeClassifier)
    space = Space(max_depth=[2])
    flat = objective.losses(CANCER, space, seed=0)
    assert np.array_equal(objective.losses(images, space, seed=0), flat)


def test_a_table_with_names_reaches_the_estimator_as_it_is() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"column {n}" for n in range(CANCER.features.shape[1])]
    # Labels that are no places: rows must be picked by place.
    table = pandas.DataFrame(CANCER.features, columns=names, index=range(1000, 1569))
    targets = pandas.Series(CANCER.targets, index=table.index)
    space = Space(max_depth=[1, 4])
    objective = EstimatorObjective(DecisionTreeClassifier)
    found = objective.losses(Samples(table, targets), space, seed=2)
    assert np.array_equal(found, objective.losses(CANCER, space, seed=2))

    class Named(DecisionTreeClassifier):
        def fit(self, X: Any, y: object) -> "Named":
            assert list(X.columns) == names
            return super().fit(X, y)

    named = EstimatorObjective(Named).losses(Samples(table, targets), space, seed=2)
    assert np.array_equal(named, found)


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="max_depth"):
        EstimatorObjective(DecisionTreeClassifier).losses(CANCER, Space(max_dept=[1]), seed=0)
    with pytest.raises(UnknownName, match="max_depth"):
        EstimatorObjective(DecisionTreeClassifier, fixed={"maxdepth": 1})


@pytest.mark.parametrize("thing", [3, dict])
def test_what_is_no_estimator_is_refused(thing: object) -> None:
    with pytest.raises(ParameterError, match="estimator"):
        EstimatorObjective(thing)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UnknownName, match="log_loss"):
        EstimatorObjective(Ridge, metric="logloss")
    assert EstimatorObjective(Ridge, metric="error").metric == Metric.ERROR


def test_none_and_tuples_reach_the_estimator() -> None:
    trees = EstimatorObjective(DecisionTreeClassifier, metric="error")
    one, unlimited = trees.losses(CANCER, Space(max_depth=[1, None]), seed=0)
    parts = hold_out(CANCER, seed=0)
    model = DecisionTreeClassifier(random_state=0).fit(parts.train.features, parts.train.targets)
    assert unlimited == pytest.approx(
        1 - model.score(parts.validation.features, parts.validation.targets)
    )
    assert one != unlimited
    networks = EstimatorObjective(MLPClassifier(max_iter=20))
    losses = networks.losses(CANCER, Space(hidden_layer_sizes=[(4,), (8, 8)]), seed=0)
    assert np.isfinite(losses).all()


def test_columns_keep_their_names_through_split_holdout_and_processes() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "age": rng.integers(20, 80, 240).astype(float),
            "ward": rng.choice(["a", "b", "c"], 240),
            "dose": rng.normal(size=240),
        }
    )
    ill = np.where((frame.age > 50) ^ (frame.ward == "a"), "ill", "well")
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["age", "dose"]), ("c", OneHotEncoder(), ["ward"])]
    )
    model = make_pipeline(columns, LogisticRegression())
    space = Space(logisticregression__C=[1e-4, 1.0])
    for how in ("iid", "dirichlet", "quantity", "feature"):
        parts = split(Samples(frame, ill), clients=4, how=how, seed=0, beta=5.0)
        assert sum(map(len, parts)) == 240
        assert all(list(part.features) == ["age", "ward", "dose"] for part in parts)
    here = EstimatorObjective(model).losses(parts[0], space, seed=0)
    assert here[1] < here[0]
    apart = EstimatorObjective(model, limits=Limits(workers=1)).losses(parts[0], space, seed=0)
    np.testing.assert_array_equal(apart, here)
    for shard in split_records(parts[0], shards=2):
        assert list(shard.data.features) == ["age", "ward", "dose"]

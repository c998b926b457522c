"""No neighbours pass the proven bounds, and some come close: models, moments."""

import math
from typing import Any

import numpy as np
import pytest

from urna.data import Samples
from urna.errors import ParameterError
from urna.privacy import Budget, Unit
from urna.systems.average import (
    Blind,
    LossKind,
    Moments,
    RowRule,
    Schema,
    Sizes,
    plan_average,
)
from urna.systems.average.moments import move_square
from urna.tally import Terms

POINTS = 8


def vector_of(learner: Blind | Moments, samples: Samples) -> np.ndarray:
    ((_, vector),) = learner.vectors([samples])
    return vector


def apart(learner: Blind | Moments, one: Samples, other: Samples) -> float:
    return float(np.linalg.norm(vector_of(learner, one) - vector_of(learner, other)))


def schema(features: int = 3, classes: int = 2, **rows: object) -> Schema:
    return Schema(features, tuple(range(classes)), rows=RowRule(**rows))  # type: ignore[arg-type]


def blind(loss: LossKind, **more: object) -> Blind:
    settings: dict[str, Any] = {"schema": schema(), "regularisation": 0.5, **more}
    return Blind(unit=Unit.RECORD, points=POINTS, loss=loss, **settings)


def neighbours(rng: np.random.Generator, features: int, classes: int) -> tuple[Samples, Samples]:
    """Return clients that differ in one record, at a random place, mostly far apart."""
    x = rng.normal(size=(POINTS, features)) * rng.choice([1e-3, 1.0, 50.0])
    y = rng.integers(classes, size=POINTS)
    x2, y2 = x.copy(), y.copy()
    at = rng.integers(POINTS)
    style = rng.integers(3)
    x2[at] = -x[at] if style == 0 else rng.normal(size=features) * 50
    y2[at] = y[at] if style == 0 else rng.integers(classes)
    if style == 2:
        x[:] = x[at]
        y[:] = y[at]
        x2[:] = x[0]
        x2[at], y2 = -x[0], y.copy()
    return Samples(x, y), Samples(x2, y2)


@pytest.mark.parametrize("loss", LossKind)
def test_no_replaced_record_moves_a_model_further_than_proven(loss: LossKind) -> None:
    rng = np.random.default_rng(1)
    for reg in (0.05, 0.5, 5.0):
        learner = blind(loss, regularisation=reg)
        moves = [apart(learner, *neighbours(rng, 3, 2)) for _ in range(60)]
        assert max(moves) <= learner.sensitivity


@pytest.mark.parametrize(
    ("loss", "near"),
    # Scores near zero: slopes are 1 (hinge), 1/2 of each class (logistic), and √½ of √2.
    [(LossKind.SVM, 0.99), (LossKind.LOGISTIC, 0.49), (LossKind.SOFTMAX, 0.49)],
)
def test_the_bound_of_models_is_nearly_reached(loss: LossKind, near: float) -> None:
    # With Λ so large that models are small, one record turned around moves by 2·slope/(NΛ).
    x = np.zeros((POINTS, 3))
    x[:, 0] = 1.0
    y = np.zeros(POINTS, dtype=int)
    turned = x.copy()
    turned[0] = -x[0]
    learner = blind(loss, regularisation=40.0)
    moved = apart(learner, Samples(x, y), Samples(turned, y))
    assert near * learner.sensitivity < moved <= learner.sensitivity


def test_records_of_heavy_clients_move_no_further_when_clients_are_weighed() -> None:
    rng = np.random.default_rng(3)
    for records in (2, 8, 30):
        learner = blind(LossKind.SVM, sizes=Sizes.WEIGHTED, heaviest=30 / POINTS)
        x, y = rng.normal(size=(records, 3)), rng.integers(2, size=records)
        turned = x.copy()
        turned[0] = -x[0]
        assert apart(learner, Samples(x, y), Samples(turned, y)) <= learner.sensitivity


def test_groups_of_records_move_a_model_as_proven() -> None:
    x, y = np.tile([1.0, 0.0, 0.0], (POINTS, 1)), np.zeros(POINTS, dtype=int)
    turned = x.copy()
    turned[:3] *= -1
    one, three = (blind(LossKind.SVM, regularisation=40.0, group=g) for g in (1, 3))
    moved = apart(three, Samples(x, y), Samples(turned, y))
    assert one.sensitivity < 0.99 * three.sensitivity < moved <= three.sensitivity


def test_a_whole_client_moves_a_model_by_twice_its_radius() -> None:
    learner = Blind(schema(), Unit.CLIENT, POINTS, 0.01, LossKind.SOFTMAX, radius=0.5)
    x, y = np.tile([1.0, 0.0, 0.0], (POINTS, 1)), np.zeros(POINTS, dtype=int)
    moved = apart(learner, Samples(x, y), Samples(-x, y))
    assert learner.encoding(0.01).client_sensitivity == pytest.approx(1.0)
    assert 0.99 < moved <= 1.0 + 1e-9


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.2, 2.0, 5.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_moments_move_by_exactly_the_bound_and_never_more(weight: float, classes: int) -> None:
    learner = Moments(schema(4, classes), Unit.RECORD, POINTS, weight)
    rng = np.random.default_rng(5)
    moves = [apart(learner, *neighbours(rng, 4, classes)) for _ in range(200)]
    assert max(moves) <= learner.record_sensitivity
    # The farthest pair, from the proof: unit rows at the inner product that is best for h.
    k = 1 - 1 / classes
    c = max(-1.0, -(weight**2) * k / 2)
    x = np.zeros((POINTS, 4))
    x[:, 0] = 1.0
    z = x.copy()
    z[0] = [c, math.sqrt(1 - c * c), 0, 0]
    y = np.zeros(POINTS, dtype=int)
    moved = apart(learner, Samples(x, y), Samples(z, y))
    assert 0.9995 * learner.record_sensitivity < moved <= learner.record_sensitivity


def test_moments_of_values_move_by_exactly_the_bound() -> None:
    learner = Moments(Schema(2, span=(0.0, 2.0)), Unit.RECORD, 3, 1.0)
    x, y = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([2.0, 1.0, 0.5])
    z = x.copy()
    z[0] = [-0.5, math.sqrt(0.75)]
    moved = apart(learner, Samples(x, y), Samples(z, y))
    assert (
        0.999 * learner.record_sensitivity < moved <= learner.record_sensitivity == math.sqrt(4.5)
    )


def test_what_the_bounds_are_is_what_a_search_finds() -> None:
    # A grid over everything two records can be, beside the closed forms.
    c = np.linspace(-1, 1, 20_001)
    for w in (0.5, 1.0, 2.0, 4.0):
        by_class = max(float((2 - 2 * c**2 + w**2 * (1.8 - 2 * c * k)).max()) for k in (0.9, -0.1))
        assert move_square(w, 10) == pytest.approx(by_class, abs=1e-6)
        by_value = float((2 - 2 * c**2 + w**2 * (2 + 2 * np.abs(c))).max())
        assert move_square(w, None) == pytest.approx(by_value, abs=1e-6)
    assert move_square(1.0, 10, lowest=0.0) == pytest.approx(3.805)


@pytest.mark.parametrize("rows", [{}, {"intercept": 0.3}, {"unit": False, "clip": 2.0}])
def test_whole_clients_move_means_of_moments_by_one_record(rows: dict[str, float]) -> None:
    learner = Moments(schema(3, 3, **rows), Unit.CLIENT, 1)
    rng = np.random.default_rng(7)
    found = []
    for _ in range(60):
        sizes = rng.integers(1, 20, size=2)
        one, other = (Samples(rng.normal(size=(n, 3)) * 9, rng.integers(3, size=n)) for n in sizes)
        found.append(apart(learner, one, other))
    assert max(found) <= (learner.encoding(0.01).client_sensitivity or 0)


def test_whole_clients_of_many_rows_move_sums_of_moments_no_further_than_said() -> None:
    learner = Moments(schema(60), Unit.RECORD, 5, group=5)
    encoding, rng = learner.encoding(0.01), np.random.default_rng(0)
    sent = []
    for side in (1, -1):
        x = rng.normal(size=(4000, 60))
        x[:, 0] = 3 * side
        vector = vector_of(learner, Samples(x, np.zeros(4000, dtype=int)))
        sent.append(vector * min(1.0, encoding.clip_norm / float(np.linalg.norm(vector))))
    moved = float(np.linalg.norm(sent[0] - sent[1]))
    assert learner.points * learner.record_sensitivity < moved <= (encoding.client_sensitivity or 0)
    plan = plan_average(Terms.of(30, Budget(2.0, 1e-5), adjacency="replace-one-record"), learner)
    assert "NOT protected" in plan.tally.caveats_over(1)[0]


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("loss", list(LossKind))
def test_rows_of_one_id_move_a_model_as_proven_however_many_there_are(
    loss: LossKind, group: int
) -> None:
    records, rng = 50, np.random.default_rng(11)
    learner = Blind(schema(2), Unit.RECORD, records, 0.3, loss, group=group)
    angles, ids = np.linspace(0, 2 * np.pi, records), np.arange(records)
    x, y = np.column_stack([np.cos(angles), np.sin(angles)]), ids % 2
    rest = ids != 7
    for before, behind in ((0, 1), (1, 0), (1, 60), (60, 1), (700, 700)):
        # Rows of the one record, in front of the rest and behind it.
        other = Samples(
            np.vstack([rng.normal(size=(before, 2)), x[rest], rng.normal(size=(behind, 2))]),
            np.concatenate([np.zeros(before), y[rest], np.ones(behind)]),
            np.concatenate([np.full(before, 7), ids[rest], np.full(behind, 7)]),
        )
        assert apart(learner, Samples(x, y, ids), other) <= learner.sensitivity


def test_what_one_id_holds_decides_neither_rows_nor_places_nor_failure() -> None:
    made = schema()
    ids = np.array(["b", "a", "b", "c"])
    x = np.eye(3)[[0, 1, 2, 0]]
    few = made.prepare(Samples(x, np.array([0, 1, 1, 0]), ids), group=2)
    assert few.rows.shape == (6, 3)
    assert few.records == 3
    assert few.rows.any(axis=1).tolist() == [True, False, True, True, True, False]
    many = (1 << 20) + 1
    big = np.concatenate([x, np.ones((many, 3))])
    targets = np.concatenate([[0, 1, 1, 0], np.zeros(many, dtype=int)])
    flood = Samples(big, targets, np.concatenate([ids, np.full(many, "c")]))
    made.check([flood])
    found = made.prepare(flood, group=2)
    assert np.array_equal(found.rows[:4], few.rows[:4])
    assert found.rows.shape == (6, 3)
    with pytest.raises(ParameterError, match="rows of a client can count"):
        made.prepare(Samples(x, np.zeros(4, dtype=int), ids), group=1 << 19)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, 1e308, -1e-320])
def test_a_record_of_odd_numbers_moves_nothing_further(broken: float) -> None:
    x, y = np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1]], np.array([0, 1] * 4)
    z = x.copy()
    z[2, 1] = broken
    learners: list[Blind | Moments] = [blind(loss) for loss in LossKind]
    for learner in (Moments(schema(), Unit.RECORD, POINTS), *learners):
        found = vector_of(learner, Samples(z, y))
        assert np.isfinite(found).all()
        limit = learner.record_sensitivity if isinstance(learner, Moments) else learner.sensitivity
        assert apart(learner, Samples(x, y), Samples(z, y)) <= limit

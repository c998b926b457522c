"""The certified solver, moments beside scikit-learn's ridge, averaging beside pooling, encoding."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from urna.data import Samples
from urna.privacy import Budget, Unit
from urna.randomness import ScriptedSecrets
from urna.systems.average import (
    Blind,
    LossKind,
    Moments,
    RowRule,
    Schema,
    plan_average,
)
from urna.systems.average.certified import Loss, PaddedRows, Uncertified, batches, certify, minimise
from urna.systems.average.moments import denoise, pack, solve, unpack
from urna.systems.average.schema import GRID
from urna.tally import Terms


def client(seed: int, records: int = 30, features: int = 4, classes: int = 3) -> Samples:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=records)
    centres = np.random.default_rng(99).normal(size=(classes, features))
    return Samples(centres[y] + 0.5 * rng.normal(size=(records, features)), y)


SCHEMA = Schema(4, (0, 1, 2))


def stack(clients: list[Samples], schema: Schema = SCHEMA) -> PaddedRows:
    prepared = [schema.prepare(samples) for samples in clients]
    (made,) = batches(prepared, clip=schema.rows.clip, outputs=schema.outputs)
    return made


@pytest.mark.parametrize("loss", LossKind)
@pytest.mark.parametrize("records", [3, 30], ids=["fewer rows than entries", "more"])
def test_the_solver_finds_the_minimiser_and_proves_it(loss: LossKind, records: int) -> None:
    batch, made = stack([client(seed, records) for seed in range(5)]), Loss(loss)
    trained = minimise(batch, made, 0.01, tolerance=1e-9)
    assert float(trained.gradient_norms.max()) <= 1e-9

    # From far away the plainest descent arrives at the same models.
    weights = np.zeros_like(trained.weights)
    for _ in range(60_000):
        gradient, norms = certify(batch, made, 0.01, weights)
        if norms.max() < 1e-6:
            break
        weights = weights - gradient / (made.curvature + 0.01)
    assert np.allclose(weights, trained.weights, atol=1e-6 / 0.01)


@pytest.mark.parametrize("loss", LossKind)
def test_the_certificate_catches_a_solver_that_stopped_early(loss: LossKind) -> None:
    batch, made, reg = stack([client(seed) for seed in range(5)]), Loss(loss), 0.01
    exact = minimise(batch, made, reg, tolerance=1e-10).weights
    early = 0 * exact
    for _ in range(10):
        early = early - certify(batch, made, reg, early)[0] / (made.curvature + reg)
    _, norms = certify(batch, made, reg, early)
    away = np.sqrt(np.square(early - exact).sum(axis=(1, 2)))
    assert (norms[:, 0, 0] > 1e-3).all()
    # And what it says is a bound: no model is further from the minimiser than g/Λ.
    assert (away <= norms[:, 0, 0] / reg).all()


def test_no_certificate_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urna.systems.average.certified._MOST_STEPS", 1)
    monkeypatch.setattr(
        "urna.systems.average.certified._accelerated",
        lambda batch, loss, reg, tol, weights: weights,
    )
    with pytest.raises(Uncertified):
        minimise(stack([client(1)]), Loss(LossKind.SOFTMAX), 0.01, tolerance=1e-9)


def test_gradient_steps_finish_what_quasi_newton_steps_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("urna.systems.average.certified._MOST_STEPS", 1)
    trained = minimise(stack([client(1)]), Loss(LossKind.SVM), 0.01, tolerance=1e-8)
    assert float(trained.gradient_norms.max()) <= 1e-8


def test_averaging_is_pooling_where_all_points_lie_inside_the_margin() -> None:
    # Theorem 14: for Λ so large that every margin is below 1 − h, hinge losses are linear.
    clients = [client(seed, 20) for seed in range(10)]
    pooled = Samples(
        np.concatenate([c.features for c in clients]), np.concatenate([c.targets for c in clients])
    )
    gaps = []
    for reg in (0.02, 0.2, 2.0):
        learner = Blind(SCHEMA, Unit.RECORD, 20, reg, LossKind.SVM)
        mean = np.mean([vector for _, vector in learner.vectors(clients)], axis=0)
        ((_, whole),) = learner.vectors([pooled])
        gaps.append(float(np.linalg.norm(mean - whole) / np.linalg.norm(whole)))
    assert gaps[0] > gaps[1] > 1e-4
    assert gaps[2] < 1e-3


@pytest.mark.parametrize("ridge", [0.1, 10.0])
@pytest.mark.parametrize("classes", [(0, 1, 2), None], ids=["classes", "values"])
def test_moments_without_noise_are_scikit_learns_ridge(
    ridge: float, classes: tuple[int, ...] | None
) -> None:
    schema = Schema(4, classes, None if classes else (0.0, 2.0), RowRule(intercept=0.3))
    learner = Moments(schema, Unit.RECORD, 30, ridge=ridge)
    clients = [client(seed) for seed in range(5)]
    total = np.sum([vector for _, vector in learner.vectors(clients)], axis=0)
    found = learner.solved(total, clients=5, std=0.0).weights
    prepared = [schema.prepare(samples) for samples in clients]
    rows = np.concatenate([p.rows for p in prepared])
    targets = np.concatenate([p.targets for p in prepared])
    if classes is not None:
        targets = np.eye(3)[targets] - 1 / 3  # centred one-hot
    wanted = Ridge(alpha=ridge, fit_intercept=False).fit(rows, targets).coef_
    assert np.allclose(found, wanted.reshape(schema.outputs, -1).T, atol=1e-9)


def test_sums_of_moments_do_not_depend_on_the_order_of_records() -> None:
    samples = client(3, 500)
    learner = Moments(SCHEMA, Unit.RECORD, 500)
    ((_, one),) = learner.vectors([samples])
    turned = Samples(samples.features[::-1].copy(), samples.targets[::-1].copy())
    ((_, other),) = learner.vectors([turned])
    assert (one == other).all()


def test_shrinking_brings_noisy_moments_nearer_to_the_true_ones() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4_000, 60)) * np.linspace(3, 0.3, 60)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    true, std = rows.T @ rows, 30.0
    noise = rng.normal(size=true.shape) * std / math.sqrt(2)
    noisy = true + np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.normal(size=60) * std)
    found = denoise(noisy, std)
    assert np.linalg.norm(found.square - true) < 0.5 * np.linalg.norm(noisy - true)
    assert 1 <= found.spikes < 60
    assert np.isfinite(solve(found.square, rows.T @ rows[:, :2], 1.0)).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 5), st.floats(0.1, 10), st.integers(0, 2**32))
def test_moments_are_packed_without_loss_and_keep_their_norm(
    width: int, outputs: int, weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    square = rng.normal(size=(width, width))
    square, cross = square + square.T, rng.normal(size=(width, outputs))
    packed = pack(square, cross, weight)
    norm = math.hypot(float(np.linalg.norm(square)), weight * float(np.linalg.norm(cross)))
    assert float(np.linalg.norm(packed)) == pytest.approx(norm)
    again, crossed = unpack(packed, width, outputs, weight)
    assert np.allclose(again, square)
    assert np.allclose(crossed, cross)


_ANY = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.lists(_ANY, min_size=3, max_size=3), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_rows_are_bounded_on_the_grid_and_each_their_own(
    features: list[list[float]],
    unit: bool,
    intercept: float,
    nonnegative: bool,
    projected: int | None,
) -> None:
    rule = RowRule(
        clip=2.0, unit=unit, intercept=intercept, nonnegative=nonnegative, projected=projected
    )
    given_rows = np.array(features)
    rows = rule.rows(given_rows)
    steps = rows * GRID
    assert (steps == np.round(steps)).all()
    assert all(sum(int(s) ** 2 for s in row) <= GRID**2 for row in steps)
    for i in range(len(rows)):  # to the bit, whatever the others hold; how many they are is public
        others = np.where(np.arange(len(rows))[:, None] == i, given_rows, 7.0)
        assert np.array_equal(rule.rows(others)[i], rows[i])
    inner = rows @ rows.T
    used = (rows != 0).any(axis=1)
    assert (inner[np.ix_(used, used)] >= rule.lowest - 1e-12).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from(["moments", "blind"]))
def test_what_is_sent_is_what_was_computed_up_to_rounding(seed: int, kind: str) -> None:
    learner = (
        Moments(SCHEMA, Unit.RECORD, 30)
        if kind == "moments"
        else Blind(SCHEMA, Unit.RECORD, 30, 0.1)
    )
    terms = Terms.of(10, Budget(1.0, 1e-5), adjacency="replace-one-record")
    plan = plan_average(terms, learner)
    ((_, vector),) = learner.vectors([client(seed)])
    key = ScriptedSecrets(b"%d" % seed).take(32)
    sent = plan.contribution(vector, key)
    assert np.abs(plan.encoding.decode(sent) - vector).max() <= 1 / plan.encoding.steps
    assert (plan.contribution(vector, key) == sent).all()
    assert int(sent @ sent) <= plan.encoding.contribution.norm_squared

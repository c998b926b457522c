"""DP-Helmet's own trainer: no neighbours pass its published bound, and every client is alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.permutation_sgd import PublishedBlind

from urna.data import Samples
from urna.privacy import Unit
from urna.systems.average import Blind, LossKind, Schema

POINTS = 8
SCHEMA = Schema(3, (0, 1))


def published(loss: LossKind, **more: Any) -> PublishedBlind:
    settings: dict[str, Any] = {"epochs": 30, "batch_size": 2, "radius": 4.0, **more}
    reg = settings.pop("regularisation", 0.5)
    return PublishedBlind(SCHEMA, Unit.RECORD, POINTS, reg, loss, **settings)


def apart(learner: Blind, one: Samples, other: Samples) -> float:
    ((_, here),), ((_, there),) = learner.vectors([one]), learner.vectors([other])
    return float(np.linalg.norm(here - there))


@pytest.mark.parametrize("loss", LossKind)
@pytest.mark.parametrize("reg", [0.05, 0.5, 5.0])
def test_no_replaced_record_moves_a_model_further_than_published(
    loss: LossKind, reg: float
) -> None:
    rng, learner = np.random.default_rng(1), published(loss, regularisation=reg)
    moves = []
    for _ in range(60):
        x, y = rng.normal(size=(POINTS, 3)), rng.integers(2, size=POINTS)
        other, at = x.copy(), rng.integers(POINTS)
        other[at] = -50 * x[at]
        moves.append(apart(learner, Samples(x, y), Samples(other, y)))
    assert max(moves) <= learner.sensitivity


def test_the_published_bound_is_nearly_reached_but_for_the_radius_in_it() -> None:
    x, y = np.zeros((POINTS, 3)), np.zeros(POINTS, dtype=int)
    x[:, 0] = 1.0
    turned = x.copy()
    turned[0] = -x[0]
    learner = published(LossKind.SVM, regularisation=40.0, radius=1e-3 + 1 / 40.0, epochs=200)
    exact = Blind(SCHEMA, Unit.RECORD, POINTS, 40.0, LossKind.SVM)
    moved = apart(learner, Samples(x, y), Samples(turned, y))
    assert 0.9 * exact.sensitivity < moved <= learner.sensitivity


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("loss", LossKind)
def test_rows_of_one_id_move_a_model_as_published(loss: LossKind, group: int) -> None:
    records, rng = 50, np.random.default_rng(11)
    learner = PublishedBlind(
        Schema(2, (0, 1)), Unit.RECORD, records, 0.3, loss, group=group, epochs=1, batch_size=1
    )
    angles, ids = np.linspace(0, 2 * np.pi, records), np.arange(records)
    x, y = np.column_stack([np.cos(angles), np.sin(angles)]), ids % 2
    rest = ids != 7
    for before, behind in ((0, 1), (60, 1), (700, 700)):
        other = Samples(
            np.vstack([rng.normal(size=(before, 2)), x[rest], rng.normal(size=(behind, 2))]),
            np.concatenate([np.zeros(before), y[rest], np.ones(behind)]),
            np.concatenate([np.full(before, 7), ids[rest], np.full(behind, 7)]),
        )
        assert apart(learner, Samples(x, y, ids), other) <= learner.sensitivity


@pytest.mark.parametrize("loss", LossKind)
def test_a_model_is_the_one_a_client_would_train_alone(loss: LossKind) -> None:
    rng, learner = np.random.default_rng(3), replace(published(loss), points=1)
    clients = [
        Samples(rng.normal(size=(n, 3)), rng.integers(2, size=n)) for n in (5, 9, 5, 0, 30, 9)
    ]
    together = dict(learner.vectors(clients))
    for place, data in enumerate(clients):
        ((_, alone),) = learner.vectors([data])
        assert alone.tobytes() == together[place].tobytes()
        assert np.linalg.norm(alone) <= learner.longest * (1 + 1e-9)

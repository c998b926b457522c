from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import (
    BatchedObjective,
    SuccessiveHalving,
)
from urna.space import Space

torch = pytest.importorskip("torch")
pieces = pytest.importorskip("urna.local.engine.pieces")
graphs = pytest.importorskip("urna.local.engine.graphs")
runner = pytest.importorskip("urna.local.engine.runner")

features, targets = load_digits(return_X_y=True)
DIGITS = Samples(features[:300] / 16, targets[:300])
SPACE = Space(lr=[1.0, 0.3, 0.1, 1e-3, 1e-5, 1e-7], momentum=[0.0, 0.9], decay=[0.5, 1.0])


def softmax() -> "torch.nn.Module":
    return torch.nn.Linear(64, 10)


def survivors(race: SuccessiveHalving, losses: list[float]) -> list[int]:
    return race.survivors(losses=np.array(losses), racing=range(len(losses)), epoch=1)


def test_halving_keeps_the_best_and_whoever_ties_with_the_last() -> None:
    race = SuccessiveHalving(factor=3.0, finalists=1)
    assert survivors(race, [0.5, 0.1, 0.2, 0.9, 0.2, 0.8]) == [1, 2, 4]


def test_halving_keeps_the_finalists_and_waits_for_its_first_epoch() -> None:
    losses = [0.4, 0.3, 0.2, 0.1]
    assert survivors(SuccessiveHalving(factor=4.0, finalists=3), losses) == [1, 2, 3]
    late = SuccessiveHalving(factor=4.0, finalists=1, first_epoch=3)
    assert survivors(late, losses) == [0, 1, 2, 3]


def test_whoever_diverged_is_not_kept() -> None:
    race = SuccessiveHalving(factor=2.0, finalists=3)
    assert survivors(race, [np.nan, 0.3, np.inf]) == [1]


def test_finalists_have_the_full_searchs_losses_and_all_others_none() -> None:
    race = SuccessiveHalving(4.0, 6)
    full = BatchedObjective(softmax, epochs=4, device="cpu").losses(DIGITS, SPACE, seed=0)
    raced = BatchedObjective(softmax, epochs=4, device="cpu", race=race)
    losses = raced.losses(DIGITS, SPACE, seed=0)
    kept = np.isfinite(losses)
    assert 6 <= kept.sum() < len(SPACE)
    np.testing.assert_array_equal(losses[kept], full[kept])
    assert np.argmin(losses) == np.argmin(full)


@pytest.mark.parametrize("width", [4, 5, 7])
def test_pieces_of_one_width_change_no_finalist(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [DIGITS.take(np.arange(n, n + 100)) for n in (0, 100, 200)]
    full = _losses(BatchedObjective(softmax, epochs=4, device="cpu"), data, SPACE)
    _plan(monkeypatch, pieces.Capacity(width, fixed=True))
    race = SuccessiveHalving(4.0, 6)
    raced = _losses(BatchedObjective(softmax, epochs=4, device="cpu", race=race), data, SPACE)
    kept = np.isfinite(raced)
    assert (kept.sum(axis=1) < len(SPACE)).all()
    np.testing.assert_array_equal(raced[kept], full[kept])


def _losses(objective: BatchedObjective, clients: list[Samples], space: Space) -> np.ndarray:
    seeds = range(4, 4 + len(clients))
    return np.array(
        [objective.losses(c, space, seed=s) for c, s in zip(clients, seeds, strict=True)]
    )


def _cnn() -> "torch.nn.Module":
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Dropout2d(0.2), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(36, 10),
    )  # fmt: skip


class _Repeat:
    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        return step


def _plan(monkeypatch: pytest.MonkeyPatch, planned: object) -> None:
    """Let so many candidates run at once."""
    monkeypatch.setattr(runner.Runner, "_search_capacity", lambda *_: planned)


def _record_like_a_gpu(self: Any) -> object:
    return graphs.GraphTrainer(self._batched, self._features, _Repeat())


@pytest.mark.parametrize("width", [4, 10])
def test_recorded_finalists_with_all_their_state_go_on_as_in_the_full_search(
    width: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Batch norm, dropout, momentum, runs that end early, lanes that split, shorter last
    # batches and clients of different sizes that share recordings: none may tell apart.
    _plan(monkeypatch, pieces.Capacity(width, fixed=True))
    monkeypatch.setattr(runner.Runner, "_make_graphs", _record_like_a_gpu)
    data = [DIGITS.take(np.arange(a, b)) for a, b in ((0, 100), (100, 200), (200, 287))]
    space = Space(lr=[1.0, 0.1, 0.01, 1e-5], momentum=[0.0, 0.9], decay=[0.0, 0.5, 1.0])
    options = {"epochs": 4, "batch_size": 32, "device": "cpu"}
    for factory in (_cnn, softmax):
        full, raced = (
            _losses(BatchedObjective(factory, race=race, **options), data, space)
            for race in (None, SuccessiveHalving(4.0, 5))
        )
        kept = np.isfinite(raced)
        assert (kept.sum(axis=1) < len(space)).all()
        np.testing.assert_array_equal(raced[kept], full[kept])
    assert not caplog.records


def test_a_race_among_few_stops_nobody() -> None:
    space = Space(lr=[0.1, 1e-9])
    race = SuccessiveHalving(finalists=2)
    losses = BatchedObjective(softmax, epochs=3, device="cpu", race=race).losses(
        DIGITS, space, seed=0
    )
    assert np.isfinite(losses).all()


def test_races_refuse_nonsense() -> None:
    with pytest.raises(ParameterError, match="factor"):
        SuccessiveHalving(factor=1.0)
    with pytest.raises(ParameterError, match="finalists"):
        SuccessiveHalving(finalists=0)

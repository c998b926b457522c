"""One client's data stop no other client; what is wrong for everybody is said first."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from urna.data import Samples
from urna.errors import CannotBatch, ParameterError, UnknownName
from urna.local import (
    BatchedObjective,
    CachedObjective,
    CallableObjective,
    ChecksSpace,
    EstimatorObjective,
    Losses,
    Objective,
    Progress,
    TorchObjective,
    check_objective,
    losses_of_each,
)
from urna.space import Space

SPACE = Space(x=[1.0, 2.0])


@dataclass
class Fragile:
    """Raises for negative data; also for many clients at once, if so asked."""

    def losses(
        self, data: float, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        if data < 0:
            raise ValueError("a patient's name")
        if progress is not None:
            progress(len(space), len(space))
        return np.full(len(space), data + seed)


def each(objective: Objective[float], clients: list[float]) -> Iterator[Losses]:
    return losses_of_each(
        objective, clients, SPACE, seeds=range(len(clients)), progress=lambda *_: None
    )


def test_a_client_that_fails_abstains_and_the_others_do_not_notice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="urna.local"):
        found = np.array(list(each(Fragile(), [5.0, -1.0, 7.0])))
    assert np.isnan(found[1]).all()
    assert found[[0, 2]].tolist() == [[5, 5], [9, 9]]
    assert "client 1 abstains: its evaluation failed (ValueError)" in caplog.text
    assert "patient" not in caplog.text


def test_where_every_client_fails_the_log_says_how_to_see_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert np.isnan(list(each(Fragile(), [-1.0, -2.0]))).all()
    assert "call `losses` on data of your own" in caplog.text


def test_what_progress_raises_ends_everything() -> None:
    def stop(done: int, total: int) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        list(losses_of_each(Fragile(), [1.0], SPACE, seeds=[0], progress=stop))


def linear(width: int = 4) -> object:
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))


GOOD, BAD = Space(lr=[0.1]), Space(rl=[0.1])
ALL = {
    "batched": (BatchedObjective(linear, device="cpu"), GOOD, BAD),
    "torch": (TorchObjective(linear), GOOD, BAD),
    "estimator": (EstimatorObjective(Ridge), Space(alpha=[1.0]), Space(alhpa=[1.0])),
    "cached": (
        CachedObjective(EstimatorObjective(Ridge), Path("nowhere")),
        Space(alpha=[1.0]),
        Space(alhpa=[1.0]),
    ),
    "callable": (CallableObjective(lambda candidate, data: 0.0), GOOD, None),
}


@pytest.mark.parametrize("name", ALL)
def test_every_objective_tells_before_it_sees_data_whether_it_can_judge_a_space(name: str) -> None:
    objective, good, bad = ALL[name]
    assert isinstance(objective, ChecksSpace)
    check_objective(objective, good)
    if bad is not None:
        with pytest.raises(UnknownName):
            check_objective(objective, bad)
        with pytest.raises(UnknownName):  # at the call, not when losses are asked for
            losses_of_each(objective, [None], bad, seeds=[0], progress=lambda *_: None)


def test_a_value_out_of_range_is_wrong_for_everybody() -> None:
    with pytest.raises(ParameterError, match="lr"):
        BatchedObjective(linear).check(Space(lr=[0.1, -1.0]))
    with pytest.raises(ParameterError, match="label_smoothing"):
        BatchedObjective(linear, loss="squared_error").check(Space(label_smoothing=[0.1]))


def test_recurrent_layers_are_refused_before_data_is_seen() -> None:
    nn = pytest.importorskip("torch.nn")
    objective = BatchedObjective(lambda: nn.Sequential(nn.LSTM(3, 4)), device="cpu")
    with pytest.raises(CannotBatch, match="TorchObjective"):
        objective.check(GOOD)


def test_a_factory_that_cannot_be_called_is_wrong_for_everybody() -> None:
    pytest.importorskip("torch")

    def broken(width: int) -> object:
        raise KeyError("no such width")

    with pytest.raises(KeyError, match="no such width"):
        BatchedObjective(broken).check(Space(width=[3]))


def test_a_module_that_cannot_be_batched_stops_the_search() -> None:
    torch = pytest.importorskip("torch")

    class Noisy(torch.nn.Linear):
        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return super().forward(x + torch.randn(3))

    data = Samples(np.zeros((20, 3)), np.arange(20) % 2)
    objective = BatchedObjective(lambda: Noisy(3, 2), device="cpu")
    with pytest.raises(CannotBatch):
        list(losses_of_each(objective, [data], GOOD, seeds=[0], progress=lambda *_: None))


ROWS = Samples(np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2)
UNFIT = {
    "a class too many": Samples(ROWS.features, np.arange(30) % 3),
    "a negative class": Samples(ROWS.features, np.arange(30) % 2 - 1),
    "numbers as classes": Samples(ROWS.features, np.arange(30) / 2),
    "one row": ROWS.take(np.arange(1)),
    "a column too many": Samples(np.zeros((30, 4)), ROWS.targets),
    "text": Samples(np.array([["a", "b", "c"]] * 30), ROWS.targets),
}


@pytest.mark.parametrize("kind", [BatchedObjective, TorchObjective])
@pytest.mark.parametrize("name", ["a class too many", "a negative class", "numbers as classes"])
def test_targets_that_are_no_classes_are_refused_before_a_device_sees_them(
    kind: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", lambda *_, **__: pytest.fail("seen"))
    monkeypatch.setattr(torch.nn.functional, "nll_loss", lambda *_, **__: pytest.fail("seen"))
    with pytest.raises(ParameterError, match="cross_entropy needs"):
        kind(linear, device="cpu").losses(UNFIT[name], GOOD, seed=0)


@pytest.mark.parametrize("name", UNFIT)
def test_a_client_with_unfit_rows_abstains_and_the_others_do_not(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    objective = BatchedObjective(linear, device="cpu", epochs=1)
    clients = [ROWS, UNFIT[name], ROWS]
    seen: list[tuple[int, int]] = []
    space = Space(lr=[0.1, 0.01])
    progress = lambda *done: seen.append(done)  # noqa: E731 - one line
    found = list(losses_of_each(objective, clients, space, seeds=[1, 2, 3], progress=progress))
    assert np.isnan(found[1]).all()
    for place in (0, 2):
        alone = objective.losses(clients[place], space, seed=place + 1)
        np.testing.assert_array_equal(found[place], alone)
    assert "client 1 abstains" in caplog.text
    assert seen[-1] == (6, 6)

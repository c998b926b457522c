"""Fast and plain runs compute the same thing; every way to be faster can be switched off."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.local import BatchedObjective, Recipe, Speed, TorchObjective, first_weights, train_clients
from urna.local.engine import model
from urna.space import Space

torch = pytest.importorskip("torch")
nn = torch.nn

features, targets = load_digits(return_X_y=True)
DIGITS = Samples(features[:160].reshape(-1, 1, 8, 8) / 16, targets[:160])
SPACE = Space(lr=[0.2, 0.02], decay=[0.0, 0.5, 1.0], momentum=[0.0, 0.9])
SWITCHES = [field.name for field in fields(Speed)]
EVERYTHING = Speed()
PLAIN = {name: replace(EVERYTHING, **{name: False}) for name in SWITCHES} | {"all": Speed.plain()}
ALONE = {name: replace(Speed.plain(), **{name: True}) for name in SWITCHES}


def mlp() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10)
    )


def cnn() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def with_norm() -> "torch.nn.Module":
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(),
        nn.Linear(216, 10),
    )  # fmt: skip


@contextlib.contextmanager
def _two_threads(speed: Speed) -> Iterator[None]:
    """Let two threads work where they are ours: PyTorch's wait for each other on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2 if speed.threads else 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("factory", [mlp, cnn, with_norm])
def test_a_search_is_the_same_without_any_part_of_its_speed(
    factory: Callable[[], object],
) -> None:
    clients = [DIGITS.take(np.arange(start, start + 80)) for start in (0, 80)]

    def losses(speed: Speed) -> np.ndarray:
        objective = BatchedObjective(factory, epochs=2, batch_size=16, device="cpu", speed=speed)
        with _two_threads(speed):
            return np.array([objective.losses(c, SPACE, seed=n + 1) for n, c in enumerate(clients)])

    fast = losses(EVERYTHING)
    loop = TorchObjective(factory, epochs=2, batch_size=16).losses(clients[0], SPACE, seed=1)
    np.testing.assert_allclose(fast[0], loop, rtol=2e-5)
    for name, speed in [*PLAIN.items(), *ALONE.items()]:
        np.testing.assert_allclose(losses(speed), fast, rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("factory", [mlp, cnn, with_norm])
def test_training_is_the_same_without_any_part_of_its_speed(
    factory: Callable[[], object],
) -> None:
    clients = [DIGITS.take(np.arange(start, start + 50 + start // 8)) for start in (0, 40, 80)]
    recipe = Recipe(lr=0.1, momentum=0.9, epochs=2, batch_size=16)
    start = first_weights(factory, seed=0).parameters

    def trained(speed: Speed) -> np.ndarray:
        with _two_threads(speed):
            return train_clients(
                factory, start, clients, recipe, seeds=[1, 2, 3], device="cpu", speed=speed
            ).parameters

    fast = trained(EVERYTHING)
    for name, speed in [*PLAIN.items(), *ALONE.items()]:
        np.testing.assert_allclose(trained(speed), fast, atol=2e-5, err_msg=name)


def test_plain_switches_everything_off() -> None:
    assert not any(getattr(Speed.plain(), name) for name in SWITCHES)
    assert all(getattr(Speed(), name) for name in SWITCHES)


@pytest.mark.parametrize("version", ["2.4.1", "2.10.0", "2.14.0+cu130", "3.0", "unknown"])
def test_a_pytorch_that_was_not_tested_gets_plain_with_one_line(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    model._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="urna.local"):
        assert [Speed().on(version) for _ in range(3)] == [Speed.plain()] * 3
        assert Speed.plain().on("1.0") == Speed.plain()
    assert len(caplog.messages) == 1
    assert version in caplog.text


def test_the_pytorch_of_these_tests_is_among_the_tested() -> None:
    assert Speed().on(torch.__version__) == Speed()


def test_an_objective_on_a_pytorch_that_was_not_tested_gives_the_same_losses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fast = BatchedObjective(cnn, epochs=1, device="cpu").losses(DIGITS, SPACE, seed=0)
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    found = BatchedObjective(cnn, epochs=1, device="cpu").losses(DIGITS, SPACE, seed=0)
    np.testing.assert_allclose(found, fast, rtol=2e-5)
    assert "9.9.0" in caplog.text

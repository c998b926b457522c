import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import CallableObjective, Limits
from urna.space import Candidate, Space

DATA = Samples(np.arange(10.0)[:, None], np.arange(10) % 2)
SPACE = Space(x=[0, 1, 2, 3])


def test_losses_come_in_the_order_of_the_space() -> None:
    objective = CallableObjective(lambda candidate, data: candidate["x"] * len(data))
    assert objective.losses(DATA, SPACE, seed=0).tolist() == [0, 10, 20, 30]


def test_three_arguments_get_a_training_and_a_validation_part() -> None:
    def function(candidate: Candidate, train: Samples, validation: Samples) -> float:
        return 100 * len(train) + len(validation)

    assert CallableObjective(function).losses(DATA, SPACE, seed=0).tolist() == [802] * 4


def test_a_function_gets_tables_with_names_as_they_are() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": range(10), "b": list("abcdefghij")})

    def function(candidate: Candidate, train: Samples, validation: Samples) -> float:
        table: Any = train.features
        assert list(table.columns) == ["a", "b"]
        return float(validation.features["a"].sum() + train.features["a"].sum())

    found = CallableObjective(function).losses(Samples(table, np.arange(10) % 2), SPACE, seed=0)
    assert found.tolist() == [45] * 4


def test_a_function_that_asks_for_the_seed_gets_it() -> None:
    objective = CallableObjective(lambda candidate, data, seed: seed)
    assert objective.losses(DATA, SPACE, seed=17).tolist() == [17] * 4


def test_an_exception_is_the_failure_of_one_candidate_only() -> None:
    def function(candidate: Candidate, data: Samples) -> float:
        return 1 / (candidate["x"] - 2)

    losses = CallableObjective(function).losses(DATA, SPACE, seed=0)
    assert losses.tolist() == [-0.5, -1.0, math.inf, 1.0]


def test_nan_counts_as_infinite() -> None:
    objective = CallableObjective(lambda candidate, data: math.nan)
    assert np.isposinf(objective.losses(DATA, SPACE, seed=0)).all()


@pytest.mark.parametrize("apart", [False, True])
def test_where_all_candidates_fail_the_first_error_is_raised_and_nothing_logged(
    apart: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function(candidate: Candidate, data: Samples) -> float:
        raise KeyError("a patient's name")

    objective = CallableObjective(function, limits=Limits(workers=1) if apart else None)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(RuntimeError if apart else KeyError, match="a patient's name"),
    ):
        objective.losses(DATA, SPACE, seed=0)
    assert "patient" not in caplog.text


def test_progress_counts_every_candidate() -> None:
    seen: list[tuple[int, int]] = []
    objective = CallableObjective(lambda candidate, data: 0.0)
    objective.losses(DATA, SPACE, seed=0, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_function_cannot_change_the_space_by_changing_its_candidate() -> None:
    def function(candidate: Candidate, data: Samples) -> float:
        return float(candidate.pop("x"))

    objective = CallableObjective(function)
    assert objective.losses(DATA, SPACE, seed=0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("function", [lambda: 0.0, lambda a: 0.0, lambda a, b, c, d: 0.0])
def test_a_function_of_another_shape_is_refused(function: object) -> None:
    with pytest.raises(ParameterError, match="candidate, data"):
        CallableObjective(function)  # type: ignore[arg-type]


class Traced:
    """A number of another library: JAX's arrays are turned into one like this."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


@pytest.mark.parametrize(
    "number", [np.float32, np.array, Traced, lambda v: np.array(v, dtype=np.float16)]
)
def test_a_loss_may_be_a_number_of_any_library(number: Callable[[float], Any]) -> None:
    objective = CallableObjective(lambda candidate, data: number(candidate["x"]))
    assert objective.losses(DATA, Space(x=[0.5, 2.0]), seed=0).tolist() == [0.5, 2.0]


def test_a_loss_may_be_a_tensor_with_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    objective = CallableObjective(
        lambda candidate, data: torch.tensor(candidate["x"], requires_grad=True) * 2
    )
    assert objective.losses(DATA, Space(x=[0.5, 2.0]), seed=0).tolist() == [1.0, 4.0]

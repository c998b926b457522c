"""A client whose vector is longer than any valid one: it is accepted, and the model is spoiled."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from urna.data import Samples
from urna.errors import InvalidSum
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget
from urna.systems.average import Schema, fit
from urna.tally import Run

X, Y = load_digits(return_X_y=True)
CLIENTS = [Samples(X[place:1500:30], Y[place:1500:30]) for place in range(30)]
SCHEMA = Schema(features=64, classes=tuple(range(10)))


def accuracy(monkeypatch: pytest.MonkeyPatch, times: float) -> float:
    """Return the accuracy where one client negates its vector, so many times too long."""
    module = sys.modules["urna.systems.average.fit"]
    honest = module.contributions

    def one_lies(plan: Any, *given: Any, **named: Any) -> Mapping[int, Callable[[], IntVector]]:
        parts: dict[int, Callable[[], IntVector]] = honest(plan, *given, **named)
        own = parts[0]

        def lie() -> IntVector:
            vector = -own().astype(np.float64)
            allowed = np.sqrt(plan.encoding.contribution.norm_squared)
            return np.rint(vector * (times * allowed / np.linalg.norm(vector))).astype(np.int64)

        return {**parts, 0: lie} if times else parts

    with monkeypatch.context() as patched:
        patched.setattr(module, "contributions", one_lies)
        made = fit(
            CLIENTS,
            SCHEMA,
            budget=Budget(2.0, 1e-5),
            learner="moments",
            adjacency=Adjacency.REPLACE_ONE_RECORD,
            run=Run(progress=False),
        )
    assert made.took_part == 30
    assert not made.faults
    return made.score(X[1500:], Y[1500:])


def test_a_vector_fifteen_times_too_long_is_accepted_and_spoils_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the guide says. Noise moves accuracy by two per cent; the model falls by seventy."""
    assert accuracy(monkeypatch, 0) > 0.7
    assert accuracy(monkeypatch, 15) < 0.2
    with pytest.raises(InvalidSum, match="add up to more or less than valid contributions can"):
        accuracy(monkeypatch, 200)

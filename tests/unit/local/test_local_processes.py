"""One candidate's end is not the end of the others."""

import math
import os
import signal
import time

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from urna.data import Samples
from urna.errors import ParameterError
from urna.local import CallableObjective, EstimatorObjective, Limits
from urna.space import Candidate, Space

DATA = Samples(np.arange(40.0)[:, None] // 4, np.arange(40) // 20)


def troublesome(candidate: Candidate, data: Samples) -> float:
    match candidate["how"]:
        case "raise":
            raise ValueError("private text")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(600)
        case "eat memory":
            return float(np.ones(2**33, dtype=np.uint8).sum())
        case "print":
            print("noise on the standard output")
    return float(len(data))


def test_a_crash_a_kill_a_timeout_and_lack_of_memory_are_bad_losses() -> None:
    space = Space(how=["fine", "raise", "kill", "print", "exit", "hang", "eat memory", "good"])
    # The limit must leave room for what the worker's imports map into its address space.
    limits = Limits(workers=2, seconds=5.0, memory=2**33)
    seen: list[tuple[int, int]] = []
    losses = CallableObjective(troublesome, limits=limits).losses(
        DATA, space, seed=0, progress=lambda done, total: seen.append((done, total))
    )
    assert losses.tolist() == [40, math.inf, math.inf, 40, math.inf, math.inf, math.inf, 40]
    assert seen == [(i, 8) for i in range(1, 9)]


def test_losses_do_not_depend_on_the_number_of_workers() -> None:
    factor = 7  # a closure travels by value

    def function(candidate: Candidate, train: Samples, validation: Samples, seed: int) -> float:
        draw = np.random.default_rng([seed, candidate["x"]]).random()
        return factor * draw + float(validation.features.sum())

    space = Space(x=list(range(7)))
    one, three = (
        CallableObjective(function, limits=Limits(workers=n)).losses(DATA, space, seed=3)
        for n in (1, 3)
    )
    assert np.array_equal(one, three)
    assert len(set(one)) == 7


def test_estimators_in_workers_give_the_losses_of_one_process() -> None:
    space = Space(max_depth=[1, 2, 3])
    plain = EstimatorObjective(DecisionTreeClassifier).losses(DATA, space, seed=0)
    limits = Limits(workers=2, seconds=60)
    pooled = EstimatorObjective(DecisionTreeClassifier, limits=limits)
    assert np.array_equal(pooled.losses(DATA, space, seed=0), plain)


def test_no_process_is_left_behind_when_progress_raises() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = _children()
    with pytest.raises(KeyboardInterrupt):
        CallableObjective(lambda c, d: 0.0, limits=Limits(workers=1)).losses(
            DATA, Space(x=[1, 2]), seed=0, progress=stop
        )
    assert _children() <= before


def _children() -> set[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(file.read().split())


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"seconds": 0.0}, {"memory": 0}])
def test_limits_refuse(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        Limits(**wrong)  # type: ignore[arg-type]

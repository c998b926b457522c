"""What one piece's data cause is that piece's alone."""

import logging
import os
import time

import apart_pieces
import numpy as np
import pytest
from apart_pieces import Remembers, Troubled
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from urna.data import Samples
from urna.errors import ParameterError, UnknownName
from urna.local import (
    BatchedObjective,
    CallableObjective,
    EstimatorObjective,
    losses_apart,
    processes,
)
from urna.space import Space

SPACE = Space(x=[1, 2])
TROUBLE = {
    "raise": "ValueError",
    "refuse": "ParameterError",
    "end": "OwnEnd",
    "leave": "SystemExit",
    "crash": processes.LOST,
    "kill": processes.LOST,
    "hang": processes.TIMED_OUT,
    "hang in a child": processes.TIMED_OUT,
    "eat memory": "MemoryError",
    "too few": "ValueError",
}


def test_whatever_a_piece_does_costs_that_piece_alone_and_the_log_names_the_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pieces = [name for trouble in TROUBLE for name in ("fine", trouble)]
    seen: list[tuple[int, int]] = []
    told: dict[int, str] = {}
    with caplog.at_level(logging.WARNING, logger="urna.local"):
        found = losses_apart(
            Troubled(), pieces, SPACE, seeds=range(len(pieces)), seconds=3.0, workers=4,
            memory=2**33, progress=lambda *done: seen.append(done), failed=told.__setitem__,
        )  # fmt: skip
    for place, (piece, losses) in enumerate(zip(pieces, found, strict=True)):
        if piece == "fine":
            assert losses is not None
            assert losses.tolist() == [5 + place, 6 + place]
        else:
            assert losses is None
            line = f"piece {place} abstains: its evaluation failed ({TROUBLE[piece]})"
            assert line in caplog.messages
            trace = told.pop(place)
            assert TROUBLE[piece] in trace
            assert ("a patient" in trace) == (piece in ("raise", "refuse", "end"))
    assert told == {}
    assert "patient" not in caplog.text
    assert len(caplog.messages) == len(TROUBLE)
    assert seen == [(2 * n, 2 * len(pieces)) for n in range(1, len(pieces) + 1)]


def test_hanging_pieces_take_their_limit_over_the_workers_and_no_longer() -> None:
    before = time.monotonic()
    found = losses_apart(Troubled(), ["hang"] * 6, SPACE, seeds=[0] * 6, seconds=1.0, workers=3)
    assert found == [None] * 6
    # Two waves of one second, and the start of the zygote.
    assert time.monotonic() - before < 2 + 10


def test_a_piece_that_takes_the_zygote_down_costs_no_other_piece() -> None:
    pieces = ["fine", "kill the zygote", "fine", "hang", "fine", "fine"]
    found = losses_apart(Troubled(), pieces, SPACE, seeds=[0] * 6, seconds=3.0, workers=2)
    assert [losses is None for losses in found] == [name == "hang" for name in pieces]


def test_every_piece_starts_as_if_it_were_the_first() -> None:
    space = Space(x=[1, 2, 3, 4, 5])
    found = losses_apart(Remembers(), [7] * 5, space, seeds=[0] * 5, seconds=20.0, workers=1)
    rows = np.array([losses for losses in found if losses is not None])
    assert len(rows) == 5
    assert (rows[:, :4] == rows[0, :4]).all()
    assert len(set(rows[:, 4])) == 5
    assert os.getpid() not in rows[:, 4]
    assert apart_pieces.TRACES == 0


def test_what_is_wrong_with_the_space_is_said_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "in_processes", lambda *_: pytest.fail("it began"))
    objective = EstimatorObjective(SGDClassifier)
    with pytest.raises(UnknownName, match="alpha"):
        losses_apart(objective, [None], Space(alhpa=[1.0]), seeds=[0], seconds=1.0)
    with pytest.raises(ParameterError, match="2 seeds for 1 pieces"):
        losses_apart(objective, [None], Space(alpha=[1.0]), seeds=[0, 1], seconds=1.0)


def test_an_objective_or_a_piece_that_cannot_travel_costs_what_it_must() -> None:
    unpicklable = (i for i in "ab")
    found = losses_apart(Troubled(), ["fine", unpicklable], SPACE, seeds=[0, 0], seconds=9.0)
    assert found[0] is not None
    assert found[1] is None
    with pytest.raises(TypeError, match="generator"):
        losses_apart(
            CallableObjective(lambda c, d: len(list(unpicklable))),
            ["a"], SPACE, seeds=[0], seconds=9.0,
        )  # fmt: skip


def test_a_hundred_shards_give_the_losses_of_one_process() -> None:
    features, targets = load_digits(return_X_y=True)
    shards = [Samples(features[i::100] / 16, targets[i::100]) for i in range(100)]
    objective = EstimatorObjective(SGDClassifier(loss="log_loss", max_iter=5, tol=None))
    space = Space(alpha=[1e-4, 1e-2, 1.0])
    found = losses_apart(objective, shards, space, seeds=[3] * 100, seconds=20.0)
    here = [objective.losses(shard, space, seed=3) for shard in shards[:10]]
    np.testing.assert_array_equal(np.array(found[:10]), here)
    assert all(losses is not None for losses in found)


def test_torch_in_a_forked_process_gives_the_losses_of_this_one() -> None:
    nn = pytest.importorskip("torch.nn")
    features, targets = load_digits(return_X_y=True)
    shards = [Samples(features[i::30] / 16, targets[i::30]) for i in range(3)]
    shards.insert(1, Samples(shards[0].features, shards[0].targets + 1))  # the class 10
    objective = BatchedObjective(
        lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)), device="cpu"
    )
    space = Space(lr=[0.1, 0.01])
    objective.losses(shards[0], space, seed=1)  # what it has recorded stays here
    found = losses_apart(objective, shards, space, seeds=[1] * 4, seconds=60.0)
    assert found[1] is None
    for place in (0, 2, 3):
        expected = objective.losses(shards[place], space, seed=1)
        np.testing.assert_array_equal(found[place], expected)


def test_processes_that_are_started_anew_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_FORKS", False)
    monkeypatch.setattr(processes, "_SPAWN_SECONDS", 15.0)
    pieces = ["fine", "end", "kill"]
    found = losses_apart(Troubled(), pieces, SPACE, seeds=[0] * 3, seconds=5.0, workers=2)
    assert found[0] is not None
    assert found[0].tolist() == [5, 6]
    assert found[1:] == [None, None]

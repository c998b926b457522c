"""A training that is killed goes on, ends with the same model and counts no round twice."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import ForkServer
from train_setting import BUDGET, CLIENTS, LEARNER, trained

from urna.errors import ParameterError
from urna.files import held_alone
from urna.privacy import Ledger
from urna.randomness import OsSecrets
from urna.systems.train import RoundReport
from urna.systems.train.checkpoint import FILE, Progress
from urna.tally import ClearSummation

ROUNDS, KILLS = 40, 30


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    here = Path(__file__).parent
    server = ForkServer(tmp_path_factory.mktemp("out"), "train_setting", folders=(here,))
    yield server
    server.close()


def rounds_done(folder: Path) -> int:
    """Return how far the checkpoint on disk has come."""
    found = Progress.read(folder)
    return 0 if found is None else found.done


def kill_again_and_again(
    processes: ForkServer, folder: Path, ledger: Path | str, kills: int
) -> list[int]:
    """Train, killed as often as asked, then undisturbed; return the rounds done at each kill.

    Before each further kill a further part of the rounds has to be done, however slow the machine
    is, and then a random time passes.
    """
    chance, at = random.Random(7), list[int]()
    while True:
        child = processes.start("train_setting:killed", str(folder), str(ledger), str(ROUNDS))
        if len(at) < kills:
            waits = time.monotonic() + 60
            while rounds_done(folder) < ROUNDS * len(at) // (kills + 2):
                assert time.monotonic() < waits
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.03))
            child.send(signal.SIGKILL)
        code = child.wait()
        if code == 0:
            return at
        assert code == -signal.SIGKILL, child.stderr.read_text()
        at.append(rounds_done(folder))


@pytest.mark.apart
def test_killed_at_many_moments_it_ends_with_the_same_model(
    processes: ForkServer, tmp_path: Path
) -> None:
    at = kill_again_and_again(processes, tmp_path / "run", "", KILLS)
    assert len(set(at)) > 5  # it went on from several of them
    undisturbed = trained(rounds=ROUNDS, folder=tmp_path / "other")
    found, expected = Progress.read(tmp_path / "run"), Progress.read(tmp_path / "other")
    assert found is not None
    assert expected is not None
    assert np.array_equal(found.weights, expected.weights)
    assert np.array_equal(found.model, undisturbed.weights)
    assert found.history == expected.history


@pytest.mark.apart
def test_nothing_is_spent_twice_by_kills(processes: ForkServer, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)  # it fits exactly once
    at = kill_again_and_again(processes, tmp_path / "run", ledger.path, 8)
    assert len(set(at)) > 2
    (entry,) = ledger.entries()
    assert entry.rounds == ROUNDS
    assert entry.cost.at(BUDGET.delta) <= BUDGET.epsilon


def test_a_finished_training_is_not_held_again(tmp_path: Path) -> None:
    first = trained(folder=tmp_path)
    again = trained(folder=tmp_path)
    assert np.array_equal(first.weights, again.weights)
    assert first.as_json() == again.as_json()


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"nothing of the kind")
    with pytest.raises(ParameterError, match="cannot be read"):
        trained(folder=tmp_path)


def test_other_clients_are_another_training(tmp_path: Path) -> None:
    trained(folder=tmp_path)
    with pytest.raises(ParameterError, match="holds another training"):
        trained(folder=tmp_path, clients=CLIENTS[:-1])


class KilledError(Exception):
    """Stands for a process that ends."""


def interrupted(folder: Path, **changes: Any) -> None:
    """Train for two rounds and end there."""

    def end(report: RoundReport) -> None:
        if report.number == 2:
            raise KilledError

    with suppress(KilledError):
        trained(folder=folder, progress=end, **changes)


@dataclass(frozen=True)
class Stepping:
    """A learner with a recipe."""

    recipe: float
    description: str = "steps"

    def first_weights(self, *, seed: int) -> Any:
        return LEARNER.first_weights(seed=seed)

    def train(self, weights: Any, clients: Any, *, number: int, seeds: Any) -> Any:
        return LEARNER.train(weights, clients, number=number, seeds=seeds)

    def judge(self, weights: Any, clients: Any) -> Any:
        return LEARNER.judge(weights, clients)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"secrets": OsSecrets()}),  # scripted rounds would be called private
        ({"secrets": OsSecrets(), "summation": ClearSummation()}, {"secrets": OsSecrets()}),
        ({"learner": Stepping(0.1)}, {"learner": Stepping(0.2)}),
        ({"about": {"split": "iid"}}, {"about": {"split": "dirichlet"}}),
    ],
    ids=["secrets", "summation", "recipe", "about"],
)
def test_what_a_statement_rests_on_does_not_change_between_rounds(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    interrupted(tmp_path, **before)
    with pytest.raises(ParameterError, match="holds another training"):
        trained(folder=tmp_path, **after)
    assert trained(folder=tmp_path, **before).rounds == 6


def test_a_training_goes_on_in_the_ledger_that_counts_it(tmp_path: Path) -> None:
    ledger, other = (Ledger.open(tmp_path / name, BUDGET) for name in ("ledger", "other"))
    run, private = tmp_path / "run", {"secrets": OsSecrets()}
    interrupted(run, ledger=ledger, **private)
    with pytest.raises(ParameterError, match="is counted in a ledger"):
        trained(folder=run, **private)
    with pytest.raises(ParameterError, match="which has no entry of it"):
        trained(folder=run, ledger=other, **private)
    assert other.entries() == []
    assert trained(folder=run, ledger=ledger, **private).rounds == 6

    interrupted(tmp_path / "uncounted", **private)
    with pytest.raises(ParameterError, match="begun without a ledger"):
        trained(folder=tmp_path / "uncounted", ledger=other, **private)


def test_two_processes_do_not_go_on_with_the_same_training(tmp_path: Path) -> None:
    interrupted(tmp_path)
    with (
        held_alone(tmp_path, "the training"),
        pytest.raises(ParameterError, match="another process is at work on the training"),
    ):
        trained(folder=tmp_path)
    assert trained(folder=tmp_path).rounds == 6

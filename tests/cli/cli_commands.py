"""What the forked processes of the command line's tests run."""

import itertools
import os
import runpy
import signal
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import urna.cli
import urna.cli.app
import urna.study.run
import urna.study.stages
from urna.errors import ProtocolError, RoundAborted
from urna.privacy import Budget, Ledger
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.study.journal import Journal
from urna.systems.train.checkpoint import Progress
from urna.systems.vote import plan

__all__ = ["clocked", "command", "killed", "without_helper"]

# Pricing takes most of a command's time. What is priced here once is known to every fork.
_small = plan(clients=60, candidates=3, votes=1, budget=Budget(0.2, 1e-2))
_small.epsilon_for(30.0)
_small.clients_for(0.5)
plan(clients=12, candidates=3, votes=1, budget=Budget(0.5, 1e-3))
for _votes in (1, 2):
    plan(clients=40, candidates=10, votes=_votes, budget=Budget(0.5, 1e-5))


def command(*arguments: str) -> None:
    """Be `python -m urna` with these arguments."""
    sys.argv = ["urna", *arguments]
    runpy.run_module("urna", run_name="__main__", alter_sys=True)


def clocked(speed: str, *arguments: str) -> None:
    """Be `python -m urna` with these arguments, always with the same secrets, private as ever.

    All clocks run `speed` times as fast, so that every stage seems to take as much longer. The
    wall clock goes on by as many seconds whenever it is read, within one day.
    """
    factor, read = float(speed), itertools.count(1)
    secrets, names = ScriptedSecrets(b"clocked"), ScriptedSecrets(b"names")

    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        real = getattr(time, name)
        setattr(time, name, lambda real=real: factor * real())
    day = time.time() // 86_400 * 86_400
    time.time = lambda: day + factor * next(read)
    setattr(OsSecrets, "take", lambda _, count: secrets.take(count))  # noqa: B010
    uuid.uuid4 = lambda: uuid.UUID(bytes=names.take(16), version=4)
    command(*arguments)


def without_helper(stage: str, *arguments: str) -> None:
    """Be `python -m urna` with these arguments, in votes whose helper is lost at a stage.

    `run_round` is the secure sum, `run_hidden` the circuit.
    """

    def lost(*_: Any, **__: Any) -> Any:
        failed = RoundAborted if stage == "run_round" else ProtocolError
        raise failed("the helper is lost")

    setattr(sys.modules["urna.tally.selection"], stage, lost)
    command(*arguments)


def killed(point: str, *arguments: str) -> None:
    """Be `python -m urna` with these arguments, and kill -9 oneself at a point of a study."""

    def dying(owner: Any, name: str, when: Callable[..., bool]) -> None:
        real = getattr(owner, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            if when(*given):
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(owner, name, wrapped)

    if point == "paid":  # a release is in the ledger, and nothing of it is on disk
        dying(Ledger, "charge", lambda *_: True)
    elif point == "summed":  # the same where nothing is counted
        dying(urna.study.stages, "fill_all", lambda *_: True)
    elif point == "tallied":  # the tally is on disk, its winner is not weighed
        dying(Journal, "keep", lambda _, name, *__: name == "vote.json")
    elif point == "trained":  # a round of training is on disk
        dying(Progress, "write", lambda state, _: state.done == 1)
    else:  # everything is there but the last result
        dying(urna.study.run, "write_model", lambda *_: True)
    command(*arguments)

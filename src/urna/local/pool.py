"""Candidates judged in processes of their own, with limits, so that none can stop the rest.

Guarantee:
    A candidate that raises, exceeds its time or memory, or takes its process down (a crash
    in native code, a kill) has an infinite loss. All others are judged as if it were not
    there. Losses do not depend on the number of workers, as long as the function's result
    depends on its arguments alone; the seed is one of them.
"""

import math
import os
import pickle
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from urna.data import Samples
from urna.errors import ParameterError
from urna.local.callable import call_arguments, call_shape, one_loss, report_failures
from urna.local.objective import Losses, Progress
from urna.local.worker import receive, send
from urna.space import Candidate, Space

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:  # joblib, which scikit-learn brings, carried its own copy before 1.6
    from joblib.externals import cloudpickle

__all__ = ["Limits", "PooledObjective", "judge_all"]

_START_SECONDS = 120.0
"""How long a worker may take to start and import what its task needs."""

Judge = Callable[[Candidate], tuple[float, str]]
"""Returns a candidate's loss and the name of the error that ended it, if any."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one candidate may use, and how many run at once."""

    workers: int | None = None
    """Processes; None for one per core this process may use."""
    seconds: float | None = None
    """Wall time per candidate; None for no limit."""
    memory: int | None = None
    """Bytes of address space per process; None for no limit."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")
        if self.seconds is not None and not self.seconds > 0:
            raise ParameterError(f"the time limit must be positive, got {self.seconds}")
        if self.memory is not None and self.memory < 1:
            raise ParameterError(f"the memory limit must be positive, got {self.memory}")

    def count(self, candidates: int) -> int:
        """Return how many workers to start."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return min(self.workers or cores or 1, candidates)


@dataclass(frozen=True, slots=True)
class PooledObjective:
    """Judge each candidate by a function of your own, in a process of its own.

    The function is called as by `CallableObjective`. It may be any function, lambdas and
    functions of a notebook included; what it needs must be importable in a fresh process.

    Args:
        function: What judges a candidate.
        limits: Processes, time and memory.
        validation_fraction: Share of rows to validate on, for three-argument functions.
    """

    function: Callable[..., float]
    limits: Limits = Limits()
    validation_fraction: float = 0.2

    def __post_init__(self) -> None:
        call_shape(self.function)

    def losses(
        self, data: Samples, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        """Return the function's value for every candidate, infinite where it failed."""
        arguments, keywords = call_arguments(
            self.function, data, fraction=self.validation_fraction, seed=seed
        )
        function = self.function

        def judge(candidate: Candidate) -> tuple[float, str]:
            return one_loss(function, candidate, arguments, keywords), ""

        return judge_all(judge, space, self.limits, progress)


def judge_all(
    judge: Judge, candidates: Sequence[Candidate], limits: Limits, progress: Progress | None = None
) -> Losses:
    """Judge candidates in worker processes and return their losses, in order.

    Args:
        judge: What judges; travels to the workers by value.
        candidates: What is judged.
        limits: Processes, time and memory.
        progress: Called after each candidate, from the caller's thread.
    """
    total = len(candidates)
    task = pickle.dumps((limits.memory, cloudpickle.dumps(judge)))
    waiting: queue.SimpleQueue[tuple[int, Candidate]] = queue.SimpleQueue()
    for item in enumerate(candidates):
        waiting.put(item)
    judged: queue.SimpleQueue[tuple[int, float, str]] = queue.SimpleQueue()
    desks = [_Desk(task, limits, waiting, judged) for _ in range(limits.count(total))]
    losses = np.full(total, math.inf)
    errors: list[str] = []
    try:
        for desk in desks:
            desk.start()
        for done in range(1, total + 1):
            place, losses[place], error = judged.get()
            errors += [error] if error else []
            if progress is not None:
                progress(done, total)
    finally:
        for desk in desks:
            desk.close()
        for desk in desks:
            desk.join()
    report_failures(errors, total)
    return losses


class _Desk(threading.Thread):
    """Hands candidates to one worker process, and replaces it when it is lost."""

    def __init__(
        self,
        task: bytes,
        limits: Limits,
        waiting: "queue.SimpleQueue[tuple[int, Candidate]]",
        judged: "queue.SimpleQueue[tuple[int, float, str]]",
    ) -> None:
        super().__init__(daemon=True)
        self._task, self._limits = task, limits
        self._waiting, self._judged = waiting, judged
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until no candidate waits."""
        while not self._closed.is_set():
            try:
                place, candidate = self._waiting.get_nowait()
            except queue.Empty:
                break
            loss, error = self._ask(candidate)
            self._judged.put((place, math.inf if math.isnan(loss) else loss, error))
        self._stop()

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        self._closed.set()
        self._stop()

    def _ask(self, candidate: Candidate) -> tuple[float, str]:
        if self._process is None:
            self._begin()
            if self._reply(_START_SECONDS) != b"ready":
                self._stop()
                return math.inf, "WorkerLost"
        process = self._process
        if process is None or process.stdin is None:
            return math.inf, "WorkerLost"
        try:
            send(process.stdin, pickle.dumps(dict(candidate)))
        except OSError:
            self._stop()
            return math.inf, "WorkerLost"
        reply = self._reply(self._limits.seconds)
        if reply is None:
            self._stop()
            return math.inf, "WorkerLost"
        answer: tuple[float, str] = pickle.loads(reply)  # noqa: S301 - from our own worker
        return answer

    def _begin(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._process = subprocess.Popen(
                [sys.executable, "-m", "urna.local.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
            )
            process = self._process
        try:
            if process.stdin is not None:
                send(process.stdin, self._task)
        except OSError:  # it died at once; the missing reply says so
            return

    def _reply(self, seconds: float | None) -> bytes | None:
        """Return the worker's next message; None when it is late or gone."""
        process = self._process
        if process is None or process.stdout is None:
            return None
        deadline = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not selector.select(left):
                return None
        try:
            return receive(process.stdout)
        except (OSError, ValueError):  # closed under our feet by `close`
            return None

    def _stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # unsent bytes of a question nobody will answer
                    continue


def _environment() -> dict[str, str]:
    """Return this process's environment, with its import path, and one thread per worker."""
    paths = [p for p in sys.path if p]
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return {**environment, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

"""Strangers' code in processes of its own, with limits, so that nothing can stop the rest.

Guarantee:
    Every item is worked on in a fresh process that has seen no other item. One that raises
    anything, exceeds its time or memory, or takes its process down (a crash in native code, a
    kill) costs that item only. All are over after items x seconds / workers, and the start.

Assumes:
    The operating system keeps processes apart. Code that attacks its machine is not stopped:
    this is isolation of failures, not a sandbox.

An item is a candidate, or a piece of data: a shard of one client's records, or a whole client.
Where there is a safe fork, processes are forked from a zygote (`urna.local.worker`) that has
imported what is needed and done nothing else; that takes milliseconds. Elsewhere (Windows,
macOS) each is started anew.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local.generators import own_generators
from urna.local.objective import Losses, Objective, Progress, check_objective
from urna.local.worker import PID, WorkerTask, read_answer
from urna.space import Space

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:  # joblib, which scikit-learn brings, carried its own copy before 1.6
    from joblib.externals import cloudpickle

__all__ = ["LOST", "TIMED_OUT", "ItemReply", "Limits", "in_processes", "losses_apart"]

LOST, TIMED_OUT = "ProcessLost", "TimedOut"
_FORKS = hasattr(os, "fork") and sys.platform != "darwin"  # there, system libraries break in a fork
_WORKER = (sys.executable, "-c", "from urna.local.worker import main; main()")
_START_SECONDS = 120.0
"""How long a zygote may take to import what its task needs."""
_SPAWN_SECONDS = 20.0
"""What a process that is started anew may take for its imports, on top of its limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process may use, and how many run at once."""

    workers: int | None = None
    """Processes; None for one per core this process may use."""
    seconds: float | None = None
    """Wall time per process; None for no limit."""
    memory: int | None = None
    """Bytes of address space per process; None for no limit."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")
        if self.seconds is not None and not self.seconds > 0:
            raise ParameterError(f"the time limit must be positive, got {self.seconds}")
        if self.memory is not None and self.memory < 1:
            raise ParameterError(f"the memory limit must be positive, got {self.memory}")

    def count(self, items: int) -> int:
        """Return how many processes run at once."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return max(min(self.workers or cores or 1, items), 1)


@dataclass(frozen=True, slots=True, eq=False)
class ItemReply:
    """What came of one item."""

    place: int
    """Which item it was."""
    numbers: npt.NDArray[np.float64] | None
    """What the task returned; None if the item was lost."""
    error: str = ""
    """The type of what ended it, `LOST` or `TIMED_OUT`; no text, which may hold data."""
    trace: str = ""
    """The whole traceback, for the owner of the data alone: its text may hold them."""
    raised: Exception | None = None
    """The error itself, where the item was worked on in this process."""


def in_processes(task: WorkerTask, items: Sequence[Any], limits: Limits) -> Iterator[ItemReply]:
    """Yield the answer to every item, in the order in which they are done.

    Args:
        task: What is done with an item; travels by value, and is prepared once.
        items: Each travels to a process of its own.
        limits: Processes, time and memory.
    """
    kind = _Forked if _FORKS else _Spawned
    with contextlib.closing(kind(cloudpickle.dumps(task), limits)) as processes:

        def one(place: int, item: Any) -> ItemReply:  # noqa: ANN401 - whatever is sent
            try:
                return ItemReply(place, *read_answer(processes.ask(cloudpickle.dumps(item))))
            except ValueError:
                return ItemReply(place, None, LOST)
            except (TimeoutError, subprocess.TimeoutExpired):
                return ItemReply(place, None, TIMED_OUT)
            except Exception as error:  # it cannot be pickled, or no process can be had
                return ItemReply(place, None, type(error).__name__)

        with ThreadPoolExecutor(limits.count(len(items))) as pool:
            waiting = [pool.submit(one, place, item) for place, item in enumerate(items)]
            try:
                for done in as_completed(waiting):
                    yield done.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.close()  # who is still at work is not waited for


class _Forked:
    """Processes forked from a zygote; it is started when first needed, and anew if it is lost."""

    def __init__(self, task: bytes, limits: Limits) -> None:
        self._start = pickle.dumps((limits.memory, task, None))
        self._seconds = limits.seconds
        self._zygote: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._forked: set[int] = set()
        self._fails = False
        self._lock = Lock()

    def ask(self, item: bytes) -> bytes:
        """Return what a new process answers; less than all of it where the process is lost."""
        with self._lock:
            try:
                pid, connection = self._fork()
            except OSError:  # whoever took the zygote down is not the one who asks now
                self._end()
                pid, connection = self._fork()
        hangs = True
        end = None if self._seconds is None else time.monotonic() + self._seconds
        try:
            with connection, contextlib.suppress(ConnectionError):
                connection.settimeout(self._seconds)
                connection.sendall(item)
                connection.shutdown(socket.SHUT_WR)
                answer = bytearray()
                while part := connection.recv(2**16):
                    answer += part
                    if end is not None:
                        connection.settimeout(max(end - time.monotonic(), 1e-3))
                hangs = False
                return bytes(answer)
            hangs = False
            return b""
        finally:
            with self._lock:
                self._kill(pid, hangs=hangs)

    def close(self) -> None:
        """End the zygote, and with it what it has forked."""
        with self._lock:
            self._fails = True
            self._end()

    def _fork(self) -> tuple[int, socket.socket]:
        control = self._control()
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [b"f"], [theirs.fileno()])
            reply = control.recv(PID.size)
            if len(reply) < PID.size:
                raise ConnectionError("the zygote is gone")
        except OSError:
            mine.close()
            raise
        (pid,) = PID.unpack(reply)
        self._forked.add(pid)
        return pid, mine

    def _kill(self, pid: int, *, hangs: bool) -> None:
        """End a process and all that it has started."""
        with contextlib.suppress(OSError):
            if self._zygote is not None and pid in self._forked:
                self._forked.discard(pid)
                self._zygote[1].send(PID.pack(pid))
            elif hangs:  # of a zygote that was lost; as it is there, its number is no other's
                os.killpg(pid, signal.SIGKILL)

    def _control(self) -> socket.socket:
        if self._zygote is not None:
            return self._zygote[1]
        if self._fails:
            raise ConnectionError("the zygote could not load its task")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [*_WORKER, "fork", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,
            )
        self._zygote, self._fails = (process, mine), True
        mine.settimeout(_START_SECONDS)
        if process.stdin is not None:
            with process.stdin as stdin:
                stdin.write(self._start)
        if mine.recv(5) != b"ready":
            raise ConnectionError("the zygote could not load its task")
        self._fails = False
        return mine

    def _end(self) -> None:
        if self._zygote is not None:
            process, control = self._zygote
            control.close()  # it then kills its processes
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        self._zygote = None
        self._forked.clear()


class _Spawned:
    """Processes started anew for every item: slower, and works everywhere."""

    def __init__(self, task: bytes, limits: Limits) -> None:
        self._task, self._memory = task, limits.memory
        self._patience = None if limits.seconds is None else limits.seconds + _SPAWN_SECONDS

    def ask(self, item: bytes) -> bytes:
        """Return what a new process answers; less than all of it where the process is lost."""
        done = subprocess.run(  # noqa: S603 - our own module
            [*_WORKER, "once"],
            input=pickle.dumps((self._memory, self._task, item)),
            stdout=subprocess.PIPE,
            env=_environment(),
            timeout=self._patience,
            check=False,
        )
        return done.stdout

    def close(self) -> None:
        """Have nothing to end: every process has its limit."""


def _environment() -> dict[str, str]:
    """Return this process's environment, with its import path, and one thread per process."""
    paths = os.pathsep.join(p for p in sys.path if p)
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **single, "PYTHONPATH": paths}


_log = logging.getLogger(__name__)

DataT = TypeVar("DataT")


def losses_apart(
    objective: Objective[DataT],
    pieces: Sequence[DataT],
    space: Space,
    *,
    seeds: Sequence[int],
    seconds: float,
    workers: int | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    failed: Callable[[int, str], None] | None = None,
) -> list[Losses | None]:
    """Return the losses of every piece, or None where its evaluation failed.

    Guarantee:
        Each piece is evaluated in a fresh process that has seen no other. Its losses depend on
        its data, its seed, the objective and the space alone. Anything raised, a crash, a kill,
        lack of memory and `seconds` passed cost that piece only; why is written to this
        process's own log, as the type of the error and nothing else. All is over after
        pieces x seconds / workers, and the time it takes to start.

    Assumes:
        The objective computes from what it is given, not from files or services that other
        pieces write to. On a machine busy enough, a piece may miss `seconds` because of others:
        leave room.

    Args:
        objective: What evaluates; travels by value, so it and the data can be pickled.
        pieces: The data. Pass the pieces of all clients at once: the start is paid once.
        space: The candidates, in order.
        seeds: One public seed per piece.
        seconds: Wall time one piece may take.
        workers: Pieces at once; None for one per core.
        memory: Bytes of address space one piece may take; None for no limit.
        progress: Called with candidates of all pieces, piece by piece.
        failed: Called with a failed piece's place and traceback, whose text may hold data.

    Raises:
        ParameterError: The objective cannot judge the space. Nothing was computed.
    """
    if len(seeds) != len(pieces):
        raise ParameterError(
            f"every piece needs a seed, got {len(seeds)} seeds for {len(pieces)} pieces"
        )
    check_objective(objective, space)
    losses: list[Losses | None] = [None] * len(pieces)
    total = len(pieces) * len(space)
    answers = in_processes(
        _Evaluation(objective, space),
        list(zip(pieces, seeds, strict=True)),
        Limits(workers=workers, seconds=seconds, memory=memory),
    )
    for done, answer in enumerate(answers, start=1):
        losses[answer.place] = answer.numbers
        if answer.numbers is None:
            _log.warning(
                "piece %d abstains: its evaluation failed (%s)", answer.place, answer.error
            )
            if failed is not None:
                failed(answer.place, answer.trace or answer.error)
        if progress is not None:
            progress(done * len(space), total)
    return losses


@dataclass(frozen=True, slots=True)
class _Evaluation(Generic[DataT]):
    """What a process does with one piece."""

    objective: Objective[DataT]
    space: Space

    def prepare(self) -> None:
        """Import what the objective needs."""
        check_objective(self.objective, self.space)

    def __call__(self, item: tuple[DataT, int]) -> Losses:
        """Return the losses of one piece."""
        data, seed = item
        with own_generators(seed):
            found = self.objective.losses(data, self.space, seed=seed)
        losses = np.asarray(found, dtype=np.float64)
        if losses.shape != (len(self.space),):
            raise ValueError("an objective returns one loss per candidate")
        return losses

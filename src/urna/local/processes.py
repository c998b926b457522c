"""Strangers' code in processes of its own, with limits, so that nothing can stop the rest.

Guarantee:
    Every item is worked on in a fresh process that has seen no other item. One that raises
    anything, exceeds its time or memory, or takes its process down (a crash in native code, a
    kill) costs that item only. All are over after items x seconds / workers, and the start.

Assumes:
    The operating system keeps processes apart. Code that attacks its machine is not stopped:
    this is isolation of failures, not a sandbox.

Where there is a safe fork, processes are forked from a zygote (`urna.local.worker`) that has
imported what is needed and done nothing else; that takes milliseconds. Elsewhere (Windows,
macOS) each is started anew.
"""

import contextlib
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.local.worker import PID, Task, framed, read_answer, unframed

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:  # joblib, which scikit-learn brings, carried its own copy before 1.6
    from joblib.externals import cloudpickle

__all__ = ["LOST", "TIMED_OUT", "Answer", "Limits", "in_processes"]

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
class Answer:
    """What came of one item."""

    place: int
    """Which item it was."""
    numbers: npt.NDArray[np.float64] | None
    """What the task returned; None if the item was lost."""
    error: str = ""
    """The type of what ended it, `LOST` or `TIMED_OUT`; no text, which may hold data."""


def in_processes(task: Task, items: Sequence[Any], limits: Limits) -> Iterator[Answer]:
    """Yield the answer to every item, in the order in which they are done.

    Args:
        task: What is done with an item; travels by value, and is prepared once.
        items: Each travels to a process of its own.
        limits: Processes, time and memory.
    """
    start = framed(pickle.dumps(limits.memory)) + framed(cloudpickle.dumps(task))
    run = _forked if _FORKS else _spawned
    return run(start, items, limits)


def _forked(start: bytes, items: Sequence[Any], limits: Limits) -> Iterator[Answer]:
    with contextlib.ExitStack() as stack:
        zygote = stack.enter_context(contextlib.closing(_Zygote(start)))
        selector = stack.enter_context(selectors.DefaultSelector())
        waiting = iter(enumerate(items))
        running: list[_Child] = []
        stack.callback(_close_all, running, zygote)
        workers, left = limits.count(len(items)), len(items)
        while left:
            while len(running) < min(workers, left):
                place, item = next(waiting)
                try:
                    child = _Child(place, cloudpickle.dumps(item), limits.seconds, zygote)
                except Exception as error:  # it cannot be pickled, or no process can be had
                    left -= 1
                    yield Answer(place, None, type(error).__name__)
                    continue
                running.append(child)
                selector.register(child.socket, child.events, child)
            if not running:
                continue
            ready = {key.data for key, _ in selector.select(_patience(running))}
            for child in list(running):
                answer = child.advance(ready=child in ready)
                if answer is None:
                    selector.modify(child.socket, child.events, child)
                    continue
                selector.unregister(child.socket)
                running.remove(child)
                child.close(zygote)
                left -= 1
                yield answer


def _close_all(running: "Sequence[_Child]", zygote: "_Zygote") -> None:
    for child in running:
        child.close(zygote)


def _patience(running: "Sequence[_Child]") -> float | None:
    """Return how long to wait for an answer before a limit is reached."""
    deadlines = [child.deadline for child in running if child.deadline is not None]
    return max(min(deadlines) - time.monotonic(), 0) if deadlines else None


class _Zygote:
    """Forks processes on request; started when first needed, and anew should it be lost."""

    def __init__(self, start: bytes) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forked: set[int] = set()
        self._fails = False

    def fork(self) -> tuple[int, socket.socket]:
        """Return a new process, and the connection to it.

        Raises:
            OSError: None can be had.
        """
        try:
            return self._fork(self._ready())
        except OSError:
            self.close()
        # Whoever took the zygote down is not the one who asks now.
        return self._fork(self._ready())

    def _fork(self, control: socket.socket) -> tuple[int, socket.socket]:
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

    def kill(self, pid: int, *, runs: bool) -> None:
        """End a process and all that it has started; `runs` says that it is surely there."""
        with contextlib.suppress(OSError):
            if self._control is not None and pid in self._forked:
                self._forked.discard(pid)
                self._control.send(PID.pack(pid))
            elif runs:  # of a zygote that was lost: its number is not another's
                os.killpg(pid, signal.SIGKILL)

    def _ready(self) -> socket.socket:
        if self._control is not None:
            return self._control
        if self._fails:
            raise ConnectionError("the zygote could not load its task")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [*_WORKER, "fork", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,
            )
        self._control, self._fails = mine, True
        mine.settimeout(_START_SECONDS)
        try:
            if self._process.stdin is not None:
                with self._process.stdin as stdin:
                    stdin.write(self._start)
            if mine.recv(5) != b"ready":
                raise ConnectionError("the zygote could not load its task")
        except OSError:
            self.close()
            raise
        self._fails = False
        return mine

    def close(self) -> None:
        """End the zygote, and with it what it has forked."""
        if self._control is not None:
            self._control.close()  # it then kills its processes
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process.kill()
            self._process.wait()
        self._control = self._process = None
        self._forked.clear()


class _Child:
    """One item on its way through a process."""

    def __init__(self, place: int, item: bytes, seconds: float | None, zygote: _Zygote) -> None:
        self.place = place
        self.pid, self.socket = zygote.fork()
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.socket.setblocking(False)
        self._unsent = memoryview(framed(item))
        self._received = bytearray()
        self._runs = True

    @property
    def events(self) -> int:
        """What to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def advance(self, *, ready: bool) -> Answer | None:
        """Send and receive what can be; return the answer once there is one."""
        if ready:
            try:
                if self._unsent:
                    with contextlib.suppress(BlockingIOError):
                        self._unsent = self._unsent[self.socket.send(self._unsent) :]
                with contextlib.suppress(BlockingIOError):
                    part = self.socket.recv(2**16)
                    self._received += part
                    self._runs = bool(part)
            except OSError:
                self._runs = False
            message = unframed(self._received)
            if message is not None:
                self._runs = False
                return Answer(self.place, *read_answer(message))
        if not self._runs:
            return Answer(self.place, None, LOST)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return Answer(self.place, None, TIMED_OUT)
        return None

    def close(self, zygote: _Zygote) -> None:
        """End the process."""
        zygote.kill(self.pid, runs=self._runs)
        self.socket.close()


def _spawned(start: bytes, items: Sequence[Any], limits: Limits) -> Iterator[Answer]:
    """Start a process anew for every item: slower, and works everywhere."""
    patience = None if limits.seconds is None else limits.seconds + _SPAWN_SECONDS

    def one(place: int, item: Any) -> Answer:  # noqa: ANN401 - whatever is sent
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                [*_WORKER, "once"],
                input=start + framed(cloudpickle.dumps(item)),
                stdout=subprocess.PIPE,
                env=_environment(),
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(place, None, TIMED_OUT)
        except Exception as error:  # it cannot be pickled, or no process can be had
            return Answer(place, None, type(error).__name__)
        message = unframed(done.stdout)
        return (
            Answer(place, None, LOST) if message is None else Answer(place, *read_answer(message))
        )

    with ThreadPoolExecutor(limits.count(len(items))) as pool:
        waiting = [pool.submit(one, place, item) for place, item in enumerate(items)]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _environment() -> dict[str, str]:
    """Return this process's environment, with its import path, and one thread per process."""
    paths = os.pathsep.join(p for p in sys.path if p)
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **single, "PYTHONPATH": paths}

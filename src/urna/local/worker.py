"""The far end of `urna.local.processes`. It is no part of the public interface.

Called as `fork N` it is a zygote: it loads a task from its standard input, which imports all that
the task needs, and then forks a process for every connection that comes over the socket with the
number N. It never sees what the processes work on, starts no thread and computes nothing, so each
process begins as if it were the first. Called as `once` it does a single item from standard input
to standard output, where there is no fork.
"""

import contextlib
import gc
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["PID", "WorkerTask", "main", "read_answer"]

PID = struct.Struct("<q")
_DONE, _FAILED, _END = b"\1", b"\0", b"."
_LONGEST_TRACE = 20_000  # characters: an error's text may hold all of a client's data


class WorkerTask(Protocol):
    """What is done with every item."""

    def prepare(self) -> None:
        """Import what will be needed; compute nothing."""
        ...

    def __call__(self, item: Any) -> npt.ArrayLike:  # noqa: ANN401 - whatever was sent
        """Return the numbers that answer an item."""
        ...


def read_answer(message: bytes) -> tuple[npt.NDArray[np.float64] | None, str, str]:
    """Return the numbers of an answer, or None, the type of the error and its traceback.

    Raises:
        ValueError: The process was lost before its answer was whole.
    """
    if message[-1:] != _END:
        raise ValueError("the answer is not whole")
    if message[:1] == _DONE:
        return np.frombuffer(message[1:-1], np.float64).copy(), "", ""
    kind, _, trace = message[1:-1].decode(errors="replace").partition("\n")
    return None, kind, trace


def main() -> None:
    """Serve as the command line says."""
    answers = os.dup(sys.stdout.fileno())
    # What a task prints must not mix with answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    memory, task, item = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent process
    if sys.argv[1] == "fork":
        with socket.socket(fileno=int(sys.argv[2])) as control:
            _serve(control, _load(task), memory)
        return
    _limit_memory(memory)
    with os.fdopen(answers, "wb") as out:
        out.write(_answer(lambda: _load(task), item))


def _load(pickled: bytes) -> WorkerTask:
    task: WorkerTask = pickle.loads(pickled)  # noqa: S301 - likewise
    task.prepare()
    return task


def _serve(control: socket.socket, task: WorkerTask, memory: int | None) -> None:
    """Fork for every connection, and kill who is named, until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: set[int] = set()
    killed: set[int] = set()
    gc.freeze()  # what is loaded stays shared: a collection in a fork would copy its pages
    control.send(b"ready")
    while True:
        request, connections, _, _ = socket.recv_fds(control, PID.size, 1)
        if not request:
            break
        killed -= {pid for pid in killed if os.waitpid(pid, os.WNOHANG)[0]}
        if connections:
            pid = os.fork()
            if pid == 0:
                control.close()
                _serve_one(connections[0], task, memory)
            os.close(connections[0])
            running.add(pid)
            control.send(PID.pack(pid))
            continue
        (pid,) = PID.unpack(request)
        if pid in running:
            _kill(pid)
            running.discard(pid)
            killed.add(pid)
    for pid in running:
        _kill(pid)


def _kill(pid: int) -> None:
    """End a process and all that it has started."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _serve_one(connection: int, task: WorkerTask, memory: int | None) -> NoReturn:
    """Be the forked process: answer one item and end."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _limit_memory(memory)
        with socket.socket(fileno=connection) as mine:
            item = mine.makefile("rb").read()
            mine.sendall(_answer(lambda: task, item))
            # Processes that this one has started may hold the connection open; it ends here.
            mine.shutdown(socket.SHUT_RDWR)
    finally:
        os._exit(0)


def _answer(task: Callable[[], WorkerTask], item: bytes) -> bytes:
    try:
        numbers = np.asarray(task()(pickle.loads(item)), dtype=np.float64)  # noqa: S301
    except BaseException as error:
        # Whatever a stranger's code raises is its own verdict. Its text may hold data: it goes to
        # the process that owns the data, which logs the type unless it is asked for more.
        trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
        said = f"{type(error).__name__}\n{trace}"
        return _FAILED + said.encode(errors="replace") + _END
    return _DONE + numbers.tobytes() + _END


def _limit_memory(size: int | None) -> None:
    if size is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limit on this system
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (size, size))

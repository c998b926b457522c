"""The far end of `urna.local.processes`. It is no part of the public interface.

Called as `fork N` it is a zygote: it loads a task from its standard input, which
imports all that the task needs, and then forks a process for every connection that comes over
the socket with the number N. It never sees what the processes work on, runs no thread and
computes nothing, so each process starts as if it were the first. Called as
`once` it does a single item from standard input to standard output, where there is no fork.
"""

import contextlib
import gc
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn, Protocol, cast

import numpy as np
import numpy.typing as npt

__all__ = ["PID", "Task", "framed", "main", "read_answer", "unframed"]

PID = struct.Struct("<q")
_LENGTH = struct.Struct("<Q")
_DONE, _FAILED = b"\1", b"\0"


class Task(Protocol):
    """What is done with every item."""

    def prepare(self) -> None:
        """Import what will be needed; compute nothing."""
        ...

    def __call__(self, item: Any) -> npt.ArrayLike:  # noqa: ANN401 - whatever was sent
        """Return the numbers that answer an item."""
        ...


def framed(message: bytes) -> bytes:
    """Return a message with its length first, as it travels."""
    return _LENGTH.pack(len(message)) + message


def send(stream: BinaryIO, message: bytes) -> None:
    """Write one message."""
    stream.write(framed(message))
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Read one message; None when the other end is gone."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    message = stream.read(length)
    return message if len(message) == length else None


def unframed(received: bytes | bytearray) -> bytes | None:
    """Return the message of what came so far; None while it is not whole."""
    head = _LENGTH.size
    if len(received) < head or len(received) < head + _LENGTH.unpack(received[:head])[0]:
        return None
    return bytes(received[head:])


def read_answer(message: bytes) -> tuple[npt.NDArray[np.float64] | None, str]:
    """Return the numbers of an answer, or None and the type of the error that ended it."""
    if message[:1] == _DONE:
        return np.frombuffer(message[1:], np.float64).copy(), ""
    return None, message[1:].decode(errors="replace")


def main() -> None:
    """Serve as the command line says."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a task prints must not mix with answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    head, body = receive(sys.stdin.buffer), receive(sys.stdin.buffer)
    if head is None or body is None:
        return
    memory = pickle.loads(head)  # noqa: S301 - from our own parent process
    if sys.argv[1] == "fork":
        with socket.socket(fileno=int(sys.argv[2])) as control:
            _serve(control, _load(body), memory)
        return
    item = receive(sys.stdin.buffer)
    if item is not None:
        _limit_memory(memory)
        send(answers, _answer(lambda: _load(body), item))


def _load(pickled: bytes) -> Task:
    task: Task = pickle.loads(pickled)  # noqa: S301 - likewise
    task.prepare()
    return task


def _serve(control: socket.socket, task: Task, memory: int | None) -> None:
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
        else:
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


def _serve_one(connection: int, task: Task, memory: int | None) -> NoReturn:
    """Be the forked process: answer one item and end."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _limit_memory(memory)
        stream = cast("BinaryIO", socket.socket(fileno=connection).makefile("rwb"))
        item = receive(stream)
        if item is not None:
            send(stream, _answer(lambda: task, item))
        code = 0
    finally:
        os._exit(code)


def _answer(task: Callable[[], Task], item: bytes) -> bytes:
    try:
        numbers = np.asarray(task()(pickle.loads(item)), dtype=np.float64)  # noqa: S301
    except BaseException as error:
        # Whatever a stranger's code raises is its own verdict; the text may hold data.
        return _FAILED + type(error).__name__.encode()
    return _DONE + numbers.tobytes()


def _limit_memory(size: int | None) -> None:
    if size is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limit on this system
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (size, size))

"""The far end of `urna.local.pool`: one process that judges candidates until told to stop.

Run as `python -m urna.local.worker`. It reads a task and then candidates from its standard
input and answers on what was its standard output; whatever the task prints goes to the
standard error instead. It is no part of the public interface.
"""

import contextlib
import os
import pickle
import struct
import sys
from typing import IO, Any

__all__ = ["main", "receive", "send"]

_HEADER = struct.Struct("<Q")


def send(stream: IO[bytes], message: bytes) -> None:
    """Write one message, its length first."""
    stream.write(_HEADER.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one message; None when the other end is gone."""
    header = _exactly(stream, _HEADER.size)
    return None if header is None else _exactly(stream, _HEADER.unpack(header)[0])


def _exactly(stream: IO[bytes], count: int) -> bytes | None:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main() -> None:
    """Answer candidates until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions = sys.stdin.buffer
    first = receive(questions)
    if first is None:
        return
    memory_limit, task = pickle.loads(first)  # noqa: S301 - from our own parent process
    if memory_limit is not None:
        _limit_memory(memory_limit)
    judge = pickle.loads(task)  # noqa: S301 - likewise
    send(answers, b"ready")
    while (question := receive(questions)) is not None:
        send(answers, pickle.dumps(_answer(judge, pickle.loads(question))))  # noqa: S301


def _answer(judge: Any, candidate: Any) -> tuple[float, str]:  # noqa: ANN401 - pickled
    try:
        loss, error = judge(candidate)
    except Exception as error:
        # Whatever a stranger's function raises is its own verdict on this candidate.
        return float("inf"), type(error).__name__
    return float(loss), error


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limit on this system
        import resource  # noqa: PLC0415 - POSIX only

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


if __name__ == "__main__":
    main()

"""Parties of an encrypted combination as processes: each holds its own search and secrets.

Only bytes pass between them, and none profits from another's tables: what it costs is measured so.
"""

import multiprocessing
import os
import struct
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from urna.randomness import OsSecrets
from urna.systems.combine import LocalSearch, PartySession, RunName, Seat

__all__ = ["ProcessParties"]

_PATIENCE = 300.0  # seconds for one exchange
_HEAD = struct.Struct(">d")


class ProcessParties:
    """Every party in a process of its own on this machine. Use it as a context manager.

    Processes come from a fresh interpreter that has imported this module once; nothing of the
    server's memory is in them. A party's secrets end with its process.

    Args:
        run: What all agreed to.
        searches: Each party's search.
        vanish: Parties that die, and after how many letters.
    """

    def __init__(
        self,
        run: RunName,
        searches: Sequence[LocalSearch],
        vanish: Mapping[int, int] | None = None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._links: dict[int, Connection] = {}
        self._processes = []
        self._spent: dict[int, float] = {}
        for party, search in enumerate(searches):
            here, there = context.Pipe()
            last = (vanish or {}).get(party)
            process = context.Process(
                target=_serve, args=(there, Seat(run, party, search), last), daemon=True
            )
            process.start()
            there.close()
            self._links[party] = here
            self._processes.append(process)

    def __enter__(self) -> Self:
        """Return the transport itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the parties."""
        for link in self._links.values():
            link.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()

    @property
    def seconds(self) -> float:
        """CPU time of all parties together, since their first letter."""
        return sum(self._spent.values())

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        """Deliver letters and return the replies that came in time; the dead are silent."""
        del stage
        waiting: dict[Connection, int] = {}
        for party, data in letters.items():
            link = self._links[party]
            try:
                link.send_bytes(data)
                waiting[link] = party
            except OSError:  # it is gone
                continue
        replies: dict[int, bytes] = {}
        end = time.monotonic() + _PATIENCE
        while waiting and (left := end - time.monotonic()) > 0:
            for ready in wait(list(waiting), timeout=left):
                if not isinstance(ready, Connection):
                    continue
                party = waiting.pop(ready)
                try:
                    data = ready.recv_bytes()
                except (EOFError, OSError):
                    continue
                (self._spent[party],) = _HEAD.unpack(data[: _HEAD.size])
                replies[party] = data[_HEAD.size :]
        return replies


def _serve(link: Connection, seat: Seat, last: int | None) -> None:
    """Be one party until the other end closes."""
    session = PartySession(seat, OsSecrets())
    start, answered = time.process_time(), 0
    while True:
        try:
            data = link.recv_bytes()
        except (EOFError, OSError):
            return
        if last is not None and answered >= last:
            os._exit(1)  # as a machine does that is switched off
        reply = session.handle(data)
        link.send_bytes(_HEAD.pack(time.process_time() - start) + reply)
        answered += 1

"""Parties as processes: each holds its own search and secrets, and only bytes pass between."""

import multiprocessing
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from urna.randomness import OsSecrets
from urna.systems.combine.party import InvitedParty, PartySession
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.server import Place
from urna.systems.combine.tasks import Task

__all__ = ["Loader", "ProcessTransport", "loaded"]

Loader = Callable[[], LocalSearch]
"""Returns a party's search, in the party's own process. Must be picklable."""

_PATIENCE = 300.0  # seconds for one exchange
_HEAD = struct.Struct(">d")


def loaded(search: LocalSearch | Loader) -> LocalSearch:
    """Return a search, from what loads it where it is not there yet."""
    return search() if callable(search) else search


class ProcessTransport:
    """Every party in a process of its own on this machine. Use it as a context manager.

    Processes come from a fresh interpreter that has imported this module once; nothing of the
    server's memory is in them. A party's secrets end with its process.

    Args:
        task: What all agreed to.
        searches: For each party its search, or what loads it in the party's process.
        fewest: With fewer parties nothing is begun.
        recomputes: Whether parties compute results again before they help to open them.
        vanish: Parties that die, and after how many letters.
        seconds: How long to wait for the replies of one exchange.
    """

    def __init__(
        self,
        task: Task,
        searches: Sequence[LocalSearch | Loader],
        fewest: int,
        recomputes: bool,
        vanish: Mapping[Place, int],
        seconds: float = _PATIENCE,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._patience = seconds
        self._links: dict[Place, Connection] = {}
        self._processes = []
        self._spent: dict[Place, float] = {}
        for place, search in enumerate(searches):
            here, there = context.Pipe()
            last = vanish.get(place)
            process = context.Process(
                target=_serve,
                args=(there, task, search, fewest, recomputes, last),
                daemon=True,
            )
            process.start()
            there.close()
            self._links[place] = here
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

    def exchange(self, stage: str, letters: Mapping[Place, bytes]) -> dict[Place, bytes]:
        """Deliver letters and return the replies that came in time; the dead are silent."""
        del stage
        waiting: dict[Connection, Place] = {}
        for place, data in letters.items():
            link = self._links[place]
            try:
                link.send_bytes(data)
                waiting[link] = place
            except OSError:  # it is gone
                continue
        replies: dict[Place, bytes] = {}
        end = time.monotonic() + self._patience
        while waiting and (left := end - time.monotonic()) > 0:
            for ready in wait(list(waiting), timeout=left):
                if not isinstance(ready, Connection):
                    continue
                place = waiting.pop(ready)
                try:
                    data = ready.recv_bytes()
                except (EOFError, OSError):
                    continue
                (self._spent[place],) = _HEAD.unpack(data[: _HEAD.size])
                replies[place] = data[_HEAD.size :]
        return replies


def _serve(
    link: Connection,
    task: Task,
    search: LocalSearch | Loader,
    fewest: int,
    recomputes: bool,
    last: int | None,
) -> None:
    """Be one party until the other end closes."""
    session = PartySession(InvitedParty(task, loaded(search), fewest, recomputes), OsSecrets())
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

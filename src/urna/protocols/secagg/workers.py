"""A transport that spreads the clients of one machine over all its cores.

Each worker process holds some of the clients for the whole round; letters go to it and replies
come back in batches, while the server works on those that are there. What travels are the
protocol's own bytes.
"""

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Protocol, Self

from urna.protocols.secagg.messages import ClientId, Stage
from urna.protocols.secagg.transport import Faults, Letter, MemoryTransport, Party

_BATCH, _BATCH_BYTES = 32, 1 << 24  # letters that travel together


class ClientGroup(Protocol):
    """Some clients, not yet built: what travels to a worker. Must be picklable."""

    @property
    def clients(self) -> frozenset[ClientId]:
        """The clients of the group."""
        ...

    def parties(self) -> Mapping[ClientId, Party]:
        """Build the clients."""
        ...


class WorkerTransport:
    """Clients in several processes of this machine. Use it as a context manager.

    Args:
        groups: The clients of each worker process.
        faults: What goes wrong on the way.
        vector_bytes: Length of a client's vector; so many letters travel together that they
            fit into a few megabytes.
    """

    def __init__(
        self, groups: Sequence[ClientGroup], faults: Faults | None = None, vector_bytes: int = 0
    ) -> None:
        self._batch = max(1, min(_BATCH, _BATCH_BYTES // max(1, vector_bytes)))
        # Fresh interpreters: forking a process that has threads (torch) may hang.
        context = multiprocessing.get_context("spawn")
        self._homes = {c: worker for worker, group in enumerate(groups) for c in group.clients}
        self._links: list[Connection] = []
        self._processes = []
        self._seconds = [0.0] * len(groups)
        self._carrying = 0.0
        for _ in groups:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, faults), daemon=True)
            process.start()
            there.close()
            self._links.append(here)
            self._processes.append(process)
        for link, group in zip(self._links, groups, strict=True):
            link.send(group)

    def __enter__(self) -> Self:
        """Return the transport itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers; their secrets end with them."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()

    @property
    def client_seconds(self) -> float:
        """CPU time spent on clients so far, in all workers."""
        return sum(self._seconds)

    @property
    def own_seconds(self) -> float:
        """CPU time spent on carrying letters between processes."""
        return self._carrying

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> Iterator[Letter]:
        """Deliver letters in batches and yield replies as they come."""
        waiting: list[list[Letter]] = [[] for _ in self._links]
        busy = [False] * len(self._links)

        def hand_over(worker: int) -> list[Letter]:
            """Give a worker its next batch before its last replies are looked at."""
            replies = self._collect(worker) if busy[worker] else []
            start = time.process_time()
            self._links[worker].send((stage, waiting[worker]))
            self._carrying += time.process_time() - start
            waiting[worker], busy[worker] = [], True
            return replies

        for client, data in letters:
            home = self._homes.get(client)
            if home is None:
                continue
            waiting[home].append((client, data))
            if len(waiting[home]) == self._batch:
                yield from hand_over(home)
        for worker in range(len(self._links)):
            yield from hand_over(worker)
        for worker in range(len(self._links)):
            yield from self._collect(worker)

    def _collect(self, worker: int) -> list[Letter]:
        start = time.process_time()
        replies: list[Letter]
        replies, self._seconds[worker] = self._links[worker].recv()
        self._carrying += time.process_time() - start
        return replies


def _serve(link: Connection, faults: Faults | None) -> None:
    """Build the group that comes first, then answer batches until the other end closes."""
    group: ClientGroup = link.recv()
    transport = MemoryTransport(group.parties(), faults)
    while True:
        try:
            stage, letters = link.recv()
        except EOFError:
            return
        link.send((list(transport.exchange(stage, letters)), transport.client_seconds))

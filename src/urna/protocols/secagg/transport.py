"""The seam to the network: deliver one stage's messages, return the replies that came in time.

`MemoryTransport` has all clients in this process, `WorkerTransport` spreads them over all cores.
There each worker process holds some of the clients for the whole round; letters go to it and
replies come back in batches, while the server works on those that are there. What travels are the
protocol's own bytes.
"""

import itertools
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Protocol, Self

import numpy as np

from urna.protocols.secagg.messages import ClientId, Stage

_BATCH, _BATCH_BYTES = 64, 1 << 23  # letters answered between two looks at the clock
_PARCEL, _PARCEL_BYTES = 32, 1 << 24  # letters that travel together to a worker

Letter = tuple[ClientId, bytes]
"""Bytes for a client or from one."""


class Transport(Protocol):
    """Carries one stage of a round."""

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> Iterable[Letter]:
        """Deliver letters to their clients and return the replies that came in time.

        A reply may come twice, out of order or a stage too late; silence is no reply. The
        sender of a reply is known to the transport: it is not what the bytes claim.
        """
        ...

    @property
    def client_seconds(self) -> float:
        """CPU time spent on clients so far, where the transport runs them; else zero."""
        ...

    @property
    def own_seconds(self) -> float:
        """CPU time of this process spent inside the transport so far: not the server's."""
        ...


class Party(Protocol):
    """Something that answers letters: a `ClientSession`, or a test's dishonest one."""

    def handle(self, data: bytes) -> bytes:
        """Answer one letter."""
        ...


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong on the way, for tests and experiments."""

    vanish: Mapping[ClientId, Stage] = field(default_factory=dict)
    """Clients that are silent from this stage on."""
    late: Mapping[ClientId, Stage] = field(default_factory=dict)
    """Clients whose reply of this stage comes with the replies of the next."""
    twice: frozenset[ClientId] = frozenset()
    """Clients that get every letter twice and whose replies come twice."""
    shuffle: int | None = None
    """Seed of the order in which replies come in; None keeps it."""


class MemoryTransport:
    """All clients in this process."""

    def __init__(self, parties: Mapping[ClientId, Party], faults: Faults | None = None) -> None:
        self._parties = parties
        self._faults = faults or Faults()
        self._held_back: list[Letter] = []
        self._seconds = 0.0

    @property
    def client_seconds(self) -> float:
        """CPU time spent on clients so far."""
        return self._seconds

    @property
    def own_seconds(self) -> float:
        """The same: the clients run in this process."""
        return self._seconds

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> Iterator[Letter]:
        """Deliver letters and yield replies as the faults allow, each as soon as it is there."""
        due, self._held_back = self._held_back, []
        replies = itertools.chain(due, self._answers(stage, letters))
        if self._faults.shuffle is None:
            yield from replies
            return
        came = list(replies)
        order = np.random.default_rng([self._faults.shuffle, stage]).permutation(len(came))
        yield from (came[place] for place in order)

    def _answers(self, stage: Stage, letters: Iterable[Letter]) -> Iterator[Letter]:
        waiting = iter(letters)
        while batch := list(itertools.islice(waiting, _BATCH)):
            yield from self._batch(stage, batch)

    def _batch(self, stage: Stage, letters: Sequence[Letter]) -> Iterator[Letter]:
        """Answer some letters; the clock is read once for many, as reading it may be slow."""
        faults, ready, size = self._faults, list[Letter](), 0
        start = time.process_time()
        for client, data in letters:
            if client not in self._parties or faults.vanish.get(client, Stage.VOID + 1) <= stage:
                continue
            for _ in range(2 if client in faults.twice else 1):
                answer = self._parties[client].handle(data)
                if faults.late.get(client) is stage:
                    self._held_back.append((client, answer))
                    continue
                ready.append((client, answer))
                size += len(answer)
            if size >= _BATCH_BYTES:
                self._seconds += time.process_time() - start
                yield from ready
                ready, size, start = [], 0, time.process_time()
        self._seconds += time.process_time() - start
        yield from ready


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
        self._batch = max(1, min(_PARCEL, _PARCEL_BYTES // max(1, vector_bytes)))
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

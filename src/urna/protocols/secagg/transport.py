"""The seam to the network: deliver one stage's messages, return the replies that came in time."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from urna.protocols.secagg.messages import ClientId, Stage

_BATCH, _BATCH_BYTES = 64, 1 << 23  # letters answered between two looks at the clock

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

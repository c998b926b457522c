"""A secure sum in chunks whose stages overlap: clients in processes, links of limited speed.

Every chunk is a secure sum of its own, with its own keys and masks. So a chunk from which a client
drops out reveals nothing about the others, and each contains the noise it needs for the clients
that it lost. All chunks together are the whole vector under the planned noise in every entry, which
is what is accounted for.
"""

import heapq
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, RoundAborted, RoundFailed, RoundUnfinished
from urna.noise import IntVector
from urna.protocols.secagg import ClientSession, Member, Outcome, Plan, ServerModel, Stage, conduct
from urna.randomness import SEED_BYTES, SecretSource, StreamSecrets, derive_seed
from urna.systems.train.pipeline import ONE_WAY, TWO_WAYS, Observation, Planner
from urna.tally import Contributions, SecureAggregation, Tallied, TallyPlan, Terms
from urna.tally.summation import check_clients, produced, really_released

__all__ = ["Links", "PipelinedSummation"]

_USE = Stage.VOID + 1  # after all stages of the protocol: the model's chunk arrives

Job = tuple[int, int, int, bytes]
"""A chunk, a stage, a client and a letter to it."""


class Links(Protocol):
    """Every client's link to the server, where its limited speed is simulated."""

    @property
    def two_ways(self) -> bool:
        """Whether both directions are there at the same time, each at full speed."""
        ...

    def seconds(self, client: int, size: int) -> float:
        """Return how long this number of bytes takes over a free link."""
        ...

    def begin(self, until: ExitStack) -> Callable[[str, int, int, Callable[[], None]], None]:
        """Return what sends: (direction, client, bytes, what is called on arrival).

        Args:
            until: What ends when nothing is sent any more.
        """
        ...


@dataclass(slots=True)
class PipelinedSummation:
    """Secure aggregation in chunks, client compute, network and server compute overlapping.

    Guarantee:
        As `SecureAggregation`, for every chunk; the list of survivors may differ between chunks,
        and each chunk contains the noise that its own list needs. A client that is in any chunk
        counts as one that took part. Against an honest-but-curious server.

    Args:
        chunks: How many; by default found out from the first rounds' stage times.
        links: The clients' links; None where only computing overlaps.
        workers: Processes for the clients.
        dropouts: Clients that drop out, and the stage from which on they are silent.
        dispatch: Whether each chunk of the result travels back to the clients, as it does in
            training.
    """

    chunks: int | None = None
    links: Links | None = None
    workers: int = 1
    dropouts: Mapping[int, Stage] = field(default_factory=dict)
    dispatch: bool = True
    planner: Planner | None = None
    """What was learned from the rounds so far."""

    @property
    def secure(self) -> bool:
        """True: single contributions stay hidden from the server."""
        return True

    @property
    def removes_excess(self) -> bool:
        """True: noise for dropouts that did not happen is removed."""
        return True

    def describe(self, terms: Terms) -> str:
        """Return one sentence about who saw what."""
        return f"{SecureAggregation().describe(terms)}; it was held in chunks that overlapped"

    def losing(self, lost: Mapping[int, Stage]) -> "PipelinedSummation":
        """Return the same with other dropouts; both learn from the same rounds."""
        return replace(self, dropouts=dict(lost))

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus the planned noise."""
        check_clients(contributions, plan)
        if plan.terms.server is ServerModel.DISHONEST:
            raise ParameterError("rounds in chunks assume an honest-but-curious server")
        if self.planner is None:
            resources = ONE_WAY if self.links and not self.links.two_ways else TWO_WAYS
            self.planner = Planner(plan.dimension, resources)
        chunks = min(self.chunks or self.planner.chunks(), plan.dimension)
        vectors = {c: produced(contributions[c], plan) for c in sorted(contributions)}
        outcomes, seen = self._overlapping(vectors, plan.round_plan, chunks, secrets)
        self.planner.note(seen)
        return _together(outcomes, plan)

    def _overlapping(
        self, vectors: Mapping[int, IntVector], plan: Plan, chunks: int, secrets: SecretSource
    ) -> tuple[list[Outcome], Observation]:
        """Sum all chunks, overlapping; return what each gave and how long stages took."""
        cuts = np.linspace(0, plan.dimension, chunks + 1).round().astype(int).tolist()
        plans = [replace(plan, dimension=b - a) for a, b in itertools.pairwise(cuts)]
        coins = [secrets.take(SEED_BYTES) for _ in plans]
        seeds = {client: secrets.take(SEED_BYTES) for client in vectors}
        clients = sorted(vectors)
        groups = [
            _Group(
                plans,
                {c: vectors[c] for c in clients[place :: self.workers]},
                {c: seeds[c] for c in clients[place :: self.workers]},
                cuts,
                secrets.private,
            )
            for place in range(self.workers)
        ]
        _warm(plan)
        with _Hub(groups, self.links, self.dropouts, chunks) as hub:
            start = time.monotonic()
            with ThreadPoolExecutor(chunks) as threads:
                running = [
                    threads.submit(hub.run, chunk, plans[chunk], coins[chunk], self.dispatch)
                    for chunk in range(chunks)
                ]
            ended = _all_or_none(running)
            whole = time.monotonic() - start
        size = max(p.vector_bytes for p in plans)
        down = max(4 * p.dimension for p in plans) if self.dispatch else 0
        seconds = {
            "prepare": hub.busy["prepare"] / chunks / self.workers,
            "upload": self._longest(clients, size),
            "aggregate": float(np.mean([server for _, server in ended])),
            "dispatch": self._longest(clients, down),
            "use": hub.busy["use"] / chunks / self.workers,
        }
        return [outcome for outcome, _ in ended], Observation(chunks, seconds, whole)

    def _longest(self, clients: Iterable[int], size: int) -> float:
        """Return how long the slowest client that stays needs for this number of bytes."""
        if self.links is None:
            return 0.0
        there = (client for client in clients if client not in self.dropouts)
        return max((self.links.seconds(client, size) for client in there), default=0.0)


class _Hub:
    """The server's end of everything: clients' processes, links, and who waits for what."""

    def __init__(
        self,
        groups: "Sequence[_Group]",
        links: Links | None,
        dropouts: Mapping[int, Stage],
        chunks: int,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._homes = {c: place for place, group in enumerate(groups) for c in group.vectors}
        self._dropouts = dropouts
        self._queues: list[SimpleQueue[tuple[int, bytes]]] = [SimpleQueue() for _ in range(chunks)]
        self._used: list[threading.Semaphore] = [threading.Semaphore(0) for _ in range(chunks)]
        self._one_way = links is not None and not links.two_ways
        self._going_up = set(range(chunks))
        self._all_up = threading.Event()
        self._links, self._until = links, ExitStack()
        self._send: Callable[[str, int, int, Callable[[], None]], None] = _at_once
        self.busy = {"prepare": 0.0, "use": 0.0}
        self._pipes: list[Connection] = []
        self._locks = [threading.Lock() for _ in groups]
        self._processes = []
        for group in groups:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            there.close()
            here.send(group)
            self._pipes.append(here)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()  # all are there before the time is taken

    def __enter__(self) -> Self:
        """Begin to read."""
        if self._links is not None:
            self._send = self._links.begin(self._until)
        for pipe in self._pipes:
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes; their secrets end with them."""
        self._until.close()
        for pipe, lock in zip(self._pipes, self._locks, strict=True):
            # A pipe that a thread still reads does not end for the other side when it is closed.
            with lock, suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    def run(self, chunk: int, plan: Plan, coin: bytes, dispatch: bool) -> tuple[Outcome, float]:
        """Run one chunk's round from its first letter to the last client that uses it."""
        transport = _ChunkTransport(self, chunk)
        before = time.thread_time()
        try:
            outcome = conduct(plan, transport, number=chunk + 1, coin=coin)
        finally:
            self.is_up(chunk)
        server = time.thread_time() - before
        if dispatch:
            if self._one_way:  # what goes down waits until all has gone up: earlier stages first
                self._all_up.wait()
            model = outcome.total.astype(np.float32).tobytes()
            clients = [c for c in sorted(self._homes) if self.present(c, _USE)]
            for client in clients:
                self.post(chunk, _USE, client, model)
            for _ in clients:
                self._used[chunk].acquire()
        return outcome, server

    def is_up(self, chunk: int) -> None:
        """Note that nothing long of a chunk goes up any more."""
        self._going_up.discard(chunk)
        if not self._going_up:
            self._all_up.set()

    def present(self, client: int, stage: int) -> bool:
        """Return whether a client still answers in a stage."""
        return client in self._homes and not self._dropouts.get(client, _USE + 1) <= stage

    def post(self, chunk: int, stage: int, client: int, data: bytes) -> None:
        """Send a letter down a client's link."""
        home = self._homes[client]

        def arrived() -> None:
            with self._locks[home]:
                self._pipes[home].send((chunk, stage, client, data))

        self._send("down", client, len(data), arrived)

    def replies(self, chunk: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield a chunk's replies as they come up."""
        for _ in range(count):
            yield self._queues[chunk].get()

    def _read(self, pipe: Connection) -> None:
        while True:
            try:
                chunk, stage, client, data, seconds = pipe.recv()
            except (EOFError, OSError):
                return
            if stage == _USE:
                self.busy["use"] += seconds
                self._used[chunk].release()
                continue
            self.busy["prepare"] += seconds
            reply = (client, data)

            def arrived(chunk: int = chunk, reply: tuple[int, bytes] = reply) -> None:
                self._queues[chunk].put(reply)

            self._send("up", client, len(data), arrived)


def _at_once(direction: str, client: int, size: int, arrived: Callable[[], None]) -> None:
    del direction, client, size
    arrived()


class _ChunkTransport:
    """The secure aggregation's transport for one chunk."""

    client_seconds = 0.0
    own_seconds = 0.0

    def __init__(self, hub: _Hub, chunk: int) -> None:
        self._hub, self._chunk = hub, chunk

    def exchange(
        self, stage: Stage, letters: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Deliver letters, yield replies as they come; clients that dropped out get none."""
        count = 0
        for client, data in letters:
            if self._hub.present(client, stage):
                self._hub.post(self._chunk, stage, client, data)
                count += 1
        yield from self._hub.replies(self._chunk, count)
        if stage is Stage.MASK:
            self._hub.is_up(self._chunk)


@dataclass(frozen=True, slots=True)
class _Group:
    """Some clients, not yet built: what travels to a process."""

    plans: Sequence[Plan]
    vectors: Mapping[int, IntVector] = field(repr=False)
    seeds: Mapping[int, bytes] = field(repr=False)
    cuts: Sequence[int]
    private: bool

    def session(self, client: int, chunk: int) -> ClientSession:
        """Build one client of one chunk."""
        start, end = self.cuts[chunk], self.cuts[chunk + 1]
        source = StreamSecrets(
            derive_seed(self.seeds[client], b"chunk %d" % chunk), private=self.private
        )
        member = Member(client, self.plans[chunk], latest_round=chunk)
        return ClientSession(member, self.vectors[client][start:end], source)


def _serve(pipe: Connection) -> None:
    """Be some clients: answer letters, early chunks first, and use the model last."""
    group: _Group = pipe.recv()
    _warm(group.plans[0])
    pipe.send(None)
    waiting: list[tuple[tuple[bool, int, int, int], int, Job]] = []
    count = itertools.count()
    sessions: dict[tuple[int, int], ClientSession] = {}
    models: dict[int, npt.NDArray[np.float32]] = {}
    while True:
        try:
            while not waiting or pipe.poll():
                if (job := pipe.recv()) is None:
                    return
                chunk, stage, client, _ = job
                heapq.heappush(waiting, ((stage == _USE, chunk, stage, client), next(count), job))
        except EOFError:
            return
        chunk, stage, client, data = heapq.heappop(waiting)[2]
        start = time.perf_counter()
        answer = b""
        if stage == _USE:
            model = models.setdefault(client, np.zeros(group.cuts[-1], dtype=np.float32))
            model[group.cuts[chunk] : group.cuts[chunk + 1]] += np.frombuffer(data, np.float32)
        else:
            place = (client, chunk)
            if place not in sessions:
                sessions[place] = group.session(client, chunk)
            answer = sessions[place].handle(data)
        pipe.send((chunk, stage, client, answer, time.perf_counter() - start))


def _warm(plan: Plan) -> None:
    """Build the tables of the noise, which a client keeps for a whole series."""
    if plan.noise is not None:
        for variance in plan.noise.components():
            plan.noise.family.table(variance)


def _all_or_none(running: "Sequence[Future[tuple[Outcome, float]]]") -> list[tuple[Outcome, float]]:
    """Return what all chunks gave.

    Raises:
        RoundAborted: All came to nothing before anything was revealed.
        RoundUnfinished: Some did, and others were revealed: the round counts.
    """
    failures: list[RoundFailed] = []
    for one in running:
        error = one.exception()
        if isinstance(error, RoundFailed):
            failures.append(error)
        elif error is not None:
            raise error
    if not failures:
        return [one.result() for one in running]
    first = failures[0]
    if len(failures) == len(running) and all(isinstance(e, RoundAborted) for e in failures):
        raise first
    raise RoundUnfinished(
        f"{len(failures)} of {len(running)} chunks came to nothing ({first.reason}), the others "
        "were revealed. The sum counts as released",
        first.lost,
        first.faults,
    )


def _together(outcomes: Sequence[Outcome], plan: TallyPlan) -> Tallied:
    """Return the chunks as one sum, under the least noise of any.

    Guarantee:
        A client that is in any chunk took part: it has revealed something, and is counted. A mean
        divides by their number; in chunks that lost some of them it is the smaller for it.
    """
    accepted = frozenset.union(*(outcome.survivors for outcome in outcomes))
    released = [
        really_released(
            plan, len(outcome.survivors), outcome.noise_variance / len(outcome.survivors)
        )
        for outcome in outcomes
    ]
    lost: dict[int, str] = {}
    faults: dict[int, str] = {}
    for outcome in outcomes:
        lost |= {c: str(loss) for c, loss in outcome.lost.items() if c not in accepted}
        faults |= outcome.faults
    return Tallied(
        total=np.concatenate([outcome.total for outcome in outcomes]),
        accepted=accepted,
        lost=dict(sorted(lost.items())),
        noise_variance=max(outcome.noise_variance for outcome in outcomes),
        release=min(released, key=lambda one: getattr(one, "variance", 0)),
        faults=faults,
    )

"""A secure sum in chunks whose stages overlap: clients in a process, links of limited speed.

Every chunk is a secure sum of its own, with its own keys and masks, so a chunk from which a client
drops out reveals nothing about the others. All chunks together are the whole vector under the
planned noise in every entry, which is what is accounted for.

How many chunks are best follows Hyades, section 6 and appendix F. The round's work on one chunk has
five stages, each of which keeps one resource busy: clients prepare (keys, shares, noise, masks),
vectors go up, the server adds up and unmasks, the model goes down, clients use it. While one chunk
is on its way, clients prepare the next.
"""

import functools
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
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from urna.errors import ParameterError, RoundAborted, RoundFailed, RoundUnfinished
from urna.noise import IntVector
from urna.protocols.secagg import ClientSession, Member, Outcome, Plan, ServerModel, Stage, conduct
from urna.randomness import SEED_BYTES, SecretSource, StreamSecrets, derive_seed
from urna.tally import Contributions, SecureAggregation, Tallied, TallyPlan, Terms
from urna.tally.summation import check_clients, produced, really_released

__all__ = [
    "RESOURCES",
    "STAGES",
    "Links",
    "Observation",
    "PipelinedSummation",
    "Planner",
    "makespan",
    "stage_time",
]

_MOST_CHUNKS = 20  # as in the paper
_TRIES = (2, 5, 10)  # chunks of the first rounds

STAGES = ("prepare", "upload", "aggregate", "dispatch", "use")
"""What happens to a chunk, in order."""

RESOURCES: tuple[str, ...] = ("client", "up", "server", "down", "client")
"""What each stage keeps busy; both directions of a link are there at the same time."""

_OFF = 0.2  # relative; a prediction that misses by more is made anew


def makespan(seconds: Sequence[float], resources: Sequence[str], chunks: int) -> float:
    """Return when the last stage of the last chunk ends, by the paper's recursion (18), (19).

    Each stage of a chunk takes some seconds and keeps a resource busy, which finishes an earlier
    stage of all chunks first.

    Example:
        >>> makespan([1.0, 1.0, 1.0], ["a", "b", "c"], 3)  # three workers in a row
        5.0
    """
    ends: list[list[float]] = []
    for stage, length in enumerate(seconds):
        earlier = [q for q in range(stage) if resources[q] == resources[stage]]
        row: list[float] = []
        for chunk in range(chunks):
            ready = ends[stage - 1][chunk] if stage else 0.0
            before = ends[earlier[-1]][-1] if earlier else 0.0
            free = row[chunk - 1] if chunk else before
            row.append(max(ready, free) + length)
        ends.append(row)
    return ends[-1][-1]


def stage_time(dimension: int, chunks: int, seen: Sequence[tuple[int, float]]) -> float:
    """Predict the time of one stage of one chunk: β₁·d/m + β₂·m + β₃ (Hyades, equation 5).

    No coefficient is negative. What was seen are numbers of chunks and the time one chunk took;
    fewer than three different numbers fit fewer coefficients.
    """
    different = len({m for m, _ in seen})
    if not different:
        raise ParameterError("a model is fitted to at least one round")
    used = [0] if different == 1 else [0, 2] if different == 2 else [0, 1, 2]

    def columns(m: int) -> list[float]:
        return [(dimension / m, float(m), 1.0)[c] for c in used]

    times = np.array([seconds for _, seconds in seen])
    # Relative errors count, so that short stages are fitted as well as long ones.
    weights = 1 / np.maximum(times, 1e-9)
    found, _ = nnls(np.array([columns(m) for m, _ in seen]) * weights[:, None], times * weights)
    return float(found @ np.array(columns(chunks)))


@dataclass(frozen=True, slots=True)
class Observation:
    """How long the stages of one chunk took in a round."""

    chunks: int
    seconds: Mapping[str, float]
    """By stage, of one chunk on average."""
    whole: float
    """From the first letter to the last, of the whole round."""


@dataclass(slots=True)
class Planner:
    """Chooses the number of chunks: tries some, fits, predicts, and checks the prediction."""

    dimension: int = 0
    """Entries of the whole vector."""
    seen: list[Observation] = field(default_factory=list)
    predictions: list[float | None] = field(default_factory=list)
    """What was predicted for each round that was seen, before it began."""
    _chosen: int | None = None

    def chunks(self) -> int:
        """Return how many chunks the next round is cut into."""
        if len(self.seen) < len(_TRIES):
            return _TRIES[len(self.seen)]
        if self._chosen is None:
            self._chosen = min(range(1, min(_MOST_CHUNKS, self.dimension) + 1), key=self.predict)
        return self._chosen

    def note(self, seen: Observation) -> None:
        """Note how long a round took; plan anew if the prediction was off."""
        predicted = self.predict(seen.chunks) if len(self.seen) >= len(_TRIES) else None
        self.predictions.append(predicted)
        self.seen.append(seen)
        if predicted is not None and abs(predicted - seen.whole) > _OFF * seen.whole:
            self._chosen = None

    def predict(self, chunks: int) -> float:
        """Return how long a round in this number of chunks should take; the last rounds count."""
        recent = self.seen[-8:]
        seconds = [
            stage_time(self.dimension, chunks, [(o.chunks, o.seconds[stage]) for o in recent])
            for stage in STAGES
        ]
        return makespan(seconds, RESOURCES, chunks)


# --- the sum --------------------------------------------------------------------------------------

_USE = Stage.VOID + 1  # after all stages of the protocol: the model's chunk arrives

Job = tuple[int, int, int, bytes]
"""A chunk, a stage, a client and a letter to it."""


class Links(Protocol):
    """Every client's link to the server, where its limited speed is simulated."""

    def seconds(self, client: int, size: int) -> float:
        """Return how long this number of bytes takes over a free link."""
        ...

    def begin(self, until: ExitStack) -> Callable[[str, int, int, Callable[[], None]], None]:
        """Return what sends, until then: (direction, client, bytes, what is called on arrival)."""
        ...


@dataclass(slots=True)
class PipelinedSummation:
    """Secure aggregation in chunks, client compute, network and server compute overlapping.

    Guarantee:
        As `SecureAggregation`, for every chunk, against an honest-but-curious server. Each chunk
        contains the noise that its own survivors need. A client that is in any chunk took part: it
        has revealed something, and is counted. In chunks that lost it a mean is the smaller for it.

    Args:
        chunks: How many; by default found out from the first rounds' stage times.
        links: The clients' links; None where only computing overlaps.
        dropouts: Clients that drop out, and the stage from which on they are silent.
    """

    chunks: int | None = None
    links: Links | None = None
    dropouts: Mapping[int, Stage] = field(default_factory=dict)
    planner: Planner = field(default_factory=Planner)
    """What was learned from the rounds so far, under whatever dropouts."""
    secure = True  # single contributions stay hidden from the server
    removes_excess = True  # noise for dropouts that did not happen is removed

    def describe(self, terms: Terms) -> str:
        """Return one sentence about who saw what."""
        return f"{SecureAggregation().describe(terms)}; it was held in chunks that overlapped"

    def losing(self, lost: Mapping[int, Stage]) -> "PipelinedSummation":
        """Return the same with other dropouts."""
        return replace(self, dropouts=dict(lost))

    def tally(
        self, contributions: Contributions, plan: TallyPlan, secrets: SecretSource
    ) -> Tallied:
        """Return the sum of the contributions plus the planned noise."""
        check_clients(contributions, plan)
        if plan.terms.server is ServerModel.DISHONEST:
            raise ParameterError("rounds in chunks assume an honest-but-curious server")
        self.planner.dimension = plan.dimension
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
        group = _Group(plans, vectors, seeds, cuts, secrets.private)
        _warm(plan)
        with _Hub(group, self.links, self.dropouts) as hub:
            start = time.monotonic()
            with ThreadPoolExecutor(chunks) as threads:
                running = [
                    threads.submit(hub.run, chunk, plans[chunk], coins[chunk])
                    for chunk in range(chunks)
                ]
            ended = _all_or_none(running)
            whole = time.monotonic() - start
        size = max(p.vector_bytes for p in plans)
        down = max(4 * p.dimension for p in plans)
        seconds = {
            "prepare": hub.busy["prepare"] / chunks,
            "upload": self._longest(vectors, size),
            "aggregate": float(np.mean([server for _, server in ended])),
            "dispatch": self._longest(vectors, down),
            "use": hub.busy["use"] / chunks,
        }
        return [outcome for outcome, _ in ended], Observation(chunks, seconds, whole)

    def _longest(self, clients: Iterable[int], size: int) -> float:
        """Return how long the slowest client that stays needs for this number of bytes."""
        if self.links is None:
            return 0.0
        there = (client for client in clients if client not in self.dropouts)
        return max((self.links.seconds(client, size) for client in there), default=0.0)


class _Hub:
    """The server's end of everything: the clients' process, links, and who waits for what."""

    def __init__(self, group: "_Group", links: Links | None, dropouts: Mapping[int, Stage]) -> None:
        context = multiprocessing.get_context("spawn")
        self._clients, self._dropouts = sorted(group.vectors), dropouts
        self.replies = [SimpleQueue[tuple[int, bytes]]() for _ in group.plans]
        self._used = [threading.Semaphore(0) for _ in group.plans]
        self._links, self._until = links, ExitStack()
        self._send: Callable[[str, int, int, Callable[[], None]], None] = _at_once
        self.busy = {"prepare": 0.0, "use": 0.0}
        self._lock = threading.Lock()
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._pipe.send(group)
        self._pipe.recv()  # it is there before the time is taken

    def __enter__(self) -> Self:
        """Begin to read."""
        if self._links is not None:
            self._send = self._links.begin(self._until)
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process; its secrets end with it."""
        self._until.close()
        # A pipe that a thread still reads does not end for the other side when it is closed.
        with self._lock, suppress(OSError):
            self._pipe.send(None)
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    def run(self, chunk: int, plan: Plan, coin: bytes) -> tuple[Outcome, float]:
        """Run one chunk's round from its first letter to the last client that uses it."""
        before = time.thread_time()
        outcome = conduct(plan, _ChunkTransport(self, chunk), number=chunk + 1, coin=coin)
        server = time.thread_time() - before
        model = outcome.total.astype(np.float32).tobytes()
        clients = [client for client in self._clients if self.present(client, _USE)]
        for client in clients:
            self.post(chunk, _USE, client, model)
        for _ in clients:
            self._used[chunk].acquire()
        return outcome, server

    def present(self, client: int, stage: int) -> bool:
        """Return whether a client still answers in a stage."""
        return client in self._clients and not self._dropouts.get(client, _USE + 1) <= stage

    def post(self, chunk: int, stage: int, client: int, data: bytes) -> None:
        """Send a letter down a client's link."""

        def arrived() -> None:
            with self._lock:
                self._pipe.send((chunk, stage, client, data))

        self._send("down", client, len(data), arrived)

    def _read(self) -> None:
        while True:
            try:
                chunk, stage, client, data, seconds = self._pipe.recv()
            except (EOFError, OSError):
                return
            if stage == _USE:
                self.busy["use"] += seconds
                self._used[chunk].release()
                continue
            self.busy["prepare"] += seconds
            arrived = functools.partial(self.replies[chunk].put, (client, data))
            self._send("up", client, len(data), arrived)


def _at_once(direction: str, client: int, size: int, arrived: Callable[[], None]) -> None:
    del direction, client, size
    arrived()


class _ChunkTransport:
    """The secure aggregation's transport for one chunk; clients that dropped out get no letters."""

    client_seconds = 0.0
    own_seconds = 0.0

    def __init__(self, hub: _Hub, chunk: int) -> None:
        self._hub, self._chunk = hub, chunk

    def exchange(
        self, stage: Stage, letters: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Deliver letters, yield replies as they come."""
        count = 0
        for client, data in letters:
            if self._hub.present(client, stage):
                self._hub.post(self._chunk, stage, client, data)
                count += 1
        yield from (self._hub.replies[self._chunk].get() for _ in range(count))


@dataclass(frozen=True, slots=True)
class _Group:
    """The clients, not yet built: what travels to their process."""

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
    """Be the clients: answer letters, early chunks first, and use the model last."""
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
            if (client, chunk) not in sessions:
                sessions[client, chunk] = group.session(client, chunk)
            answer = sessions[client, chunk].handle(data)
        pipe.send((chunk, stage, client, answer, time.perf_counter() - start))


def _warm(plan: Plan) -> None:
    """Build the tables of the noise, which a client keeps for a whole series."""
    if plan.noise is not None:
        for variance in plan.noise.components():
            plan.noise.family.table(variance)


def _all_or_none(running: "Sequence[Future[tuple[Outcome, float]]]") -> list[tuple[Outcome, float]]:
    """Return what all chunks gave; it counts unless none revealed anything."""
    errors = [one.exception() for one in running]
    failures = [error for error in errors if isinstance(error, RoundFailed)]
    for error in errors:
        if error is not None and not isinstance(error, RoundFailed):
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
    """Return the chunks as one sum, under the least noise of any."""
    accepted = frozenset.union(*(outcome.survivors for outcome in outcomes))
    released, lost, faults = [], dict[int, str](), dict[int, str]()
    for outcome in outcomes:
        here = len(outcome.survivors)
        released.append(really_released(plan, here, outcome.noise_variance / here))
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

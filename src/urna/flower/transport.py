"""Letters over Flower's grid: push one per node, pull until all replied or time is over."""

import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from flwr.app import Message
from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower.messages import ACTION, Kind, Letter, Reply
from urna.protocols.secagg import ClientId, Plan, Stage
from urna.protocols.secagg.messages import Refusal
from urna.protocols.secagg.wire import encode

_AT_ONCE = 64  # messages per push: one request must not grow with the federation
_AHEAD = 0.25  # seconds of letters that lie ready for the simulation's workers
_FEWEST, _SCANNED = 32, 30_000  # fewest of them; and most, times the number of nodes
_VOID_SECONDS = _END_SECONDS = 60.0  # most who would answer do so at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two looks for replies
_PATIENCE, _SHOWN = 15.0, 10  # seconds until the log names who is missing, and how many of them

_log = logging.getLogger("flwr")


class NodesFailed(RoundAborted):
    """The code of all simulated nodes raised. Nothing was revealed, and nothing counts."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds the server waits for each kind of answer. Later ones are ignored."""

    gather: float = 120.0
    """For nodes to connect, and again for them to say whether they take part."""
    evaluate: float = 3600.0
    """For the first stage, in which nodes compute what they put in."""
    stage: float = 180.0
    """For each later stage. A deployed node polls every few seconds and starts a process."""

    def __post_init__(self) -> None:
        if not all(0 < seconds < 1e7 for seconds in (self.gather, self.evaluate, self.stage)):
            raise ParameterError("deadlines are positive numbers of seconds")


@dataclass(frozen=True, slots=True)
class SumProgress:
    """Where a private sum stands."""

    stage: str
    answered: int
    asked: int
    seconds_left: float
    """Until the stage's deadline."""

    def __str__(self) -> str:
        return (
            f"private sum: {self.stage}, {self.answered} of {self.asked} answered, "
            f"{self.seconds_left:.0f} s left"
        )


Progress = Callable[[SumProgress], None]
"""Called at the start of each stage and whenever replies come in."""


class Post:
    """Sends letters and collects replies, stage by stage.

    Args:
        grid: Flower's grid.
        progress: Called while replies come in; each stage's end is logged by default.
        action: What on the nodes is asked.
    """

    def __init__(
        self, grid: Grid, progress: Progress | None = None, *, action: str = ACTION
    ) -> None:
        self._grid, self._action = grid, action
        self._progress = progress or _log_stage
        self.simulated = type(grid).__name__ == "InMemoryGrid"
        """Whether one person owns all nodes, and may see what their code raised."""
        self.names: dict[int, str] = {}
        """Of the nodes that take part, for the log."""

    def ask(
        self, letters: Mapping[int, Letter], *, stage: str, seconds: float
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (node, reply) as replies come in, until all did or time is over.

        An error of the node's app that Flower reports in place of a reply is yielded as a
        refusal. Silence is no reply, whether Flower notices it first or time is over first.
        """
        waiting, pending = dict(letters), dict[str, int]()
        answered, pause = 0, _FIRST_PAUSE
        window = _FEWEST if self.simulated else len(letters)
        start = heard = told = time.monotonic()
        self._progress(SumProgress(stage, 0, len(letters), seconds))
        while (waiting or pending) and (left := seconds - (time.monotonic() - start)) > 0:
            if waiting and (room := window - len(pending)) > 0:
                now = dict(itertools.islice(waiting.items(), room))
                waiting = {node: waiting[node] for node in waiting if node not in now}
                pending |= self._push(now, stage, left)
            came = []
            for message in self._grid.pull_messages(list(pending)):
                node = pending.pop(message.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if message.has_error() and (why := _SILENCE.get(message.error.code)):
                    _log.warning("node %d: %s", node, why)
                    continue
                came.append((node, _read(message)))
            if came:
                answered, pause, heard = answered + len(came), _FIRST_PAUSE, time.monotonic()
                window = max(window, self._window(len(letters), answered / (heard - start)))
                self._progress(SumProgress(stage, answered, len(letters), left))
                yield from came
                continue
            if time.monotonic() - told > _PATIENCE:
                told = time.monotonic()
                _log.info(
                    "%s: still waiting for %s", stage, self._named([*pending.values(), *waiting])
                )
            if waiting and time.monotonic() - heard > _LONGEST_PAUSE:
                window *= 2  # those who are silent must not hold up the others
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _named(self, nodes: Collection[int]) -> str:
        """Return the first of these nodes by name, or by number where none is known."""
        first = ", ".join(self.names.get(node, f"node {node}") for node in list(nodes)[:_SHOWN])
        return first + (f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")

    def _window(self, nodes: int, rate: float) -> int:
        """Return how many letters may be without an answer, at so many answers a second.

        The simulation's engine looks through all letters that are on their way for each of its
        nodes, ten times a second, on a core that its workers need. So there are as many as
        they will answer soon, and no more than it looks through in a tenth of a second.
        """
        if not self.simulated:
            return nodes
        return min(math.ceil(_AHEAD * rate), max(_FEWEST, _SCANNED // nodes))

    def tell(
        self, nodes: Iterable[int], letter: Letter, *, seconds: float, gone: Collection[int] = ()
    ) -> None:
        """Send a letter whose replies mean nothing; wait a little, but not for who may be gone.

        What comes next, another vote or the end of the app, must not overtake it.
        """
        everyone = set(nodes)
        self._push(dict.fromkeys(everyone & set(gone), letter), "end", seconds)
        there = dict.fromkeys(sorted(everyone - set(gone)), letter)
        if there:
            for _ in self.ask(there, stage="ending", seconds=min(seconds, _END_SECONDS)):
                pass

    def _push(self, letters: Mapping[int, Letter], stage: str, seconds: float) -> dict[str, int]:
        """Push letters; return the nodes by message id."""
        messages = [
            Message(
                letter.as_records(),
                node,
                f"query.{self._action}",
                ttl=seconds,
                group_id=f"urna {stage}",
            )
            for node, letter in letters.items()
        ]
        pushed: set[str] = set()
        for start in range(0, len(messages), _AT_ONCE):
            pushed.update(map(str, self._grid.push_messages(messages[start : start + _AT_ONCE])))
        # A message that could not be pushed (its node has gone) is left out: silence.
        return {
            message.metadata.message_id: message.metadata.dst_node_id
            for message in messages
            if message.metadata.message_id in pushed
        }


class GridTransport:
    """The secure aggregation's transport over Flower.

    Args:
        post: Reaches the nodes.
        nodes: The node of each client of the round.
        plan: The protocol's plan.
        begin: The letter every node gets with the first stage, without number and body.
        deadlines: How long each stage may take.
    """

    def __init__(
        self,
        post: Post,
        nodes: Mapping[ClientId, int],
        plan: Plan,
        begin: Letter,
        deadlines: Deadlines,
    ) -> None:
        self.client_seconds = self.own_seconds = 0.0  # nodes run elsewhere
        self._post, self._nodes, self._plan = post, nodes, plan
        self._begin, self.deadlines = begin, deadlines
        self._clients = {node: client for client, node in nodes.items()}
        self.silent: set[int] = set()
        """Nodes that did not answer the last letter they got: they may be gone."""
        self.holding: set[int] = set()
        """Nodes that may still hold state of the round: they did not finish it."""
        self.beside: dict[ClientId, bytes] = {}
        """What travelled with clients' answers, the latest of each."""

    def exchange(
        self, stage: Stage, letters: Iterable[tuple[ClientId, bytes]]
    ) -> Iterator[tuple[ClientId, bytes]]:
        """Deliver letters to their nodes and yield the replies that come in time."""
        first = stage is Stage.ADVERTISE
        asked = {
            client: self.beginning(client, body) if first else Letter(Kind.STAGE, body)
            for client, body in letters
        }
        seconds = self.deadlines.evaluate if first else self.deadlines.stage
        if stage is Stage.VOID:  # nothing hangs on it
            seconds = min(seconds, _VOID_SECONDS)
        last = stage in (Stage.UNMASK, Stage.VOID)
        for client, reply in self.deliver(asked, stage=_NAMES[stage], seconds=seconds, last=last):
            if reply.beside:
                self.beside[client] = reply.beside
            yield client, reply.body or encode(Refusal(client, reply.refused), self._plan)

    def beginning(self, client: ClientId, body: bytes) -> Letter:
        """Return the letter with which a round begins for a client."""
        return replace(self._begin, body=body, client=client)

    def answers(self, client: ClientId) -> bool:
        """Say whether a client answered the last letter it got."""
        return self._nodes[client] not in self.silent

    def deliver(
        self, letters: Mapping[ClientId, Letter], *, stage: str, seconds: float, last: bool
    ) -> Iterator[tuple[ClientId, Reply]]:
        """Deliver letters of whatever protocol and yield the replies that come in time.

        Args:
            letters: By client.
            stage: What is going on, in words.
            seconds: How long it may take.
            last: Whether a client that answers holds nothing of the round any more.
        """
        asked = {self._nodes[client]: letter for client, letter in letters.items()}
        self.silent |= asked.keys()
        self.holding |= asked.keys()
        traces, worked = list[str](), False
        for node, reply in self._post.ask(asked, stage=stage, seconds=seconds):
            self.silent.discard(node)
            if reply.body and last:
                self.holding.discard(node)
            if reply.trace:
                traces.append(reply.trace)
            elif reply.body and self._clients[node] not in self._plan.required:
                worked = True
            yield self._clients[node], reply
        if self._post.simulated and traces:
            _log.error("own code of %d simulated nodes failed, first:\n%s", len(traces), traces[0])
            if not worked:
                raise NodesFailed(
                    f"the app's code fails on all {len(traces)} nodes that computed, first with "
                    f"{traces[0].strip().splitlines()[-1]}. Nothing was spent"
                )


_NAMES: Mapping[Stage, str] = {
    Stage.ADVERTISE: "computing and exchanging keys",
    Stage.SHARE: "sharing keys",
    Stage.MASK: "sending masked vectors",
    Stage.AGREE: "agreeing on who took part",
    Stage.UNMASK: "opening the sum",
    Stage.VOID: "closing a round that came to nothing",
}


def _read(message: Message) -> Reply:
    """Return a node's reply; what is none becomes a refusal in the server's words."""
    if message.has_error():
        # Flower puts the node's own exception text into the error. Only what our own code or
        # Flower's could have written is repeated.
        if "No query function registered" in (message.error.reason or ""):
            return Reply.refusal("runs no Urna: its ClientApp does not take part in sums")
        return Reply.refusal(_ERRORS.get(message.error.code, "Flower reported an error"))
    try:
        return Reply.read(message.content)
    except ProtocolError as error:
        return Reply.refusal(str(error))


_ERRORS: Mapping[int, str] = {
    1: "its ClientApp could not be loaded",
    2: "its ClientApp failed",
    6: "its ClientApp refused the message",
    7: "its app is not valid",
    8: "its ClientApp crashed",
}
"""What Flower's codes mean, in words, where the node was there."""

_SILENCE: Mapping[int, str] = {
    3: "the message to it was lost",
    4: "its reply was lost",
    5: "it is not connected any more",
}
"""What they mean where nobody answered: the node refused nothing."""


def _log_stage(progress: SumProgress) -> None:
    if progress.answered in (0, progress.asked):
        _log.info("%s", progress)

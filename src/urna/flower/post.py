"""Letters over Flower's grid: push one per node, pull until all replied or time is over."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError
from urna.flower.mail import ACTION, Kind, Letter, Reply
from urna.secagg import ClientId, Plan, Stage
from urna.secagg.messages import Refusal
from urna.secagg.wire import decode, encode

__all__ = ["Deadlines", "GridTransport", "PollProgress", "Post", "Progress"]

_AT_ONCE = 64  # messages per push: one request must not grow with the federation
_SIMULATED_AT_ONCE, _EVERYBODY = 32, 2**31  # letters without an answer yet
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks for replies

_log = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds the server waits for each kind of answer. Later ones are ignored."""

    gather: float = 120.0
    """For nodes to connect, and again for them to say whether they take part."""
    evaluate: float = 3600.0
    """For the first stage, in which nodes evaluate all candidates."""
    stage: float = 180.0
    """For each later stage. A deployed node polls every few seconds and starts a process."""

    def __post_init__(self) -> None:
        if not all(0 < seconds < 1e7 for seconds in (self.gather, self.evaluate, self.stage)):
            raise ParameterError("deadlines are positive numbers of seconds")


@dataclass(frozen=True, slots=True)
class PollProgress:
    """Where a vote stands."""

    stage: str
    answered: int
    asked: int
    seconds_left: float
    """Until the stage's deadline."""

    def __str__(self) -> str:
        return (
            f"vote: {self.stage}, {self.answered} of {self.asked} answered, "
            f"{self.seconds_left:.0f} s left"
        )


Progress = Callable[[PollProgress], None]
"""Called at the start of each stage and whenever replies come in."""


class Post:
    """Sends letters and collects replies, stage by stage.

    Args:
        grid: Flower's grid.
        progress: Called while replies come in; each stage's end is logged by default.
    """

    def __init__(self, grid: Grid, progress: Progress | None = None) -> None:
        self._grid = grid
        self._progress = progress or _log_stage
        # The simulation engine looks through all undelivered messages for each of its nodes
        # again and again; that takes a core from the workers unless there are only a few.
        simulated = type(grid).__name__ == "InMemoryGrid"
        self._window = _SIMULATED_AT_ONCE if simulated else _EVERYBODY

    def ask(
        self, letters: Mapping[int, Letter], *, stage: str, seconds: float
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (node, reply) as replies come in, until all did or time is over.

        An error that Flower reports in place of a reply is yielded as a refusal. Silence is
        no reply.
        """
        waiting, pending = dict(letters), dict[str, int]()
        answered, pause, window = 0, _FIRST_PAUSE, self._window
        start = heard = time.monotonic()
        self._progress(PollProgress(stage, 0, len(letters), seconds))
        while (waiting or pending) and (left := seconds - (time.monotonic() - start)) > 0:
            if waiting and (room := window - len(pending)) > 0:
                now = dict(itertools.islice(waiting.items(), room))
                waiting = {node: waiting[node] for node in waiting if node not in now}
                pending |= self._push(now, stage, left)
            came = [
                (pending.pop(reply.metadata.reply_to_message_id), _read(reply))
                for reply in self._grid.pull_messages(list(pending))
                if reply.metadata.reply_to_message_id in pending
            ]
            if came:
                answered, pause, heard = answered + len(came), _FIRST_PAUSE, time.monotonic()
                self._progress(PollProgress(stage, answered, len(letters), left))
                yield from came
                continue
            if waiting and time.monotonic() - heard > _LONGEST_PAUSE:
                window *= 2  # those who are silent must not hold up the others
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def tell(self, nodes: Iterable[int], letter: Letter, *, seconds: float) -> None:
        """Send a letter whose replies nobody waits for."""
        self._push(dict.fromkeys(nodes, letter), "end", seconds)

    def _push(self, letters: Mapping[int, Letter], stage: str, seconds: float) -> dict[str, int]:
        """Push letters; return the nodes by message id."""
        messages = [
            Message(
                letter.as_records(), node, f"query.{ACTION}", ttl=seconds, group_id=f"urna {stage}"
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
    """The secure summation's transport over Flower.

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
        self._post, self._nodes, self._plan = post, nodes, plan
        self._begin, self._deadlines = begin, deadlines
        self._clients = {node: client for client, node in nodes.items()}
        self._stage = Stage.ADVERTISE
        self._waiting: set[ClientId] = set()
        self._last: dict[ClientId, bytes] = {}
        self._lost: dict[ClientId, str] = {}

    @property
    def client_seconds(self) -> float:
        """Zero: nodes run elsewhere."""
        return 0.0

    @property
    def own_seconds(self) -> float:
        """Zero: no node runs in this process."""
        return 0.0

    def exchange(
        self, stage: Stage, letters: Iterable[tuple[ClientId, bytes]]
    ) -> Iterator[tuple[ClientId, bytes]]:
        """Deliver letters to their nodes and yield the replies that come in time."""
        bodies = dict(letters)
        self._note_losses(self._waiting - bodies.keys())
        self._stage, self._waiting, self._last = stage, set(bodies), {}
        first = stage is Stage.ADVERTISE
        asked = {
            self._nodes[client]: (
                Letter(Kind.BEGIN, body, self._begin.announcement, self._begin.signature, client)
                if first
                else Letter(Kind.STAGE, body)
            )
            for client, body in bodies.items()
        }
        seconds = self._deadlines.evaluate if first else self._deadlines.stage
        for node, reply in self._post.ask(asked, stage=_NAMES[stage], seconds=seconds):
            client = self._clients[node]
            body = reply.body or encode(Refusal(client, reply.refused), self._plan)
            self._last[client] = body
            yield client, body

    def lost(self) -> dict[ClientId, str]:
        """Return who was lost so far and why: what to say when a round is aborted."""
        self._note_losses({c for c in self._waiting if self._refusal(c) is not None})
        return dict(self._lost)

    def _note_losses(self, clients: Iterable[ClientId]) -> None:
        for client in sorted(clients):
            reason = self._refusal(client) or "sent a wrong message"
            self._lost.setdefault(client, f"{reason} ({_NAMES[self._stage]})")

    def _refusal(self, client: ClientId) -> str | None:
        """Return why a client's last answer is none, or None where it may be one."""
        if client not in self._last:
            return "did not answer in time"
        try:
            message = decode(self._last[client], self._plan)
        except ProtocolError:
            return "sent a wrong message"
        return f"refused: {message.reason}" if isinstance(message, Refusal) else None


_NAMES: Mapping[Stage, str] = {
    Stage.ADVERTISE: "evaluating and exchanging keys",
    Stage.SHARE: "sharing keys",
    Stage.MASK: "sending masked ballots",
    Stage.AGREE: "agreeing on who took part",
    Stage.UNMASK: "opening the sum",
}


def _read(message: Message) -> Reply:
    """Return a node's reply; what is none becomes a refusal in the server's words."""
    if message.has_error():
        # Flower puts the node's own exception text into the error. Only what our own code or
        # Flower's could have written is repeated.
        if "No query function registered" in (message.error.reason or ""):
            return Reply.refusal("runs no Urna: its ClientApp does not answer votes")
        return Reply.refusal(f"Flower reported an error (code {message.error.code})")
    try:
        return Reply.read(message.content)
    except ProtocolError as error:
        return Reply.refusal(str(error))


def _log_stage(progress: PollProgress) -> None:
    if progress.answered in (0, progress.asked):
        _log.info("%s", progress)

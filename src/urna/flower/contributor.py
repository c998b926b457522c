"""What computes a node's part of a sum, and the limits it runs under."""

import sys
import traceback
from dataclasses import dataclass, field
from queue import Empty, Queue
from threading import Thread
from typing import Protocol

from flwr.app import Context

from urna.flower.announcement import Announcement
from urna.flower.policy import Policy
from urna.local.engine.batches import step_key
from urna.local.generators import own_generators
from urna.noise import IntVector

__all__ = ["Call", "Contributor", "in_time", "seed_of", "simulated", "trace_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """What a contributor is asked for."""

    announcement: Announcement
    context: Context
    policy: Policy
    number: int
    """The round's number in its series, from one; zero while nodes are gathered."""
    inputs: bytes = field(repr=False)
    """What the round starts from."""
    key: bytes = field(repr=False)
    """32 secret bytes for whatever the contribution decides by lot."""
    seconds: float
    """How long it may take."""


class Contributor(Protocol):
    """Computes what a node puts into sums of one kind."""

    @property
    def kind(self) -> str:
        """The kind of subject it answers."""
        ...

    def check(self, call: Call) -> None:
        """Refuse what no data can change: wrong settings, too few records.

        Asked at the gathering, so that who refuses is not counted on, and again before each
        contribution.

        Raises:
            Refused: With a reason for the server.
        """
        ...

    def contribute(self, call: Call) -> IntVector:
        """Return the node's contribution, in units.

        Whatever it raises, the node contributes nothing under its full share of noise, and
        says nothing about it but in its own log; see `Policy.reports_failures`.
        """
        ...


_ENDED = "the contribution ended its process"


def in_time(contributor: Contributor, call: Call) -> IntVector:
    """Return the contribution, if it comes before the server's patience ends.

    Raises:
        TimeoutError: It does not; whoever computes it is left to himself.
        Exception: Whatever the contributor raises.
    """
    if simulated():  # one person owns all nodes, and a worker has one thread
        with own_generators(seed_of(call.context, call.number)):
            try:
                return contributor.contribute(call)
            except SystemExit as error:
                raise RuntimeError(_ENDED) from error
    found: Queue[IntVector | BaseException] = Queue()

    def compute() -> None:
        try:
            found.put(contributor.contribute(call))
        except BaseException as error:
            found.put(error)

    Thread(target=compute, daemon=True).start()
    patience = (call.seconds + call.announcement.seconds) / 2
    try:
        answer = found.get(timeout=patience)
    except Empty as error:
        raise TimeoutError("the contribution took too long") from error
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, BaseException):  # sys.exit(), say: not this process's end
        raise RuntimeError(_ENDED) from answer
    return answer


def seed_of(context: Context, number: int = 0) -> int:
    """Return where global generators begin when a node evaluates: by its place and the round."""
    return step_key(int(str(context.node_config.get("partition-id", 0))), number)


def trace_of(error: BaseException) -> str:
    """Return an error with its traceback where the node is simulated, and nothing elsewhere.

    One person owns all nodes of a simulation; the text of an error may hold data.
    """
    return "".join(traceback.format_exception(error)) if simulated() else ""


def simulated() -> bool:
    """Say whether this process is a worker of Flower's simulation engine.

    That one of its actors lives here: a deployed node may use Ray for reasons of its own.
    """
    worker = sys.modules.get("ray._private.worker")
    actors = getattr(getattr(worker, "global_worker", None), "actors", None) or {}
    return any(type(actor).__module__.startswith("flwr.") for actor in actors.values())

"""A grid in this process: nodes are ClientApps, messages pass through Flower's serialisation."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.serde import (
    context_from_proto,
    context_to_proto,
    message_from_proto,
    message_to_proto,
)
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from urna.flower.messages import Letter

__all__ = ["LocalGrid", "Node"]


@dataclass
class Node:
    """A SuperNode: an app, its state, and what goes wrong with it."""

    app: ClientApp
    config: UserConfig = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)
    """By how many letters it got before: "silent", "late", "crash", "restart" (then answer).

    A number: the SuperLink answers with Flower's error of that code, and the node never does.
    """
    letters: list[Letter] = field(default_factory=list)
    state: RecordDict = field(default_factory=RecordDict)


class LocalGrid(Grid):
    """Delivers at once; late replies come when nobody waits for them any more."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        # What Flower's own processes set before an app runs.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.nodes = dict(nodes)
        self.sent: list[Message] = []
        self.replies: dict[str, Message] = {}
        self.late: list[str] = []
        self.tamper: Callable[[Message], Message] = lambda message: message

    def set_run(self, run: Run) -> None:
        raise AssertionError("not asked for")

    @property
    def run(self) -> Run:
        raise AssertionError("not asked for")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        raise AssertionError("deprecated in Flower")

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise AssertionError("not asked for")

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            self.sent.append(message)
            self._deliver(self.tamper(message))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        time.sleep(0.001)
        return [self.replies.pop(name) for name in list(self.replies) if name in wanted]

    def _deliver(self, message: Message) -> None:
        node = self.nodes[message.metadata.dst_node_id]
        fault = node.faults.get(len(node.letters), "")
        node.letters.append(Letter.read(message.content))
        if fault == "silent":
            return
        if fault == "restart":
            node.state = RecordDict()
        context = Context(0, message.metadata.dst_node_id, node.config, node.state, {})
        arrived = message_from_proto(message_to_proto(message))
        if fault.isdecimal():
            found = Message(Error(int(fault), "the SuperLink's own words"), reply_to=arrived)
            self.replies[message.metadata.message_id] = found
            return
        try:
            if fault == "crash":
                raise ValueError("SECRET-OF-THE-NODE")
            answer = node.app(arrived, context)
            node.state = context_from_proto(context_to_proto(context)).state
        except Exception as error:  # what Flower does with an app that raises
            answer = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=arrived)
        if fault == "late":
            self.late.append(message.metadata.message_id)
            return
        self.replies[message.metadata.message_id] = message_from_proto(message_to_proto(answer))

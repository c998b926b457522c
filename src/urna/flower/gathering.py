"""Whom a server reaches and how long it waits, and who takes part in what it announces."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from flwr.serverapp import Grid

from urna.errors import ParameterError
from urna.flower.announcement import Announced, AnnouncedT, check_name, server_statement
from urna.flower.identities import DirectoryFile, NodeKey, verify
from urna.flower.messages import ACTION, Kind, Letter, Reply
from urna.flower.transcript import presence
from urna.flower.transport import Deadlines, Post, Progress

_PAUSE = 0.2  # seconds between two looks at who is connected

_log = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """How a server reaches nodes: who is invited, who signs, and how long it waits.

    Args:
        directory: Identity keys of those invited, or the file that holds them. With it messages
            are signed: nodes check each other's keys against their *own* copies.
        server_key: Signs announcements and transcripts, or the file that holds it.
        least_clients: With fewer nodes ready, nothing is begun.
        wait_for: Wait until this many nodes are connected; `least_clients` by default.
        deadlines: How long to wait for what.
        transcripts: Folder in which transcripts of all rounds are kept.

    Raises:
        ParameterError: Fewer than two clients would do.
    """

    directory: DirectoryFile | Path | None = None
    server_key: NodeKey | Path | None = None
    least_clients: int = 2
    wait_for: int | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    transcripts: Path | None = None

    def __post_init__(self) -> None:
        if self.least_clients < 2:
            raise ParameterError(f"a sum needs at least two clients, got {self.least_clients}")


class Reach:
    """How a server reaches the nodes of a federation: it waits, announces and signs.

    Args:
        grid: Flower's grid.
        federation: Who is invited, who signs, how long to wait.
        progress: Called while replies come in.
        action: What on the nodes is asked.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        progress: Progress | None = None,
        *,
        action: str = ACTION,
    ) -> None:
        directory, key = federation.directory, federation.server_key
        self.keys = DirectoryFile.read(directory) if isinstance(directory, Path) else directory
        self.signer = NodeKey.read(key) if isinstance(key, Path) else key
        self.federation, self.deadlines = federation, federation.deadlines
        self.post, self._grid = Post(grid, progress, action=action), grid

    def connected(self) -> list[int]:
        """Return the nodes connected once there are enough, or when time is over."""
        start, told = time.monotonic(), -1
        least, seconds = self.federation.wait_for, self.deadlines.gather
        least = least or self.federation.least_clients
        while True:
            nodes = sorted(self._grid.get_node_ids())
            if len(nodes) >= least or time.monotonic() - start > seconds:
                return nodes
            if len(nodes) != told:
                told = len(nodes)
                _log.info("%d of %d nodes are connected; waiting up to %g s", told, least, seconds)
            time.sleep(_PAUSE)

    def letter(self, kind: Kind, announced: Announced, body: bytes = b"", **more: Any) -> Letter:  # noqa: ANN401 - fields of a letter
        """Return a letter under an announcement, signed where the server has a key."""
        data = announced.as_bytes()
        signature = b"" if self.signer is None else self.signer.sign(server_statement(data, body))
        return Letter(kind, body, announcement=data, signature=signature, **more)

    def gather(
        self, announced: AnnouncedT, nodes: Iterable[int], missing: Mapping[int, str]
    ) -> "Gathering[AnnouncedT]":
        """Announce to these nodes, and find out who of them takes part."""
        nodes, traces = list(nodes), list[str]()
        gathering = Gathering(announced, self.keys, dict(missing))
        letters = dict.fromkeys(nodes, self.letter(Kind.ANNOUNCE, announced))
        for node, reply in self.post.ask(letters, stage="gathering", seconds=self.deadlines.gather):
            gathering.take(node, reply)
            traces += [reply.trace] if reply.trace else []
        gathering.close(nodes)
        self.post.names = {node: name for name, node in gathering.ready.items()}
        if traces and self.post.simulated:
            _log.error("%d simulated nodes could not take part, first:\n%s", len(traces), traces[0])
        return gathering


@dataclass(slots=True)
class Gathering(Generic[AnnouncedT]):
    """Who takes part, by name, and who does not and why, by node."""

    announced: AnnouncedT
    keys: DirectoryFile | None
    missing: dict[int, str]
    ready: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, bytes] = field(default_factory=dict)
    keeping: set[int] = field(default_factory=set)
    """Nodes that keep transcripts."""
    scripted: set[str] = field(default_factory=set)
    """Those who say that their randomness is no secret."""

    def take(self, node: int, reply: Reply) -> None:
        """Note one node's answer to the announcement."""
        if reply.refused:
            self.missing[node] = f"refused: {reply.refused}"
            return
        try:
            name = check_name(reply.name)
        except ParameterError:
            self.missing[node] = "gave no proper name"
            return
        if self.keys is not None and not verify(
            self.keys.keys.get(name, b""), reply.proof, presence(self.announced, name)
        ):
            self.missing[node] = f"{name}: not proven to be the one in the directory"
        elif name in self.ready:
            self.missing[node] = f"{name}: another node already has this name"
        else:
            self.ready[name], self.proofs[name] = node, reply.proof
            if not reply.private:
                self.scripted.add(name)
            if reply.keeps:
                self.keeping.add(node)

    def close(self, nodes: Iterable[int]) -> None:
        """Note the silent ones, and put those who take part in the order of their names.

        A run in which everybody's randomness is scripted is a comparison; among others, a node
        whose is takes no part, so that it cannot void what they promise each other.
        """
        if not self.private and len(self.scripted) < len(self.ready):
            for name in self.scripted:
                self.missing[self.ready.pop(name)] = f"{name}: its randomness is scripted"
            self.scripted.clear()
        there = set(self.ready.values()) | self.missing.keys()
        self.missing |= {n: "did not answer the announcement" for n in nodes if n not in there}
        self.ready = dict(sorted(self.ready.items(), key=lambda entry: _order(entry[0])))

    @property
    def private(self) -> bool:
        """Whether everybody's randomness is secret."""
        return not self.scripted

    @property
    def final(self) -> AnnouncedT:
        """The announcement for those who take part."""
        return self.announced.with_names(tuple(self.ready))

    def by_node(self, clients: Mapping[int, str]) -> dict[int, str]:
        """Return what is said of clients, by Flower's node id."""
        names, nodes = tuple(self.ready), tuple(self.ready.values())
        return {nodes[client]: f"{names[client]}: {what}" for client, what in clients.items()}

    def by_name(self, clients: Mapping[int, str]) -> dict[str, str]:
        """Return what is said of clients, by name."""
        names = tuple(self.ready)
        return {names[client]: what for client, what in clients.items()}


def _order(name: str) -> tuple[int, int, str]:
    """Order numbers as numbers, before other names."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)

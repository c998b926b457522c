"""Who takes part in a sum: what the nodes answered to its announcement."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from urna.errors import ParameterError
from urna.flower.announcement import Announced, check_name
from urna.flower.identities import DirectoryFile, verify
from urna.flower.messages import Reply
from urna.flower.transcript import presence

__all__ = ["Gathering"]

AnnouncedT = TypeVar("AnnouncedT", bound=Announced)


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

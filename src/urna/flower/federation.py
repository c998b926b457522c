"""How a server reaches nodes, whatever it asks them for."""

from dataclasses import dataclass, field
from pathlib import Path

from urna.errors import ParameterError
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.transport import Deadlines

__all__ = ["Federation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """Who is invited, who signs, and how long the server waits.

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

    @property
    def keys(self) -> DirectoryFile | None:
        """The directory, read from its file."""
        named = self.directory
        return DirectoryFile.read(named) if isinstance(named, Path) else named

    @property
    def signer(self) -> NodeKey | None:
        """The server's key, read from its file."""
        named = self.server_key
        return NodeKey.read(named) if isinstance(named, Path) else named

    @property
    def awaited(self) -> int:
        """How many nodes to wait for."""
        return self.wait_for or self.least_clients

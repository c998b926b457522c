"""The seam between a round and its protocol: who takes part goes in, what was opened comes out."""

from collections.abc import Callable
from dataclasses import dataclass

from urna.errors import ProtocolError
from urna.flower.announcement import Announcement
from urna.flower.identities import DirectoryFile
from urna.flower.messages import Letter, Reply
from urna.flower.transport import GridTransport
from urna.noise import IntVector
from urna.protocols.secagg import ClientId, Outcome, Transport, conduct
from urna.tally import Tallied, tallied

__all__ = ["Conduct", "Desk", "add_up"]


@dataclass(frozen=True, slots=True)
class Desk:
    """A round as its protocol finds it: what was announced, and how to reach everybody."""

    announcement: Announcement
    number: int
    coin: bytes
    keys: DirectoryFile | None
    """Identity keys of those invited, in signed rounds."""
    grid: GridTransport
    """Reaches the nodes, whatever the protocol."""
    transport: Transport
    """The same for a secure sum; in a series that is kept, replies are written down."""
    started: Callable[[], None]
    """Notes in the server's ledger that a circuit starts, before the first message that shows
    anything leaves: from then on the round counts."""

    def secure_sum(self) -> Outcome:
        """Add up by secure aggregation (SecAgg+)."""
        names = self.announcement.names
        return conduct(
            self.announcement.round_plan,
            self.transport,
            number=self.number,
            coin=self.coin,
            directory=None if self.keys is None else self.keys.for_round(names),
        )

    def ask(self, client: ClientId, letter: Letter, *, stage: str, last: bool = False) -> Reply:
        """Return one client's answer to a letter of its own.

        Raises:
            ProtocolError: There is none, or a refusal.
        """
        seconds = self.grid.deadlines.stage
        found = self.grid.deliver({client: letter}, stage=stage, seconds=seconds, last=last)
        reply = dict(found).get(client)
        name = self.announcement.names[client]
        if reply is None:
            raise ProtocolError(f"{name} did not answer in time ({stage})")
        if not reply.body:
            raise ProtocolError(f"{name} refused: {reply.refused or 'it said nothing'}")
        return reply


Conduct = Callable[[Desk], tuple[Tallied, IntVector]]
"""Holds a round; returns what became of each client, and what is opened, of which the transcript
holds a digest. Where less than a sum is opened, the sum is nobody's business."""


def add_up(desk: Desk) -> tuple[Tallied, IntVector]:
    """Hold a round by secure aggregation, and open the sum."""
    found = tallied(desk.secure_sum(), desk.announcement.plan)
    return found, found.total

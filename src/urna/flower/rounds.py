"""The server's side of one round: who takes part goes in, what was opened comes out."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from urna.errors import InvalidSum, ProtocolError, RoundFailed, RoundUnfinished
from urna.flower.announcement import Announcement
from urna.flower.checkpoint import RoundJournal
from urna.flower.gathering import Gathering, Reach
from urna.flower.identities import DirectoryFile
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.transcript import Ending, Transcript, sum_digest
from urna.flower.transport import GridTransport
from urna.noise import IntVector
from urna.protocols.secagg import ClientId, Outcome, Transport, conduct
from urna.tally import Tallied, tallied

Lost = dict[int, str]


@dataclass(slots=True)
class Desk:
    """A round as its protocol finds it: what was announced, and how to reach everybody."""

    reach: Reach
    gathering: Gathering[Announcement]
    number: int
    inputs: bytes = field(repr=False)
    resumes: bool
    """Whether a server that was killed goes on with the round, so that nodes keep their answers."""
    started: Callable[[], None]
    """Notes in the server's ledger that a circuit starts, before the first message that shows
    anything leaves: from then on the round counts."""
    announcement: Announcement = field(init=False)
    grid: GridTransport = field(init=False)
    """Reaches the nodes, whatever the protocol."""
    transport: Transport = field(init=False)
    """The same for a secure sum; where a round is kept, replies are written down."""
    tallied: Tallied | None = field(init=False, default=None)
    """What became of each client, once the protocol is over."""
    opened: IntVector | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.announcement = self.gathering.final
        self.grid = self.transport = GridTransport(
            self.reach.post,
            dict(enumerate(self.gathering.ready.values())),
            self.announcement.round_plan,
            self.reach.letter(
                Kind.BEGIN,
                self.announcement,
                number=self.number,
                inputs=self.inputs,
                resumes=self.resumes,
            ),
            self.reach.deadlines,
        )

    @property
    def coin(self) -> bytes:
        """The round's coin."""
        return self.announcement.coin(self.number, self.inputs)

    @property
    def keys(self) -> DirectoryFile | None:
        """Identity keys of those invited, in signed rounds."""
        return self.reach.keys

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
        """Return one client's answer to a letter of its own."""
        seconds = self.grid.deadlines.stage
        found = self.grid.deliver({client: letter}, stage=stage, seconds=seconds, last=last)
        reply = dict(found).get(client)
        name = self.announcement.names[client]
        if reply is None:
            raise ProtocolError(f"{name} did not answer in time ({stage})")
        if not reply.body:
            raise ProtocolError(f"{name} refused: {reply.refused or 'it said nothing'}")
        return reply

    def hold(self, conduct: "Conduct", folder: Path | None) -> Tallied:
        """Conduct the protocol; where the round is kept, write replies down and read them again."""
        if folder is None:
            self.tallied, self.opened = conduct(self)
            return self.tallied
        with RoundJournal(folder, self.coin, self.grid) as journal:
            self.transport = journal
            try:
                self.tallied, self.opened = conduct(self)
            except RoundFailed:
                journal.over()
                raise
            journal.over()
        return self.tallied

    def end(self, failed: RoundFailed | None = None) -> tuple[Transcript, Lost, Lost]:
        """Write the transcript and hand it to the nodes that have a use for it.

        Of a sum that was opened: those who keep it, and those who may hold state of the round.
        Returns it, and who was lost and who is to blame, by Flower's node id.
        """
        gathering, names, done = self.gathering, self.announcement.names, self.tallied
        said = done or failed
        lost, faults = ({}, {}) if said is None else (said.lost, said.faults)
        transcript = Transcript(
            announcement=self.announcement,
            signature=self.reach.letter(Kind.END, self.announcement).signature,
            number=self.number,
            inputs_digest=hashlib.sha256(self.inputs).digest(),
            presence=gathering.proofs if self.announcement.signed else {},
            ending=_ending(failed),
            survivors=tuple(names[client] for client in sorted(done.accepted)) if done else (),
            lost=gathering.by_name(lost),
            faults=gathering.by_name(faults),
            receipts={names[c]: r for c, r in failed.receipts.items()} if failed else {},
            sum_digest="" if self.opened is None else sum_digest(self.opened),
        ).sealed_by(self.reach.signer)
        if self.reach.federation.transcripts is not None:
            transcript.keep(self.reach.federation.transcripts)
        told = set(gathering.ready.values())
        if failed is None and not self.resumes:  # else all keep their answers
            told &= gathering.keeping | self.grid.holding
        letter = Letter(Kind.END, transcript.as_bytes())
        seconds = self.reach.deadlines.stage
        self.reach.post.tell(told, letter, seconds=seconds, gone=self.grid.silent)
        return transcript, gathering.by_node(lost), gathering.by_node(faults)

    def forget(self) -> None:
        """Tell everybody that the round is over, and wait for nobody."""
        nodes, seconds = self.gathering.ready.values(), self.reach.deadlines.stage
        self.reach.post.tell(nodes, Letter(Kind.END), seconds=seconds, gone=nodes)


Conduct = Callable[[Desk], tuple[Tallied, IntVector]]
"""Holds a round; returns what became of each client, and what is opened, of which the transcript
holds a digest. Where less than a sum is opened, the sum is nobody's business."""


def add_up(desk: Desk) -> tuple[Tallied, IntVector]:
    """Hold a round by secure aggregation, and open the sum."""
    found = tallied(desk.secure_sum(), desk.announcement.plan)
    return found, found.total


def _ending(failed: RoundFailed | None) -> Ending:
    match failed:
        case None:
            return Ending.RELEASED
        case RoundUnfinished():
            return Ending.UNFINISHED
        case InvalidSum():
            return Ending.SPOILED
        case _:
            return Ending.VOID

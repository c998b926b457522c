"""The server's side of private sums: gather the nodes, then hold a round, or a series of them."""

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from flwr.serverapp import Grid

from urna.errors import (
    InvalidSum,
    ParameterError,
    RoundAborted,
    RoundFailed,
    RoundUnfinished,
)
from urna.flower.announcement import Announcement, server_statement
from urna.flower.checkpoint import JournaledTransport, RoundJournal, SeriesState
from urna.flower.conducting import Conduct, Desk, add_up
from urna.flower.federation import Federation
from urna.flower.gathering import Gathering
from urna.flower.messages import Kind, Letter
from urna.flower.subjects import Subject
from urna.flower.transcript import Ending, Transcript, sum_digest
from urna.flower.transport import GridTransport, NodesFailed, Post
from urna.noise import IntVector
from urna.privacy import Budget, PrivacyStatement
from urna.protocols.secagg import Transport
from urna.randomness import SEED_BYTES, OsSecrets
from urna.tally import Options, Released, Releases, Run, Tallied, Terms
from urna.tally.secure import SERVERS

__all__ = ["ATTEMPTS", "COLLUDING", "Sums"]

ATTEMPTS = 3
"""How often a round is held, at most, that fails because some node broke the protocol."""

COLLUDING = 0.1
"""Part of the nodes that is counted out as colluding unless one says otherwise: what nodes'
policies ask for by default."""

_PAUSE = 0.2  # seconds between two looks at who is connected

_log = logging.getLogger("flwr")


class Sums:
    """Private sums among the nodes of a grid: announced once, held round by round.

    Guarantee:
        Every opened sum is (epsilon, delta)-DP, all rounds together, towards everybody who
        learns no more than the protocol reveals; `Released.privacy` says in words what the
        server was trusted with. Each node counts a round in its own ledger before its masked
        vector leaves it.

    Assumes:
        Without a directory the server passes on keys honestly (honest-but-curious).

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        subject: What is summed; for a subject that depends on how many nodes there are, what
            makes it from their number.
        budget: What all rounds together may cost each node.
        rounds: How many rounds there will be at most.
        folder: Where a series is kept, so that a server that was killed goes on with it when it
            is made again with the same settings. The folder then holds what nodes sent in the
            latest round, under masks: what the server has seen anyway.
        attempts: How often a round is held that fails because some node broke the protocol,
            each time without those who did.
        federation: Who is invited, who signs, how long to wait.
        run: Where it is counted: a ledger of the server's own, an `entry` for a server that may
            be killed and begin again. `progress` is called with a `SumProgress`.
        conduct: How a round is held among those who take part: by secure aggregation, or by
            another protocol that opens less.
        options: The rest of the terms; see `urna.tally.Terms`. A tenth of the nodes is
            counted out as colluding by default.
    """

    def __init__(
        self,
        grid: Grid,
        subject: Subject | Callable[[int], Subject],
        *,
        budget: Budget,
        rounds: int = 1,
        folder: Path | None = None,
        attempts: int = ATTEMPTS,
        federation: Federation | None = None,
        run: Run | None = None,
        conduct: Conduct = add_up,
        **options: Unpack[Options],
    ) -> None:
        if folder is not None and rounds == 1:
            raise ParameterError("a folder keeps a series; a single sum is held anew")
        self._grid, self._subject = grid, subject
        self._budget, self._rounds = budget, rounds
        self._options: Options = {"colluding": COLLUDING, **options}
        reached = federation or Federation()
        run = (run or Run()).only("a sum over Flower", "ledger", "entry", "progress")
        self._keys, self._signer = reached.keys, reached.signer
        self._least, self._wait_for = reached.least_clients, reached.awaited
        self._waits, self._ledger = reached.deadlines, run.ledger
        self._transcripts, self._attempts = reached.transcripts, attempts
        self._post, self.conduct = (
            Post(grid, run.progress if callable(run.progress) else None),
            conduct,
        )
        self._excluded: dict[int, str] = {}
        self._gathered: Gathering[Announcement] | None = None
        self._releases: Releases | None = None
        self._entry = run.entry
        self._folder, self._kept = (
            folder,
            None if folder is None else SeriesState.read(folder, self._keys),
        )
        self._again = False  # whether the round begun last was begun by a server that was killed
        self._number = 0
        self.lost: dict[int, str] = {}
        """Who was not in the last sum and why, by Flower's node id."""
        self.faults: dict[int, str] = {}
        """Who broke the protocol so far and how, by Flower's node id."""
        self.transcript: Transcript | None = None
        """Of the last round."""

    @property
    def announcement(self) -> Announcement:
        """What was announced to those who take part.

        Raises:
            ParameterError: Nobody was gathered yet.
        """
        if self._gathered is None:
            raise ParameterError("nobody was gathered yet")
        return self._gathered.final

    @property
    def number(self) -> int:
        """The round that was begun last; zero before the first."""
        return self._number

    @property
    def entry(self) -> str | None:
        """The id of what was released in the server's own ledger, where there is one."""
        releases = self._releases
        return None if releases is None else releases.slot.entry

    @property
    def privacy(self) -> PrivacyStatement:
        """What all rounds so far promise.

        Raises:
            ParameterError: Nobody was gathered yet.
        """
        if self._releases is None:
            raise ParameterError("nobody was gathered yet")
        return self._releases.statement()

    def gather(self) -> Announcement:
        """Announce, and find out who takes part. Nothing is computed and nothing is spent.

        A series that the folder holds goes on as it was announced, among the same nodes.

        Raises:
            ParameterError: The sum cannot be planned, or the folder holds another series.
            BudgetExceeded: The server's own ledger has no room.
            LedgerError: The server's own ledger knows of a sum of this entry, or of rounds that
                the folder does not.
            RoundAborted: Too few nodes take part; it says who does not and why.
        """
        self._number, self._again = 0, False
        if self._kept is not None and self._gathered is None:
            return self._take_up(self._kept)
        nodes = [n for n in self._connected() if n not in self._excluded]
        if len(nodes) < self._least:
            raise RoundAborted(
                f"{len(nodes)} nodes are connected; the sum needs {self._least}. "
                "Nothing was announced.",
                self._excluded,
            )
        announced = self._announced(len(nodes), OsSecrets().take(SEED_BYTES), int(time.time()))
        announced.round_plan  # noqa: B018 - what cannot be planned is wrong use: say so first
        # The ledger is asked as well, before anybody is.
        Releases(
            announced.plan,
            announced.label,
            "",
            rounds=announced.rounds,
            ledger=self._ledger,
            id=self._entry,
        )
        gathering = Gathering(announced, self._keys, dict(self._excluded))
        letter, traces = self._letter(Kind.ANNOUNCE, announced), list[str]()
        for node, reply in self._post.ask(
            dict.fromkeys(nodes, letter), stage="gathering", seconds=self._waits.gather
        ):
            gathering.take(node, reply)
            traces += [reply.trace] if reply.trace else []
        gathering.close(nodes)
        if traces and self._post.simulated:
            _log.error("%d simulated nodes could not take part, first:\n%s", len(traces), traces[0])
        if len(gathering.ready) < self._least:
            raise RoundAborted(
                f"{len(gathering.ready)} of {len(nodes)} nodes take part; the sum needs "
                f"{self._least}. Nothing was begun.",
                gathering.missing,
            )
        entry = self._entry
        if self._folder is not None:
            self._kept = SeriesState(gathering, entry or uuid.uuid4().hex)
            self._kept.write(self._folder)
            entry = self._kept.entry
        return self._open(gathering, entry)

    def _announced(self, clients: int, nonce: bytes, issued: int) -> Announcement:
        subject = self._subject(clients) if callable(self._subject) else self._subject
        return Announcement.of(
            subject,
            Terms.of(clients, self._budget, **self._options),
            nonce=nonce,
            issued=issued,
            rounds=self._rounds,
            seconds=float(self._waits.evaluate),
            signed=self._keys is not None,
        )

    def _take_up(self, kept: SeriesState) -> Announcement:
        """Go on with a series of a server that was killed."""
        gathering = kept.gathering
        was = gathering.announced
        if self._announced(was.terms.clients, was.nonce, was.issued).offer != was.offer:
            raise ParameterError(
                f"{self._folder} holds a series with other settings: name another folder, or "
                "give the settings it was begun with"
            )
        nodes = self._connected()
        if not set(gathering.ready.values()) <= set(nodes):
            # Nodes that were restarted may have other ids by now: their names are the same.
            again = Gathering(was, self._keys, {})
            letter = self._letter(Kind.ANNOUNCE, was)
            for node, reply in self._post.ask(
                dict.fromkeys(nodes, letter), stage="gathering", seconds=self._waits.gather
            ):
                again.take(node, reply)
            for name in gathering.ready.keys() & again.ready.keys():
                gathering.ready[name] = again.ready[name]
        _log.info("going on with a series of which round %d was begun last", kept.number)
        self._number, self._again = kept.number, kept.number > 0
        done = kept.before if kept.after is None else kept.after
        return self._open(gathering, kept.entry, done)

    def _open(
        self, gathering: Gathering[Announcement], entry: str | None, done: int = 0
    ) -> Announcement:
        final = gathering.final
        releases = Releases(
            final.plan,
            final.label,
            _described(final),
            rounds=final.rounds,
            ledger=self._ledger,
            private=gathering.private,
            id=entry,
            done=done,
            reads_back=self._again,
        )
        self._gathered, self._releases = gathering, releases
        self.lost = dict(gathering.missing)
        return final

    def round(
        self,
        inputs: bytes = b"",
        *,
        number: int | None = None,
        keep: Callable[[Released], None] | None = None,
    ) -> Released:
        """Hold the next round.

        In a series that was taken up again, the round that was begun last comes again, with the
        same inputs: it goes on where it stood, counted once, and where it was over already its
        sum is returned and nobody is asked. A node that does not hold the round any more is
        lost in it.

        A round that comes to nothing because a node broke the protocol is held again without
        it, where it is the only round: in a series the set of clients is fixed, and the caller
        decides. The number of a round that came to nothing is not used again.

        Args:
            inputs: What the round starts from; every node gets it, bound to the round's coin.
            number: The round's number, for who keeps account of rounds: the one after the
                latest, or that of the latest in a series that was taken up again.
            keep: Called with the sum before anybody is told of it: what was paid for can be
                written down first.

        Raises:
            ParameterError: There is no such round to be held.
            BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
            LedgerError: The server's own ledger knows that the round was released before.
            RoundAborted: Too few nodes stayed, or some broke the protocol. Nothing was
                revealed, and nothing counts.
            RoundUnfinished: Too few nodes stayed to open the sum after others had begun to
                reveal. It counts as released.
            InvalidSum: What was opened is no sum of valid contributions. It counts.
        """
        for attempt in range(1, self._attempts + 1):
            if self._gathered is None:
                self.gather()
            try:
                return self._hold(inputs, number, keep)
            except RoundFailed as failed:
                self.lost |= failed.lost
                self.faults |= failed.faults
                again = isinstance(failed, RoundAborted) and self._rounds == 1
                if not (failed.faults and again and attempt < self._attempts):
                    raise
                _log.warning("%s Holding the round again without them.", failed)
                self._excluded |= failed.faults
                self._gathered = None
        raise RoundAborted("no attempt came to an end", self.lost, self.faults)

    def _hold(
        self, inputs: bytes, number: int | None, keep: Callable[[Released], None] | None
    ) -> Released:
        gathering, releases = self._gathered, self._releases
        if gathering is None or releases is None:
            raise ParameterError("nobody was gathered yet")
        self._next(releases, hashlib.sha256(inputs).hexdigest(), number)
        round_ = _Round(self, gathering, self._number, inputs)

        def take(found: Released) -> None:
            self.lost = gathering.missing | gathering.by_node(found.tallied.lost)
            self.faults |= gathering.by_node(found.tallied.faults)
            if keep is not None:
                keep(found)

        try:
            released = releases.release(round_.add_up, take)
        except RoundFailed as failed:
            lost, faults = round_.end(_ending(failed), failed)
            named = type(failed)(
                failed.reason,
                gathering.missing | gathering.by_node(lost),
                gathering.by_node(faults),
                failed.receipts,
            )
            if isinstance(failed, NodesFailed) and not releases.done and self._folder is not None:
                SeriesState.drop(self._folder)  # no node has counted it: it may begin anew
            else:
                self._over(releases)
            raise named from failed
        except BaseException:  # Ctrl-C, a grid that fails: nodes must not keep their secrets
            if self._kept is None:  # but for a server that goes on with the round
                round_.forget()
            raise
        round_.end(Ending.RELEASED, None)
        self._over(releases)
        return released

    def _next(self, releases: Releases, digest: str, number: int | None) -> None:
        """Move on to the next round, or to the latest where it comes again."""
        kept, latest = self._kept, self._number
        if self._again and kept is not None and number in (None, latest):
            if digest != kept.inputs:
                raise ParameterError(f"round {latest} was begun with other inputs")
            slot = releases.slot
            self._again, slot.done, slot.reads_back = False, kept.before, True
            return
        if number not in (None, latest + 1):
            raise ParameterError(f"round {number} does not come after round {latest}")
        if self._again and kept is not None and kept.after is None:
            raise ParameterError(f"round {latest} was begun and is not over: it comes first")
        if latest >= self._rounds:
            raise ParameterError(f"all {self._rounds} rounds of this series were held")
        self._number, self._again, releases.slot.reads_back = latest + 1, False, False
        if kept is not None and self._folder is not None:
            self._kept = kept.begun(self._number, digest, releases.done)
            self._kept.write(self._folder)

    def _over(self, releases: Releases) -> None:
        """Keep that the latest round is over."""
        if self._kept is not None and self._folder is not None:
            self._kept = self._kept.over(releases.done)
            self._kept.write(self._folder)

    def _letter(
        self, kind: Kind, announcement: Announcement, number: int = -1, inputs: bytes = b""
    ) -> Letter:
        data = announcement.as_bytes()
        signature = self._signer.sign(server_statement(data)) if self._signer is not None else b""
        return Letter(kind, announcement=data, signature=signature, number=number, inputs=inputs)

    def _connected(self) -> list[int]:
        """Return the nodes connected once there are enough, or when time is over."""
        start = time.monotonic()
        while True:
            nodes = sorted(self._grid.get_node_ids())
            if len(nodes) >= self._wait_for or time.monotonic() - start > self._waits.gather:
                return nodes
            time.sleep(_PAUSE)


class _Round:
    """One round: the protocol over the grid, and what everybody is told at its end."""

    def __init__(
        self, sums: Sums, gathering: Gathering[Announcement], number: int, inputs: bytes
    ) -> None:
        self._sums, self._gathering = sums, gathering
        self._number, self._inputs = number, inputs
        self._final = gathering.final
        self._transport = GridTransport(
            sums._post,
            dict(enumerate(gathering.ready.values())),
            self._final.round_plan,
            replace(
                sums._letter(Kind.BEGIN, self._final, number, inputs),
                resumes=sums._folder is not None,
            ),
            sums._waits,
        )
        self._tallied: Tallied | None = None
        self._opened: IntVector | None = None

    def add_up(self) -> Tallied:
        """Conduct the protocol among those who take part."""
        coin = self._final.coin(self._number, self._inputs)
        if self._sums._folder is None:
            return self._conduct(self._transport, coin)
        with RoundJournal(self._sums._folder, coin) as journal:
            try:
                found = self._conduct(JournaledTransport(self._transport, journal), coin)
            except RoundFailed:
                journal.over()
                raise
            journal.over()
            return found

    def _conduct(self, transport: Transport, coin: bytes) -> Tallied:
        sums = self._sums
        releases = sums._releases
        if releases is None:
            raise ParameterError("nobody was gathered yet")
        desk = Desk(
            self._final,
            self._number,
            coin,
            sums._keys,
            self._transport,
            transport,
            releases.slot.started,
        )
        self._tallied, self._opened = sums.conduct(desk)
        return self._tallied

    def end(
        self, ending: Ending, failed: RoundFailed | None
    ) -> tuple[Mapping[int, str], Mapping[int, str]]:
        """Write the transcript and hand it to the nodes that have a use for it.

        Of a sum that was opened: those who keep it, and those who may hold state of the round.
        Returns who was lost and who is to blame, by number.
        """
        sums, gathering, names = self._sums, self._gathering, self._final.names
        done = self._tallied
        said = done or failed
        lost, faults = (said.lost, said.faults) if said is not None else ({}, {})
        transcript = Transcript(
            announcement=self._final,
            signature=sums._letter(Kind.END, self._final).signature,
            number=self._number,
            inputs_digest=hashlib.sha256(self._inputs).digest(),
            presence=gathering.proofs if self._final.signed else {},
            ending=ending,
            survivors=tuple(names[c] for c in sorted(done.accepted)) if done else (),
            lost=gathering.by_name(lost),
            faults=gathering.by_name(faults),
            receipts={names[c]: r for c, r in failed.receipts.items()} if failed else {},
            sum_digest=self._digest(),
        ).sealed_by(sums._signer)
        sums.transcript = transcript
        if sums._transcripts is not None:
            transcript.keep(sums._transcripts)
        told = set(gathering.ready.values())
        if ending is Ending.RELEASED and sums._folder is None:  # else all keep their answers
            told &= gathering.keeping | self._transport.holding
        letter = Letter(Kind.END, transcript.as_bytes())
        sums._post.tell(told, letter, seconds=sums._waits.stage, gone=self._transport.silent)
        return lost, faults

    def _digest(self) -> str:
        """Return the digest of what was opened, and of nothing else."""
        return "" if self._opened is None else sum_digest(self._opened)

    def forget(self) -> None:
        """Tell everybody that the round is over, and wait for nobody."""
        nodes = self._gathering.ready.values()
        seconds = self._sums._waits.stage
        self._sums._post.tell(nodes, Letter(Kind.END), seconds=seconds, gone=nodes)


def _ending(failed: RoundFailed) -> Ending:
    if isinstance(failed, RoundUnfinished):
        return Ending.UNFINISHED
    return Ending.SPOILED if isinstance(failed, InvalidSum) else Ending.VOID


def _described(final: Announcement) -> str:
    """Return who saw what and who was trusted, for every output."""
    saw = (
        "Contributions were added up by secure aggregation (SecAgg+) over Flower: the server, "
        f"{SERVERS[final.terms.server]}, saw masked vectors, the noisy sum and who took part"
    )
    if not final.signed:
        return (
            f"{saw}. No directory of identity keys was used: the server was trusted to pass on "
            "keys, so this holds for an honest-but-curious server only"
        )
    return f"{saw}. Nodes checked keys against their own directories"

"""The server's side of private sums: gather the nodes, then hold a round, or a series of them."""

import hashlib
import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, Unpack

from flwr.serverapp import Grid

from urna.errors import ParameterError, RoundAborted, RoundFailed
from urna.flower.announcement import Announcement
from urna.flower.checkpoint import SeriesState
from urna.flower.gathering import Federation, Gathering, Reach
from urna.flower.rounds import Conduct, Desk, add_up
from urna.flower.subjects import Subject
from urna.flower.transcript import Transcript
from urna.flower.transport import NodesFailed
from urna.privacy import Budget, PrivacyStatement
from urna.randomness import SEED_BYTES, OsSecrets
from urna.tally import Options, Released, Releases, Run, Terms
from urna.tally.summation import SERVERS

ATTEMPTS = 3
"""How often a round is held, at most, that fails because some node broke the protocol."""

COLLUDING = 0.1
"""Part of the nodes that is counted out as colluding unless one says otherwise: what nodes'
policies ask for by default."""

_log = logging.getLogger("flwr")

ResultT = TypeVar("ResultT")


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
        folder: Where the sums are kept, so that a server that was killed goes on with them when
            it is made again with the same settings. The folder then holds what nodes sent in the
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
        self._subject, self._budget, self._rounds = subject, budget, rounds
        self._options: Options = {"colluding": COLLUDING, **options}
        run = (run or Run()).only("a sum over Flower", "ledger", "entry", "progress")
        self._run, self._attempts, self.conduct = run, attempts, conduct
        progress = run.progress if callable(run.progress) else None
        self._reach = Reach(grid, federation or Federation(), progress)
        self._least = self._reach.federation.least_clients
        self._excluded: dict[int, str] = {}
        self._gathered: Gathering[Announcement] | None = None
        self._releases: Releases | None = None
        self._folder = folder
        self._kept = None if folder is None else SeriesState.read(folder, self._reach.keys)
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
        nodes = [n for n in self._reach.connected() if n not in self._excluded]
        if len(nodes) < self._least:
            raise RoundAborted(
                f"{len(nodes)} nodes are connected; the sum needs {self._least}. "
                "Nothing was announced.",
                self._excluded,
            )
        announced = self._announced(len(nodes), OsSecrets().take(SEED_BYTES), int(time.time()))
        announced.round_plan  # noqa: B018 - what cannot be planned is wrong use: say so first
        # The ledger is asked as well, before anybody is.
        self._counted(announced, self._run.entry)
        gathering = self._reach.gather(announced, nodes, self._excluded)
        if len(gathering.ready) < self._least:
            raise RoundAborted(
                f"{len(gathering.ready)} of {len(nodes)} nodes take part; the sum needs "
                f"{self._least}. Nothing was begun.",
                gathering.missing,
            )
        entry = self._run.entry
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
            seconds=float(self._reach.deadlines.evaluate),
            signed=self._reach.keys is not None,
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
        nodes = self._reach.connected()
        if not set(gathering.ready.values()) <= set(nodes):
            # Nodes that were restarted may have other ids by now: their names are the same.
            again = self._reach.gather(was, nodes, {})
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
        releases = self._counted(final, entry, private=gathering.private, done=done)
        self._gathered, self._releases = gathering, releases
        self.lost = dict(gathering.missing)
        return final

    def _counted(
        self,
        announced: Announcement,
        entry: str | None,
        *,
        private: bool = True,
        done: int = 0,
    ) -> Releases:
        """Return where rounds are counted, if the ledger has room for them."""
        return Releases(
            announced.plan,
            announced.label,
            _described(announced),
            private=private,
            rounds=announced.rounds,
            ledger=self._run.ledger,
            id=entry,
            done=done,
            reads_back=self._again,
        )

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
                revealed, and nothing counts; a round that was begun by a server that was killed
                stays counted.
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

    def result(
        self,
        read: Callable[[Released], ResultT],
        keep: Callable[[Any], None],
        inputs: bytes = b"",
    ) -> ResultT:
        """Hold the next round; return what is read of it, kept before anybody is told of it.

        Raises:
            ParameterError, BudgetExceeded, LedgerError, RoundFailed: As `round`.
        """
        results: list[ResultT] = []

        def take(released: Released) -> None:
            results.append(read(released))
            keep(results[0])

        self.round(inputs, keep=take)
        return results[0]

    def _hold(
        self, inputs: bytes, number: int | None, keep: Callable[[Released], None] | None
    ) -> Released:
        gathering, releases = self._gathered, self._releases
        if gathering is None or releases is None:
            raise ParameterError("nobody was gathered yet")
        self._next(releases, hashlib.sha256(inputs).hexdigest(), number)
        desk = Desk(
            self._reach,
            gathering,
            self._number,
            inputs,
            self._folder is not None,
            releases.slot.started,
        )

        def take(found: Released) -> None:
            self.lost = gathering.missing | gathering.by_node(found.tallied.lost)
            self.faults |= gathering.by_node(found.tallied.faults)
            if keep is not None:
                keep(found)

        try:
            released = releases.release(lambda: desk.hold(self.conduct, self._folder), take)
        except RoundFailed as failed:
            self.transcript, lost, faults = desk.end(failed)
            if isinstance(failed, RoundAborted) and releases.slot.reads_back:
                _log.warning("a server that was killed had begun this round: it stays counted")
            fruitless = not releases.done and isinstance(failed, NodesFailed)
            if fruitless or (self._rounds == 1 and isinstance(failed, RoundAborted)):
                self._drop()
            else:
                self._over(releases)
            missing = gathering.missing | lost
            raise type(failed)(failed.reason, missing, faults, failed.receipts) from failed
        except BaseException:  # Ctrl-C, a grid that fails: nodes must not keep their secrets
            if self._kept is None:  # but for a server that goes on with the round
                desk.forget()
            raise
        self.transcript, _, _ = desk.end()
        self._over(releases)
        return released

    def _drop(self) -> None:
        """Forget what is kept: the sum may begin anew in the same folder."""
        if self._folder is not None:
            SeriesState.drop(self._folder)
            self._kept = None

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

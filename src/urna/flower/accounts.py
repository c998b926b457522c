"""A node's own account: what it has released, and which stages it has answered.

Flower may run two messages of a node at the same time, each on the same old state, and a server
may send a message again. So a node answers each stage of a round once: a row beside its ledger
that only one of them can write lets only one answer out. Beside these claims stand the exact
results a node has taken part in, which are counted for good.
"""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from urna.errors import BudgetExceeded, CountedAlready, LedgerError, Refused
from urna.flower.announcement import Announcement
from urna.privacy import Adjacency, Budget, Ledger, Repeated
from urna.tally.slot import event_of

LARGEST_SKEW = 86_400.0
"""Seconds by which a server's clock may differ from the node's."""

KEPT_SECONDS = 4 * LARGEST_SKEW
"""How long a claim is kept: an announcement that old is refused for its time alone, and what
nodes and helpers hold of a round is older than they use."""

_BEGUN, _RUNS = "begin", b"exact results"
_FOR_GOOD = math.inf  # such a claim is never too old
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS claim (coin BLOB NOT NULL, stage TEXT NOT NULL, at REAL NOT NULL, "
    "PRIMARY KEY (coin, stage))"
)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a node has answered, in one file; without a file it remembers nothing."""

    file: Path | None

    def claim(self, coin: bytes, stage: str) -> None:
        """Take the one right to answer a stage of a round, before the answer leaves the node."""
        with self._writing() as connection:
            if connection is not None:
                now = time.time()
                connection.execute("DELETE FROM claim WHERE at < ?", (now - KEPT_SECONDS,))
                connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (coin, stage, now))

    def claimed(self, coin: bytes, stage: str) -> bool:
        """Say whether a stage was answered; always so where nothing is remembered."""
        return self.file is None or stage in self._stages(coin)

    @property
    def runs(self) -> frozenset[str]:
        """The names, in hexadecimal, of the exact results that were counted."""
        return self._stages(_RUNS)

    def check_run(self, run: bytes, most: int | None) -> None:
        """Refuse an exact result for which nothing is left of what the owner granted."""
        if most is not None:
            _check_run(self.runs, run, most)

    def count_run(self, run: bytes, most: int | None) -> None:
        """Count an exact result for good, before anything it is made of leaves the node."""
        if most is None:
            return
        with self._writing() as connection:
            if connection is None or run.hex() in (counted := _stages(connection, _RUNS)):
                return
            _check_run(counted, run, most)
            connection.execute("INSERT INTO claim VALUES (?, ?, ?)", (_RUNS, run.hex(), _FOR_GOOD))

    def _stages(self, coin: bytes) -> frozenset[str]:
        """Return what was answered under this coin."""
        if self.file is None or not self.file.exists():
            return frozenset()
        try:
            with _connected(self.file) as connection:
                return _stages(connection, coin)
        except sqlite3.Error as error:
            raise Refused("this node cannot read what it has answered") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection | None]:
        """Write in one transaction that is on the disk at its end; others wait for it."""
        if self.file is None:
            yield None
            return
        try:
            with _connected(self.file) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_SCHEMA)
                yield connection
                connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise Refused("this node has answered this stage of the round before") from error
        except (sqlite3.Error, OSError) as error:
            raise Refused("this node cannot note that it answers") from error


def _connected(file: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(file, timeout=60.0, isolation_level=None))


def _stages(connection: sqlite3.Connection, coin: bytes) -> frozenset[str]:
    found = connection.execute("SELECT stage FROM claim WHERE coin = ?", (coin,))
    return frozenset(str(stage) for (stage,) in found)


def _check_run(counted: frozenset[str], run: bytes, most: int) -> None:
    if run.hex() not in counted and len(counted) >= most:
        raise Refused(
            f"this node has taken part in {len(counted)} exact results; its policy grants {most}"
        )


@dataclass(frozen=True, slots=True)
class NodeAccount:
    """The ledger of one data set, and the file of claims beside it.

    Guarantee:
        No round of an announcement is begun twice, whatever it starts from, and no stage of it
        is answered twice. A series is counted up to the latest of its rounds that was
        answered, so every round is counted before its masked vector leaves the node. A round
        that is counted is not counted again: without the file of claims it is refused, too.

    Args:
        file: The ledger's file; None for a node that remembers nothing.
        cap: What all releases together may cost.
        relation: The neighbouring relation.
        data: Names the data set, for people.
    """

    file: Path | None
    cap: Budget
    relation: Adjacency
    data: str = ""

    def check(self, announcement: Announcement, *, private: bool) -> None:
        """Refuse a sum that the ledger has no room for; enter nothing."""
        with _refusals():
            if (ledger := self.ledger()) is not None:
                ledger.check(event_of(announcement.plan.event, private=private))

    def begin(self, announcement: Announcement, number: int) -> None:
        """Take the one right to begin a round, whatever inputs it comes with."""
        self.claims.claim(announcement.place(number), _BEGUN)

    def begun(self, announcement: Announcement, number: int) -> bool:
        """Say whether the node took part in a round; always so where nothing is remembered."""
        return self.claims.claimed(announcement.place(number), _BEGUN)

    def count(self, announcement: Announcement, number: int, coin: bytes, *, private: bool) -> None:
        """Count a round in the ledger, before the masked vector leaves the node."""
        with _refusals():
            if (ledger := self.ledger()) is None:
                return
            event, label = event_of(announcement.plan.event, private=private), announcement.label
            name, rounds = _place(announcement, number, coin)
            if rounds is not None:
                event = Repeated(event, announcement.rounds)
            ledger.charge(event, label=label, id=name, rounds=rounds, once=True)

    def withdraw(self, announcement: Announcement, number: int, coin: bytes, reason: str) -> None:
        """Take a round out of the ledger that can never be opened any more.

        Of a series only the latest round counted can be taken back: a number stands for all
        rounds up to it.
        """
        with _refusals():
            if (ledger := self.ledger()) is None:
                return
            name, rounds = _place(announcement, number, coin)
            entry = ledger.find(name)
            if entry is not None and entry.rounds == rounds:
                ledger.withdraw(name, reason=reason, rounds=rounds and rounds - 1)

    def ledger(self) -> Ledger | None:
        """Return the ledger, created on first use; None where none is kept."""
        if self.file is None:
            return None
        return Ledger.open(self.file, self.cap, adjacency=self.relation, subject=self.data)

    @property
    def claims(self) -> Claims:
        """What the node has answered."""
        beside = None if self.file is None else self.file.with_name(f"{self.file.name}.answered")
        return Claims(beside)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn a ledger's errors into refusals without its figures or its path."""
    try:
        yield
    except BudgetExceeded as error:
        raise Refused("what is left of this node's privacy budget is too little") from error
    except CountedAlready as error:
        raise Refused("this node has answered this round before") from error
    except LedgerError as error:
        raise Refused("this node's ledger cannot be used") from error


def _place(announcement: Announcement, number: int, coin: bytes) -> tuple[str, int | None]:
    """Return a round's id in the ledger, and how many rounds of a series it counts."""
    if announcement.rounds == 1:
        return coin.hex(), None
    return announcement.digest.hex(), number

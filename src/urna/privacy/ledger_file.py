"""The file of a ledger, and what its lines add up to.

One SQLite file with a rollback journal and full synchronisation: a kill at any moment leaves
either the state before a line or the state after it. Lines are only ever added, each with a
digest of itself and the line before; how many there are and the last digest stand in the head.
So a file that was damaged, or changed by somebody who did not mean to deceive, is refused.
"""

import hashlib
import json
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from urna.errors import LedgerError
from urna.privacy.budget import Adjacency, Budget
from urna.privacy.cost import FREE, Cost, Cover, Release
from urna.privacy.events import Repeated, Sampled, read_release

__all__ = ["STARTED", "Entry", "KeptResult", "LedgerFile", "State", "is_sampled"]

STARTED = hashlib.sha256(b"urna: started, and not over").hexdigest()
"""Noted of a release that began to reveal, instead of a digest."""

_APPLICATION = 0x55726E61  # "Urna"
_VERSION = 2
_WAIT_SECONDS = 60.0
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)

_SCHEMA = """
CREATE TABLE head (cap TEXT NOT NULL, lines INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE line (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL,
    body TEXT NOT NULL, written REAL NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER cap_keeps BEFORE UPDATE OF cap ON head BEGIN SELECT RAISE(ABORT, 'for life'); END;
CREATE TRIGGER head_stays BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'for life'); END;
CREATE TRIGGER line_keeps BEFORE UPDATE ON line BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER line_stays BEFORE DELETE ON line BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""

Line = tuple[str, Mapping[str, Any]]
"""The kind of a line and what it says."""


@dataclass(frozen=True, slots=True)
class KeptResult:
    """Where a release's result was written."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One release in a ledger, or a series of them."""

    id: str
    label: str
    release: Release
    written: float
    """Seconds since the epoch."""
    price: Cost = field(default=FREE, repr=False)
    """Of the release; of a series of plain sums that of one round."""
    rounds: int | None = None
    """How many rounds of a series are counted; None where it is no series."""
    withdrawn: bool = False
    """Whether the release was certified not to have happened."""
    fixed: bool = False
    """Whether it counts although it was withdrawn: sums that were entered after it were bounded
    by what it left, so nothing may be won back by looking at them."""
    result: KeptResult | None = None
    revealed: int = 0
    """The latest round that was revealed and handed out; 1 for a single release that was."""
    digest: str = ""
    """SHA-256 of what that round revealed; empty where only its number is known."""
    certain: int = field(default=0, repr=False)
    """How many rounds were counted when the latest was revealed."""

    @property
    def counts(self) -> bool:
        """Whether anything of it counts: a series of which no round began does not."""
        return not self.withdrawn and self.rounds != 0

    @property
    def unfinished(self) -> bool:
        """Whether its latest round was started, and nothing that it revealed was noted."""
        return self.result is None and self.digest == STARTED

    @property
    def released(self) -> int:
        """The latest round that must not be released again: a file with a result proves one."""
        return max(self.revealed, int(self.result is not None))

    @property
    def cost(self) -> Cost:
        """What it costs as it stands.

        A series of plain sums costs what its rounds so far do. One with sampling was priced
        for all its rounds, which is what its number was fixed beforehand for.
        """
        if self.withdrawn and not self.fixed:
            return FREE
        if self.rounds is None or is_sampled(self.release):
            return self.price
        return self.price.times(self.rounds)

    def happened(self, rounds: int) -> "Entry":
        """Return the entry with so many rounds counted, whatever was withdrawn before."""
        least = None if self.rounds is None else max(self.rounds, rounds)
        return replace(self, withdrawn=False, rounds=least)

    def check_new(self, done: int) -> None:
        """Refuse to release again what was released; `done` rounds are known to the caller."""
        if self.released > done:
            raise self.behind(done)

    def behind(self, done: int) -> LedgerError:
        """Return the error for a release of which more was revealed than `done` rounds."""
        name = f"{self.id!r} ({self.label})"
        if isinstance(self.release, Repeated) and self.release.rounds > 1:
            return LedgerError(
                f"of the series {name} the ledger counts {self.rounds} rounds and knows of "
                f"{self.released} that were revealed; only {done} are known here, so this is an "
                "older copy. A round is paid for once: put back the newest copy, or begin a new "
                "series under a new id, which is paid for anew"
            )
        if self.unfinished:
            return LedgerError(
                f"the release {name} was started, and no result of it was noted. Its messages may "
                "have been seen, so it counts. A release is paid for once: pay for a new one under "
                "a new id"
            )
        if self.result is not None:
            there = f"its result is in {self.result.path} (SHA-256 {self.result.sha256})"
            then = "read that file, put it back if it is gone,"
        else:
            there = (
                f"the ledger names no file with it (SHA-256 of what was revealed: {self.digest})"
            )
            then = "use what was handed out,"
        return LedgerError(
            f"the release {name} was revealed already: {there}. A release is paid for once: {then} "
            "or pay for a new one under a new id"
        )

    def as_mapping(self, delta: float) -> dict[str, Any]:
        """Return plain values for JSON, with its epsilon at this delta."""
        epsilon = self.cost.at(delta)
        return {
            "id": self.id,
            "label": self.label,
            "written": self.written,
            "withdrawn": self.withdrawn,
            "fixed": self.fixed,
            "rounds": self.rounds,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "result": None if self.result is None else asdict(self.result),
            "revealed": self.revealed,
            "digest": self.digest,
            "release": self.release.as_mapping(),
        }


@dataclass(slots=True)
class State:
    """What the lines read so far add up to."""

    cap: str
    cover: Cover
    adjacency: Adjacency
    subject: str
    digest: str
    lines: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, cap: str) -> "State":
        """Return the state of a ledger without lines."""
        said = json.loads(cap)
        declared = said["declared"]
        cover = Cover(Budget(**said["cap"]), None if declared is None else Budget(**declared))
        adjacency = Adjacency(said["adjacency"])
        return cls(cap, cover, adjacency, str(said["subject"]), _first_digest(cap))

    def entry(self, name: str) -> Entry:
        """Return an entry, or say that there is none."""
        if name not in self.entries:
            raise LedgerError(f"the ledger holds no release {name!r}")
        return self.entries[name]

    def add(self, line: tuple[Any, ...], stored: str) -> None:
        """Take the next line, if it is the next."""
        number, kind, name, text, written = line
        digest = _digest(self.digest, line)
        if number != self.lines + 1 or digest != stored:
            raise ValueError("a line does not follow the one before")
        self.lines, self.digest = number, digest
        body = json.loads(text)
        if kind == "release":
            price, release = Cost(**body["price"]), read_release(body["release"])
            label, rounds = str(body["label"]), body["rounds"]
            self.entries[name] = Entry(name, label, release, written, price, rounds)
            return
        entry = self.entries[name]
        match kind:
            case "advance":
                entry = replace(entry, rounds=int(body["rounds"]))
            case "withdraw" if body["rounds"] is None:
                pure = entry.cost.epsilon > 0 and self.cover.declared is None
                sums = any(other.cost.mu > 0 for other in self.entries.values())
                entry = replace(entry, withdrawn=True, fixed=pure and sums)
            case "withdraw":
                entry = replace(entry, rounds=int(body["rounds"]))
            case "result":
                kept = KeptResult(body["path"], body["sha256"])
                entry = entry.happened(1)
                entry = replace(entry, result=kept, certain=max(entry.certain, 1))
            case "revealed":
                number, digest = int(body["number"]), str(body["digest"])
                entry = entry.happened(int(body.get("counted", 0)))
                entry = replace(entry, revealed=number, digest=digest, certain=entry.rounds or 0)
            case _:
                raise LedgerError(
                    f"the ledger holds a line of unknown kind {kind!r}; it was written by a newer "
                    "Urna. Upgrade to read it."
                )
        self.entries[name] = entry


class LedgerFile:
    """Lines in a file that are only ever added."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is read on use."""
        self.path = path
        self._seen: State | None = None

    def create(self, cap: Mapping[str, Any]) -> None:
        """Make the file with what is fixed for life, unless another process has made it."""
        text = json.dumps(cap)
        # Built beside its place and linked into it: nobody ever sees half a ledger, and of
        # two processes that create one at the same time, one wins and the other opens it.
        beside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}")
        try:
            with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                first = _first_digest(text)
                connection.execute("INSERT INTO head VALUES (?, 0, ?)", (text, first))
            with suppress(FileExistsError):
                self.path.hardlink_to(beside)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"cannot create a ledger at {self.path}: {error}") from error
        finally:
            with suppress(OSError):  # what went wrong above is what the user needs to hear
                beside.unlink(missing_ok=True)

    def read(self) -> State:
        """Return what the file says at one moment, whoever writes meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            return self._state(connection)

    def append(self, name: str, decide: Callable[[State], Line | None]) -> None:
        """Add a line that is decided by looking at the others, which nobody changes meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            state = self._state(connection)
            found = decide(state)
            if found is None:
                return
            kind, said = found
            text = json.dumps(said, allow_nan=False)
            line = (state.lines + 1, kind, name, text, time.time())
            digest = _digest(state.digest, line)
            connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)", (*line, digest))
            connection.execute("UPDATE head SET lines = ?, digest = ?", (line[0], digest))
            connection.execute("COMMIT")

    def _state(self, connection: sqlite3.Connection) -> State:
        """Return what the file says; lines that were read before are not read again."""
        try:
            cap, lines, digest = connection.execute(
                "SELECT cap, lines, digest FROM head"
            ).fetchone()
            (there,) = connection.execute("SELECT COUNT(*) FROM line").fetchone()
            state = self._seen or State.of(cap)
            if state.cap != cap or state.lines > lines:
                state = State.of(cap)
            state = replace(state, entries=dict(state.entries))
            rows = connection.execute(
                "SELECT number, kind, id, body, written, digest FROM line WHERE number > ? "
                "ORDER BY number",
                (state.lines,),
            )
            for *line, stored in rows.fetchall():
                state.add(tuple(line), stored)
            if (state.lines, state.digest, there) != (lines, digest, lines):
                raise ValueError("the head does not belong to the lines")
        except _UNREADABLE as error:
            raise LedgerError(
                f"the ledger {self.path} is damaged: {type(error).__name__}. Restore the newest "
                "copy you have, and count what was released since"
            ) from error
        self._seen = state
        return state

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one piece of work; SQLite's errors become ours."""
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            with closing(
                sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if (application, version) != (_APPLICATION, _VERSION):
                    raise LedgerError(f"{self.path} is no Urna ledger of version {_VERSION}")
                yield connection
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: {error}") from error


def is_sampled(release: Release) -> bool:
    """Say whether a release is one of secret samples, or a series of such."""
    return isinstance(release, Sampled) or (
        isinstance(release, Repeated) and is_sampled(release.release)
    )


def _first_digest(cap: str) -> str:
    return hashlib.sha256(b"urna ledger 2\0" + cap.encode()).hexdigest()


def _digest(before: str, line: tuple[Any, ...]) -> str:
    return hashlib.sha256(f"{before}\0{json.dumps(line)}".encode()).hexdigest()

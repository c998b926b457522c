"""A ledger of releases in one file: what was spent, what is left, and no more than its cap.

One SQLite file with a rollback journal and full synchronisation: a kill at any moment leaves
either the state before an entry or the state after it. Entries are only ever added; triggers
in the file refuse changes and deletions. An entry is written before its release happens, so
a crash in between counts a release that did not happen, never the other way round.
"""

import json
import math
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from urna.errors import BudgetExceeded, LedgerError, ParameterError
from urna.privacy.accountant import Spent, compose
from urna.privacy.budget import Adjacency, Budget
from urna.privacy.events import GaussianRelease, Release, read_release
from urna.privacy.gaussian import gaussian_std

__all__ = ["Entry", "Ledger"]

_APPLICATION = 0x55726E61  # "Urna"
_VERSION = 1
_WAIT_SECONDS = 60.0
_LOUDEST = 1000.0  # a release this many times as noisy as the whole cap's is the least offered
_SLACK = 1e-9  # rounding of floats when a sum meets its cap exactly

_SCHEMA = """
CREATE TABLE ledger (epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL,
    subject TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE entry (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    withdraws TEXT UNIQUE REFERENCES entry (id), label TEXT NOT NULL, release TEXT NOT NULL,
    written REAL NOT NULL);
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER entry_keeps BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER entry_stays BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One release in a ledger."""

    id: str
    label: str
    release: Release
    written: float
    """Seconds since the epoch."""
    withdrawn: bool
    """Whether the release was certified not to have happened."""


class Ledger:
    """Composes everything ever released about one set of data, and refuses to pass its cap.

    Guarantee:
        The releases that were entered and not withdrawn are together (cap.epsilon,
        cap.delta)-DP under `adjacency`. Two processes that enter at the same time are
        serialised; the same id is never counted twice.

    Assumes:
        Everything released about the data is entered, before it is released, and how much
        noise later releases have is not decided by looking at earlier ones (see `compose`).

    Args:
        path: The ledger's file; see `Ledger.open` for one that may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise LedgerError(f"there is no ledger at {path}. Create one with a cap first.")
        with self._connection() as connection:
            rows = connection.execute("SELECT epsilon, delta, adjacency, subject FROM ledger")
            found = rows.fetchone()
        try:
            epsilon, delta, adjacency, self.subject = found
            self.cap = Budget(epsilon, delta)
            self.adjacency = Adjacency(adjacency)
        except (TypeError, ValueError) as error:
            raise LedgerError(f"the cap of the ledger {path} cannot be read: {error}") from error

    @classmethod
    def open(
        cls,
        path: Path,
        cap: Budget,
        *,
        adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
        subject: str = "",
    ) -> "Ledger":
        """Open the ledger at `path`, creating it with this cap where there is none.

        Raises:
            LedgerError: The file is no ledger, or it has another cap or relation: neither
                ever changes.
        """
        if not path.exists():
            cls._create(path, cap, adjacency, subject)
        ledger = cls(path)
        if ledger.cap != cap or ledger.adjacency is not adjacency:
            raise LedgerError(
                f"the ledger {path} has the cap ({ledger.cap.epsilon:g}, {ledger.cap.delta:g}), "
                f"{ledger.adjacency}; asked for was ({cap.epsilon:g}, {cap.delta:g}), {adjacency}. "
                "A cap is for life: ask for the ledger's own."
            )
        return ledger

    @staticmethod
    def _create(path: Path, cap: Budget, adjacency: Adjacency, subject: str) -> None:
        # Built beside its place and linked into it: nobody ever sees half a ledger, and of
        # two processes that create one at the same time, one wins and the other opens it.
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                connection.execute(
                    "INSERT INTO ledger VALUES (?, ?, ?, ?, ?)",
                    (cap.epsilon, cap.delta, str(adjacency), subject, time.time()),
                )
            with suppress(FileExistsError):
                path.hardlink_to(beside)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"cannot create a ledger at {path}: {error}") from error
        finally:
            with suppress(OSError):  # what went wrong above is what the user needs to hear
                beside.unlink(missing_ok=True)

    def enter(self, release: Release, *, label: str, id: str | None = None) -> str:  # noqa: A002
        """Count a release, before it happens; return its id.

        Args:
            release: What is about to become public.
            label: A few words for people.
            id: Names the release; entering the same id again counts once. A fresh one by
                default.

        Raises:
            BudgetExceeded: The cap would be passed. Nothing was entered; release nothing.
            LedgerError: The file cannot be read or written, or the id names another release.
        """
        name = id or uuid.uuid4().hex
        while True:
            seen = self._last()
            if same := [entry for entry in self.entries() if entry.id == name]:
                if same[0].withdrawn:
                    raise LedgerError(f"the release {name!r} was withdrawn; enter it anew")
                if same[0].release == release:
                    return name
                raise LedgerError(f"the id {name!r} already names another release")
            self.check(release)
            text = json.dumps(release.as_mapping())
            # Pricing takes a while, so it runs unlocked; if somebody entered meanwhile, again.
            if self._append(seen, (name, None, label, text)):
                return name

    def check_relation(self, adjacency: Adjacency) -> None:
        """Refuse releases under another neighbouring relation.

        Raises:
            ParameterError: The ledger counts under another one.
        """
        if self.adjacency is not adjacency:
            raise ParameterError(
                f"the ledger counts under {self.adjacency}, {adjacency} is asked for. The two do "
                "not add up: use a ledger of this relation"
            )

    def check(self, *releases: Release) -> None:
        """Refuse releases that together would pass the cap; enter nothing.

        For asking early, before work is done whose result could not be released.

        Raises:
            BudgetExceeded: The cap would be passed.
        """
        counted = [entry.release for entry in self.entries() if not entry.withdrawn]
        after = compose([*counted, *releases], self.cap.delta).epsilon
        if not after <= self.cap.epsilon * (1 + _SLACK):
            spent = compose(counted, self.cap.delta).epsilon
            raise BudgetExceeded(
                spent=spent, after=after, cap=self.cap.epsilon, delta=self.cap.delta
            )

    def withdraw(self, id: str, *, reason: str) -> None:  # noqa: A002
        """Certify that an entered release did not happen, so that it no longer counts.

        Guarantee:
            None by itself: call it only when it is certain that nothing became public, such
            as after a protocol that aborts before anything is unmasked.
        """
        while True:
            seen = self._last()
            entries = {entry.id: entry for entry in self.entries()}
            if id not in entries:
                raise LedgerError(f"the ledger holds no release {id!r}")
            if entries[id].withdrawn or self._append(seen, (uuid.uuid4().hex, id, reason, "{}")):
                return

    def entries(self) -> list[Entry]:
        """Return all releases, oldest first."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT id, label, release, written, EXISTS (SELECT 1 FROM entry w WHERE "
                "w.withdraws = e.id) FROM entry e WHERE withdraws IS NULL ORDER BY number"
            ).fetchall()
        return [
            Entry(name, label, _read(text), written, bool(withdrawn))
            for name, label, text, written, withdrawn in rows
        ]

    def spent(self) -> Spent:
        """Return what all releases together have cost at the cap's delta."""
        counted = [entry.release for entry in self.entries() if not entry.withdrawn]
        return compose(counted, self.cap.delta)

    def left(self) -> float:
        """Return the epsilon of the largest further release that would be admitted.

        The release meant is one Gaussian mechanism at the cap's delta; a vote is very nearly
        one. Found to 1 % and rounded down; zero if nothing fits.
        """
        counted = [entry.release for entry in self.entries() if not entry.withdrawn]
        if not counted:
            return self.cap.epsilon
        limit = self.cap.epsilon * (1 + _SLACK)

        def fits(std: float) -> bool:
            return compose([*counted, GaussianRelease(std)], self.cap.delta).epsilon <= limit

        quiet = gaussian_std(self.cap, sensitivity=1.0)
        loud = quiet * _LOUDEST
        if not fits(loud):
            return 0.0
        while loud > 1.005 * quiet:
            middle = math.sqrt(quiet * loud)
            quiet, loud = (quiet, middle) if fits(middle) else (middle, loud)
        return compose([GaussianRelease(loud)], self.cap.delta).epsilon

    def as_mapping(self) -> dict[str, object]:
        """Return the whole ledger as plain values for JSON."""
        spent = self.spent()
        return {
            "path": str(self.path),
            "subject": self.subject,
            "cap": {"epsilon": self.cap.epsilon, "delta": self.cap.delta},
            "adjacency": str(self.adjacency),
            "spent": spent.epsilon if math.isfinite(spent.epsilon) else None,
            "left": self.left(),
            "accountant": spent.accountant,
            "entries": [
                {
                    "id": entry.id,
                    "label": entry.label,
                    "written": entry.written,
                    "withdrawn": entry.withdrawn,
                    "release": entry.release.as_mapping(),
                }
                for entry in self.entries()
            ],
        }

    def _last(self) -> int:
        with self._connection() as connection:
            (last,) = connection.execute("SELECT COALESCE(MAX(number), 0) FROM entry").fetchone()
        return int(last)

    def _append(self, seen: int, row: tuple[str, str | None, str, str]) -> bool:
        """Add a row if the newest entry is still the one that was seen."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            (last,) = connection.execute("SELECT COALESCE(MAX(number), 0) FROM entry").fetchone()
            if last != seen:
                connection.execute("ROLLBACK")
                return False
            connection.execute(
                "INSERT INTO entry (id, withdraws, label, release, written) VALUES (?, ?, ?, ?, ?)",
                (*row, time.time()),
            )
            connection.execute("COMMIT")
        return True

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one piece of work; SQLite's errors become ours."""
        try:
            with closing(
                sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=rw",
                    uri=True,
                    timeout=_WAIT_SECONDS,
                    isolation_level=None,
                )
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if (application, version) != (_APPLICATION, _VERSION):
                    raise LedgerError(f"{self.path} is no Urna ledger of version {_VERSION}")
                yield connection
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: {error}") from error


def _read(text: str) -> Release:
    """Read an entry's release; what cannot be read is refused, never skipped."""
    try:
        mapping = json.loads(text)
    except ValueError as error:
        raise LedgerError(f"an event in the ledger cannot be read: {error}") from error
    if not isinstance(mapping, dict):
        raise LedgerError("an event in the ledger cannot be read: it is no JSON object")
    return read_release(mapping)

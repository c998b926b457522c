"""A ledger of releases in one file: what was spent, what is left, and no more than its cap.

One SQLite file with a rollback journal and full synchronisation: a kill at any moment leaves
either the state before a line or the state after it. Lines are only ever added, each with a
digest of itself and the line before; how many there are and the last digest stand in the head.
So a file that was damaged, or changed by somebody who did not mean to deceive, is refused. A
release is written down before it happens: a crash in between counts a release that did not
happen, never the other way round. Once its result is on disk, that is written down as well: from
then on the id is never released again.
"""

import hashlib
import json
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from urna.errors import BudgetExceeded, CountedAlready, LedgerError, ParameterError
from urna.privacy.accountant import Spent, spent_at
from urna.privacy.budget import Adjacency, Budget
from urna.privacy.cost import FREE, SLIP_PART, Cost, Cover, together
from urna.privacy.events import Release, Repeated, Sampled, prices, read_release
from urna.privacy.gaussian import gaussian_epsilon

__all__ = ["Entry", "KeptResult", "Ledger"]

_APPLICATION = 0x55726E61  # "Urna"
_VERSION = 2
_WAIT_SECONDS = 60.0
_STARTED = hashlib.sha256(b"urna: started, and not over").hexdigest()
_LEFT = 1 - 1e-8  # what is offered must fit when it is calibrated and entered

_SCHEMA = """
CREATE TABLE head (cap TEXT NOT NULL, lines INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE line (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL,
    body TEXT NOT NULL, written REAL NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER cap_keeps BEFORE UPDATE OF cap ON head BEGIN SELECT RAISE(ABORT, 'for life'); END;
CREATE TRIGGER head_stays BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'for life'); END;
CREATE TRIGGER line_keeps BEFORE UPDATE ON line BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER line_stays BEFORE DELETE ON line BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


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
    withdrawn: bool = False
    """Whether the release was certified not to have happened."""
    fixed: bool = False
    """Whether it counts although it was withdrawn: sums that were entered after it were bounded
    by what it left, so nothing may be won back by looking at them."""
    rounds: int | None = None
    """How many rounds of a series are counted; None where it is no series."""
    result: KeptResult | None = None
    revealed: int = 0
    """The latest round that was revealed and handed out; 1 for a single release that was."""
    digest: str = ""
    """SHA-256 of what that round revealed; empty where only its number is known."""
    _price: Cost = field(default=FREE, repr=False)
    _certain: int = field(default=0, repr=False)
    """How many rounds were counted when the latest was revealed."""

    @property
    def unfinished(self) -> bool:
        """Whether its latest round was started, and nothing that it revealed was noted."""
        return self.result is None and self.digest == _STARTED

    @property
    def released(self) -> int:
        """The latest round that must not be released again: a file with a result proves one."""
        return max(self.revealed, int(self.result is not None))

    def happened(self, rounds: int) -> "Entry":
        """Return the entry with so many rounds counted, whatever was withdrawn before."""
        least = None if self.rounds is None else max(self.rounds, rounds)
        return replace(self, withdrawn=False, rounds=least)

    @property
    def cost(self) -> Cost:
        """What it costs as it stands.

        A series of plain sums costs what its rounds so far do. One with sampling was priced
        for all its rounds, which is what its number was fixed beforehand for.
        """
        if self.withdrawn and not self.fixed:
            return FREE
        if self.rounds is None or _sampled(self.release):
            return self._price
        return self._price.times(self.rounds)


class Ledger:
    """Adds up everything ever released about one set of data, and refuses to pass its cap.

    Guarantee:
        The releases that were entered and not withdrawn are together (cap.epsilon,
        cap.delta)-DP under `adjacency`, even if each of them, its noise included, was chosen
        by looking at the results of all before it: the ledger is a privacy filter
        (`cost.Cover` has the proof). Two processes that enter at the same time are
        serialised; the same id is never counted twice.

    Assumes:
        Everything released about the data is entered, before it is released.

    Args:
        path: The ledger's file; see `Ledger.open` for one that may not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._seen: _State | None = None
        if not self.path.is_file():
            raise LedgerError(
                f"there is no ledger at {self.path}. Create one with a cap first: `urna ledger "
                "create`, or Ledger.open(path, cap)."
            )
        state = self._snapshot()
        self.cap, self.declared = state.cover.cap, state.cover.declared
        self.adjacency, self.subject = state.adjacency, state.subject

    @classmethod
    def open(
        cls,
        path: Path | str,
        cap: Budget,
        *,
        adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
        subject: str = "",
        declared: Budget | None = None,
    ) -> "Ledger":
        """Open the ledger at `path`, creating it with this cap where there is none.

        Args:
            path: The ledger's file.
            cap: What all releases together may cost, for life.
            adjacency: The neighbouring relation, for life.
            subject: Which data this is about, for people.
            declared: The part of the cap for releases of which only an (epsilon, delta) is
                known, sampled ones included; none by default, and for life. What is set apart
                is not there for Urna's own sums. Without it a sampled series may be entered
                before all sums, and takes its epsilon and delta from what these have.

        Raises:
            LedgerError: The file is no ledger, or it has another cap or relation: neither
                ever changes.
        """
        path = Path(path)
        if not path.exists():
            cls._create(path, Cover(cap, declared), adjacency, subject)
        ledger = cls(path)
        asked = (cap, adjacency) if declared is None else (cap, adjacency, declared)
        if asked != (ledger.cap, ledger.adjacency, ledger.declared)[: len(asked)]:
            raise LedgerError(
                f"the ledger {path} has the cap ({ledger.cap.epsilon:g}, {ledger.cap.delta:g}), "
                f"{ledger.adjacency}; asked for was ({cap.epsilon:g}, {cap.delta:g}), {adjacency}. "
                "A cap is for life: ask for the ledger's own."
            )
        return ledger

    def charge(
        self,
        release: Release,
        *,
        label: str,
        id: str | None = None,  # noqa: A002
        rounds: int | None = None,
        number: int | None = None,
        once: bool = False,
    ) -> str:
        """Count a release, or the next round of a series, before it happens; return its id.

        The same id is counted once: a process that was killed may charge again, until what the
        release, or the round, revealed is noted.

        Args:
            release: What is about to become public; `Repeated` for a series.
            label: A few words for people.
            id: Names the release; a fresh one by default.
            rounds: Of a series: how many of its rounds are counted from now on. None counts the
                release as a whole. A sampled series costs what all its rounds do from the first
                on: what sampling saves is known only for a number of rounds fixed beforehand.
            number: Of a series: the number of the round that happens next, where not every
                round counts.
            once: Whether to refuse what is counted already.

        Raises:
            BudgetExceeded: The cap would be passed. Nothing was counted; release nothing.
            LedgerError: The file cannot be read or written; or the id names another release, one
                that was withdrawn, or one whose result is noted. Release nothing.
            CountedAlready: `once` was asked for, and it was charged before.
        """
        name = id or uuid.uuid4().hex
        if rounds is not None and not isinstance(release, Repeated):
            raise LedgerError(f"the release {name!r} is no series")
        if isinstance(release, Repeated) and (rounds or 0) > release.rounds:
            raise LedgerError(
                f"the series {name!r} has {release.rounds} rounds; round {rounds} is not one"
            )
        following = rounds if number is None else number

        def body(state: _State) -> tuple[str, dict[str, Any]] | None:
            same = state.entries.get(name)
            if same is None:
                price = self._priced(state, release, rounds)
                said = {"label": label, "release": release.as_mapping(), "price": asdict(price)}
                return "release", said | {"rounds": rounds}
            if once and (same.withdrawn or (rounds or 0) <= (same.rounds or 0)):
                raise CountedAlready(f"the release {name!r} is counted already")
            if same.withdrawn:
                raise LedgerError(f"the release {name!r} was withdrawn; charge it anew")
            if same.release != release or (same.rounds is None) != (rounds is None):
                raise LedgerError(f"the id {name!r} already names another release")
            _check_new(same, 0 if following is None else following - 1)
            if rounds is None or rounds <= (same.rounds or 0):
                return None
            if not _sampled(release):  # that was counted as a whole
                self._check(state, replace(same, rounds=rounds), besides=name)
            return "advance", {"rounds": rounds}

        self._append(name, body)
        return name

    def _priced(self, state: "_State", release: Release, rounds: int | None) -> Cost:
        """Return which proven cost of a new release is counted; of a series, that of one round."""
        if rounds is None or not isinstance(release, Repeated):
            return self._fitting(state, prices(release))
        # The last of the prices: one that holds whatever else comes between two rounds.
        if _sampled(release):
            self._check(state, release.cost(), first=True)
            return release.cost()
        price = prices(release.release)[-1]
        self._check(state, price.times(max(rounds, 1)))
        return price

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

    def check(self, *releases: Release, ids: Sequence[str | None] = ()) -> None:
        """Refuse releases that could not be charged, before work is done for them; enter nothing.

        Args:
            releases: In the order in which they will be charged.
            ids: Their ids, where they have some: what is counted already is not counted again.

        Raises:
            BudgetExceeded: Together they would pass the cap.
            LedgerError: One was revealed already.
        """
        state = self._snapshot()
        listed = []
        for place, release in enumerate(releases):
            name = ids[place] if place < len(ids) else None
            if name is not None and name in state.entries:
                _check_new(state.entries[name], 0)
            else:
                listed.append(prices(release))
        ways = [together(price[way] for price in listed) for way in (0, -1)]
        later = [price[0].mu > 0 for price in listed]
        pure_lead = later == sorted(later)
        self._fitting(state, ways if pure_lead else ways[-1:])

    def find(self, id: str | None) -> Entry | None:  # noqa: A002
        """Return the entry of this id; None where there is none."""
        return None if id is None else self._snapshot().entries.get(id)

    def counts(self, id: str | None) -> bool:  # noqa: A002
        """Say whether anything of this id counts: a series of which no round was held does not."""
        entry = self.find(id)
        return entry is not None and not entry.withdrawn and entry.rounds != 0

    def free_id(
        self,
        id: str,  # noqa: A002
        release: Release,
        *,
        done: int = 0,
        counted: int = 1,
    ) -> str:
        """Return an id under which a release may be entered, or goes on: the given one if it can.

        An attempt that came to nothing leaves its id behind. Whoever tries again with other
        clients releases something else, which is counted by itself.

        Args:
            id: The id that is wanted.
            release: What is released; of a series that will be begun, all rounds of it.
            done: How many rounds the caller knows the results of.
            counted: How many rounds of a series are counted once the next one is.

        Raises:
            LedgerError: More was released under the id than the caller knows of.
        """
        entries, name, attempt = self._snapshot().entries, id, 1
        series = isinstance(release, Repeated)
        while (found := entries.get(name)) is not None:
            same = found.release == release and (found.rounds is not None) is series
            if same and not found.withdrawn:
                _check_new(found, done)
                if (found.rounds or 0) > counted:
                    raise _behind(found, done)
                return name
            attempt += 1
            name = f"{id}-{attempt}"
        return name

    def withdraw(self, id: str, *, reason: str, rounds: int | None = None) -> None:  # noqa: A002
        """Certify that an entered release did not happen, so that it no longer counts.

        A pure release that counts by its epsilon goes on counting once sums were entered after
        it: they were bounded by what it left, and whoever has seen them could otherwise
        choose whether it did (`Cover` needs it fixed before them).

        Guarantee:
            None by itself: call it only when it is certain that nothing became public, such
            as after a protocol that aborts before anything is unmasked.

        Args:
            id: The release.
            reason: Why it did not happen, for people.
            rounds: Of a series: how many rounds did happen. None withdraws all of it.

        Raises:
            LedgerError: The release, or the round, was revealed. It goes on counting.
        """

        def body(state: _State) -> tuple[str, dict[str, Any]] | None:
            entry = state.entry(id)
            if entry.released and (rounds is None or rounds < entry._certain):
                raise LedgerError(
                    f"the release {id!r} ({entry.label}) was revealed, so it happened and is not "
                    "withdrawn. It goes on counting"
                )
            if entry.withdrawn or (rounds is not None and rounds >= (entry.rounds or 0)):
                return None
            return "withdraw", {"reason": reason, "rounds": rounds}

        self._append(id, body)

    def note_result(self, id: str, path: Path, sha256: str) -> None:  # noqa: A002
        """Note where the result of a release was written, so that it is found again.

        From now on the release is not made again: its result is there to be read. It counts, even
        if another process under the same id has withdrawn it since it was entered.

        Raises:
            LedgerError: Another result of it was written, in another folder.
        """

        def body(state: _State) -> tuple[str, dict[str, Any]]:
            entry = state.entry(id)
            kept = entry.result
            if kept is not None and kept.sha256 != sha256 and Path(kept.path).parent != path.parent:
                raise _behind(entry, 0)  # written by a run from a copy of the folder
            return "result", {"path": str(path), "sha256": sha256}

        self._append(id, body)

    def note_started(self, id: str, *, number: int = 1) -> None:  # noqa: A002
        """Note that a release begins to reveal: before the first message that depends on data.

        From now on it counts as revealed, whatever ends it, a kill included: it is admitted no
        more and never withdrawn. `note_revealed` says once what it revealed.

        Args:
            id: The release.
            number: Of a series: the round.

        Raises:
            LedgerError: The release was withdrawn, or it was started or revealed before. Reveal
                nothing.
        """

        def body(state: _State) -> tuple[str, dict[str, Any]] | None:
            entry = state.entry(id)
            if entry.withdrawn:
                raise LedgerError(f"the release {id!r} was withdrawn; charge it anew")
            _check_new(entry, number - 1)
            return "revealed", {"number": number, "digest": _STARTED}

        self._append(id, body)

    def note_revealed(
        self,
        id: str,  # noqa: A002
        digest: str = "",
        *,
        number: int = 1,
        counted: int = 1,
    ) -> None:
        """Note what a release revealed: after it is on disk, before anybody sees it.

        From now on `charge` does not admit the release, or a round up to this one, again.
        Noting the same again changes nothing. What was started is noted over it, once.

        Guarantee:
            What is noted counts from then on, even if another process under the same id has
            withdrawn it since it was entered: the sum is revealed already.

        Args:
            id: The release.
            digest: SHA-256 of what was revealed; empty where it is known only that it was.
            number: Of a series: the round.
            counted: Of a series: how many rounds count after this one.

        Raises:
            LedgerError: Something else was revealed under its id. Do not use what was revealed
                now.
        """

        def body(state: _State) -> tuple[str, dict[str, Any]] | None:
            entry = state.entry(id)
            if number <= entry.revealed and not digest:
                return None
            if (number, digest) == (entry.revealed, entry.digest):
                return None
            noted = entry.digest not in ("", _STARTED)
            if number < entry.revealed or (number == entry.revealed and noted):
                raise _behind(entry, number - 1)
            return "revealed", {"number": number, "digest": digest, "counted": counted}

        self._append(id, body)

    def entries(self) -> list[Entry]:
        """Return all releases, oldest first."""
        return list(self._snapshot().entries.values())

    def spent(self) -> Spent:
        """Return what all releases together have cost at the cap's delta.

        This is what they cost if their noise was fixed beforehand, which is less than what the
        cap promises in every case.
        """
        return spent_at(self._total(), self.cap.delta)

    def left(self) -> float:
        """Return the epsilon of the largest further sum that would be admitted, rounded down."""
        total = self._total()
        most, mu = self._cover(total).mu, total.mu
        if not mu and self.declared is None and not total.delta:
            return max(self.cap.epsilon - total.epsilon, 0.0)
        rest = math.sqrt(max(most**2 - mu**2, 0.0)) * _LEFT
        return gaussian_epsilon(rest, self.cap.delta * (1 - SLIP_PART))

    def as_mapping(self) -> dict[str, Any]:
        """Return the whole ledger as plain values for JSON."""
        spent = self.spent()
        declared = self.declared
        return {
            "path": str(self.path),
            "subject": self.subject,
            "cap": {"epsilon": self.cap.epsilon, "delta": self.cap.delta},
            "declared": None if declared is None else asdict(declared),
            "adjacency": str(self.adjacency),
            "spent": spent.epsilon if math.isfinite(spent.epsilon) else None,
            "left": self.left(),
            "accountant": spent.accountant,
            "entries": [self._plain(entry) for entry in self.entries()],
        }

    def _plain(self, entry: Entry) -> dict[str, Any]:
        epsilon = entry.cost.at(self.cap.delta)
        return {
            "id": entry.id,
            "label": entry.label,
            "written": entry.written,
            "withdrawn": entry.withdrawn,
            "fixed": entry.fixed,
            "rounds": entry.rounds,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "result": None if entry.result is None else asdict(entry.result),
            "revealed": entry.revealed,
            "digest": entry.digest,
            "release": entry.release.as_mapping(),
        }

    def _total(self) -> Cost:
        return together(entry.cost for entry in self.entries())

    def _fitting(self, state: "_State", offers: Sequence[Cost]) -> Cost:
        """Return the first of some proven costs of a release that fits; refuse if none does."""
        for price in offers[:-1]:
            try:
                self._check(state, price, first=True)
            except BudgetExceeded:
                continue
            return price
        self._check(state, offers[-1])
        return offers[-1]

    def _cover(self, total: Cost) -> Cover:
        """Return the bounds that hold beside what was entered first by its (epsilon, delta)."""
        first = FREE if self.declared is not None else Cost(0.0, total.epsilon, total.delta)
        return Cover(self.cap, self.declared, first)

    def _check(
        self,
        state: "_State",
        more: Cost | Entry,
        besides: str | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Refuse what would pass the cap beside what is entered already.

        Where `first` is asked for, in a ledger without a part for declared releases, a cost in
        (epsilon, delta) is admitted as long as no Gaussian was entered (`Cover.first`): it comes
        before whatever else is asked for with it.
        """
        entered = [entry.cost for entry in state.entries.values() if entry.id != besides]
        cost = more.cost if isinstance(more, Entry) else more
        after = together([*entered, cost])
        cover = state.cover
        if cover.declared is None:
            leads = first and not any(price.mu > 0 for price in entered)
            cover = self._cover(after) if leads or not cost.epsilon else cover
        if bound := cover.exceeded(after):
            spent = together(entry.cost for entry in state.entries.values())
            needs_part = state.cover.declared is None and (cost.epsilon > 0 or cost.delta > 0)
            raise BudgetExceeded(
                spent=spent.at(self.cap.delta),
                after=after.at(self.cap.delta),
                cap=self.cap.epsilon,
                delta=self.cap.delta,
                bound=bound,
                hint=_NO_PART if needs_part and math.isfinite(after.mu) else "",
            )

    def _append(
        self, name: str, body: Callable[["_State"], tuple[str, Mapping[str, Any]] | None]
    ) -> None:
        """Add a line that is decided by looking at the others, which nobody changes meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            state = self._state(connection)
            found = body(state)
            if found is None:
                return
            kind, said = found
            text = json.dumps(said, allow_nan=False)
            line = (state.lines + 1, kind, name, text, time.time())
            digest = _digest(state.digest, line)
            connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)", (*line, digest))
            connection.execute("UPDATE head SET lines = ?, digest = ?", (line[0], digest))
            connection.execute("COMMIT")

    def _snapshot(self) -> "_State":
        """Return what the file says at one moment, whoever writes meanwhile."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            return self._state(connection)

    def _state(self, connection: sqlite3.Connection) -> "_State":
        """Return what the file says; lines that were read before are not read again."""
        try:
            return self._read(connection)
        except _UNREADABLE as error:
            raise LedgerError(
                f"the ledger {self.path} is damaged: {type(error).__name__}. Restore the newest "
                "copy you have, and count what was released since"
            ) from error

    def _read(self, connection: sqlite3.Connection) -> "_State":
        cap, lines, digest = connection.execute("SELECT cap, lines, digest FROM head").fetchone()
        (there,) = connection.execute("SELECT COUNT(*) FROM line").fetchone()
        state = self._seen or _State.of(cap)
        if state.cap != cap or state.lines > lines:
            state = _State.of(cap)
        rows = connection.execute(
            "SELECT number, kind, id, body, written, digest FROM line WHERE number > ? "
            "ORDER BY number",
            (state.lines,),
        )
        state = state.copy()
        for *line, stored in rows.fetchall():
            state.add(tuple(line), stored)
        if (state.lines, state.digest, there) != (lines, digest, lines):
            raise ValueError("the head does not belong to the lines")
        self._seen = state
        return state

    @staticmethod
    def _create(path: Path, cover: Cover, adjacency: Adjacency, subject: str) -> None:
        declared = cover.declared
        if declared is not None and not (
            declared.epsilon <= cover.cap.epsilon and declared.delta <= cover.cap.delta
        ):
            raise LedgerError("what is set apart for declared releases is within the cap")
        if declared is not None and declared != cover.cap and not cover.mu:
            raise LedgerError(
                "what is set apart for declared releases leaves nothing for sums: leave some of "
                "the cap's epsilon and some of its delta, or set apart all of both"
            )
        cap = json.dumps(
            {
                "cap": asdict(cover.cap),
                "declared": None if declared is None else asdict(declared),
                "adjacency": str(adjacency),
                "subject": subject,
                "created": time.time(),
            }
        )
        # Built beside its place and linked into it: nobody ever sees half a ledger, and of
        # two processes that create one at the same time, one wins and the other opens it.
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                connection.execute("INSERT INTO head VALUES (?, 0, ?)", (cap, _first_digest(cap)))
            with suppress(FileExistsError):
                path.hardlink_to(beside)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"cannot create a ledger at {path}: {error}") from error
        finally:
            with suppress(OSError):  # what went wrong above is what the user needs to hear
                beside.unlink(missing_ok=True)

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


_NO_PART = (
    "This ledger sets no part of its cap apart for releases of which only an (epsilon, delta) is "
    "known; that is decided when a ledger is created (`--declared-epsilon`). Without it, training "
    "on secret samples fits in if it is entered before all sums, and its delta is within the cap's."
)

_Line = tuple[Any, ...]


@dataclass(slots=True)
class _State:
    """What the lines read so far add up to."""

    cap: str
    cover: Cover
    adjacency: Adjacency
    subject: str
    digest: str
    lines: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, cap: str) -> "_State":
        """Return the state of a ledger without lines."""
        said = json.loads(cap)
        declared = said["declared"]
        cover = Cover(Budget(**said["cap"]), None if declared is None else Budget(**declared))
        adjacency = Adjacency(said["adjacency"])
        return cls(cap, cover, adjacency, str(said["subject"]), _first_digest(cap))

    def copy(self) -> "_State":
        """Return a state that can be added to."""
        return replace(self, entries=dict(self.entries))

    def entry(self, name: str) -> Entry:
        """Return an entry, or say that there is none."""
        if name not in self.entries:
            raise LedgerError(f"the ledger holds no release {name!r}")
        return self.entries[name]

    def add(self, line: _Line, stored: str) -> None:
        """Take the next line, if it is the next."""
        number, kind, name, text, written = line
        digest = _digest(self.digest, line)
        if number != self.lines + 1 or digest != stored:
            raise ValueError("a line does not follow the one before")
        self.lines, self.digest = number, digest
        body = json.loads(text)
        if kind == "release":
            price, release = Cost(**body["price"]), read_release(body["release"])
            made = Entry(name, str(body["label"]), release, written, rounds=body["rounds"])
            self.entries[name] = replace(made, _price=price)
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
                entry = replace(entry, result=kept, _certain=max(entry._certain, 1))
            case "revealed":
                number, digest = int(body["number"]), str(body["digest"])
                entry = entry.happened(int(body.get("counted", 0)))
                entry = replace(entry, revealed=number, digest=digest, _certain=entry.rounds or 0)
            case _:
                raise LedgerError(
                    f"the ledger holds a line of unknown kind {kind!r}; it was written by a newer "
                    "Urna. Upgrade to read it."
                )
        self.entries[name] = entry


def _sampled(release: Release) -> bool:
    return isinstance(release, Sampled) or (
        isinstance(release, Repeated) and _sampled(release.release)
    )


def _check_new(entry: Entry, done: int) -> None:
    """Refuse to release again what was released; `done` rounds are known to the caller."""
    if entry.released > done:
        raise _behind(entry, done)


def _behind(entry: Entry, done: int) -> LedgerError:
    """Return the error for a release of which more was revealed than `done` rounds."""
    name = f"{entry.id!r} ({entry.label})"
    if isinstance(entry.release, Repeated) and entry.release.rounds > 1:
        return LedgerError(
            f"of the series {name} the ledger counts {entry.rounds} rounds and knows of "
            f"{entry.released} that were revealed; only {done} are known here, so this is an older "
            "copy. A round is paid for once: put back the newest copy, or begin a new series "
            "under a new id, which is paid for anew"
        )
    if entry.result is not None:
        there = f"its result is in {entry.result.path} (SHA-256 {entry.result.sha256})"
        then = "read that file, put it back if it is gone,"
    elif entry.unfinished:
        return LedgerError(
            f"the release {name} was started, and no result of it was noted. Its messages may "
            "have been seen, so it counts. A release is paid for once: pay for a new one under a "
            "new id"
        )
    else:
        there = f"the ledger names no file with it (SHA-256 of what was revealed: {entry.digest})"
        then = "use what was handed out,"
    return LedgerError(
        f"the release {name} was revealed already: {there}. A release is paid for once: {then} or "
        "pay for a new one under a new id"
    )


def _first_digest(cap: str) -> str:
    return hashlib.sha256(b"urna ledger 2\0" + cap.encode()).hexdigest()


def _digest(before: str, line: _Line) -> str:
    return hashlib.sha256(f"{before}\0{json.dumps(line)}".encode()).hexdigest()

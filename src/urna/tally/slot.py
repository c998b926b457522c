"""Where a run is counted and kept, and the one way to a result: charge, reveal, keep, note.

Sums, series of sums and selections all go through `Slot.release`. Nothing else on the collecting
side writes to a ledger.
"""

import hashlib
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from urna.errors import InvalidSum, OutputError, ParameterError, RoundAborted, RoundUnfinished
from urna.privacy import Adjacency, Entry, Ledger, NonPrivateRelease, Release, Repeated
from urna.randomness import OsSecrets, SecretSource

NOTHING = hashlib.sha256(b"urna: nothing that may be read").hexdigest()
"""Noted of a release that counts and gave no result."""
LOST = hashlib.sha256(b"urna: begun before, and aborted when it was read back").hexdigest()
"""Noted of a release that was begun by a process that was killed, and aborted by the next."""

ValueT = TypeVar("ValueT")
Failed = RoundUnfinished | InvalidSum


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where a run is counted, kept and shown, and where its secrets come from.

    Nothing here is part of a plan: the same plan may be run anywhere.

    Args:
        ledger: Where releases are counted before they happen.
        entry: The release's id in the ledger: counted once, however often it is begun, and
            refused once a result of it was handed out. A fresh one by default.
        secrets: Where keys, coins and noise come from; the operating system by default.
        keep: Called with the result before the ledger notes it and before anybody sees it:
            writes it down, and shows it to nobody.
        progress: Called while it runs; a line in a terminal or a notebook by default, False for
            none.
        force: Whether to run where the noise will probably drown the result.
    """

    ledger: Ledger | None = None
    entry: str | None = None
    secrets: SecretSource = field(default_factory=OsSecrets, repr=False)
    keep: Callable[[Any], None] | None = None
    progress: Callable[..., None] | bool | None = None
    force: bool = False

    def only(self, what: str, *used: str) -> "Run":
        """Return the run, unless it says something that is not looked at.

        Raises:
            ParameterError: It does.
        """
        usual = Run(secrets=self.secrets)
        given = [f.name for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)]
        if not isinstance(self.secrets, OsSecrets):
            given.append("secrets")
        for name in given:
            if name not in used:
                raise ParameterError(
                    f"{what} takes no `{name}`; of a Run it takes {', '.join(used)}"
                )
        return self

    def kept(self, result: Any) -> None:  # noqa: ANN401 - each system has its own
        """Call `keep` with a result, where there is one."""
        if self.keep is not None:
            self.keep(result)


@dataclass(slots=True)
class Slot:
    """One release, or a series of them, and its place in a ledger.

    Guarantee:
        Every round is in the ledger before it happens. A round that is aborted before
        anything is revealed no longer counts; one that ends in any other way does, and so does
        one that was begun before (`reads_back`): what was revealed then may be kept. What was
        handed out is noted in the ledger, and its round is never released again.

    Assumes:
        A process that ends between revealing a result and noting it has shown it to nobody: the
        same id may be released once more, for the same charge. Not so where messages show
        something before there is a result: there `started` is called first.

    Args:
        event: What each round releases.
        label: A few words for the ledger.
        adjacency: The neighbouring relation of the event.
        rounds: How many rounds there will be at most.
        ledger: Where they are counted.
        id: The entry's id in the ledger, which it keeps whatever is aborted; by default a fresh
            one, and another one after a single release was aborted.
        done: Rounds that were released before, by a run that is taken up again.
        digest: What the last of them was noted with, where it was kept.
        counts: In how many of the first so many rounds any single client takes part, where not
            everybody takes part in all. Only those tell anything about a client, so only those
            are counted; in all of them by default.
        reads_back: Whether the next round may be one that was held, read back from what was
            written down of it. It must say the same again.

    Raises:
        ParameterError: The ledger counts under another relation.
        BudgetExceeded: There is no room for the first round. Nothing was entered.
        LedgerError: The ledger knows of more rounds that were revealed. Nothing was entered.
    """

    event: Release
    label: str
    adjacency: Adjacency
    rounds: int = 1
    ledger: Ledger | None = None
    id: str | None = None
    done: int = 0
    digest: str = ""
    counts: Callable[[int], int] = operator.index
    reads_back: bool = False
    _begun: int = field(init=False, repr=False, default=0)
    """The latest round of which the ledger knows that it started."""
    _advances: bool = field(init=False, repr=False)
    """Whether it is entered as a series: an id somebody has noted must outlive what is aborted."""

    def __post_init__(self) -> None:
        # What has a price of its own where it comes first is entered whole, or it would lose it.
        whole = self.rounds == 1 and len(self.event.prices()) > 1
        self._advances = self.rounds > 1 or (self.id is not None and not whole)
        if self.ledger is None:
            return
        self.ledger.check_relation(self.adjacency)
        if self.id is not None:
            self.id = self.ledger.free_id(
                self.id,
                self._series if self._advances else self.event,
                done=self.done + self.reads_back,
                counted=self.counts(min(self.done + 1, self.rounds)),
            )
        entry = self._entry()
        if entry is None and not self.done:
            self.ledger.check(self.event)
        elif entry is not None and self.done:
            # It was kept, and the process ended before that was noted.
            self._note(self.digest, self.done)

    def release(
        self,
        reveal: Callable[[], ValueT],
        digest: Callable[[ValueT], str],
        keep: Callable[[ValueT], None] | None = None,
        keep_failure: Callable[[Failed], None] | None = None,
    ) -> ValueT:
        """Charge the next round, reveal its result, keep it, note it, and return it.

        Args:
            reveal: Does what was planned; called once.
            digest: Returns a SHA-256 of what was revealed.
            keep: Writes down what was revealed, before the ledger notes it. If it raises an
                exception, the result counts as handed out; not so for OutputError, which says
                that nothing could be written.
            keep_failure: Writes down that the round counts and gave nothing.

        Raises:
            BudgetExceeded: The ledger's cap would be passed. Nothing was released.
            LedgerError: The ledger knows that the round was released. Nothing was released now.
            RoundAborted: Nothing was revealed now, and nothing counts; where it `reads_back`, the
                round stays counted.
            RoundUnfinished: It stays counted.
            InvalidSum: What was revealed is no valid result. It stays counted.
        """
        held = self._held()
        if not held:
            self._count(self.done + 1)
        # However this ends, the next round is another one, unless nothing was revealed.
        self.done += 1
        try:
            value = reveal()
        except RoundAborted as aborted:
            if self.reads_back:
                self._lose(aborted, held)
            else:
                self._withdraw(aborted.reason)
                self.done -= 1
            raise
        except (RoundUnfinished, InvalidSum) as failed:
            entry = self._entry()
            if held and entry is not None and entry.digest not in ("", NOTHING):
                raise  # it gave a result when it was held
            with self._noting(NOTHING, held):
                if keep_failure is not None:
                    keep_failure(failed)
            raise
        with self._noting(digest(value), held):
            if keep is not None:
                keep(value)
        return value

    def started(self) -> None:
        """Note that the round which is being released begins to reveal, before it does.

        From then on it counts, however it ends, a kill included, and is not held again. Calling
        it again in the same round changes nothing.

        Raises:
            LedgerError: It was started, released or withdrawn before, perhaps by another
                process. Reveal nothing.
        """
        if self._begun < self.done:
            if self.ledger is not None and self.id is not None:
                self.ledger.note_started(self.id, number=self.done)
            self._begun = self.done

    @property
    def entry(self) -> str | None:
        """Its id in the ledger, where there is one."""
        return None if self.ledger is None else self.id

    @property
    def _series(self) -> Repeated:
        return Repeated(self.event, self.counts(self.rounds))

    def _entry(self) -> Entry | None:
        """Return its entry, where a run that was killed has made one."""
        return None if self.ledger is None else self.ledger.find(self.id)

    def _held(self) -> bool:
        """Say whether the next round was held and noted, and is to be read back."""
        entry = self._entry() if self.reads_back else None
        return entry is not None and entry.revealed == self.done + 1

    @contextmanager
    def _noting(self, digest: str, held: bool) -> Iterator[None]:
        """Note what the block writes down.

        Where the block fails, what was revealed may have been seen: it is noted all the same.
        Not so where nothing could be written (OutputError), or the process is interrupted.
        """
        if held:
            self._note(digest, self.done)  # it must say what was noted, before that is overwritten
        elif self._begun < self.done:
            self._count(self.done)  # another process may have released or withdrawn it meanwhile
        try:
            yield
        except OutputError:
            raise
        except Exception:
            self._note(digest, self.done)
            raise
        self._note(digest, self.done)

    def _lose(self, aborted: RoundAborted, held: bool) -> None:
        """Note that a round that was begun before gives nothing any more; it stays counted."""
        entry = self._entry()
        if held and entry is not None and entry.digest != LOST:
            raise entry.behind(self.done - 1) from aborted  # it was released
        self._note(LOST, self.done)

    def _note(self, digest: str, number: int) -> None:
        if self.ledger is not None and self.id is not None:
            counted = self.counts(number)
            self.ledger.note_revealed(self.id, digest, number=number, counted=counted)

    def _count(self, number: int) -> None:
        """Count a round, before it happens."""
        if self.ledger is None:
            return
        if not self._advances:
            self.id = self.ledger.charge(self.event, label=self.label, id=self.id)
            return
        counted = self.counts(number)
        self.id = self.ledger.charge(
            self._series, label=self.label, id=self.id, rounds=counted, number=number
        )

    def _withdraw(self, reason: str) -> None:
        """Take the latest round out of the ledger: it is certain that it revealed nothing."""
        if self.ledger is None or self.id is None:
            return
        kept = self.counts(self.done - 1) if self._advances else None
        self.ledger.withdraw(self.id, reason=reason, rounds=kept)
        if not self._advances:
            self.id = None  # a withdrawn id names nothing again


def event_of(event: Release | None, *, private: bool) -> Release:
    """Return what a round is in a ledger: without a guarantee where there is no noise or secret."""
    if not private:
        return NonPrivateRelease("scripted secrets")
    return event or NonPrivateRelease("the sum is exact")

"""The one place where a private sum becomes public: counted before it, kept and noted after it."""

import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from urna.errors import OutputError, ParameterError, RoundAborted, RoundSpoiled, RoundUnfinished
from urna.noise import IntVector
from urna.privacy import (
    Entry,
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Repeated,
    SumRelease,
)
from urna.privacy.accountant import accountant_of
from urna.privacy.budget import rounded_up
from urna.privacy.cost import FREE
from urna.privacy.events import prices
from urna.tally.mechanism import check_sum
from urna.tally.plan import TallyPlan
from urna.tally.summation import ClientId, Tallied

__all__ = ["Released", "Releases"]

NOTHING = hashlib.sha256(b"urna: nothing that may be read").hexdigest()
"""Noted of a round that counts and gave no sum."""


@dataclass(frozen=True, slots=True)
class Released:
    """A sum that became public, and what that costs."""

    tallied: Tallied
    privacy: PrivacyStatement
    """Of this and all earlier rounds of the series."""
    entry: str | None
    """Its id in the ledger, where there is one."""

    @property
    def digest(self) -> str:
        """SHA-256 of what was revealed: the sum, and who is in it."""
        return digest_of_sum(self.tallied.total, self.tallied.accepted)


@dataclass(slots=True)
class Releases:
    """A private sum, or a series of them, counted in a ledger round by round.

    Guarantee:
        Every round is in the ledger before it happens. A round that is aborted before
        anything is revealed no longer counts; one that ends in any other way does. A sum
        that cannot be one of valid contributions, or that holds less noise than planned, is
        not handed out. What was handed out is noted in the ledger, and its round is never
        released again.

    Assumes:
        A process that ends between opening a sum and noting it has shown it to nobody: the
        same id may be released once more, for the same charge. Not so where messages show
        something before there is a result: there `started` is called first.

    Args:
        plan: What each sum is.
        label: A few words for the ledger.
        described: Who adds up, and who sees what, in one sentence.
        rounds: How many sums there will be at most.
        ledger: Where they are counted.
        private: Whether all parties' randomness is secret: not so where it is scripted.
        id: The entry's id in the ledger, which it keeps whatever is aborted; by default a fresh
            one, and another one after a single sum was aborted.
        done: Rounds that were released before, by a run that is taken up again.
        digest: SHA-256 of what the last of them revealed, where it was kept: `Released.digest`,
            or `NOTHING`. The ledger refuses another one than it has noted.
        counts: In how many of the first so many rounds any single client takes part, where not
            everybody takes part in all. Only those tell anything about a client, so only those
            are counted; in all of them by default.
        stops: Whether what rounds say decides when to stop. Epsilon is then stated of all
            planned rounds: that of those held is proven for a number fixed beforehand alone.
        reads_back: Whether the next round may be one that was held, read back from what was
            written down of it. It must say the same again.

    Raises:
        ParameterError: The ledger counts under another relation.
        BudgetExceeded: There is no room for the first round. Nothing was entered.
        LedgerError: The ledger knows of more rounds that were revealed. Nothing was entered.
    """

    plan: TallyPlan
    label: str
    described: str
    rounds: int = 1
    ledger: Ledger | None = None
    private: bool = True
    id: str | None = None
    done: int = 0
    digest: str = ""
    counts: Callable[[int], int] = operator.index
    stops: bool = False
    reads_back: bool = False
    event: Release = field(init=False)
    _begun: int = field(init=False, repr=False, default=0)
    """The latest round of which the ledger knows that it started."""
    _advances: bool = field(init=False, repr=False)
    """Whether it is entered as a series: an id somebody has noted must outlive what is aborted."""

    def __post_init__(self) -> None:
        self.event = _event(self.plan, self.private)
        # What has a price of its own where it comes first is entered whole, or it would lose it.
        whole = self.rounds == 1 and len(prices(self.event)) > 1
        self._advances = self.rounds > 1 or (self.id is not None and not whole)
        if self.ledger is not None and self.id is not None:
            self.id = self.ledger.free_id(
                self.id,
                self._series if self._advances else self.event,
                done=self.done + self.reads_back,
                counted=self.counts(min(self.done + 1, self.rounds)),
            )
            if self.done and self.ledger.holds(self.id):
                # It was kept, and the process ended before that was noted.
                counted = self.counts(self.done)
                self.ledger.note_revealed(self.id, self.digest, number=self.done, counted=counted)
        if self.ledger is not None:
            self.ledger.check_relation(self.plan.terms.adjacency)
            if not (self.done or self._entered()):
                self.ledger.check(self.event)

    def release(
        self,
        add_up: Callable[[], Tallied],
        keep: Callable[[Released], None] | None = None,
        keep_failure: Callable[[RoundUnfinished | RoundSpoiled], None] | None = None,
    ) -> Released:
        """Count the next round, add up, keep and note the sum, and say what it cost.

        Args:
            add_up: Does what was planned; called once.
            keep: Writes down what was released, before the ledger notes it. If it raises an
                exception, the sum counts as handed out; not so for OutputError, which says that
                nothing could be written.
            keep_failure: Writes down that the round counts and gave nothing.

        Raises:
            BudgetExceeded: The ledger's cap would be passed. Nothing was released.
            LedgerError: The ledger knows that the round was released. Nothing was released now.
            RoundAborted: Nothing was revealed, and nothing counts.
            RoundUnfinished: It stays counted.
            RoundSpoiled: What was opened is no sum of valid contributions, or holds less noise
                than planned. It stays counted.
        """
        if self.done >= self.rounds:
            raise ParameterError(f"all {self.rounds} rounds of this series were held")
        held = self._held()
        if not held:
            self._count(self.done + 1)
        # However this ends, the next round is another one, unless nothing was revealed.
        self.done += 1
        try:
            tallied = add_up()
            check_noise(tallied, self.plan)
            check_sum(tallied.total, self.plan, len(tallied.accepted), tallied.noise_variance)
        except RoundAborted as aborted:
            self.done -= 1
            if not held:
                self._take_back(aborted.reason)
            raise
        except (RoundUnfinished, RoundSpoiled) as failed:
            if held and not self._says(NOTHING):
                raise  # it gave a sum when it was held
            with self._noting(NOTHING, held):
                if keep_failure is not None:
                    keep_failure(failed)
            raise
        released = Released(tallied, self.statement(), None if self.ledger is None else self.id)
        with self._noting(released.digest, held):
            if keep is not None:
                keep(released)
        return released

    def started(self) -> None:
        """Note that the round which is being added up begins to reveal, before it does.

        From then on it counts, however it ends, a kill included, and is not held again.

        Raises:
            LedgerError: It was started, released or withdrawn before, perhaps by another
                process. Reveal nothing.
        """
        if self.ledger is not None and self.id is not None:
            self.ledger.note_started(self.id, number=self.done)
        self._begun = self.done

    def statement(self) -> PrivacyStatement:
        """Return what all rounds so far promise, and on what it rests."""
        if not self.done:
            return self._nothing()
        counted = max(self.counts(self.rounds if self.stops else self.done), 1)
        cost = Repeated(self.event, counted).cost()
        plan, terms = self.plan, self.plan.terms
        exact = plan.event is None
        why = ("The sum is exact: nobody added noise, so nothing is private",) if exact else ()
        if not self.private:
            why = ("The randomness was scripted, so nothing is private",)
        several = (f"Epsilon is that of {self.done} rounds together",) if self.done > 1 else ()
        if counted < self.done:
            several = (
                f"Epsilon is that of {self.done} rounds together, of which no client took part in "
                f"more than {counted}",
            )
        if self.stops and self.done < self.rounds:
            several = (self._early(),)
        accountant = plan.accountant if plan.lots is not None else accountant_of(cost)
        return PrivacyStatement(
            epsilon=cost.at(terms.budget.delta),
            delta=terms.budget.delta,
            adjacency=terms.adjacency,
            accountant=accountant if math.isfinite(cost.mu) else "none",
            caveats=(
                *why,
                *several,
                *plan.caveats_over(counted),
                *_colluding(plan),
                self.described,
            ),
        )

    def _early(self) -> str:
        """Return what is said of a series whose results decide when it ends."""
        held = Repeated(self.event, max(self.counts(self.done), 1)).cost()
        fixed = held.at(self.plan.terms.budget.delta)
        less = f"; that of the {self.done} held would be {rounded_up(fixed)}, had the number of "
        return (
            f"Epsilon is that of all {self.rounds} planned rounds, because results decide when to "
            "stop" + (f"{less}rounds been fixed beforehand" if math.isfinite(fixed) else "")
        )

    def _nothing(self) -> PrivacyStatement:
        """Return the statement before anything is released."""
        why = "No round was held, so nothing was released and nothing is spent"
        terms = self.plan.terms
        accountant = accountant_of(FREE)
        return PrivacyStatement(0.0, terms.budget.delta, terms.adjacency, accountant, (why,))

    @property
    def _series(self) -> Repeated:
        return Repeated(self.event, self.counts(self.rounds))

    def _entered(self) -> bool:
        """Say whether a run that was killed in its first round has counted that already."""
        return bool(self._own())

    def _held(self) -> bool:
        """Say whether the next round was held and noted, and is to be read back."""
        if not self.reads_back:
            return False
        return any(entry.revealed == self.done + 1 for entry in self._own())

    def _says(self, digest: str) -> bool:
        """Say whether the latest round was noted with this digest, or with none."""
        return any(entry.digest in ("", digest) for entry in self._own())

    def _own(self) -> list[Entry]:
        """Return the entry of this release, where there is one."""
        if self.ledger is None or self.id is None:
            return []
        return [entry for entry in self.ledger.entries() if entry.id == self.id]

    @contextmanager
    def _noting(self, digest: str, held: bool) -> Iterator[None]:
        """Note in the ledger what is kept within the block; of the round that was held last."""
        counted = self.counts(self.done)
        if held:
            # It must say what was noted, before that is written over.
            _note(self.ledger, self.id, digest, self.done, counted)
        elif self._begun < self.done:
            self._count(self.done)  # another process may have released or withdrawn it meanwhile
        with noting(self.ledger, self.id, digest, number=self.done, counted=counted):
            yield

    def _count(self, rounds: int) -> None:
        if self.ledger is None:
            return
        if not self._advances:
            self.id = self.ledger.enter(self.event, label=self.label, id=self.id)
            return
        if rounds == 1:
            self.id = self.ledger.begin(self._series, label=self.label, id=self.id)
        self.ledger.advance(str(self.id), self.counts(rounds), number=rounds)

    def _take_back(self, reason: str) -> None:
        if self.ledger is None or self.id is None:
            return
        kept = self.counts(self.done) if self._advances else None
        self.ledger.withdraw(self.id, reason=reason, rounds=kept)
        if not self._advances:
            self.id = None  # a withdrawn id names nothing again


@contextmanager
def noting(
    ledger: Ledger | None,
    entry: str | None,
    digest: str,
    *,
    number: int = 1,
    counted: int = 1,
) -> Iterator[None]:
    """Note in the ledger what was revealed, once the block has written it down.

    Where the block fails, what was revealed may have been seen: it is noted all the same. Not so
    where nothing could be written (OutputError), or the process is interrupted or killed.
    """
    try:
        yield
    except OutputError:
        raise
    except Exception:
        _note(ledger, entry, digest, number, counted)
        raise
    _note(ledger, entry, digest, number, counted)


def _note(ledger: Ledger | None, entry: str | None, digest: str, number: int, counted: int) -> None:
    if ledger is not None and entry is not None:
        ledger.note_revealed(entry, digest, number=number, counted=counted)


def digest_of_sum(total: IntVector, accepted: Iterable[ClientId]) -> str:
    """Return a digest of a sum and of who is in it."""
    said = repr(sorted(accepted)).encode()
    return hashlib.sha256(said + b"\0" + np.asarray(total, dtype="<i8").tobytes()).hexdigest()


def _colluding(plan: TallyPlan) -> tuple[str, ...]:
    """Return how many colluding clients the noise of a sum allows for, where it does."""
    terms = plan.terms
    if plan.event is None or not terms.colluders:
        return ()
    return (
        f"The guarantee assumes that at most {terms.colluders} of the {terms.clients} clients in a "
        "sum collude with the server",
    )


def check_noise(tallied: Tallied, plan: TallyPlan) -> None:
    """Refuse a sum that holds less noise than planned.

    Raises:
        RoundSpoiled: Its guarantee does not hold, so it is not used.
    """
    planned, left = plan.release, tallied.release
    if planned is None:
        return
    if not isinstance(left, SumRelease) or (
        left.variance < planned.variance or left.move != planned.move
    ):
        raise RoundSpoiled(
            "the summation left less noise than planned: its result is not used. The ledger "
            "keeps counting it, but its guarantee does not hold."
        )


def _event(plan: TallyPlan, private: bool) -> Release:
    if not private:
        return NonPrivateRelease("scripted secrets")
    return plan.event or NonPrivateRelease("the sum is exact")

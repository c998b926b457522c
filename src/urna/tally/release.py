"""A sum or a selection that becomes public, and what it promises."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from urna.errors import InvalidSum, ParameterError, RoundUnfinished
from urna.privacy import (
    Ledger,
    PrivacyStatement,
    Repeated,
    SumRelease,
)
from urna.privacy.budget import rounded_up
from urna.privacy.cost import FREE
from urna.tally.mechanism import check_sum
from urna.tally.plan import TallyPlan
from urna.tally.selection import Selected, Started
from urna.tally.selection_plan import ACCOUNTANT, SelectionPlan
from urna.tally.slot import Slot, event_of
from urna.tally.summation import Tallied


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
        who, total = sorted(self.tallied.accepted), np.asarray(self.tallied.total, dtype="<i8")
        return hashlib.sha256(repr(who).encode() + b"\0" + total.tobytes()).hexdigest()


class Where(TypedDict, total=False):
    """Where sums are counted, and which of them; see `Slot`."""

    rounds: int
    ledger: Ledger | None
    id: str | None
    done: int
    digest: str
    counts: Callable[[int], int]
    reads_back: bool


class Releases:
    """A private sum, or a series of them, counted in a ledger round by round.

    Guarantee:
        That of `Slot`. A sum that cannot be one of valid contributions, or that holds less
        noise than planned, is not handed out.

    Args:
        plan: What each sum is.
        label: A few words for the ledger.
        described: Who adds up, and who sees what, in one sentence.
        private: Whether all parties' randomness is secret: not so where it is scripted.
        stops: Whether what rounds say decides when to stop. Epsilon is then stated of all
            planned rounds: that of those held is proven for a number fixed beforehand alone. So
            it is where rounds are sampled, as the ledger counts them.
        where: The rest of the `Slot`. Its `digest` is `Released.digest`, or `NOTHING`.

    Raises:
        ParameterError, BudgetExceeded, LedgerError: As `Slot`. Nothing was entered.
    """

    def __init__(
        self,
        plan: TallyPlan,
        label: str,
        described: str,
        *,
        private: bool = True,
        stops: bool = False,
        **where: Unpack[Where],
    ) -> None:
        self.plan, self.described, self.private, self.stops = plan, described, private, stops
        self._whole = stops or plan.rate is not None
        self.slot = Slot(
            event_of(plan.event, private=private), label, plan.terms.adjacency, **where
        )

    @property
    def done(self) -> int:
        """How many rounds were held."""
        return self.slot.done

    def release(
        self,
        add_up: Callable[[], Tallied],
        keep: Callable[[Released], None] | None = None,
        keep_failure: Callable[[RoundUnfinished | InvalidSum], None] | None = None,
    ) -> Released:
        """Count the next round, add up, keep and note the sum, and say what it cost.

        Args:
            add_up: Does what was planned; called once.
            keep: Writes down what was released; see `Slot.release`.
            keep_failure: Writes down that the round counts and gave nothing.

        Raises:
            BudgetExceeded, LedgerError, RoundAborted, RoundUnfinished: As `Slot.release`.
            InvalidSum: What was revealed is no sum of valid contributions, or holds less noise
                than planned. It stays counted.
        """
        if self.done >= self.slot.rounds:
            raise ParameterError(f"all {self.slot.rounds} rounds of this series were held")

        def reveal() -> Released:
            tallied = add_up()
            check_noise(tallied, self.plan)
            check_sum(tallied.total, self.plan, len(tallied.accepted), tallied.noise_variance)
            return Released(tallied, self.statement(), self.slot.entry)

        return self.slot.release(reveal, lambda released: released.digest, keep, keep_failure)

    def statement(self) -> PrivacyStatement:
        """Return what all rounds so far promise, and on what it rests."""
        plan, terms, slot, done = self.plan, self.plan.terms, self.slot, self.done
        delta, adjacency = terms.budget.delta, terms.adjacency
        if not done:
            why = ("No round was held, so nothing was released and nothing is spent",)
            return PrivacyStatement(0.0, delta, adjacency, FREE.accountant, why)
        counted = max(slot.counts(slot.rounds if self._whole else done), 1)
        cost = Repeated(slot.event, counted).cost()
        caveats = []
        if not self.private:
            caveats.append("The randomness was scripted, so nothing is private")
        elif plan.event is None:
            caveats.append("The sum is exact: nobody added noise, so nothing is private")
        if self._whole and done < slot.rounds:
            caveats.append(self._early())
        elif done > 1 or counted < done:
            part = f", of which no client took part in more than {counted}" * (counted < done)
            caveats.append(f"Epsilon is that of {done} rounds together{part}")
        caveats += plan.caveats_over(counted)
        if plan.event is not None and terms.colluders:
            caveats.append(
                f"The guarantee assumes that at most {terms.colluders} of the {terms.clients} "
                "clients in a sum collude with the server"
            )
        accountant = plan.accountant if plan.rate is not None else cost.accountant
        return PrivacyStatement(
            epsilon=cost.at(delta),
            delta=delta,
            adjacency=adjacency,
            accountant=accountant if math.isfinite(cost.mu) else "none",
            caveats=(*caveats, self.described),
        )

    def _early(self) -> str:
        """Return what a reader must know of a series that has not had all its rounds."""
        planned = f"Epsilon is that of all {self.slot.rounds} planned rounds"
        if not self.stops:
            return f"{planned}, {self.done} of them held"
        planned += ", because results decide when to stop"
        held = Repeated(self.slot.event, max(self.slot.counts(self.done), 1)).cost()
        fixed = held.at(self.plan.terms.budget.delta)
        if not math.isfinite(fixed):
            return planned
        return (
            f"{planned}; that of the {self.done} held would be {rounded_up(fixed)}, had the number "
            "of rounds been fixed beforehand"
        )


def check_noise(tallied: Tallied, plan: TallyPlan) -> None:
    """Refuse a sum that holds less noise than planned.

    Raises:
        InvalidSum: Its guarantee does not hold, so it is not used.
    """
    planned, left = plan.release, tallied.release
    if planned is None:
        return
    if not isinstance(left, SumRelease) or (
        left.variance < planned.variance or left.sensitivity != planned.sensitivity
    ):
        raise InvalidSum(
            "the summation left less noise than planned: its result is not used. The ledger "
            "keeps counting it, but its guarantee does not hold."
        )


def open_selection(
    plan: SelectionPlan,
    select: Callable[[Started], Selected],
    *,
    label: str,
    described: str,
    ledger: Ledger | None = None,
    private: bool = True,
    id: str | None = None,  # noqa: A002
    keep: Callable[[Selected, PrivacyStatement, str | None], None] | None = None,
) -> tuple[Selected, PrivacyStatement, str | None]:
    """Count a selection, hold it, and say what it cost.

    Guarantee:
        That of `Slot`. It is withdrawn only if it ends before leader and helper start the
        circuit. That the circuit starts is noted before it does: from then on nothing is
        opened under the id again, however it ends, a kill included.

    Raises:
        BudgetExceeded, LedgerError: As `Slot`. Nothing was opened.
        RoundAborted: It ended before the circuit started, and nothing counts.
        RoundUnfinished: It ended after that, and counts.
    """
    event = event_of(plan.release, private=private)
    slot = Slot(event, label, plan.terms.adjacency, ledger=ledger, id=id)
    statement = statement_of(plan, described, private)

    def take(found: Selected) -> None:
        if keep is not None:
            keep(found, statement, slot.entry)

    def digest(found: Selected) -> str:
        said = (found.winner, found.gap, sorted(found.accepted))
        return hashlib.sha256(repr(said).encode()).hexdigest()

    found = slot.release(lambda: select(slot.started), digest, take)
    return found, statement, slot.entry


def statement_of(plan: SelectionPlan, described: str, private: bool) -> PrivacyStatement:
    """Return what a selection promises, and on what it rests."""
    release = plan.release
    why: Sequence[str] = () if private else ("The randomness was scripted: nothing is private",)
    told = "the winner and its gap" if release.gap else "the winner"
    return PrivacyStatement(
        epsilon=release.epsilon if private else math.inf,
        delta=(1 + math.exp(release.epsilon)) * release.slip,
        adjacency=plan.terms.adjacency,
        accountant=ACCOUNTANT if private else "none",
        caveats=(*why, f"Opened were {told}, nothing else", described),
    )

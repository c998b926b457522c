"""A private sum that becomes public, and what is said of it."""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from urna.errors import InvalidSum, ParameterError, RoundUnfinished
from urna.noise import IntVector
from urna.privacy import (
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Repeated,
    SumRelease,
)
from urna.privacy.budget import rounded_up
from urna.privacy.cost import FREE
from urna.tally.mechanism import check_sum
from urna.tally.plan import TallyPlan
from urna.tally.slot import Slot
from urna.tally.summation import ClientId, Tallied


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
        self.slot = Slot(_event(plan, private), label, plan.terms.adjacency, **where)

    @property
    def done(self) -> int:
        """How many rounds were held."""
        return self.slot.done

    @property
    def rounds(self) -> int:
        """How many there will be at most."""
        return self.slot.rounds

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
        if self.done >= self.rounds:
            raise ParameterError(f"all {self.rounds} rounds of this series were held")

        def reveal() -> Released:
            tallied = add_up()
            check_noise(tallied, self.plan)
            check_sum(tallied.total, self.plan, len(tallied.accepted), tallied.noise_variance)
            return Released(tallied, self.statement(), self.slot.entry)

        return self.slot.release(reveal, lambda released: released.digest, keep, keep_failure)

    def statement(self) -> PrivacyStatement:
        """Return what all rounds so far promise, and on what it rests."""
        if not self.done:
            return self._nothing()
        counted = max(self.slot.counts(self.rounds if self._whole else self.done), 1)
        cost = Repeated(self.slot.event, counted).cost()
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
        if self._whole and self.done < self.rounds:
            several = (self._early(),)
        accountant = plan.accountant if plan.rate is not None else cost.accountant
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
        if not self.stops:
            return f"Epsilon is that of all {self.rounds} planned rounds, {self.done} of them held"
        held = Repeated(self.slot.event, max(self.slot.counts(self.done), 1)).cost()
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
        return PrivacyStatement(0.0, terms.budget.delta, terms.adjacency, FREE.accountant, (why,))


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


def _event(plan: TallyPlan, private: bool) -> Release:
    if not private:
        return NonPrivateRelease("scripted secrets")
    return plan.event or NonPrivateRelease("the sum is exact")

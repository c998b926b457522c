"""A series of private sums over the same clients: one budget, one entry in the ledger.

The interface for whatever is summed again and again: a statistic each day, a step of training
each round. `measures` has some things to sum.
"""

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar, Unpack

import numpy as np

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Budget, Ledger, PrivacyStatement
from urna.randomness import OsSecrets, SecretSource
from urna.tally.contribution import Contribution
from urna.tally.mechanism import to_grid
from urna.tally.plan import TallyPlan, plan_tally
from urna.tally.release import Released, Releases
from urna.tally.secure import SecureAggregation
from urna.tally.summation import ClientId, Summation
from urna.tally.terms import Options, Terms

ValueT_contra = TypeVar("ValueT_contra", contravariant=True)
FoundT_co = TypeVar("FoundT_co", covariant=True)


class Measure(Protocol[ValueT_contra, FoundT_co]):
    """What is summed: how a client's value becomes integers, and a noisy sum an answer."""

    @property
    def contribution(self) -> Contribution:
        """What a valid contribution is."""
        ...

    def put(self, value: ValueT_contra, secrets: SecretSource) -> IntVector:
        """Return a client's contribution; nothing at all for a value that is none."""
        ...

    def read(
        self, total: IntVector, clients: int, plan: TallyPlan, variance: Fraction
    ) -> FoundT_co:
        """Return what a noisy sum says.

        Args:
            total: The sum, in grid steps.
            clients: How many contributions are in it.
            plan: The sum's plan.
            variance: Variance of the noise in it, in grid steps squared.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reading(Generic[FoundT_co]):
    """What one round of a series said."""

    number: int
    """The round's number, from one."""
    value: FoundT_co
    took_part: int
    lost: Mapping[ClientId, str]
    privacy: PrivacyStatement
    """Of this and all earlier rounds."""


@dataclass(slots=True)
class Series(Generic[ValueT_contra, FoundT_co]):
    """The same private sum again and again, within one budget for all rounds together.

    Guarantee:
        All rounds together are (epsilon, delta)-DP for the budget, under the terms' relation,
        towards everybody who learns no more than the summation reveals. Each round is in the
        ledger before it is held; a round that would pass the ledger's cap is not held.

    Assumes:
        Of a series that is taken up again (`entry`, `done`) no sum was seen by anybody before
        the ledger noted it. Rounds that are noted are never held again.

    Args:
        measure: What is summed.
        plan: The plan of each round; `Series.of` makes it.
        releases: Where rounds are counted.
        summation: How contributions are added up.
        secrets: Where keys, coins and noise come from.

    Example:
        >>> from urna.randomness import ScriptedSecrets
        >>> from urna.tally import Mean
        >>> days = Series.of(Mean(0.0, 24.0), 50, Budget(8.0, 1e-4), rounds=2,
        ...                  secrets=ScriptedSecrets(b"days"))
        >>> today = days.hold({device: 3.0 for device in range(50)})
        >>> today.took_part, abs(float(today.value.values[0]) - 3.0) < 4 * today.value.error
        (50, True)
    """

    measure: Measure[ValueT_contra, FoundT_co]
    plan: TallyPlan
    releases: Releases
    summation: Summation
    secrets: SecretSource = field(repr=False)

    @classmethod
    def of(
        cls,
        measure: Measure[ValueT_contra, FoundT_co],
        clients: int,
        budget: Budget,
        *,
        rounds: int,
        label: str = "series",
        summation: Summation | None = None,
        ledger: Ledger | None = None,
        secrets: SecretSource | None = None,
        entry: str | None = None,
        done: int = 0,
        **options: Unpack[Options],
    ) -> "Series[ValueT_contra, FoundT_co]":
        """Plan a series.

        Args:
            measure: What is summed.
            clients: How many clients there are.
            budget: What all rounds together may cost.
            rounds: How many rounds there will be at most.
            label: What the ledger calls it.
            summation: How contributions are added up; securely by default.
            ledger: Where rounds are counted.
            secrets: Where keys, coins and noise come from; the operating system by default.
            entry: The ledger's id of a series that is taken up again.
            done: How many of its rounds were held.
            options: The rest of the terms; see `Terms`.

        Raises:
            ParameterError: It cannot be planned.
            BudgetExceeded: There is no room for its first round in the ledger.
            LedgerError: The ledger knows of more rounds that were revealed than are `done`.
        """
        if type(rounds) is not int or rounds < 1:
            raise ParameterError(f"a series has a round or more, got {rounds}")
        terms = Terms.of(clients, budget, **options)
        adding, source = summation or SecureAggregation(), secrets or OsSecrets()
        plan = plan_tally(
            terms, measure.contribution, rounds=rounds, removes_excess=adding.removes_excess
        )
        releases = Releases(
            plan,
            f"{label}, {rounds} rounds",
            adding.describe(terms),
            rounds=rounds,
            ledger=ledger,
            private=source.private,
            id=entry or uuid.uuid4().hex,
            done=done,
        )
        return cls(measure, plan, releases, adding, source)

    @property
    def entry(self) -> str:
        """The series' id in the ledger: keep it, to take the series up again.

        Raises:
            ParameterError: It has none yet, because it was not made by `Series.of`.
        """
        if self.releases.slot.id is None:
            raise ParameterError("this series has no entry in a ledger yet")
        return self.releases.slot.id

    @property
    def done(self) -> int:
        """How many rounds were held."""
        return self.releases.done

    @property
    def privacy(self) -> PrivacyStatement:
        """What all rounds so far promise."""
        return self.releases.statement()

    def hold(
        self,
        values: Mapping[ClientId, ValueT_contra],
        *,
        summation: Summation | None = None,
        keep: Callable[[Reading[FoundT_co]], None] | None = None,
    ) -> Reading[FoundT_co]:
        """Hold the next round.

        Args:
            values: What each client has; a client that is left out contributes nothing, under
                its full share of the noise.
            summation: Another way to add up in this round alone.
            keep: Writes the reading down, before the ledger notes that the round was held. A
                series that may be killed is taken up again from there.

        Raises:
            BudgetExceeded: The ledger's cap would be passed. Nothing was released.
            RoundAborted: Too many clients dropped out. Nothing was released, nothing counts.
            RoundUnfinished: They did so while the sum was opened. It stays counted.
            InvalidSum: What was opened is no sum of valid contributions. It stays counted.
        """
        plan, measure = self.plan, self.measure
        vectors = {
            client: to_grid(measure.put(values[client], self.secrets), plan)
            if client in values
            else np.zeros(plan.dimension, dtype=np.int64)
            for client in range(plan.clients)
        }
        adding = summation or self.summation
        found: list[Reading[FoundT_co]] = []

        def take(released: Released) -> None:
            found.append(self._read(released))
            if keep is not None:
                keep(found[0])

        self.releases.release(lambda: adding.tally(vectors, plan, self.secrets), take)
        return found[0]

    def _read(self, released: Released) -> Reading[FoundT_co]:
        tallied = released.tallied
        took_part = len(tallied.accepted)
        value = self.measure.read(tallied.total, took_part, self.plan, tallied.noise_variance)
        return Reading(self.done, value, took_part, tallied.lost, released.privacy)

    def as_mapping(self) -> dict[str, Any]:
        """Return the series' plan as plain values."""
        rounds, plan = self.releases.rounds, self.plan
        said = plan.as_mapping() | {"rounds": rounds, "done": self.done}
        if "whole_client_epsilon" in said:
            whole = plan.whole_client_over(rounds)
            said["whole_client_epsilon"] = whole if math.isfinite(whole) else None
        return said

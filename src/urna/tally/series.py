"""A series of private sums over the same clients: one budget, one entry in the ledger.

The interface for whatever is summed again and again: a mean or a histogram each day, or your own
`Measure`.
"""

import itertools
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Budget, Ledger, PrivacyStatement, Sensitivity, Unit
from urna.randomness import OsSecrets, SecretSource
from urna.tally.contribution import BoundedVector, Contribution, SumRange
from urna.tally.encoding import Encoding
from urna.tally.mechanism import in_units, to_grid
from urna.tally.plan import TallyPlan, plan_tally
from urna.tally.release import Released, Releases
from urna.tally.summation import ClientId, SecureAggregation, Summation
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
class OneOf:
    """A vector of zeros with at most a single one in it: a client's place in a histogram."""

    dimension: int

    def __post_init__(self) -> None:
        if type(self.dimension) is not int or self.dimension < 1:
            raise ParameterError(f"a histogram has a bin or more, got {self.dimension}")

    @property
    def reach(self) -> int:
        """One."""
        return 1

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return √2 for a client that moves from bin to bin, 1 for one that is left out."""
        if adjacency.unit is Unit.RECORD:
            raise ParameterError("a client has one place in a histogram; ask for clients")
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Sensitivity(1, 1)
        return self.whole_client()

    def whole_client(self) -> Sensitivity:
        """Return how far one client moves the sum."""
        return Sensitivity(2, min(2, self.dimension))

    def range_of(self, clients: int) -> SumRange:
        """Return where sums lie."""
        return SumRange(0, clients, 0, clients)

    def check(self, vector: IntVector) -> None:
        """Raise ParameterError unless there is at most a single one."""
        if vector.min(initial=0) < 0 or int(vector.sum()) > 1:
            raise ParameterError("a client has one place in a histogram, or none")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "one of", "dimension": self.dimension}


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers with the error that noise leaves in each."""

    values: npt.NDArray[np.float64]
    error: float
    """Standard deviation of each value, from noise and rounding."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a number, or of several, over the clients.

    Args:
        low: Least value; smaller ones count as this.
        high: Largest value.
        entries: How many numbers each client has.
    """

    low: float
    high: float
    entries: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ParameterError(f"a mean needs a range, got {self.low} to {self.high}")

    @property
    def encoding(self) -> Encoding:
        """How numbers become integers: their distance from the middle of the range."""
        radius = (self.high - self.low) / 2 * math.sqrt(self.entries)
        return Encoding.fine(self.entries, radius)

    @property
    def contribution(self) -> BoundedVector:
        """What a valid contribution is."""
        return self.encoding.contribution

    def put(self, value: npt.ArrayLike, secrets: SecretSource) -> IntVector:
        """Return a client's numbers on the grid."""
        numbers = np.atleast_1d(np.asarray(value, dtype=np.float64)).ravel()
        middle = (self.low + self.high) / 2
        return self.encoding.encode(np.clip(numbers, self.low, self.high) - middle, secrets)

    def read(self, total: IntVector, clients: int, plan: TallyPlan, variance: Fraction) -> Measured:
        """Return the mean of those who took part."""
        encoding = self.encoding
        units = np.asarray(np.rint(in_units(total, plan)), dtype=np.int64)
        sums = encoding.decode(units)
        error = encoding.error(clients, variance / plan.scale**2)
        return Measured(sums / clients + (self.low + self.high) / 2, error / clients)


@dataclass(frozen=True, slots=True)
class Counts:
    """A noisy histogram, and what follows from it at no further cost."""

    edges: tuple[float, ...]
    counts: npt.NDArray[np.float64]
    error: float
    """Standard deviation of the noise in each count."""

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Shares of the bins, none negative, that add up to one."""
        positive = np.maximum(self.counts, 0.0)
        total = float(positive.sum())
        return positive / total if total else np.full(len(positive), 1 / len(positive))

    def quantile(self, part: float) -> float:
        """Return the value below which a part of the clients lies, straight within its bin."""
        if not 0 <= part <= 1:
            raise ParameterError(f"a quantile lies at a part from 0 to 1, got {part}")
        below = np.concatenate([[0.0], np.cumsum(self.shares)])
        return float(np.interp(part, below, self.edges))

    @property
    def mean(self) -> float:
        """The mean, every client taken to be in the middle of its bin."""
        edges = np.array(self.edges)
        return float(self.shares @ ((edges[1:] + edges[:-1]) / 2))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many clients lie in each bin.

    Args:
        edges: Ascending bounds of the bins; values outside count into the first or the last.
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = self.edges
        if len(edges) < 2 or not all(a < b for a, b in itertools.pairwise(edges)):
            raise ParameterError(f"edges ascend and there are two or more, got {edges}")

    @classmethod
    def even(cls, low: float, high: float, bins: int) -> "Histogram":
        """Return bins of equal width."""
        return cls(tuple(np.linspace(low, high, bins + 1).tolist()))

    @property
    def contribution(self) -> OneOf:
        """What a valid contribution is."""
        return OneOf(len(self.edges) - 1)

    def put(self, value: float, secrets: SecretSource) -> IntVector:
        """Return a client's place; none for what is no number."""
        del secrets
        placed = np.zeros(len(self.edges) - 1, dtype=np.int64)
        if not math.isnan(value):
            place = int(np.searchsorted(self.edges, value, side="right")) - 1
            placed[min(max(place, 0), len(placed) - 1)] = 1
        return placed

    def read(self, total: IntVector, clients: int, plan: TallyPlan, variance: Fraction) -> Counts:
        """Return the noisy counts."""
        del clients
        return Counts(self.edges, in_units(total, plan), math.sqrt(variance) / plan.scale)


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
        """The series' id in the ledger: keep it, to take the series up again."""
        return str(self.releases.slot.id)

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

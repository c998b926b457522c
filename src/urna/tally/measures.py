"""Things to sum again and again: means, histograms, and the quantiles histograms hold."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Sensitivity, Unit
from urna.randomness import SecretSource
from urna.tally.contribution import BoundedVector, SumRange
from urna.tally.encoding import Encoding
from urna.tally.mechanism import in_units
from urna.tally.plan import TallyPlan


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

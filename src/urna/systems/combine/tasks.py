"""What parties compute together under encryption, as a public list of steps.

A task says for every step which vectors a party encrypts, what the server computes from their
totals, and what is then opened. Parties and server build it from the same agreement, so a party
knows which circuit a request to open must come from.

Guarantee:
    Of a step the opened totals become known, and nothing else: for a mean the pooled sums and the
    pooled count; for clusters one bit per cell, and then every cluster's sums and count.

Assumes:
    What `urna.protocols.he` assumes: parties and a server that are honest but curious.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from urna.errors import ParameterError
from urna.protocols.he import (
    Arithmetic,
    ArithmeticCircuit,
    Ciphertext,
    Evaluator,
    NoiseBound,
    NoiseModel,
    Parameters,
    additive,
    levelled,
    uniform_entries,
)
from urna.randomness import SecretSource
from urna.systems.combine.cells import Clustering
from urna.systems.combine.frame import PLACE_BITS, Integers
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.strategies import Averaging, Combined

COPIES = 3
"""A uniform factor is zero once in 65,537: three copies of a dense cell are, 4 times in 10^15."""

_PRIME = 65_537

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class DenseCells:
    """factor·C(C−1)…(C−m+1): zero where fewer than m clients count, else a uniform number.

    With u = C² − (m−1)C, pairs of factors are (C−k)(C−(m−1−k)) = u + k(m−1−k), so that half
    of the multiplications are spared.

    Guarantee:
        Let C be below the prime and one party's part of the factor be uniform and secret. Then
        the result is zero for C < m, and for every C ≥ m uniform: it says whether C ≥ m and
        nothing else. (For C ≥ m no factor C − k is zero modulo the prime, so their product
        is invertible.)
    """

    min_points: int

    @property
    def depth(self) -> int:
        """How many multiplications follow one another.

        Example:
            >>> [DenseCells(m).depth for m in (1, 2, 3, 4, 5, 8)]
            [1, 2, 2, 3, 3, 4]
        """
        waiting = [0, *([0] if self.min_points % 2 else []), *([1] * (self.min_points // 2))]
        while len(waiting) > 1:
            first, second, *rest = sorted(waiting)
            waiting = [max(first, second) + 1, *rest]
        return waiting[0]

    def __call__(self, arithmetic: Arithmetic[Value], inputs: Sequence[Value], /) -> Value:
        """Compute it from counts and factors."""
        count, factor = inputs
        last = self.min_points - 1
        waiting = [(0, factor)]
        if self.min_points % 2:
            waiting.append((0, arithmetic.add_number(count, -(last // 2)) if last else count))
        if last:
            square = arithmetic.multiply(count, count)
            u = arithmetic.subtract(square, arithmetic.repeat(count, last))
            for k in range(self.min_points // 2):
                waiting.append((1, arithmetic.add_number(u, k * (last - k)) if k else u))
        while len(waiting) > 1:  # the shallowest two first: that keeps the whole flat
            (first, left), (second, right), *rest = sorted(waiting, key=lambda each: each[0])
            waiting = [(max(first, second) + 1, arithmetic.multiply(left, right)), *rest]
        return waiting[0][1]


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of ciphertexts and one opening."""

    parameters: Parameters
    """Of the key of this step."""
    inputs: int
    """Vectors each party encrypts."""
    circuit: ArithmeticCircuit | None = None
    """What the server computes from their totals; left out, the first total is opened."""

    def expected_noise(self, contributors: int) -> NoiseBound:
        """Return the bound that the step's result carries if so many parties contributed."""
        model = NoiseModel(self.parameters)
        total = functools.reduce(model.add, [model.fresh()] * contributors)
        if self.circuit is None:
            return total
        return model.lower(self.circuit(model, [total] * self.inputs), 0)

    def evaluate(self, evaluator: Evaluator, inputs: Sequence[Sequence[Ciphertext]]) -> Ciphertext:
        """Compute the step's result from all contributors' ciphertexts of each of its vectors."""
        totals = [evaluator.total(terms) for terms in inputs]
        if self.circuit is None:
            return totals[0]
        return evaluator.lower(self.circuit(evaluator, totals), 0)


@dataclass(frozen=True, slots=True)
class Task:
    """What is computed together, exactly: PF-Mean or PF-DBSCAN. All of it is public.

    Guarantee:
        Of clusters every opened row holds settings of at least `agreed.min_points` parties: those
        who are in the first total are in the second (`urna.systems.combine.server`, and each party
        checks it).

    Assumes:
        Parties that follow the protocol, and whose search stays the same for both steps. Of
        `min_points` parties all but one can subtract what they put in.

    Args:
        parties: How many hold the key.
        threshold: How many must help to open, and at least contribute.
        agreed: What is combined.
    """

    parties: int
    threshold: int
    agreed: Averaging | Clustering

    def __post_init__(self) -> None:
        if self.parties < 2:
            raise ParameterError(
                "encryption hides what parties put in from each other: it takes 2 or more with a "
                f"search of their own, and there is {self.parties}"
            )
        if not 2 <= self.threshold <= self.parties:
            raise ParameterError(
                f"2 to {self.parties} of {self.parties} parties must help to open, got "
                f"{self.threshold}"
            )
        if isinstance(self.agreed, Clustering) and self.agreed.min_points < 2:
            raise ParameterError(
                "what is opened of a cluster is exact: at least 2 clients must make a cell dense, "
                f"got min_points {self.agreed.min_points}"
            )

    @property
    def fewest_in_result(self) -> int:
        """Of how many parties at least every sum is that is opened.

        Those who must help to open must contribute; of clusters, those who make a cell dense.
        """
        if isinstance(self.agreed, Clustering):
            return min(self.threshold, self.agreed.min_points)
        return self.threshold

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in order: of a mean one sum; the test for dense cells, and clusters' sums."""
        agreed, dense = self.agreed, []
        if isinstance(agreed, Clustering):
            width = agreed.grid.most_clusters * agreed.row
            dense = [_dense_step(agreed.min_points, agreed.grid.size, self.parties, self.threshold)]
        else:
            width = agreed.dimension
        largest = self.parties * agreed.most << PLACE_BITS  # of so many settings in whole steps
        parameters = _sums(self.parties, self.threshold, width, largest)
        return (*dense, Step(parameters, 1))

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Integers], source: SecretSource
    ) -> list[Integers]:
        """Return what a party encrypts in a step, given what earlier steps showed.

        Its sums and count; or its cells and its part of the random factors, then its clusters'
        sums.
        """
        if isinstance(self.agreed, Averaging):
            return [self.agreed.vector(search)]
        points = self.agreed.points(search)
        if number == 0:
            cells = np.tile(self.agreed.occupied(points), COPIES)
            return [cells, uniform_entries(self.steps[0].parameters, source)]
        return [self.agreed.sums(points, shown[0].astype(bool)).reshape(-1)]

    def shown(self, number: int, opened: Integers) -> Integers:
        """Return what everybody is told of an opened step: totals, or the mask of dense cells.

        A cell is dense where any of its copies is not zero.
        """
        if isinstance(self.agreed, Averaging):
            return opened[: self.agreed.dimension]
        if number == 0:
            copies = opened[: COPIES * self.agreed.grid.size].reshape(COPIES, -1)
            return np.asarray(copies.any(axis=0), dtype=np.int64)
        return opened

    def read(self, shown: Sequence[Integers]) -> Combined:
        """Return the result of all steps: the mean, or all clusters and the best one's centre."""
        if isinstance(self.agreed, Averaging):
            return self.agreed.read(shown[0])
        dense = shown[0].astype(bool)
        clusters = int(self.agreed.grid.clusters(dense).max(initial=-1)) + 1
        rows = shown[1][: clusters * self.agreed.row]
        return self.agreed.read(dense, rows.reshape(clusters, self.agreed.row))

    def among(self, parties: int) -> "Task":
        """Return the same task for fewer parties."""
        return Task(parties, min(self.threshold, parties), self.agreed)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "kind": "dbscan" if isinstance(self.agreed, Clustering) else "mean",
            "parties": self.parties,
            "threshold": self.threshold,
            "agreed": self.agreed.as_mapping(),
        }


def digest_of(task: Task) -> bytes:
    """Return 32 bytes that stand for a task."""
    text = json.dumps(task.as_mapping(), sort_keys=True, allow_nan=False)
    return hashlib.sha256(b"urna combine task\0" + text.encode()).digest()


def read_task(mapping: Mapping[str, Any]) -> Task:
    """Read what a task's `as_mapping` wrote; refuse what is no task, or cannot be."""
    try:
        kinds: Mapping[str, type[Averaging | Clustering]] = {
            "mean": Averaging,
            "dbscan": Clustering,
        }
        agreed = kinds[mapping["kind"]]
        parties, threshold = int(mapping["parties"]), int(mapping["threshold"])
        return Task(parties, threshold, agreed.from_mapping(mapping["agreed"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParameterError("the task cannot be read") from error


@functools.lru_cache(maxsize=16)
def _sums(parties: int, threshold: int, width: int, largest: int) -> Parameters:
    modulus = 1 << largest.bit_length()
    return additive(parties=parties, width=width, plaintext_modulus=modulus, threshold=threshold)


@functools.lru_cache(maxsize=16)
def _dense_step(min_points: int, cells: int, parties: int, threshold: int) -> Step:
    circuit = DenseCells(min_points)
    parameters = levelled(
        circuit,
        parties=parties,
        width=COPIES * cells,
        depth=circuit.depth,
        inputs=2,
        plaintext_modulus=_PRIME,
        threshold=threshold,
    )
    return Step(parameters, 2, circuit)

"""What parties compute together under encryption, as a public list of steps.

A task says for every step which vectors a party encrypts, what the server computes from their
totals, and what is then opened. Parties and server build it from the same agreement, so a party
knows which circuit a request to open must come from.

Guarantee:
    Of a step the opened totals become known, and nothing else: for `MeanTask` the pooled sums
    and the pooled count; for `DbscanTask` one bit per cell, and then every cluster's sums
    and count.

Assumes:
    What `urna.protocols.he` assumes: parties and a server that are honest but curious.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from urna.errors import ParameterError
from urna.protocols.he import (
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
from urna.systems.combine.circuits import DenseCells
from urna.systems.combine.federated import Averaging, Clustering, Integers
from urna.systems.combine.frame import PLACE_BITS
from urna.systems.combine.searches import LocalSearch
from urna.systems.combine.strategies import Combined

__all__ = [
    "COPIES",
    "DbscanTask",
    "MeanTask",
    "Step",
    "Task",
    "read_task",
]

COPIES = 3
"""A uniform factor is zero once in 65,537: three copies of a dense cell are, 4 times in 10^15."""

_PRIME = 65_537


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of ciphertexts and one opening."""

    name: str
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
        """Compute the step's result from every contributor's ciphertexts.

        Args:
            evaluator: Computes under the step's key.
            inputs: For each vector of the step, all contributors' ciphertexts.
        """
        totals = [evaluator.total(terms) for terms in inputs]
        if self.circuit is None:
            return totals[0]
        return evaluator.lower(self.circuit(evaluator, totals), 0)


class Task(Protocol):
    """What is computed together. All of it is public."""

    @property
    def parties(self) -> int:
        """How many hold the key."""
        ...

    @property
    def threshold(self) -> int:
        """How many must help to open, and at least contribute."""
        ...

    @property
    def fewest_in_result(self) -> int:
        """Of how many parties at least every sum is that is opened."""
        ...

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        ...

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Integers], source: SecretSource
    ) -> list[Integers]:
        """Return what a party encrypts in a step, given what earlier steps showed."""
        ...

    def shown(self, number: int, opened: Integers) -> Integers:
        """Return what everybody is told of an opened step."""
        ...

    def read(self, shown: Sequence[Integers]) -> Combined:
        """Return the result of all steps."""
        ...

    def among(self, parties: int) -> "Task":
        """Return the same task for fewer parties."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        ...


def digest_of(task: Task) -> bytes:
    """Return 32 bytes that stand for a task."""
    text = json.dumps(task.as_mapping(), sort_keys=True, allow_nan=False)
    return hashlib.sha256(b"urna combine task\0" + text.encode()).digest()


@dataclass(frozen=True, slots=True)
class _Together:
    """Who takes part."""

    parties: int
    threshold: int

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


@dataclass(frozen=True, slots=True)
class MeanTask(_Together):
    """PF-Mean, exact: the pooled sums and the pooled count are opened. Additions only."""

    agreed: Averaging

    @property
    def fewest_in_result(self) -> int:
        """Those who must help to open must contribute."""
        return self.threshold

    @property
    def steps(self) -> tuple[Step, ...]:
        """One sum."""
        width = self.agreed.dimension
        return (Step("mean", _additive(self, width, self.agreed.most), 1),)

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Integers], source: SecretSource
    ) -> list[Integers]:
        """Return a party's sums and count."""
        del number, shown, source
        return [self.agreed.vector(search)]

    def shown(self, number: int, opened: Integers) -> Integers:
        """Return the totals."""
        del number
        return opened[: self.agreed.dimension]

    def read(self, shown: Sequence[Integers]) -> Combined:
        """Return the mean."""
        return self.agreed.read(shown[0])

    def among(self, parties: int) -> "MeanTask":
        """Return the same task for fewer parties."""
        return MeanTask(parties, min(self.threshold, parties), self.agreed)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return _mapping("mean", self, self.agreed.as_mapping())


@dataclass(frozen=True, slots=True)
class DbscanTask(_Together):
    """PF-DBSCAN: which cells are dense, and then the sums of every cluster. Exact.

    Guarantee:
        Every opened row holds settings of at least `agreed.min_points` parties: those who are in
        the first total are in the second (`urna.systems.combine.server`, and each party checks it).

    Assumes:
        Parties that follow the protocol, and whose search stays the same for both steps. Of
        `min_points` parties all but one can subtract what they put in.
    """

    agreed: Clustering

    def __post_init__(self) -> None:
        _Together.__post_init__(self)
        if self.agreed.min_points < 2:
            raise ParameterError(
                "what is opened of a cluster is exact: at least 2 clients must make a cell dense, "
                f"got min_points {self.agreed.min_points}"
            )

    @property
    def fewest_in_result(self) -> int:
        """As many as make a cell dense: each cluster's sums are opened."""
        return min(self.threshold, self.agreed.min_points)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The test for dense cells, and the clusters' sums."""
        widest = self.agreed.grid.most_clusters * self.agreed.row
        return (
            _dense_step(
                self.agreed.min_points, self.agreed.grid.size, self.parties, self.threshold
            ),
            Step("clusters", _additive(self, widest, self.agreed.most), 1),
        )

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Integers], source: SecretSource
    ) -> list[Integers]:
        """Return a party's cells and its part of the random factors, or its clusters' sums."""
        points = self.agreed.points(search)
        if number == 0:
            cells = np.tile(self.agreed.occupied(points), COPIES)
            return [cells, uniform_entries(self.steps[0].parameters, source)]
        return [self.agreed.sums(points, shown[0].astype(bool)).reshape(-1)]

    def shown(self, number: int, opened: Integers) -> Integers:
        """Return the mask of dense cells: 1 where any copy is not zero; or the clusters' sums."""
        if number == 0:
            copies = opened[: COPIES * self.agreed.grid.size].reshape(COPIES, -1)
            return np.asarray(copies.any(axis=0), dtype=np.int64)
        return opened

    def read(self, shown: Sequence[Integers]) -> Combined:
        """Return the centre of the best cluster, and all clusters."""
        dense = shown[0].astype(bool)
        clusters = int(self.agreed.grid.clusters(dense).max(initial=-1)) + 1
        rows = shown[1][: clusters * self.agreed.row]
        return self.agreed.read(dense, rows.reshape(clusters, self.agreed.row))

    def among(self, parties: int) -> "DbscanTask":
        """Return the same task for fewer parties."""
        return DbscanTask(parties, min(self.threshold, parties), self.agreed)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return _mapping("dbscan", self, self.agreed.as_mapping())


def read_task(mapping: Mapping[str, Any]) -> MeanTask | DbscanTask:
    """Read what a task's `as_mapping` wrote.

    Raises:
        ParameterError: It is no task, or one that cannot be.
    """
    try:
        kind, agreed = mapping["kind"], mapping["agreed"]
        parties, threshold = int(mapping["parties"]), int(mapping["threshold"])
        if kind == "mean":
            return MeanTask(parties, threshold, Averaging.from_mapping(agreed))
        if kind == "dbscan":
            return DbscanTask(parties, threshold, Clustering.from_mapping(agreed))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParameterError("the task cannot be read") from error
    raise ParameterError("this kind of task is not known")


def _mapping(kind: str, task: _Together, agreed: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "parties": task.parties, "threshold": task.threshold, "agreed": agreed}


def _additive(task: _Together, width: int, most: int) -> Parameters:
    """Plan sums of so many settings in whole steps."""
    return _sums(task.parties, task.threshold, width, (task.parties * most << PLACE_BITS))


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
    return Step("dense cells", parameters, 2, circuit)

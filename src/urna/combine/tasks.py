"""What parties compute together under encryption, as a public list of steps.

A task says for every step which vectors a party encrypts, what the server computes from their
totals, and what is then opened. Parties and server build it from the same agreement, so a party
knows which circuit a request to open must come from.

Guarantee:
    Of a step the opened totals become known, and nothing else: for `MeanTask` the pooled sums
    and the pooled count; for `HiddenMeanTask` the mean, to a stated precision; for
    `DbscanTask` one bit per cell, and then every cluster's sums and count.

Assumes:
    What `urna.he` assumes: parties and a server that are honest but curious.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from urna.combine.circuits import DenseCells, Quotient
from urna.combine.federated import Averaging, Clustering, Integers
from urna.combine.frame import PLACE_BITS, Floats
from urna.combine.searches import LocalSearch
from urna.combine.strategies import Combined
from urna.errors import ParameterError
from urna.he import (
    Ciphertext,
    Circuit,
    Evaluator,
    Noise,
    Parameters,
    Reciprocal,
    additive,
    approximate,
    levelled,
    noise_model,
    reciprocal,
    uniform_entries,
)
from urna.randomness import SecretSource

__all__ = [
    "COPIES",
    "DbscanTask",
    "HiddenMeanTask",
    "MeanTask",
    "Opened",
    "Step",
    "Task",
    "read_task",
]

Opened = Integers | Floats
"""What a step opened: one entry per slot."""

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
    circuit: Circuit | None = None
    """What the server computes from their totals; left out, the first total is opened."""

    def expected_noise(self, contributors: int) -> Noise:
        """Return the bound that the step's result carries if so many parties contributed."""
        model = noise_model(self.parameters)
        fresh = model.fresh(self.parameters.depth)
        total = functools.reduce(model.add, [fresh] * contributors)
        if self.circuit is None:
            return total
        result = self.circuit(model, [total] * self.inputs)
        return model.lower(result, 0) if self.parameters.exact else result

    def evaluate(self, evaluator: Evaluator, inputs: Sequence[Sequence[Ciphertext]]) -> Ciphertext:
        """Compute the step's result from every contributor's ciphertexts.

        Args:
            evaluator: Computes under the step's key.
            inputs: For each vector of the step, all contributors' ciphertexts.
        """
        totals = [evaluator.total(terms) for terms in inputs]
        if self.circuit is None:
            return totals[0]
        result = self.circuit(evaluator, totals)
        return evaluator.lower(result, 0) if self.parameters.exact else result


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
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""
        ...

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Opened], source: SecretSource
    ) -> list[Opened]:
        """Return what a party encrypts in a step, given what earlier steps showed."""
        ...

    def shown(self, number: int, opened: Opened) -> Opened:
        """Return what everybody is told of an opened step."""
        ...

    def read(self, shown: Sequence[Opened]) -> Combined:
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
    def steps(self) -> tuple[Step, ...]:
        """One sum."""
        width = self.agreed.dimension
        return (Step("mean", _additive(self, width, self.agreed.most), 1),)

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Opened], source: SecretSource
    ) -> list[Opened]:
        """Return a party's sums and count."""
        del number, shown, source
        return [self.agreed.vector(search)]

    def shown(self, number: int, opened: Opened) -> Opened:
        """Return the totals."""
        del number
        return np.asarray(opened[: self.agreed.dimension], dtype=np.int64)

    def read(self, shown: Sequence[Opened]) -> Combined:
        """Return the mean."""
        return self.agreed.read(np.asarray(shown[0], dtype=np.int64))

    def among(self, parties: int) -> "MeanTask":
        """Return the same task for fewer parties."""
        return MeanTask(parties, min(self.threshold, parties), self.agreed)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return _mapping("mean", self, self.agreed.as_mapping())


@dataclass(frozen=True, slots=True)
class HiddenMeanTask(_Together):
    """PF-Mean as in the paper: the mean is opened, sums and count are not.

    Every party keeps at least one setting. Only needed where the number of settings is a
    secret: where everybody keeps as many, the count is public anyway and `MeanTask` opens no
    more than this.

    Args:
        agreed: What is averaged; `most` at least 2.
        precision: How far the mean may be off, in parts of an axis. Ask for no more than is
            needed: a mean with many digits tells the count
            (docs/explanation/threshold-encryption.md).
    """

    agreed: Averaging
    precision: float = 1e-3

    def __post_init__(self) -> None:
        _Together.__post_init__(self)
        if self.agreed.most < 2:
            raise ParameterError(
                "where every client keeps one setting their number is public: open the sum"
            )
        if not 1e-5 <= self.precision < 1:
            raise ParameterError(f"the precision lies in [1e-5, 1), got {self.precision}")

    @property
    def steps(self) -> tuple[Step, ...]:
        """One quotient."""
        inverse = _reciprocal(self.threshold, self.parties * self.agreed.most, self.precision / 2)
        return (_quotient_step(self, inverse),)

    def vectors(
        self, number: int, search: LocalSearch, shown: Sequence[Opened], source: SecretSource
    ) -> list[Opened]:
        """Return a party's sums, and its count once for every axis, scaled to within ±1."""
        del number, shown, source
        *sums, count = self.agreed.vector(search).tolist()
        if count < 1:
            raise ParameterError("a party of a mean with a hidden count keeps at least one setting")
        lowest, highest = self.threshold, self.parties * self.agreed.most
        return [
            np.array(sums) / (highest << PLACE_BITS),
            np.full(len(sums), 2 * count / (highest - lowest)),
        ]

    def shown(self, number: int, opened: Opened) -> Opened:
        """Return the mean."""
        del number
        return np.asarray(opened[: self.agreed.dimension - 1], dtype=np.float64)

    def read(self, shown: Sequence[Opened]) -> Combined:
        """Return the setting of the mean."""
        return Combined(self.agreed.frame.setting([float(part) for part in shown[0]]))

    def among(self, parties: int) -> "HiddenMeanTask":
        """Return the same task for fewer parties."""
        threshold = min(self.threshold, parties)
        return HiddenMeanTask(parties, threshold, self.agreed, self.precision)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        more = {**self.agreed.as_mapping(), "precision": self.precision}
        return _mapping("hidden mean", self, more)


@dataclass(frozen=True, slots=True)
class DbscanTask(_Together):
    """PF-DBSCAN: which cells are dense, and then the sums of every cluster. Exact."""

    agreed: Clustering

    def __post_init__(self) -> None:
        _Together.__post_init__(self)
        if self.parties * self.agreed.most >= _PRIME:
            raise ParameterError(
                f"{self.parties} parties with {self.agreed.most} settings each could count beyond "
                f"{_PRIME}; let them keep fewer"
            )

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
        self, number: int, search: LocalSearch, shown: Sequence[Opened], source: SecretSource
    ) -> list[Opened]:
        """Return a party's counts and its part of the random factors, or its clusters' sums."""
        points = self.agreed.points(search)
        if number == 0:
            counts = np.tile(self.agreed.counts(points), COPIES)
            return [counts, uniform_entries(self.steps[0].parameters, source)]
        return [self.agreed.sums(points, shown[0].astype(bool)).reshape(-1)]

    def shown(self, number: int, opened: Opened) -> Opened:
        """Return the mask of dense cells: 1 where any copy is not zero; or the clusters' sums."""
        if number == 0:
            copies = opened[: COPIES * self.agreed.grid.size].reshape(COPIES, -1)
            return np.asarray(copies.any(axis=0), dtype=np.int64)
        return np.asarray(opened, dtype=np.int64)

    def read(self, shown: Sequence[Opened]) -> Combined:
        """Return the centre of the best cluster, and all clusters."""
        dense = shown[0].astype(bool)
        clusters = int(self.agreed.grid.clusters(dense).max(initial=-1)) + 1
        rows = np.asarray(shown[1][: clusters * self.agreed.row], dtype=np.int64)
        return self.agreed.read(dense, rows.reshape(clusters, self.agreed.row))

    def among(self, parties: int) -> "DbscanTask":
        """Return the same task for fewer parties."""
        return DbscanTask(parties, min(self.threshold, parties), self.agreed)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return _mapping("dbscan", self, self.agreed.as_mapping())


def read_task(mapping: Mapping[str, Any]) -> MeanTask | HiddenMeanTask | DbscanTask:
    """Read what a task's `as_mapping` wrote.

    Raises:
        ParameterError: It is no task, or one that cannot be.
    """
    try:
        kind, agreed = mapping["kind"], mapping["agreed"]
        parties, threshold = int(mapping["parties"]), int(mapping["threshold"])
        if kind == "mean":
            return MeanTask(parties, threshold, Averaging.from_mapping(agreed))
        if kind == "hidden mean":
            averaging, precision = Averaging.from_mapping(agreed), float(agreed["precision"])
            return HiddenMeanTask(parties, threshold, averaging, precision)
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


@functools.lru_cache(maxsize=16)
def _reciprocal(lowest: int, highest: int, error: float) -> Reciprocal:
    """Return the polynomial of least degree that is close enough to 1/x."""
    found = None
    for degree in range(1, min(63, highest - lowest)):
        found = reciprocal(lowest, highest, degree)
        if found.relative_error <= error:
            return found
    if found is None:
        raise ParameterError("a hidden count needs more possible counts; open the sum instead")
    raise ParameterError(
        f"no polynomial of degree 62 divides by {lowest} to {highest} to within {error:g}; let "
        "clients keep fewer settings, or ask for less precision"
    )


@functools.lru_cache(maxsize=8)
def _quotient_step(task: HiddenMeanTask, inverse: Reciprocal) -> Step:
    circuit = Quotient(inverse)
    parameters = approximate(
        circuit,
        parties=task.parties,
        width=task.agreed.dimension - 1,
        depth=circuit.depth,
        inputs=2,
        precision=task.precision / 2,
        threshold=task.threshold,
    )
    return Step("mean", parameters, 2, circuit)

"""What a client computes from its records, and how the sum of it becomes a model.

A learner is a public value: everything in it is announced before anybody computes. It says what
each client's vector is, how far a protected unit can move it, and what is done with the sum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.privacy import Unit
from urna.systems.average.schema import MOST_RECORDS, Matrix, Schema
from urna.tally import Encoding

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solved:
    """A model read out of a noisy sum."""

    weights: Matrix
    """(width, outputs), for rows in units of the clip norm."""
    facts: Mapping[str, Any]
    """What else was read, in plain values."""


class AverageLearner(Protocol):
    """One message, one model."""

    @property
    def kind(self) -> str:
        """Its name."""
        ...

    @property
    def schema(self) -> Schema:
        """What the clients' tables hold."""
        ...

    @property
    def unit(self) -> Unit:
        """What is protected."""
        ...

    @property
    def group(self) -> int:
        """Records of one client that are protected together; of a client, 1."""
        ...

    @property
    def dimension(self) -> int:
        """Numbers that a client sends."""
        ...

    def describe(self) -> str:
        """Say in a few words what it is."""
        ...

    def encoding(self, excess: float) -> Encoding:
        """Return how a client's vector becomes integers, with what is proven of its moves."""
        ...

    def vectors(self, clients: Sequence[Samples]) -> Iterator[tuple[int, Vector]]:
        """Yield every client's place and vector, in any order.

        Whatever records hold, a vector comes out. A client without enough records gives
        zeros: it abstains.
        """
        ...

    def solved(self, total: Vector, *, clients: int, std: float) -> Solved:
        """Return the model behind the noisy sum of so many clients' vectors.

        Args:
            total: The decoded sum.
            clients: How many contributions are in it.
            std: Standard deviation of the noise in each entry.
        """
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        ...


def check_named(
    learner: AverageLearner, schema: Schema, group: int, settings: Mapping[str, Any] | None
) -> None:
    """Refuse what is said beside a learner and would not be heard.

    Args:
        learner: A learner, with everything in it.
        schema: The schema named beside it.
        group: The group named beside it; 1 where none is.
        settings: The settings named beside it.

    Raises:
        ParameterError: Schema or group are others than the learner's, or there are settings.
    """
    if learner.schema != schema or settings or group not in (1, learner.group):
        raise ParameterError("a learner has its own schema, group and settings: name them there")


def check_samples(clients: Sequence[Samples], schema: Schema) -> None:
    """Refuse tables of another form than announced, before anything is computed or spent.

    Only forms are looked at: numbers of columns and records. What records hold plays no part.

    Raises:
        ParameterError: It names the client.
    """
    for place, samples in enumerate(clients):
        shape = np.shape(samples.features)
        if len(shape) != 2 or shape[1] != schema.features:
            raise ParameterError(
                f"client {place}: records have {schema.features} features, these have shape "
                f"{tuple(shape[1:])}"
            )
        if np.shape(samples.targets) != shape[:1]:
            raise ParameterError(
                f"client {place}: {shape[0]:,} records have as many targets, one each; these have "
                f"shape {np.shape(samples.targets)}"
            )
        # Where there are ids, one record may have any number of rows.
        if count_records(samples) > MOST_RECORDS:
            raise ParameterError(f"client {place}: a client has at most {MOST_RECORDS:,} records")


def check_spec(unit: Unit, group: int, points: int) -> None:
    """Refuse units, groups and numbers of records that cannot be.

    Raises:
        ParameterError: They cannot.
    """
    if type(group) is not int or group < 1:
        raise ParameterError(f"records protected together are 1 or more, got {group}")
    if type(points) is not int or points < 1:
        raise ParameterError(
            f"a number of records is a whole number of at least 1, got {points}. Clients without "
            "records can be left out, or asked for at least one by `points=1`, and abstain"
        )
    if points > MOST_RECORDS:
        raise ParameterError(f"a client has at most {MOST_RECORDS:,} records, got {points:,}")
    if unit is Unit.CLIENT and group > 1:
        raise ParameterError(
            "where whole clients are protected all their records are: leave `group` out"
        )

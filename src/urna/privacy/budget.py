"""What is promised: epsilon and delta, between which neighbours, and computed how."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import StrEnum
from typing import Any

from urna.errors import ParameterError

__all__ = ["Adjacency", "Budget", "PrivacyStatement", "Unit", "rounded_down", "rounded_up"]

_LARGEST = 1e6  # epsilons beyond it count as infinite


def rounded_up(value: float) -> str:
    """Print four digits of what was spent, never less than the truth.

    Example:
        >>> rounded_up(0.999912), rounded_up(1e-05), rounded_up(math.inf)
        ('1', '1e-05', 'inf')
    """
    return f"{float(Context(4, ROUND_CEILING).create_decimal(repr(value))):g}"


def rounded_down(value: float) -> str:
    """Print four digits of what is left, never more than the truth.

    Example:
        >>> rounded_down(0.55559)
        '0.5555'
    """
    return f"{float(Context(4, ROUND_FLOOR).create_decimal(repr(value))):g}"


class Unit(StrEnum):
    """Whose data may be exchanged without anybody noticing."""

    CLIENT = "client"
    """All data of one client."""
    RECORD = "record"
    """One record of one client; a whole client is not protected at the same epsilon."""


class Adjacency(StrEnum):
    """Which two data sets must look alike. Printed beside every epsilon."""

    REPLACE_ONE_CLIENT = "replace-one-client"
    """One client's whole data is replaced by any other data (the default)."""
    ZERO_OUT_CLIENT = "zero-out-client"
    """One client's contribution is replaced by nothing. Weaker; only when asked for."""
    REPLACE_ONE_RECORD = "replace-one-record"
    """The content of one record of one client is replaced by any other, its id staying what it
    is. Weaker; only when asked for."""
    ADD_OR_REMOVE_ONE_RECORD = "add-or-remove-one-record"
    """One client holds one record more, or less. How Opacus counts. Weaker than replacing one at
    the same epsilon; only when asked for."""

    @property
    def unit(self) -> Unit:
        """What is protected: a client or a record."""
        return Unit.RECORD if self.value.endswith(Unit.RECORD) else Unit.CLIENT

    @property
    def replaces(self) -> bool:
        """Whether data are replaced, which is leaving them out and putting others in."""
        return self in (Adjacency.REPLACE_ONE_CLIENT, Adjacency.REPLACE_ONE_RECORD)

    @property
    def left_out(self) -> "Adjacency":
        """The relation of the same unit under which its data are left out, or put in."""
        by_record = self.unit is Unit.RECORD
        return Adjacency.ADD_OR_REMOVE_ONE_RECORD if by_record else Adjacency.ZERO_OUT_CLIENT

    @property
    def described(self) -> str:
        """What may differ between two neighbours, in words."""
        return _DESCRIBED[self]


_DESCRIBED = {
    Adjacency.REPLACE_ONE_CLIENT: "all data of one client replaced",
    Adjacency.ZERO_OUT_CLIENT: "one client's contribution left out",
    Adjacency.REPLACE_ONE_RECORD: "one record of one client replaced",
    Adjacency.ADD_OR_REMOVE_ONE_RECORD: "one record of one client added or removed",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """An (epsilon, delta) limit.

    Raises:
        ParameterError: `epsilon` is not finite and positive, or `delta` is not in (0, 1).

    Example:
        >>> Budget(epsilon=1.0, delta=1e-5)
        Budget(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ParameterError(f"epsilon must be finite and positive, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must lie strictly between 0 and 1, got {self.delta}")


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """Everything a reader needs in order to quote an epsilon."""

    epsilon: float
    """Infinite when the run was not private."""
    delta: float
    adjacency: Adjacency
    accountant: str
    caveats: tuple[str, ...] = ()
    """What the number rests on, or why there is none, in whole sentences."""

    @property
    def private(self) -> bool:
        """Whether any finite guarantee is claimed."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        both = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-DP"
        promise = both if self.private else "NOT PRIVATE"
        relation = str(self.adjacency)
        if self.adjacency.unit is Unit.RECORD:
            relation += f" ({self.adjacency.described})"  # in full: it is not the usual promise
        head = f"{promise}, {relation}, accountant: {self.accountant}"
        return ". ".join([head, *(caveat.rstrip(".") for caveat in self.caveats)]) + "."

    def as_mapping(self) -> dict[str, object]:
        """Return plain values for JSON; an infinite epsilon is written as null."""
        return {
            "private": self.private,
            "epsilon": self.epsilon if self.private else None,
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "unit": str(self.adjacency.unit),
            "accountant": self.accountant,
            "caveats": list(self.caveats),
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "PrivacyStatement":
        """Read what `as_mapping` wrote."""
        epsilon = math.inf if mapping["epsilon"] is None else float(mapping["epsilon"])
        delta = float(mapping["delta"])
        if not (0 <= epsilon <= _LARGEST or epsilon == math.inf) or not 0 <= delta <= 1:
            raise ParameterError(
                f"a statement has 0 <= epsilon <= {_LARGEST:g} and 0 <= delta <= 1; got "
                f"epsilon {epsilon:g}, delta {delta:g}"
            )
        return cls(
            epsilon,
            delta,
            Adjacency(mapping["adjacency"]),
            str(mapping["accountant"]),
            tuple(map(str, mapping["caveats"])),
        )

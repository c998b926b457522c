"""What is summed: a vote, a statistic, and whatever else is announced by name.

A subject says what each node puts in, and so what a valid contribution is. A node answers only
subjects that its policy grants by name and that something mounted on it can contribute to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from urna.errors import ProtocolError
from urna.tally import BoundedVector, TallyPlan, Terms, plan_tally


class Subject(Protocol):
    """What one private sum, or each of a series, is about."""

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        ...

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        ...

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        """Return the plan of one round, so that all rounds keep within the terms' budget."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        ...


@dataclass(frozen=True, slots=True)
class Statistic:
    """A vector of bounded norm that every node computes by a rule both sides know by name.

    Args:
        name: The statistic's name; a policy grants it, a node's function computes it.
        vector: What a valid contribution is.
    """

    kind: ClassVar[str] = "statistic"
    name: str
    vector: BoundedVector

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return f"statistic {self.name}"

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        """Return the plan of one round."""
        return plan_tally(terms, self.vector, rounds=rounds)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {"name": self.name, "vector": self.vector.as_mapping()}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Statistic":
        """Read what `as_mapping` wrote."""
        return cls(str(mapping["name"]), BoundedVector.read(mapping["vector"]))

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many entries are announced."""
        return int(mapping["vector"]["dimension"])


MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading plain values raises that somebody else wrote."""

_READERS: dict[str, Callable[[Mapping[str, Any]], Subject]] = {}
_SIZES: dict[str, Callable[[Mapping[str, Any]], int]] = {}
ReadT = TypeVar("ReadT")


def register(
    kind: str,
    read: Callable[[Mapping[str, Any]], Subject],
    size: Callable[[Mapping[str, Any]], int],
) -> None:
    """Make a kind of subject known.

    Args:
        kind: Its name in announcements and policies.
        read: Makes the subject from plain values.
        size: Returns how many entries its vector has, from plain values and without making
            anything large.
    """
    _READERS[kind], _SIZES[kind] = read, size


register("statistic", Statistic.read, Statistic.size)


def read_subject(kind: str, mapping: Mapping[str, Any]) -> Subject:
    """Read a subject, or raise ProtocolError: the kind is unknown, or it cannot be read."""
    return _read(_READERS, kind, mapping)


def size_of(kind: str, mapping: Mapping[str, Any]) -> int:
    """Return how many entries a subject's vector has, without making it; else as above."""
    return _read(_SIZES, kind, mapping)


def _read(
    readers: Mapping[str, Callable[[Mapping[str, Any]], ReadT]],
    kind: str,
    mapping: Mapping[str, Any],
) -> ReadT:
    if kind not in readers:
        raise ProtocolError(f"this node does not know subjects of the kind {kind[:40]!r}")
    try:
        return readers[kind](mapping)
    except MALFORMED as error:
        raise ProtocolError(f"the subject ({kind}) cannot be read") from error

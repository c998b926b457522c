"""The terms of a private sum: everything the parties agree on before anybody contributes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypedDict, TypeVar

from urna.errors import ParameterError, UnknownName
from urna.noise import FAMILIES, Noise
from urna.privacy import Adjacency, Budget, Unit
from urna.privacy.distributions import SKELLAM
from urna.protocols.secagg import Removal, ServerModel

MOST_SHARDS = 100_000
"""Contributions one client may add up, one for each shard of its records."""

MOST_PRECISE = 8
"""Tolerated dropouts up to which excess noise is removed precisely, one component for each."""

_EXPONENT = re.compile(r"^[^e]*(?:e[-+]?[0-9]{1,2})?\s*$")  # none, or of two digits

Name = TypeVar("Name", bound=StrEnum)

Part = float | str | Fraction
"""A part of the clients: 0.2, "1/3" or Fraction(1, 3)."""


class Options(TypedDict, total=False):
    """What may be said of a sum beside its budget, by name; `Terms` explains each."""

    dropout: Part
    colluding: Part
    adjacency: Adjacency
    shards: int
    family: str
    server: ServerModel


@dataclass(frozen=True, slots=True)
class Terms:
    """Who takes part, what it may cost, and what may go wrong on the way.

    Parts of the clients are exact fractions and numbers of clients are rounded up: a third of
    six are two, and where a fifth of four may drop out, one may.

    Args:
        clients: How many clients are invited.
        budget: What the sum, or all sums of a series together, may cost.
        dropout: Largest part of the clients that may drop out.
        colluding: Largest part that may tell the server their noise.
        adjacency: Between which data sets the guarantee holds.
        shards: Contributions that each client adds up, one for each shard of its records;
            more than one needs `Adjacency.REPLACE_ONE_RECORD`.
        family: Name of the noise's family.
        server: Which server the sum is protected against.

    Raises:
        ParameterError: The terms contradict each other, or nobody honest would be left.

    Example:
        >>> terms = Terms.of(6, Budget(1.0, 1e-5), dropout=0.2, colluding="1/3")
        >>> terms.dropouts, terms.colluders, terms.honest
        (2, 2, 2)
    """

    clients: int
    budget: Budget
    dropout: Fraction = Fraction(0)
    colluding: Fraction = Fraction(0)
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT
    shards: int = 1
    family: str = SKELLAM.name
    server: ServerModel = ServerModel.HONEST_BUT_CURIOUS

    def __post_init__(self) -> None:
        if type(self.clients) is not int or self.clients < 2:
            raise ParameterError(
                f"a sum hides its parts among at least two clients, got {self.clients}"
            )
        if not isinstance(self.budget, Budget):
            raise ParameterError(
                f"budget is an (epsilon, delta), as in Budget(epsilon=1, delta=1e-5); got "
                f"{self.budget!r}"
            )
        if self.family not in FAMILIES:
            raise UnknownName("noise family", self.family, FAMILIES)
        for name, part in (("dropout", self.dropout), ("colluding", self.colluding)):
            if not isinstance(part, Fraction) or not 0 <= part < 1:
                raise ParameterError(f"{name} must be at least 0 and below 1, got {part}")
        self._check_shards()
        if self.honest < 1:
            raise ParameterError(
                f"of {self.clients} clients {self.dropouts} may drop out and {self.readers} may "
                "know noise (the colluding ones; at least one, who reads the result), so no "
                "honest client is sure to remain. Lower one of them, or ask more clients."
            )

    @classmethod
    def of(
        cls,
        clients: int,
        budget: Budget,
        *,
        dropout: Part = 0,
        colluding: Part = 0,
        adjacency: Adjacency | str = Adjacency.REPLACE_ONE_CLIENT,
        shards: int = 1,
        family: str = SKELLAM.name,
        server: ServerModel | str = ServerModel.HONEST_BUT_CURIOUS,
    ) -> "Terms":
        """Return terms from what people type.

        Raises:
            UnknownName: There is no such relation, family or kind of server.
        """
        return cls(
            clients,
            budget,
            exact_part("dropout", dropout),
            exact_part("colluding", colluding),
            _known("neighbouring relation", adjacency, Adjacency),
            shards,
            family,
            _known("kind of server", server, ServerModel),
        )

    @property
    def dropouts(self) -> int:
        """How many clients may drop out; one more and the round is aborted."""
        return math.ceil(self.clients * self.dropout)

    @property
    def colluders(self) -> int:
        """How many clients may collude with the server."""
        return math.ceil(self.clients * self.colluding)

    @property
    def readers(self) -> int:
        """How many clients' noise somebody may know: all colluders', at least one's own."""
        return max(1, self.colluders)

    @property
    def fewest(self) -> int:
        """Fewest clients with which a sum may be opened."""
        return self.clients - self.dropouts

    @property
    def honest(self) -> int:
        """Fewest clients whose noise is in the sum and unknown to any reader of it.

        In the worst case all who drop out are honest, so the two are subtracted, not
        multiplied. At least one client is always counted out: each learns the result and
        could subtract its own noise from it.
        """
        return self.fewest - self.readers

    @property
    def noise(self) -> Noise:
        """The family the noise comes from."""
        return FAMILIES[self.family]

    @property
    def removal(self) -> Removal:
        """How noise for dropouts that did not happen is removed, where it is removed at all."""
        if not self.noise.distribution.closed_under_addition:
            return Removal.NONE
        return Removal.PRECISE if self.dropouts <= MOST_PRECISE else Removal.APPROXIMATE

    def among(self, clients: int) -> "Terms":
        """Return the same terms for other clients, so many: the same part of them colludes."""
        return replace(self, clients=clients)

    def for_some(self, clients: int) -> "Terms":
        """Return the terms of a sum over only so many of these clients.

        Guarantee:
            Colluders stay counted among all these clients: min(⌈n·colluding⌉, m − 1) of the m,
            because all of them may be among the m.

        Raises:
            ParameterError: Nobody honest would be left.

        Example:
            >>> terms = Terms.of(100, Budget(1.0, 1e-5), colluding=0.1)
            >>> terms.for_some(20).colluders, terms.among(20).colluders
            (10, 2)
        """
        if clients >= self.clients:
            return self.among(clients)
        colluders = min(self.colluders, clients - 1)
        return replace(self, clients=clients, colluding=Fraction(colluders, clients))

    def costing(self, budget: Budget) -> "Terms":
        """Return the same terms under another budget."""
        return replace(self, budget=budget)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read` makes the same terms."""
        return {
            "clients": self.clients,
            "epsilon": float(self.budget.epsilon),
            "delta": float(self.budget.delta),
            "dropout": str(self.dropout),
            "colluding": str(self.colluding),
            "adjacency": str(self.adjacency),
            "shards": self.shards,
            "family": self.family,
            "server": str(self.server),
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Terms":
        """Read what `as_mapping` wrote.

        Raises:
            ParameterError: These are no terms.
        """
        try:
            return cls.of(
                mapping["clients"],
                Budget(float(mapping["epsilon"]), float(mapping["delta"])),
                dropout=str(mapping["dropout"]),
                colluding=str(mapping["colluding"]),
                adjacency=mapping["adjacency"],
                shards=mapping["shards"],
                family=str(mapping["family"]),
                server=mapping["server"],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ParameterError(f"the terms of a sum cannot be read: {error}") from error

    def _check_shards(self) -> None:
        if type(self.shards) is not int or not 1 <= self.shards <= MOST_SHARDS:
            raise ParameterError(
                f"shards must be a whole number in 1..{MOST_SHARDS:,}, got {self.shards}"
            )
        if self.shards > 1 and self.adjacency.unit is not Unit.RECORD:
            raise ParameterError(
                f"a client that adds up {self.shards} contributions can move the sum by all of "
                f"them, and the noise under {self.adjacency} is made for one. Ask for "
                f"{Adjacency.REPLACE_ONE_RECORD} (which protects single records, not whole "
                "clients), or for one shard."
            )


def _known(kind: str, value: str, names: type[Name]) -> Name:
    try:
        return names(value)
    except ValueError as error:
        raise UnknownName(kind, str(value), names) from error


def exact_part(name: str, value: Part) -> Fraction:
    """Return a part of the clients, exactly as it was typed: 0.29 is 29/100, "1/3" is 1/3.

    Raises:
        ParameterError: It is no number in [0, 1).

    Example:
        >>> exact_part("dropout", 0.29), exact_part("dropout", "1/3")
        (Fraction(29, 100), Fraction(1, 3))
    """
    text = repr(value) if isinstance(value, float) else value
    # A number with a large exponent takes longer to write out than anybody waits.
    if isinstance(text, str) and (len(text) > 60 or not _EXPONENT.search(text.lower())):
        raise ParameterError(f"{name} is written with at most 18 digits, got {text[:40]}")
    try:
        part = Fraction(text)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise ParameterError(
            f"{name} is a part of the clients, such as 0.2 or 1/3; got {value!r}"
        ) from error
    if not 0 <= part < 1:
        raise ParameterError(f"{name} must be at least 0 and below 1, got {value}")
    # A denominator of a thousand digits would make every later computation slow.
    if part.denominator > 10**18:
        raise ParameterError(f"{name} is written with at most 18 digits, got {str(value)[:40]}")
    return part

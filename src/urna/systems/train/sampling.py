"""Who takes part in which round.

Three ways, and what each does for privacy:

- everyone, in every round: the default;
- cohorts: in each round some, in turn, by a public order. Nobody takes part in more than his share
  of the rounds, and only those tell anything about him. Nothing has to be kept secret. All who
  collude may be in the same cohort, so a round counts out as many as collude in all;
- Poisson sampling: everybody sends something in every round, but puts in its update only if its own
  secret lot says so, and nothing but noise otherwise. This is what "amplification by sampling" asks
  for: the server does not know who was drawn, because it does not draw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from urna.errors import ParameterError, UnknownName
from urna.randomness import SecretSource
from urna.tally import Part, exact_part

__all__ = ["Cohorts", "Everyone", "PoissonSampling", "Sampling", "read_sampling"]

_LOT_BYTES = 16


class Sampling(Protocol):
    """Who takes part in which round."""

    @property
    def rate(self) -> Fraction | None:
        """Probability with which one who takes part puts anything in; None for surely."""
        ...

    def size(self, clients: int) -> int:
        """Return how many of all clients take part in each round."""
        ...

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return who takes part in a round, ascending; everything about it is public."""
        ...

    def counts(self, rounds: int, clients: int) -> int:
        """Return the most of the first so many rounds that any one client takes part in."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        ...


@dataclass(frozen=True, slots=True)
class Everyone:
    """All clients take part in every round."""

    @property
    def rate(self) -> Fraction | None:
        """None: all put something in."""
        return None

    def size(self, clients: int) -> int:
        """Return all of them."""
        return clients

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return all of them."""
        del number, seed
        return list(range(clients))

    def counts(self, rounds: int, clients: int) -> int:
        """Return all rounds."""
        del clients
        return rounds

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "everyone"}


@dataclass(frozen=True, slots=True)
class Cohorts:
    """A part of the clients in each round, in turn.

    Guarantee:
        After r rounds no client has taken part in more than ⌈r·m/n⌉ of them, m being the size
        of a cohort: the turns are consecutive places of one endless cycle over a public order,
        and of any r·m consecutive places at most ⌈r·m/n⌉ are equal modulo n.

    Assumes:
        Nothing of where colluding clients are. The order is public, so all of them may be in
        one client's cohort: `plan_training` counts out min(⌈n·colluding⌉, m − 1) of each.
    """

    part: Fraction

    @classmethod
    def of(cls, part: Part) -> "Cohorts":
        """Return cohorts of a part of the clients, as people type it."""
        exact = exact_part("the cohorts' part", part)
        if not exact:
            raise ParameterError("a cohort is a part of the clients above 0")
        return cls(exact)

    @property
    def rate(self) -> Fraction | None:
        """None: all of a cohort put something in."""
        return None

    def size(self, clients: int) -> int:
        """Return the size of a cohort."""
        return max(2, math.ceil(clients * self.part))

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return the cohort of a round."""
        size = self.size(clients)
        order = np.random.default_rng([0x434F48, seed]).permutation(clients)
        first = (number - 1) * size
        return sorted(int(order[place % clients]) for place in range(first, first + size))

    def counts(self, rounds: int, clients: int) -> int:
        """Return the most rounds that any client takes part in."""
        return math.ceil(Fraction(rounds * self.size(clients), clients))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "cohorts", "part": str(self.part)}


@dataclass(frozen=True, slots=True)
class PoissonSampling:
    """Everybody sends something, each puts in its update by its own secret lot.

    Assumes:
        Nobody learns a client's lots: a client trains or waits equally long whatever its lot
        says, and keeps its lots from everybody. Then less noise is enough.
    """

    part: Fraction

    @classmethod
    def of(cls, part: Part) -> "PoissonSampling":
        """Return lots of a probability, as people type it."""
        exact = exact_part("the probability of a lot", part)
        if not exact:
            raise ParameterError("a lot has a probability above 0")
        return cls(exact)

    @property
    def rate(self) -> Fraction | None:
        """The probability of putting something in."""
        return self.part

    def size(self, clients: int) -> int:
        """Return all of them."""
        return clients

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return all of them."""
        del number, seed
        return list(range(clients))

    def counts(self, rounds: int, clients: int) -> int:
        """Return all rounds."""
        del clients
        return rounds

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {"kind": "poisson", "part": str(self.part)}


def drawn(rate: Fraction | None, secrets: SecretSource) -> bool:
    """Draw one client's lot for one round, exactly to 2^-128."""
    if rate is None:
        return True
    number = int.from_bytes(secrets.take(_LOT_BYTES), "big")
    return number * rate.denominator < rate.numerator << (8 * _LOT_BYTES)


_KINDS: Mapping[str, type[Cohorts] | type[PoissonSampling]] = {
    "cohorts": Cohorts,
    "lots": PoissonSampling,  # as version 0.2 wrote it
    "poisson": PoissonSampling,
}


def read_sampling(mapping: Mapping[str, Any]) -> Sampling:
    """Read what `as_mapping` wrote.

    Raises:
        UnknownName: There is no such way.
    """
    kind = str(mapping["kind"])
    if kind == "everyone":
        return Everyone()
    if kind not in _KINDS:
        raise UnknownName("way to take part", kind, ["everyone", *_KINDS])
    return _KINDS[kind].of(str(mapping["part"]))

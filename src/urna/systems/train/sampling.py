"""Who takes part in which round.

Three ways, and what each does for privacy:

- everyone, in every round: the default;
- cohorts: some clients in each round, in turn, by a public order. No client takes part in more than
  its share of the rounds, and only those reveal anything about it. Nothing is kept secret;
- Poisson sampling: every client sends a vector in every round, but its data enter with a fixed
  probability only, by its own secret draw. This is what amplification by sampling needs: the
  server does not know who was drawn, because it does not draw.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from urna.errors import ParameterError, UnknownName
from urna.randomness import SecretSource
from urna.tally import Part, exact_part

__all__ = ["Sampling", "SamplingKind", "drawn"]

_DRAW_BYTES = 16


class SamplingKind(StrEnum):
    """Who takes part in which round."""

    EVERYONE = "everyone"
    COHORTS = "cohorts"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Who takes part in which round.

    Guarantee:
        Of cohorts: after r rounds no client has taken part in more than ⌈r·m/n⌉ of them, m being
        the size of a cohort. The turns are consecutive places of one endless cycle over a public
        order, and of any r·m consecutive places at most ⌈r·m/n⌉ are equal modulo n.

    Assumes:
        Of cohorts: nothing of where colluding clients are. The order is public, so all of them may
        be in one client's cohort: `plan_training` counts out min(⌈n·colluding⌉, m − 1) of each.
        Of Poisson sampling: nobody but the client learns its draws. It takes as long, and sends
        as much, whatever it draws.

    Args:
        kind: Everyone, cohorts in turn, or secret Poisson sampling.
        part: Fraction of the clients in a cohort, or the probability of being drawn.

    Example:
        >>> Sampling.of("cohorts", "0.3").members(1, 10, seed=0)
        [0, 3, 9]
    """

    kind: SamplingKind = SamplingKind.EVERYONE
    part: Fraction = Fraction(1)

    @classmethod
    def of(cls, kind: SamplingKind | str, part: Part) -> "Sampling":
        """Return cohorts of a fraction, or Poisson sampling of a probability, as people type it."""
        if kind not in list(SamplingKind):
            raise UnknownName("sampling", kind, SamplingKind)
        if kind == SamplingKind.EVERYONE:
            return cls()
        exact = exact_part("the sampled part", part)
        if not exact:
            raise ParameterError("the part that is sampled must be above 0")
        return cls(SamplingKind(kind), exact)

    @property
    def rate(self) -> Fraction | None:
        """Probability of a secret draw; None where there are no secret draws."""
        return self.part if self.kind is SamplingKind.POISSON else None

    def size(self, clients: int) -> int:
        """Return how many of all clients take part in each round."""
        if self.kind is not SamplingKind.COHORTS:
            return clients
        return max(2, math.ceil(clients * self.part))

    def members(self, number: int, clients: int, *, seed: int) -> list[int]:
        """Return who takes part in a round, ascending; everything about it is public."""
        if self.kind is not SamplingKind.COHORTS:
            return list(range(clients))
        size = self.size(clients)
        order = np.random.default_rng([0x434F48, seed]).permutation(clients)
        first = (number - 1) * size
        return sorted(int(order[place % clients]) for place in range(first, first + size))

    def counts(self, rounds: int, clients: int) -> int:
        """Return how many of these rounds any one client takes part in, at most."""
        return math.ceil(Fraction(rounds * self.size(clients), clients))

    def as_mapping(self) -> dict[str, str]:
        """Return the same as plain values."""
        return {
            "kind": str(self.kind),
            **({} if self.kind is SamplingKind.EVERYONE else {"part": str(self.part)}),
        }


def drawn(rate: Fraction | None, secrets: SecretSource) -> bool:
    """Draw for one client in one round, exactly to 2^-128; True where there is no rate."""
    if rate is None:
        return True
    number = int.from_bytes(secrets.take(_DRAW_BYTES), "big")
    return number * rate.denominator < rate.numerator << (8 * _DRAW_BYTES)

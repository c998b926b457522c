"""Who takes part in which round.

Four ways, and what each does for privacy:

- everyone, in every round: the default;
- cohorts: some clients in each round, in turn, by a public order. No client takes part in more than
  its share of the rounds, and only those reveal anything about it. Nothing is kept secret;
- Poisson sampling: every client sends a vector in every round, but its data enter with a fixed
  probability only, by its own secret draw. This is what amplification by sampling needs: the
  server does not know who was drawn, because it does not draw;
- records: every client takes part in every round, with a secret Poisson sample of its own records.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.randomness import SecretSource
from urna.tally import Part, exact_part

__all__ = ["Sampling", "SamplingKind", "drawn", "drawn_records"]

_DRAW_BYTES = 16
_WORD_BITS = 64


class SamplingKind(StrEnum):
    """Who takes part in which round."""

    EVERYONE = "everyone"
    COHORTS = "cohorts"
    POISSON = "poisson"
    RECORDS = "records"


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
        kind: Everyone, cohorts in turn, or secret Poisson sampling of clients or of records.
        part: Fraction of the clients in a cohort, or the probability of being drawn.
        batch: Of records: how many are expected in a round that loses no client. Public, and what
            the sum is divided by: the number that was drawn is secret.

    Example:
        >>> Sampling.of("cohorts", "0.3").members(1, 10, seed=0)
        [0, 3, 9]
    """

    kind: SamplingKind = SamplingKind.EVERYONE
    part: Fraction = Fraction(1)
    batch: int = 0

    @classmethod
    def of_records(cls, batch: int, records: int) -> "Sampling":
        """Return secret Poisson samples of all clients' records.

        Args:
            batch: How many records are expected in a round.
            records: About how many there are in all. Public: privacy rests on the rate
                batch / records alone, not on how many there really are.

        Example:
            >>> Sampling.of_records(1_024, 60_000).rate
            Fraction(32, 1875)
        """
        if not 0 < batch < records:
            raise ParameterError(
                f"a batch holds a record or more and fewer than all, got {batch:,} of {records:,}"
            )
        return cls(SamplingKind.RECORDS, Fraction(batch, records), batch)

    @classmethod
    def of(cls, kind: SamplingKind | str, part: Part) -> "Sampling":
        """Return cohorts of a fraction, or Poisson sampling of a probability, as people type it."""
        if kind == SamplingKind.RECORDS:
            raise ParameterError("samples of records have a batch size: see `Sampling.of_records`")
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
        """Probability of a client's or a record's secret draw; None where there are none."""
        return self.part if self.batch else self.client_rate

    @property
    def client_rate(self) -> Fraction | None:
        """Probability of a client's secret draw; None where clients are not drawn."""
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
            **({"batch": str(self.batch)} if self.batch else {}),
        }


def drawn(rate: Fraction | None, secrets: SecretSource) -> bool:
    """Draw for one client in one round, exactly to 2^-128; True where there is no rate."""
    if rate is None:
        return True
    number = int.from_bytes(secrets.take(_DRAW_BYTES), "big")
    return number * rate.denominator < rate.numerator << (8 * _DRAW_BYTES)


def drawn_records(rate: Fraction, count: int, secrets: SecretSource) -> npt.NDArray[np.bool_]:
    """Draw each of so many records, with a probability of at most `rate` and 2^-64 less."""
    words = np.frombuffer(secrets.take(_WORD_BITS // 8 * count), dtype="<u8")
    return np.asarray(words < np.uint64(math.floor(rate * (1 << _WORD_BITS))))

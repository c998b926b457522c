"""Integer noise of a given variance from a seed, for each family of distributions."""

import functools
from dataclasses import dataclass
from fractions import Fraction

from urna.noise.table import Table
from urna.privacy import distributions
from urna.privacy.distributions import Distribution

__all__ = ["DISCRETE_GAUSSIAN", "FAMILIES", "SKELLAM", "Noise"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Integer noise that is drawn from exactly the weights the accounting prices.

    Example:
        >>> from fractions import Fraction
        >>> SKELLAM.table(Fraction(9)).draw(bytes(32), 4)
        array([ 0,  0, -4,  0])
    """

    distribution: Distribution

    @property
    def name(self) -> str:
        """The family's name in plans, ledgers and messages."""
        return self.distribution.name

    def table(self, variance: Fraction) -> Table:
        """Return the table that draws noise of this variance, in grid steps squared."""
        return _table(self.distribution, variance)


@functools.lru_cache(maxsize=64, typed=True)
def _table(distribution: Distribution, variance: Fraction) -> Table:
    return Table.of(*distribution.half_weights(variance))


SKELLAM = Noise(distributions.SKELLAM)
DISCRETE_GAUSSIAN = Noise(distributions.DISCRETE_GAUSSIAN)
FAMILIES = {family.name: family for family in (SKELLAM, DISCRETE_GAUSSIAN)}

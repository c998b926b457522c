"""How far one protected unit can move a sum of integer vectors."""

import math
from dataclasses import dataclass

from urna.errors import ParameterError

__all__ = ["Sensitivity"]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A bound on the difference of two neighbouring sums.

    Only the L2 norm is priced (`tradeoff.gaussian_parameter`); the number of coordinates
    counts for the precision of draws.
    """

    l2_squared: int
    coordinates: int
    """Most coordinates that differ."""
    beyond: float = 0.0
    """Probability, over coins that no data enter, that the difference is longer than this."""

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.l2_squared, self.coordinates)):
            raise ParameterError(f"norms and coordinates are positive integers, got {self}")
        if not 0 <= self.beyond < 1:
            raise ParameterError(f"a probability lies in [0, 1), got {self.beyond}")

    @property
    def l2(self) -> float:
        """The L2 norm."""
        return math.sqrt(self.l2_squared)

    def scaled(self, scale: int) -> "Sensitivity":
        """Return the same move on a grid of `scale` steps to the unit."""
        return Sensitivity(self.l2_squared * scale**2, self.coordinates, self.beyond)

    def times(self, count: int, *, dimension: int) -> "Sensitivity":
        """Return a bound on the sum of so many moves, by the triangle inequality."""
        coordinates = min(count * self.coordinates, dimension)
        return Sensitivity(self.l2_squared * count**2, coordinates, min(count * self.beyond, 0.5))

"""The circuit of density clusters: the test for dense cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from urna.protocols.he import Arithmetic

__all__ = ["DenseCells"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class DenseCells:
    """factor·C(C−1)…(C−m+1): zero where fewer than m clients count, else a uniform number.

    With u = C² − (m−1)C, pairs of factors are (C−k)(C−(m−1−k)) = u + k(m−1−k), so that half
    of the multiplications are spared.

    Guarantee:
        Let C be below the prime and one party's part of the factor be uniform and secret. Then
        the result is zero for C < m, and for every C ≥ m uniform: it says whether C ≥ m and
        nothing else. (For C ≥ m no factor C − k is zero modulo the prime, so their product
        is invertible.)
    """

    min_points: int

    @property
    def depth(self) -> int:
        """How many multiplications follow one another.

        Example:
            >>> [DenseCells(m).depth for m in (1, 2, 3, 4, 5, 8)]
            [1, 2, 2, 3, 3, 4]
        """
        waiting = [0, *([0] if self.min_points % 2 else []), *([1] * (self.min_points // 2))]
        while len(waiting) > 1:
            first, second, *rest = sorted(waiting)
            waiting = [max(first, second) + 1, *rest]
        return waiting[0]

    def __call__(self, arithmetic: Arithmetic[Value], inputs: Sequence[Value], /) -> Value:
        """Compute it from counts and factors."""
        count, factor = inputs
        last = self.min_points - 1
        waiting = [(0, factor)]
        if self.min_points % 2:
            waiting.append((0, arithmetic.add_number(count, -(last // 2)) if last else count))
        if last:
            square = arithmetic.multiply(count, count)
            u = arithmetic.subtract(square, arithmetic.repeat(count, last))
            for k in range(self.min_points // 2):
                waiting.append((1, arithmetic.add_number(u, k * (last - k)) if k else u))
        while len(waiting) > 1:  # the shallowest two first: that keeps the whole flat
            (first, left), (second, right), *rest = sorted(waiting, key=lambda each: each[0])
            waiting = [(max(first, second) + 1, arithmetic.multiply(left, right)), *rest]
        return waiting[0][1]

"""Polynomials modulo a product of primes: one row of residues per prime.

An array of shape (…, primes, degree) holds polynomials of Z_Q[X]/(X^N + 1), Q the product of a
basis, by their residues (Chinese remainders). Values (after the transform) are multiplied and
added row by row; whatever needs the integers behind the residues goes through centred
mixed-radix digits (Garner 1959), which are exact: there is no approximate base extension here.
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from urna.protocols.he import ntt
from urna.protocols.he.ntt import Residues


class Basis:
    """A degree and some different primes; all arrays have their rows in this order."""

    def __init__(self, degree: int, primes: tuple[int, ...]) -> None:
        self.degree, self.primes = degree, primes
        self.modulus = math.prod(primes)
        self._column = np.array(primes, dtype=np.int64)[:, None]

    def __len__(self) -> int:
        return len(self.primes)

    def part(self, start: int, stop: int) -> "Basis":
        """Return the basis of some consecutive primes."""
        return basis(self.degree, self.primes[start:stop])

    def forward(self, coefficients: Residues) -> Residues:
        """Transform polynomials given by residues, or by small integers within ±prime."""
        return self._by_row(coefficients, lambda row, prime: self._transform(prime).forward(row))

    def forward_small(self, integers: npt.NDArray[np.int64], factor: int = 1) -> Residues:
        """Transform polynomials with integer coefficients, times a factor, modulo every prime.

        Args:
            integers: Shape (…, degree), absolute values below 2^47.
            factor: An integer of any size.
        """
        largest = int(np.abs(integers).max(initial=0)) * abs(factor)
        if largest >= min(self.primes):
            return self.forward(self.combine([integers], [factor]))
        integers = integers * factor
        values = np.empty((*integers.shape[:-1], len(self.primes), self.degree), dtype=np.int64)
        for row, prime in enumerate(self.primes):
            values[..., row, :] = self._transform(prime).forward(integers)
        return values

    def inverse(self, values: Residues) -> Residues:
        """Return the coefficients of polynomials given by their values."""
        return self._by_row(values, lambda row, prime: self._transform(prime).inverse(row))

    def add(self, left: Residues, right: Residues) -> Residues:
        """Add, reduced."""
        total = left + right
        total -= self._column
        total += self._column & (total >> 63)
        return total

    def subtract(self, left: Residues, right: Residues) -> Residues:
        """Subtract, reduced."""
        difference = left - right
        difference += self._column & (difference >> 63)
        return difference

    def total(self, terms: Sequence[Residues]) -> Residues:
        """Add up any number of polynomials, reduced."""
        result = terms[0].copy()
        for number, term in enumerate(terms[1:], start=1):
            result += term
            if number % 16 == 0:  # 17 residues are below 2^52, where `reduce` is exact
                result = self.reduce(result)
        return self.reduce(result)

    def reduce(self, values: Residues) -> Residues:
        """Reduce values of at most 2^52."""
        return self._by_row(values, ntt.reduce)

    def multiply(self, left: Residues, right: Residues) -> Residues:
        """Multiply values, elementwise; a missing leading axis is repeated."""
        shape = np.broadcast_shapes(left.shape, right.shape)
        left, right = np.broadcast_to(left, shape), np.broadcast_to(right, shape)
        result = np.empty(shape, dtype=np.int64)
        for place in np.ndindex(*shape[:-1]):  # one row at a time stays in the cache
            result[place] = ntt.multiply(left[place], right[place], self.primes[place[-1]])
        return result

    def multiply_by(self, values: Residues, constant: int) -> Residues:
        """Multiply by one integer of any size."""
        return self._by_row(values, lambda row, prime: ntt.multiply_by(row, constant, prime))

    def multiply_each(self, values: Residues, constants: Sequence[int]) -> Residues:
        """Multiply each prime's row by a constant of its own."""
        factors = dict(zip(self.primes, constants, strict=True))
        return self._by_row(values, lambda row, prime: ntt.multiply_by(row, factors[prime], prime))

    def digits(self, residues: Residues) -> Residues:
        """Return centred mixed-radix digits of the integers behind residues.

        With digits d_0, d_1, … the integer is d_0 + d_1·p_0 + d_2·p_0·p_1 + …, |d_i| < p_i/2. All
        primes are odd, so this is the one representative within ±Q/2.
        """
        digits = np.empty(residues.shape, dtype=np.int64)
        for row, prime in enumerate(self.primes):
            rest = residues[..., row, :]
            for earlier in range(row):
                # |rest − digit| < 2^48: within what multiply_by takes.
                rest = ntt.multiply_by(
                    rest - digits[..., earlier, :], pow(self.primes[earlier], -1, prime), prime
                )
            digits[..., row, :] = np.where(2 * rest > prime, rest - prime, rest)
        return digits

    def residues_of(self, digits: Residues, source: "Basis", factor: int = 1) -> Residues:
        """Return the residues here of integers, times a factor, given by digits in another."""
        rows = range(len(source))
        weights = [factor * math.prod(source.primes[:row]) for row in rows]
        return self.combine([digits[..., row, :] for row in rows], weights)

    def combine(self, parts: Sequence[Residues], weights: Sequence[int]) -> Residues:
        """Return the residues of Σ part·weight, for up to 16 parts of absolute size below 2^47."""
        result = np.empty((*parts[0].shape[:-1], len(self), parts[0].shape[-1]), dtype=np.int64)
        for row, prime in enumerate(self.primes):
            total = np.zeros(parts[0].shape, dtype=np.int64)
            for part, weight in zip(parts, weights, strict=True):
                total += part if weight == 1 else ntt.multiply_by(part, weight, prime)
            result[..., row, :] = ntt.reduce(total, prime)
        return result

    def divide(self, values: Residues, kept: int, factor: int) -> Residues:
        """Divide by the product D of all but the first `kept` primes, rounding exactly.

        Guarantee:
            The result is (x − δ)/D, where δ is congruent to x modulo D, a multiple of `factor`,
            and at most factor·D/2 in every coefficient. So a multiple of `factor` (noise in
            BGV) stays one, and if D is 1 modulo `factor`, residues modulo it stay the same.

        Args:
            values: Transformed polynomials, shape (…, primes, degree).
            kept: How many primes are left.
            factor: The plaintext modulus.
        """
        left, dropped = self.part(0, kept), self.part(kept, len(self))
        tail = dropped.inverse(values[..., kept:, :])
        tail = dropped.multiply_by(tail, pow(factor, -1, dropped.modulus))
        rounding = left.forward(left.residues_of(dropped.digits(tail), dropped, factor))
        difference = left.subtract(values[..., :kept, :], rounding)
        inverses = [pow(dropped.modulus, -1, prime) for prime in left.primes]
        return left.multiply_each(difference, inverses)

    def _transform(self, prime: int) -> ntt.Transform:
        return ntt.transform(self.degree, prime)

    def _by_row(self, values: Residues, operation: Callable[[Residues, int], Residues]) -> Residues:
        result = np.empty(values.shape, dtype=np.int64)
        for place in np.ndindex(*values.shape[:-1]):
            result[place] = operation(values[place], self.primes[place[-1]])
        return result


@functools.lru_cache(maxsize=512)
def basis(degree: int, primes: tuple[int, ...]) -> Basis:
    """Return the basis of a degree and some primes."""
    return Basis(degree, primes)

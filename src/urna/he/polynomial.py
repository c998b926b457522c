"""Polynomials of encrypted numbers, and the one that stands for a reciprocal.

A polynomial is given by its coefficients in Chebyshev's basis, for arguments within ±1, where
no T_k exceeds 1: coefficients and all steps stay small. Evaluation is baby steps and giant steps
(Paterson and Stockmeyer 1973): of degree below 2^r it uses r + 1 levels, one of them for
the public coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

from urna.errors import ParameterError
from urna.he.noise import Arithmetic

__all__ = ["Reciprocal", "depth_of", "evaluate", "quotient", "reciprocal"]

Value = TypeVar("Value")
Floats = npt.NDArray[np.float64]

_ITERATIONS = 200


def depth_of(degree: int) -> int:
    """Return how many levels a polynomial of a degree uses, alone or times another value.

    Example:
        >>> [depth_of(degree) for degree in (1, 3, 15, 16, 47)]
        [2, 3, 5, 6, 7]
    """
    return max(1, degree.bit_length()) + 1


def evaluate(
    arithmetic: Arithmetic[Value], argument: Value, coefficients: Sequence[float]
) -> Value:
    """Return Σ c_k·T_k(argument).

    Assumes:
        The argument's entries are within ±1; bounds of noise and size rest on that.
    """
    whole = np.asarray(coefficients, dtype=np.float64)
    return _evaluate(arithmetic, _Powers(arithmetic, argument), whole, _baby(len(whole)))


def quotient(
    arithmetic: Arithmetic[Value],
    numerator: Value,
    argument: Value,
    coefficients: Sequence[float],
    *,
    largest: float,
) -> Value:
    """Return numerator·Σ c_k·T_k(argument) at the depth of the polynomial alone.

    With p = low + high·T_h, h the largest power of two within the degree, the product is
    numerator·low + (numerator·T_h)·high: the multiplication by the numerator fills a level in
    which T_h waits for `high` anyway.

    Args:
        arithmetic: Computes with values.
        numerator: What to multiply by.
        argument: Its entries are within ±1.
        coefficients: In Chebyshev's basis, at least two of them.
        largest: Promise that no entry of the result is larger.
    """
    whole = np.asarray(coefficients, dtype=np.float64)
    if len(whole) < 2:
        raise ParameterError("a quotient needs a polynomial of degree at least 1")
    powers, baby, split = _Powers(arithmetic, argument), _baby(len(whole)), _split(whole)
    high, low = _divide(whole, split)
    left = [_evaluate(arithmetic, powers, part, baby) for part in (low, high)]
    right = [numerator, arithmetic.multiply(numerator, powers.of(split))]
    return arithmetic.within(arithmetic.inner_product(left, right), largest)


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """A polynomial close to 1/x on some consecutive integers."""

    lowest: int
    highest: int
    coefficients: tuple[float, ...]
    """In Chebyshev's basis, of u = (2x − lowest − highest)/(highest − lowest)."""
    relative_error: float
    """Largest |x·p(x) − 1| over the integers from lowest to highest."""

    def argument(self, count: float) -> float:
        """Return the u of a count."""
        return (2 * count - self.lowest - self.highest) / (self.highest - self.lowest)


def reciprocal(lowest: int, highest: int, degree: int) -> Reciprocal:
    """Return the polynomial whose largest relative error on the integers is least.

    Remez' exchange on the finite set: among degree + 2 integers the error alternates in sign
    and equals the largest anywhere.

    Example:
        >>> reciprocal(1, 100, 47).relative_error < 1e-6
        True
    """
    points = np.arange(lowest, highest + 1, dtype=np.float64)
    if lowest < 1 or degree < 1 or len(points) < degree + 2:
        raise ParameterError(
            f"a reciprocal needs 1 <= lowest and more integers than degree + 1, got {lowest} to "
            f"{highest} and degree {degree}"
        )
    arguments = (2 * points - lowest - highest) / (highest - lowest)
    # x·p(x) is to be 1: the columns are x·T_k.
    columns = chebyshev.chebvander(arguments, degree) * points[:, None]
    chosen = _spread_out(len(points), degree + 2)
    coefficients = np.zeros(degree + 1)
    for _ in range(_ITERATIONS):
        signs = (-1.0) ** np.arange(degree + 2)
        system = np.concatenate([columns[chosen], signs[:, None]], axis=1)
        solution = np.linalg.solve(system, np.ones(degree + 2))
        coefficients, level = solution[:-1], abs(solution[-1])
        error = columns @ coefficients - 1
        if np.abs(error).max() <= level * (1 + 1e-6) + 1e-13:
            break
        chosen = _exchange(chosen, error)
    reached = float(np.abs(columns @ coefficients - 1).max())
    return Reciprocal(lowest, highest, tuple(coefficients.tolist()), reached)


class _Powers(Generic[Value]):
    """Chebyshev polynomials of one argument, each computed once, as flat as can be."""

    def __init__(self, arithmetic: Arithmetic[Value], argument: Value) -> None:
        self._arithmetic = arithmetic
        self._known = {1: arithmetic.within(argument, 1.0)}
        self._steps: dict[int, list[Value]] = {}

    def of(self, index: int) -> Value:
        """Return T_index: T_{a+b} = 2·T_a·T_b − T_{a−b}, a and b as equal as can be."""
        if index not in self._known:
            arithmetic = self._arithmetic
            larger = (index + 1) // 2
            product = arithmetic.multiply(self.of(larger), self.of(index - larger))
            double = arithmetic.repeat(product, 2)
            if 2 * larger == index:
                found = arithmetic.add_plain(double, [-1.0])
            else:
                found = arithmetic.subtract(double, self.of(1))
            self._known[index] = arithmetic.within(found, 1.0)
        return self._known[index]

    def baby_steps(self, count: int) -> list[Value]:
        """Return T_1 … T_(count−1), brought to one level once for all who use them."""
        if count not in self._steps:
            listed = [self.of(index) for index in range(1, count)]
            self._steps[count] = self._arithmetic.align(listed)
        return self._steps[count]


def _evaluate(
    arithmetic: Arithmetic[Value], powers: _Powers[Value], coefficients: Floats, baby: int
) -> Value:
    """Evaluate by splitting off giant steps until what is left is a baby step."""
    size = float(np.abs(coefficients).sum())
    if len(coefficients) <= baby:
        weights = [float(value) for value in coefficients[1:]] or [0.0]
        total = arithmetic.weighted_sum(powers.baby_steps(baby)[: len(weights)], weights)
        total = arithmetic.add_plain(total, [float(coefficients[0])])
        return arithmetic.within(total, size)
    split = _split(coefficients)
    high, low = _divide(coefficients, split)
    left = _evaluate(arithmetic, powers, high, baby)
    rest = _evaluate(arithmetic, powers, low, baby)
    product = arithmetic.multiply(left, powers.of(split))
    return arithmetic.within(arithmetic.add(product, rest), size)


def _baby(count: int) -> int:
    """Return how many baby steps, a power of two near the root, make multiplications fewest."""
    return 1 << max(1, count.bit_length() // 2)


def _split(coefficients: Floats) -> int:
    """Return the largest power of two within the degree."""
    return 1 << ((len(coefficients) - 1).bit_length() - 1)


def _divide(coefficients: Floats, split: int) -> tuple[Floats, Floats]:
    """Return quotient and remainder by T_split: T_split·T_k = (T_{split+k} + T_{split−k})/2."""
    high = 2.0 * coefficients[split:]
    high[0] /= 2
    low = coefficients[:split].copy()
    for index in range(1, len(high)):
        low[split - index] -= high[index] / 2
    return high, low


def _spread_out(points: int, count: int) -> npt.NDArray[np.int64]:
    """Return increasing places that are dense at both ends, as Chebyshev's points are."""
    angles = np.pi * np.arange(count) / (count - 1)
    places = np.rint((points - 1) * (1 - np.cos(angles)) / 2).astype(np.int64)
    for index in range(1, count):
        places[index] = max(places[index], places[index - 1] + 1)
    return np.minimum(places, points - count + np.arange(count))


def _exchange(chosen: npt.NDArray[np.int64], error: Floats) -> npt.NDArray[np.int64]:
    """Take in the place of the largest error for a neighbour of the same sign."""
    worst = int(np.abs(error).argmax())
    after = int(np.searchsorted(chosen, worst))
    places = chosen.tolist()
    if after == 0 or after == len(places):
        end = 0 if after == 0 else len(places) - 1
        if error[worst] * error[places[end]] < 0:  # a sign more at this end: one less at the other
            places.pop(len(places) - 1 - end)
            places.insert(after if after == 0 else len(places), worst)
        else:
            places[end] = worst
    elif error[worst] * error[places[after]] > 0:
        places[after] = worst
    else:
        places[after - 1] = worst
    return np.array(places, dtype=np.int64)

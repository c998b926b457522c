"""Polynomials of hidden numbers, played on plain ones, on noise and on ciphertexts."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
from he_play import Play
from numpy.polynomial import chebyshev

from urna import he
from urna.errors import ParameterError
from urna.he.noise import Arithmetic

Value = TypeVar("Value")


class Clear:
    """The same arithmetic on plain vectors, counting levels: a slow and obvious oracle."""

    Entry = tuple[np.ndarray, int]

    def __init__(self, depth: int) -> None:
        self.depth, self.products = depth, 0

    def fresh(self, values: Sequence[float]) -> Entry:
        return np.array(values, dtype=np.float64), self.depth

    def add(self, left: Entry, right: Entry) -> Entry:
        return left[0] + right[0], min(left[1], right[1])

    def subtract(self, left: Entry, right: Entry) -> Entry:
        return left[0] - right[0], min(left[1], right[1])

    def add_plain(self, value: Entry, plain: Sequence[float]) -> Entry:
        return value[0] + np.array(plain), value[1]

    def multiply_plain(self, value: Entry, plain: Sequence[float]) -> Entry:
        return value[0] * np.array(plain), value[1] - 1

    def weighted_sum(self, values: Sequence[Entry], weights: Sequence[float]) -> Entry:
        total = sum(w * v for (v, _), w in zip(values, weights, strict=True))
        return np.asarray(total), min(level for _, level in values) - 1

    def align(self, values: Sequence[Entry]) -> list[Entry]:
        level = min(level for _, level in values)
        return [(value, level) for value, _ in values]

    def repeat(self, value: Entry, times: int) -> Entry:
        return value[0] * times, value[1]

    def multiply(self, left: Entry, right: Entry) -> Entry:
        return self.inner_product([left], [right])

    def inner_product(self, left: Sequence[Entry], right: Sequence[Entry]) -> Entry:
        self.products += 1
        level = min(level for _, level in [*left, *right]) - 1
        assert level >= 0, "one more multiplication than planned"
        total = sum(a * b for (a, _), (b, _) in zip(left, right, strict=True))
        return np.asarray(total), level

    def within(self, value: Entry, magnitude: float) -> Entry:
        assert np.abs(value[0]).max() <= magnitude * (1 + 1e-9), "a promise was not kept"
        return value


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7, 8, 15, 16, 31, 47, 63])
def test_a_polynomial_is_evaluated_within_its_depth(degree: int) -> None:
    rng = np.random.default_rng(degree)
    coefficients = rng.normal(size=degree + 1)
    points = np.linspace(-1, 1, 33)
    clear = Clear(he.depth_of(degree))
    value, level = he.evaluate(clear, clear.fresh(points), coefficients)
    assert np.allclose(value, chebyshev.chebval(points, coefficients), atol=1e-9)
    assert level >= 0
    # About twice the root of the degree, not the degree.
    assert clear.products <= 3 * np.sqrt(degree) + 3


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 15, 31, 47, 63])
def test_a_product_with_a_polynomial_needs_no_level_more(degree: int) -> None:
    rng = np.random.default_rng(degree)
    coefficients = rng.normal(size=degree + 1)
    points, factor = np.linspace(-1, 1, 33), rng.uniform(-1, 1, 33)
    clear = Clear(he.depth_of(degree))
    value, level = he.quotient(
        clear, clear.fresh(factor), clear.fresh(points), coefficients, largest=1e6
    )
    assert np.allclose(value, factor * chebyshev.chebval(points, coefficients), atol=1e-9)
    assert level >= 0


@pytest.mark.parametrize(
    ("lowest", "highest", "degree", "error"),
    [(1, 100, 47, 7.08e-7), (1, 100, 31, 8.75e-4), (10, 100, 15, 5.49e-5), (20, 100, 15, 4.03e-7)],
)
def test_the_reciprocals_error_is_the_least_there_is(
    lowest: int, highest: int, degree: int, error: float
) -> None:
    # The figures are those of a linear program over the same integers.
    found = he.reciprocal(lowest, highest, degree)
    counts = np.arange(lowest, highest + 1)
    values = chebyshev.chebval(found.argument(counts), found.coefficients)
    assert np.abs(counts * values - 1).max() == pytest.approx(found.relative_error)
    assert found.relative_error == pytest.approx(error, rel=0.01)
    # The error alternates often enough that no polynomial of this degree does better.
    offs = counts * values - 1
    extreme = np.sign(offs[np.abs(offs) > 0.99 * found.relative_error])
    assert (np.diff(extreme) != 0).sum() >= degree + 1


@pytest.mark.parametrize(
    ("lowest", "highest", "degree"), [(0, 10, 3), (1, 4, 3), (5, 5, 1), (1, 10, 0)]
)
def test_a_reciprocal_that_cannot_be_is_refused(lowest: int, highest: int, degree: int) -> None:
    with pytest.raises(ParameterError, match="reciprocal needs"):
        he.reciprocal(lowest, highest, degree)


def test_a_quotient_needs_a_polynomial() -> None:
    clear = Clear(2)
    with pytest.raises(ParameterError, match="degree at least 1"):
        he.quotient(clear, clear.fresh([1]), clear.fresh([1]), [0.5], largest=1.0)


def test_a_mean_is_computed_without_opening_the_count() -> None:
    inverse = he.reciprocal(3, 12, 5)

    def mean(arithmetic: Arithmetic[Value], inputs: Sequence[Value]) -> Value:
        total, count = inputs
        middle = inverse.argument(0)
        scaled = arithmetic.within(arithmetic.add_plain(count, [middle]), 1.0)
        weights = [12 * c for c in inverse.coefficients]
        return he.quotient(arithmetic, arithmetic.within(total, 1.0), scaled, weights, largest=1.1)

    plan = he.approximate(
        mean, parties=3, width=2, depth=he.depth_of(5), inputs=2, precision=1e-3, smudging_bits=8
    )
    play = Play(plan)
    desk = he.Desk(play.session)
    counts, sums = [1, 3, 2], [[0.5, 0.1], [2.0, 1.5], [1.0, 0.25]]
    vectors = {
        party: [np.array(sums[party]) / 12, [2 * counts[party] / (12 - 3)] * 2]
        for party in range(3)
    }
    opened = he.run(desk, play.keys, vectors, play.secrets, circuit=mean)
    expected = np.sum(sums, axis=0) / sum(counts)
    allowed = he.precision(plan) + inverse.relative_error
    assert np.abs(opened - expected).max() <= allowed < 5e-3

"""The field, and the cubic in which proofs are queried."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.protocols.ballots.field import FAST, Cubic, Field
from urna.randomness import expand_words

Q = FAST.modulus
TOY = Field(19, 2)
ELEMENT = st.one_of(st.sampled_from([0, 1, 2, Q // 2, Q - 2, Q - 1]), st.integers(0, Q - 1))


def modulo(coefficients: list[int], cubic: Cubic) -> list[int]:
    """Divide by the cubic the long way."""
    rest, q = list(coefficients), cubic.field.modulus
    while len(rest) > 3:
        top = rest.pop()
        for place, c in enumerate(cubic.low):
            rest[len(rest) - 3 + place] = (rest[len(rest) - 3 + place] - top * c) % q
    return rest + [0] * (3 - len(rest))


def multiplied(left: list[int], right: list[int], q: int) -> list[int]:
    found = [0] * (len(left) + len(right) - 1)
    for (i, a), (j, b) in itertools.product(enumerate(left), enumerate(right)):
        found[i + j] = (found[i + j] + a * b) % q
    return found


@pytest.mark.parametrize("length", [1, 3, 8192, 8193, 20_000])
def test_products_are_exact_even_of_the_largest_elements(length: int) -> None:
    rng = np.random.default_rng(length)
    rows = rng.integers(0, Q, (3, length), dtype=np.uint64)
    columns = rng.integers(0, Q, (length, 2), dtype=np.uint64)
    rows[0], columns[:, 0] = Q - 1, Q - 1
    exact = rows.astype(object) @ columns.astype(object) % Q
    assert (FAST.products(rows.astype(np.uint32), columns) == exact).all()


@given(st.lists(ELEMENT.filter(bool), min_size=1, max_size=5))
def test_inverses_invert(values: list[int]) -> None:
    found = FAST.inverses(np.array(values, dtype=np.uint64))
    assert [int(a) * b % Q for a, b in zip(found, values, strict=True)] == [1] * len(values)


def test_uniform_elements_are_the_stream_without_what_is_too_large() -> None:
    seeds = [bytes([place]) * 32 for place in range(40)]
    rows = FAST.uniform(seeds, 700)
    skipped = 0
    for seed, row in zip(seeds, rows, strict=True):
        words = [int(w) for w in expand_words(seed, 800, 32)]
        good = [w for w in words if w < Q][:700]
        skipped += good != words[:700]
        assert row.tolist() == good
    assert skipped > 0  # about one row in six: the case was there
    assert set(TOY.uniform(seeds, 700).ravel().tolist()) == set(range(19))


@given(st.tuples(ELEMENT, ELEMENT, ELEMENT).filter(lambda p: p[1] or p[2]), st.data())
def test_arithmetic_modulo_a_cubic_is_that_of_polynomials(
    point: tuple[int, int, int], data: st.DataObject
) -> None:
    cubic = Cubic.of(FAST, point)
    left, right = (data.draw(st.lists(ELEMENT, min_size=3, max_size=3)) for _ in range(2))
    found = cubic.times(np.array(left, dtype=np.uint64), np.array(right, dtype=np.uint64))
    assert found.tolist() == modulo(multiplied(left, right, Q), cubic)
    a = data.draw(ELEMENT)
    over = cubic.one_over(np.array([a], dtype=np.uint64))[0]
    factor = np.array([(Q - a) % Q, 1, 0], dtype=np.uint64)
    assert cubic.times(over, factor).tolist() == [1, 0, 0]


def test_powers_modulo_a_cubic() -> None:
    cubic = Cubic.of(TOY, (3, 4, 5))
    for exponent in range(12):
        assert cubic.power(exponent).tolist() == modulo([0] * exponent + [1], cubic)


def test_every_query_of_a_small_field_is_irreducible_and_all_come_up() -> None:
    points = [p for p in itertools.product(range(19), repeat=3) if p[1] or p[2]]
    cubics = {Cubic.of(TOY, p).low for p in points}
    for c0, c1, c2 in cubics:
        assert all((x**3 + c2 * x * x + c1 * x + c0) % 19 for x in range(19))
    assert len(cubics) == (19**3 - 19) // 3  # every irreducible cubic, by three conjugates each


def test_a_point_of_the_field_is_no_query() -> None:
    with pytest.raises(ParameterError, match="outside the field"):
        Cubic.of(FAST, (5, 0, 0))


@pytest.mark.parametrize("modulus", [(1 << 32) + 15, 11, 3])
def test_only_small_primes_that_are_one_modulo_three_will_do(modulus: int) -> None:
    with pytest.raises(ParameterError, match="modulus"):
        Field(modulus, 2)

"""Primes, residues and transforms, held against Python's integers and a naive product."""

import math

import numpy as np
import pytest
from he_play import integers
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.protocols.he import ntt
from urna.protocols.he.ntt import is_prime, minimal_root, primes_below
from urna.protocols.he.rns import basis

LARGE = primes_below(1 << 47, step=2 * 32768, count=1)[0]
PRIMES = [*primes_below(1 << 47, step=128, count=2), *primes_below(1 << 20, step=128, count=1), 257]


def naive_product(left: list[int], right: list[int], prime: int) -> list[int]:
    """Multiply modulo X^N + 1, one coefficient at a time."""
    degree = len(left)
    result = [0] * degree
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            sign, place = (1, i + j) if i + j < degree else (-1, i + j - degree)
            result[place] = (result[place] + sign * a * b) % prime
    return result


def test_primality_agrees_with_trial_division() -> None:
    def slow(number: int) -> bool:
        return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))

    assert [n for n in range(5000) if is_prime(n)] == [n for n in range(5000) if slow(n)]
    # Strong pseudoprimes to the bases 2, 3, 5 and 7, and to the first twelve primes.
    assert not is_prime(3_215_031_751)
    assert not is_prime(318_665_857_834_031_151_167_461)
    assert is_prime(2**61 - 1)


@pytest.mark.parametrize("step", [2048, 65536, 32768 * 65537])
def test_primes_below_a_limit_have_the_residue_asked_for(step: int) -> None:
    found = primes_below(1 << 47, step=step, count=5)
    assert len(set(found)) == 5
    assert all(is_prime(p) and p % step == 1 and p < 1 << 47 for p in found)
    assert primes_below(1 << 47, step=step, count=3, without=found[:2]) == found[2:5]


def test_more_primes_than_there_are_is_refused() -> None:
    with pytest.raises(ParameterError, match="only 1 of 3"):
        primes_below(100, step=32, count=3)


def test_the_minimal_root_is_the_smallest_of_its_order() -> None:
    slow = [x for x in range(1, 257) if pow(x, 32, 257) == 256]
    assert minimal_root(257, 64) == min(slow)
    with pytest.raises(ParameterError, match="no element"):
        minimal_root(257, 1024)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_products_of_residues_are_exact(data: st.DataObject) -> None:
    prime = data.draw(st.sampled_from([*PRIMES, LARGE]))
    edges = st.sampled_from([0, 1, 2, prime // 2, prime // 2 + 1, prime - 2, prime - 1])
    entry = edges | st.integers(0, prime - 1)
    pairs = data.draw(st.lists(st.tuples(entry, entry), min_size=1, max_size=20))
    left = np.array([a for a, _ in pairs])
    right = np.array([b for _, b in pairs])
    assert ntt.multiply(left, right, prime).tolist() == [a * b % prime for a, b in pairs]
    constant = data.draw(st.integers(-(2**100), 2**100))
    by = ntt.multiply_by(left, constant, prime)
    assert by.tolist() == [a * constant % prime for a, _ in pairs]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_reduction_is_exact_up_to_its_limits(data: st.DataObject) -> None:
    prime = data.draw(st.sampled_from([*PRIMES, LARGE]))
    limit = min(2**52, prime << 40)
    multiples = st.builds(
        lambda k, d: max(-limit, min(limit, k * prime + d)),
        st.integers(-limit // prime, limit // prime),
        st.integers(-1, 1),
    )
    values = data.draw(st.lists(multiples | st.integers(-limit, limit), min_size=1))
    assert ntt.reduce(np.array(values), prime).tolist() == [v % prime for v in values]


@pytest.mark.parametrize("degree", [2, 4, 16, 64])
@pytest.mark.parametrize("prime", PRIMES[:3])
def test_transformed_products_are_the_naive_ones(degree: int, prime: int) -> None:
    table = ntt.transform(degree, prime)
    rng = np.random.default_rng(degree)
    left, right = rng.integers(0, prime, (2, 3, degree))
    left[0], right[0] = prime - 1, prime - 1  # the largest of everything
    values = ntt.multiply(table.forward(left), table.forward(right), prime)
    expected = [
        naive_product(a, b, prime) for a, b in zip(left.tolist(), right.tolist(), strict=True)
    ]
    assert table.inverse(values).tolist() == expected


def test_values_are_those_at_the_odd_powers_of_the_smallest_root_in_bit_reversed_order() -> None:
    degree, prime = 8, PRIMES[0]
    root = minimal_root(prime, 16)
    polynomial = [3, 1, 4, 1, 5, 9, 2, 6]
    expected = []
    for place in range(degree):
        point = pow(root, 2 * int(f"{place:03b}"[::-1], 2) + 1, prime)
        expected.append(sum(c * pow(point, k, prime) for k, c in enumerate(polynomial)) % prime)
    assert ntt.transform(degree, prime).forward(np.array(polynomial)).tolist() == expected


@pytest.mark.parametrize("degree", [4096, 16384, 32768])
def test_the_largest_residues_survive_all_stages(degree: int) -> None:
    prime = primes_below(1 << 47, step=2 * degree, count=1)[0]
    table = ntt.transform(degree, prime)
    rng = np.random.default_rng(1)
    rows = np.stack(
        [
            np.full(degree, prime - 1),
            np.where(rng.random(degree) < 0.5, prime - 1, 0),
            rng.integers(0, prime, degree),
        ]
    )
    assert (table.inverse(table.forward(rows)) == rows).all()
    assert (table.forward(table.inverse(rows)) == rows).all()
    # A constant polynomial is the same everywhere; signed inputs are taken as they are.
    constant = np.zeros(degree, dtype=np.int64)
    constant[0] = -5
    assert (table.forward(constant) == prime - 5).all()


def test_an_untrustworthy_size_is_refused() -> None:
    with pytest.raises(ParameterError, match="power of two"):
        ntt.Transform(12, 257)
    with pytest.raises(ParameterError, match="below 2"):
        ntt.Transform(8, primes_below(1 << 49, step=16, count=1)[0])


RING = basis(8, primes_below(1 << 47, step=16, count=2) + primes_below(1 << 30, step=16, count=2))


@given(st.lists(st.integers(-(RING.modulus // 2), RING.modulus // 2), min_size=8, max_size=8))
@settings(max_examples=50, deadline=None)
def test_integers_come_back_from_their_residues(values: list[int]) -> None:
    residues = np.array([[x % p for x in values] for p in RING.primes])
    assert integers(RING, residues).tolist() == values
    other = basis(8, primes_below(1 << 41, step=16, count=3))
    moved = other.residues_of(RING.digits(residues), RING)
    assert moved.tolist() == [[x % p for x in values] for p in other.primes]


@pytest.mark.parametrize("factor", [1, 65537, 1 << 32])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_division_rounds_by_a_multiple_of_the_factor_of_at_most_half(
    factor: int, kept: int
) -> None:
    rng = np.random.default_rng(kept)
    residues = np.stack([rng.integers(0, p, 8) for p in RING.primes])
    before = integers(RING, residues)
    left = RING.part(0, kept)
    divisor = RING.modulus // left.modulus
    quotients = integers(left, left.inverse(RING.divide(RING.forward(residues), kept, factor)))
    for integer, quotient in zip(before, quotients, strict=True):
        # Quotients are known modulo what is left: the rounding is the one near zero.
        rounding = (integer - quotient * divisor + RING.modulus // 2) % RING.modulus
        rounding -= RING.modulus // 2
        assert rounding % factor == 0
        assert abs(rounding) <= factor * divisor // 2


@given(st.integers(1, 50))
@settings(max_examples=10, deadline=None)
def test_totals_of_many_are_reduced(count: int) -> None:
    rows = np.stack([np.full(8, p - 1) for p in RING.primes])
    total = RING.total([rows] * count)
    assert total.tolist() == [[-count % p] * 8 for p in RING.primes]

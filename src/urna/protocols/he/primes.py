"""Primes for number-theoretic transforms, found and checked without a table."""

import functools
import math

from urna.errors import ParameterError

__all__ = ["LARGEST_PRIME_BITS", "bits_of", "is_prime", "minimal_root", "primes_below"]

LARGEST_PRIME_BITS = 47
"""Residues stay below 2^47, so that transforms may add up for fifteen stages in float64's 2^53."""

# Miller–Rabin with these bases decides every number below 3.3e24 (Sorenson and Webster 2015).
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_DECIDED_BELOW = 3_317_044_064_679_887_385_961_981


@functools.lru_cache(maxsize=4096)
def is_prime(number: int) -> bool:
    """Say whether a number below 2^81 is prime; exact, not probable.

    Example:
        >>> [n for n in range(30) if is_prime(n)]
        [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    """
    if number >= _DECIDED_BELOW:
        raise ParameterError(f"primality is decided below {_DECIDED_BELOW}, got {number}")
    if number < 2:
        return False
    for small in _WITNESSES:
        if number % small == 0:
            return number == small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, witness, odd, twos) for witness in _WITNESSES)


def _passes(number: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def primes_below(
    limit: int, *, step: int, count: int, without: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the `count` largest primes below `limit` that are 1 modulo `step`.

    Args:
        limit: All primes are smaller.
        step: What they are congruent to 1 for: twice the ring's degree, and for a level's
            primes also the plaintext modulus.
        count: How many.
        without: Primes that are in use already.

    Raises:
        ParameterError: There are not that many.

    Example:
        >>> primes_below(100, step=8, count=3)
        (97, 89, 73)
    """
    found: list[int] = []
    candidate = (limit - 2) // step * step + 1
    while len(found) < count:
        if candidate <= step:
            raise ParameterError(
                f"there are only {len(found)} of {count} primes below {limit} that are 1 "
                f"modulo {step}; take larger primes or a smaller plaintext modulus"
            )
        if candidate not in without and is_prime(candidate):
            found.append(candidate)
        candidate -= step
    return tuple(found)


@functools.lru_cache(maxsize=256)
def minimal_root(prime: int, order: int) -> int:
    """Return the smallest element of this order, a power of two, modulo a prime.

    The smallest, so that everyone's transforms are in the same order (SEAL's too).

    Example:
        >>> minimal_root(17, 8)
        2
    """
    if (prime - 1) % order:
        raise ParameterError(f"{prime} has no element of order {order}: it is not 1 modulo it")
    base = 2
    while pow(root := pow(base, (prime - 1) // order, prime), order // 2, prime) != prime - 1:
        base += 1
    square = root * root % prime
    smallest = root
    for _ in range(order // 2 - 1):  # all elements of this order are the odd powers of one
        root = root * square % prime
        smallest = min(smallest, root)
    return smallest


def bits_of(primes: tuple[int, ...]) -> float:
    """Return log2 of the product of some primes, rounded up a little.

    Example:
        >>> 11.99 < bits_of((64, 64)) < 12.01
        True
    """
    return math.fsum(math.log2(prime) for prime in primes) + 1e-9

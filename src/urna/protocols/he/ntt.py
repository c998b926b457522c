"""Exact arithmetic modulo one prime below 2^47, and the negacyclic transform, in numpy.

Residues are int64. A product of two residues has up to 94 bits and is never formed: its quotient
by the prime is estimated in float64, and `a·b − quotient·prime` is computed modulo 2^64, where
the true difference, being small, is exact. This is the usual floating-point variant of Barrett's
and Shoup's reductions; the bounds on the estimate are beside each function.

The transform evaluates a polynomial of Z_p[X]/(X^N + 1) at the odd powers of the smallest
2N-th root of unity, in bit-reversed order. All stages have the same geometry (Pease 1968): they
read the two halves and write neighbours, so that each is a few long numpy operations.
"""

import functools
import math
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError

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


Residues = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BLOCK: Final = 1 << 14  # elements transformed at a time: they stay in the second-level cache
_TILE: Final = 1024  # shortest row of twiddles: shorter loops are mostly overhead
_STAGES_BETWEEN: Final = 5  # stages of the inverse after which sums are reduced


def reduce(values: Residues, prime: int) -> Residues:
    """Return values reduced to 0 … prime − 1.

    Values have an absolute size of at most 2^52 and of 2^40 primes. The float64 quotient is then
    off by less than 2^-11; taking 2^-8 away before rounding down leaves 0 … 1.01·prime.
    """
    quotient = values * (1.0 / prime)
    quotient -= 2.0**-8
    np.floor(quotient, out=quotient)
    whole = quotient.astype(np.int64)
    whole *= prime
    np.subtract(values, whole, out=whole)
    return _fold(whole, prime)


def multiply(left: Residues, right: Residues, prime: int) -> Residues:
    """Return the products of residues 0 … prime − 1, elementwise and reduced.

    The quotient, below 2^47, comes from three float64 roundings (an error below 2^-4) and is
    lowered by 2^-49 of itself (below 2^-2): the remainder is 0 … 1.4·prime.
    """
    quotient = left * ((1.0 - 2.0**-49) / prime)
    quotient *= right
    whole = quotient.astype(np.int64)
    whole *= prime
    product = left * right  # modulo 2^64, as the difference is
    product -= whole
    return _fold(product, prime)


def multiply_by(values: Residues, constant: int, prime: int) -> Residues:
    """Return values of absolute size below 2^51 times one constant, reduced."""
    constant %= prime
    if 2 * constant > prime:
        constant -= prime
    quotient = values * (constant / prime)
    whole = quotient.astype(np.int64)
    whole *= prime
    product = values * np.int64(constant)
    product -= whole  # within ±1.3 primes
    product += prime & (product >> 63)
    product += prime & (product >> 63)
    return _fold(product, prime)


def _fold(values: Residues, prime: int) -> Residues:
    """Bring 0 … 2·prime − 1 to 0 … prime − 1 in place: unsigned, x − prime wraps if x < prime."""
    lower = values - prime
    unsigned = values.view(np.uint64)
    np.minimum(unsigned, lower.view(np.uint64), out=unsigned)
    return values


class Transform:
    """The negacyclic number-theoretic transform of one degree modulo one prime.

    `forward` and `inverse` take arrays of any shape whose last axis is the polynomial.
    """

    def __init__(self, degree: int, prime: int) -> None:
        if degree < 2 or degree & (degree - 1):
            raise ParameterError(f"a degree is a power of two, got {degree}")
        if not 2 <= prime < 1 << LARGEST_PRIME_BITS:
            raise ParameterError(f"primes are below 2^{LARGEST_PRIME_BITS}, got {prime}")
        self.degree, self.prime = degree, prime
        root = minimal_root(prime, 2 * degree)
        self._forward = _stages(_powers(root, degree, prime), prime)
        self._inverse = _stages(_powers(pow(root, -1, prime), degree, prime), prime)[::-1]
        self._scale = pow(degree, -1, prime)

    def forward(self, coefficients: Residues) -> Residues:
        """Return the values at all roots; coefficients may be anything from −prime to prime."""
        return self._in_blocks(coefficients, self._forward_block)

    def inverse(self, values: Residues) -> Residues:
        """Return the coefficients, 0 … prime − 1, of values 0 … prime − 1."""
        return self._in_blocks(values, self._inverse_block)

    def _in_blocks(self, rows: Residues, kernel: Callable[["_Room"], Residues]) -> Residues:
        flat = rows.reshape(-1, self.degree)
        result = np.empty(flat.shape, dtype=np.int64)
        height = max(1, _BLOCK // self.degree)
        for start in range(0, len(flat), height):
            block = flat[start : start + height]
            room = _room(len(block), self.degree)
            np.copyto(room.values, block)
            result[start : start + height] = kernel(room)
        return result.reshape(rows.shape)

    def _forward_block(self, room: "_Room") -> Residues:
        # Cooley and Tukey's butterfly, (x, y) → (x + wy, x − wy). Each stage adds less than
        # 1.33 primes: after fifteen, values are within ±21 primes, below 2^51.4.
        half = self.degree // 2
        values, other = room.values, room.other
        for twiddles, ratios in self._forward:
            room.multiply(values[:, half:], twiddles, ratios, self.prime, room.half)
            np.add(values[:, :half], room.half, out=other[:, 0::2])
            np.subtract(values[:, :half], room.half, out=other[:, 1::2])
            values, other = other, values
        return reduce(values, self.prime)

    def _inverse_block(self, room: "_Room") -> Residues:
        # Gentleman and Sande's, (x, y) → (x + y, w(x − y)). Sums double at each stage: after
        # five they are at most 32 primes, 2^52, and are reduced.
        half = self.degree // 2
        values, other = room.values, room.other
        for stage, (twiddles, ratios) in enumerate(self._inverse, start=1):
            even, odd = values[:, 0::2], values[:, 1::2]
            np.add(even, odd, out=other[:, :half])
            np.subtract(even, odd, out=room.half)
            room.multiply(room.half, twiddles, ratios, self.prime, other[:, half:])
            values, other = other, values
            if stage % _STAGES_BETWEEN == 0:
                np.copyto(values, reduce(values, self.prime))
        return multiply_by(values, self._scale, self.prime)


class _Room:
    """Arrays the stages of one block need; kept, because fresh memory costs more than sums."""

    def __init__(self, rows: int, degree: int) -> None:
        self.values: Residues = np.empty((rows, degree), dtype=np.int64)
        self.other: Residues = np.empty((rows, degree), dtype=np.int64)
        self.half: Residues = np.empty((rows, degree // 2), dtype=np.int64)
        self._floats: Floats = np.empty((rows, degree // 2))
        self._whole: Residues = np.empty((rows, degree // 2), dtype=np.int64)

    def multiply(
        self, values: Residues, twiddles: Residues, ratios: Floats, prime: int, out: Residues
    ) -> None:
        """Write values·twiddles − quotient·prime to `out`.

        |ratio| ≤ 1/2. Two roundings put the quotient off by at most |value|·2^-53, cutting it to
        an integer by less than 1 more: the result is within ±1.33 primes for |value| < 2^51.4,
        and within ±1.5 for |value| ≤ 2^52.
        """
        rows, half = self.half.shape
        shape = (rows, half // len(twiddles), len(twiddles))
        values, out = values.reshape(shape), out.reshape(shape)
        floats, whole = self._floats.reshape(shape), self._whole.reshape(shape)
        np.multiply(values, ratios, out=floats)
        np.copyto(whole, floats, casting="unsafe")
        np.multiply(values, twiddles, out=out)
        np.multiply(whole, prime, out=whole)
        np.subtract(out, whole, out=out)


class _Rooms(threading.local):
    """The rooms of one thread, by their shape."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], _Room] = {}


_rooms = _Rooms()


def _room(rows: int, degree: int) -> _Room:
    if (rows, degree) not in _rooms.kept:
        _rooms.kept[rows, degree] = _Room(rows, degree)
    return _rooms.kept[rows, degree]


def _powers(root: int, degree: int, prime: int) -> Residues:
    """Return the powers of a root in bit-reversed order, centred around zero."""
    powers = np.ones(degree, dtype=np.int64)
    # Entry i holds root^(i with its bits reversed): the top half of each block of twice
    # the size is its lower half times one power more.
    exponent, filled = degree // 2, 1
    while filled < degree:
        factor = pow(root, exponent, prime)
        powers[filled : 2 * filled] = multiply_by(powers[:filled], factor, prime)
        exponent, filled = exponent // 2, 2 * filled
    return np.where(2 * powers > prime, powers - prime, powers)


def _stages(powers: Residues, prime: int) -> list[tuple[Residues, Floats]]:
    """Return each stage's twiddles, repeated to rows of a useful length, and over the prime."""
    half, size, stages = len(powers) // 2, 1, []
    while size <= half:
        row = np.tile(powers[size : 2 * size], max(1, min(_TILE, half) // size))
        stages.append((row, row / prime))
        size *= 2
    return stages


@functools.lru_cache(maxsize=256)
def transform(degree: int, prime: int) -> Transform:
    """Return the transform of a degree and a prime; tables are made once."""
    return Transform(degree, prime)

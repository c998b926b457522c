"""Choose parameters: the smallest ring that is secure and leaves room for a circuit.

No data are needed. A candidate is accepted if `Parameters` accepts it and the circuit, computed on
noise bounds alone (`noise`), ends with noise that smudging hides.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from urna.errors import ParameterError
from urna.protocols.he import bounds
from urna.protocols.he.noise import Arithmetic, NoiseModel
from urna.protocols.he.parameters import (
    LARGEST_MODULUS_BITS,
    SMUDGING_BITS,
    Packing,
    Parameters,
)
from urna.protocols.he.primes import LARGEST_PRIME_BITS, primes_below

__all__ = ["ArithmeticCircuit", "additive", "levelled"]

Value = TypeVar("Value")

_MOST_BASE_PRIMES = 4


class ArithmeticCircuit(Protocol):
    """A computation on the sums of all parties' vectors, in operations of `Arithmetic`."""

    def __call__(self, arithmetic: Arithmetic[Value], inputs: Sequence[Value], /) -> Value:
        """Return the result of some inputs."""
        ...


def additive(
    *, parties: int, width: int, plaintext_modulus: int = 1 << 32, threshold: int | None = None
) -> Parameters:
    """Plan exact sums modulo any number: no products, no evaluation keys.

    Args:
        parties: How many hold the key; a sum of one ciphertext of each is planned for.
        width: Entries of a vector.
        plaintext_modulus: Sums are exact modulo this, at most 2^47 − 1.
        threshold: How many must help to decrypt; all, if left out.

    Raises:
        ParameterError: No secure ring leaves room for that.

    Example:
        >>> plan = additive(parties=10, width=3)
        >>> plan.degree, len(plan.base), plan.depth
        (4096, 3, 0)
    """
    helpers = parties if threshold is None else threshold
    reason = "too many bits"
    for degree, largest in LARGEST_MODULUS_BITS.items():
        error = parties * (bounds.fresh_error(degree, parties) + 1)
        exponent = _exponent(error, width)
        needed = (2 * plaintext_modulus * ((helpers + 1) << exponent)).bit_length()
        fewest = -(-needed // LARGEST_PRIME_BITS)
        for count in (fewest, fewest + 1):
            bits = -(-needed // count)
            if count * bits > largest:
                continue
            try:
                return Parameters(
                    degree=degree,
                    base=_primes(degree, bits, count, plaintext_modulus),
                    packing=Packing.COEFFICIENTS,
                    width=width,
                    plaintext_modulus=plaintext_modulus,
                    parties=parties,
                    threshold=helpers,
                    smudging_exponent=exponent,
                )
            except ParameterError as refused:
                reason = str(refused)
    raise ParameterError(
        f"no secure ring has room for sums of {parties} parties modulo {plaintext_modulus}. Last "
        f"reason: {reason}"
    )


def levelled(
    circuit: ArithmeticCircuit,
    *,
    parties: int,
    width: int,
    depth: int,
    inputs: int = 1,
    plaintext_modulus: int = 65537,
    threshold: int | None = None,
) -> Parameters:
    """Plan an exact circuit with products, modulo a prime, entry by entry.

    Args:
        circuit: What is computed from the sums of all parties' vectors.
        parties: How many hold the key.
        width: Entries of a vector; rounded up to a power of two.
        depth: How many multiplications follow one another in the circuit.
        inputs: Vectors each party gives.
        plaintext_modulus: A prime that is 1 modulo twice the width.
        threshold: How many must help to decrypt; all, if left out.

    Raises:
        ParameterError: No secure ring leaves room for that.

    Example:
        >>> square = lambda arithmetic, inputs: arithmetic.multiply(inputs[0], inputs[0])
        >>> plan = levelled(square, parties=3, width=100, depth=1)
        >>> plan.degree, plan.width, plan.depth
        (8192, 128, 1)
    """
    helpers = parties if threshold is None else threshold
    reason = "too many bits"
    for degree in LARGEST_MODULUS_BITS:
        for base, levels, special in _chains(degree, depth, plaintext_modulus):
            room = math.prod(base) // (2 * plaintext_modulus * (helpers + 1))
            try:
                candidate = Parameters(
                    degree=degree,
                    base=base,
                    levels=levels,
                    special=special,
                    packing=Packing.SLOTS,
                    width=1 << max(0, width - 1).bit_length(),
                    plaintext_modulus=plaintext_modulus,
                    parties=parties,
                    threshold=helpers,
                    smudging_exponent=max(0, min(255, room.bit_length() - 1)),
                )
                model = NoiseModel(candidate)
                total = model.repeat(model.fresh(), parties)
                if model.hidden(circuit(model, [total] * inputs)):
                    return candidate
                reason = "the circuit ends with more noise than smudging hides"
            except ParameterError as refused:
                reason = str(refused)
    raise ParameterError(
        f"no secure ring leaves room for this circuit of depth {depth} with {parties} parties "
        f"modulo {plaintext_modulus}. Last reason: {reason}"
    )


def _exponent(error: int, width: int) -> int:
    """Return the least exponent of smudging that hides an error."""
    return ((error * width) << SMUDGING_BITS).bit_length() - 1


_Chain = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]


def _primes(
    degree: int, bits: int, count: int, modulus: int = 1, without: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return primes of a ring that have no factor in common with the plaintext modulus."""
    found = primes_below(1 << bits, step=2 * degree, count=count + 1, without=without)
    return tuple(prime for prime in found if modulus % prime)[:count]


def _chains(degree: int, depth: int, modulus: int) -> Iterator[_Chain]:
    """Yield chains at a degree, fewest primes first, large ones before small ones."""
    largest = LARGEST_MODULUS_BITS[degree]
    step = math.lcm(2 * degree, modulus)
    for base_count in range(1, _MOST_BASE_PRIMES + 1):
        for bits in range(LARGEST_PRIME_BITS, 35, -1):
            count = _special_count(base_count + depth, bits, largest)
            if count is None:
                continue
            try:
                chosen = primes_below(1 << bits, step=step, count=depth)
                base = _primes(degree, bits, base_count, modulus, chosen)
                special = _primes(degree, bits, count, modulus, chosen + base)
            except ParameterError:
                continue
            yield base, tuple((prime,) for prime in chosen), special


def _special_count(chain: int, bits: int, largest: int) -> int | None:
    """Return how many special primes make the relinearisation key cheapest, if any fit.

    A product is split into ⌈chain/special⌉ digits, and the key has that many polynomials
    over chain + special primes.
    """
    fitting = [count for count in range(1, chain + 1) if (chain + count) * bits <= largest]
    if not fitting:
        return None
    return min(fitting, key=lambda count: (-(-chain // count) * (chain + count), count))

"""Choose parameters: the smallest ring that is secure and leaves room for a circuit.

No data are needed. A candidate is accepted if `Parameters` accepts it and the circuit, computed on
noise bounds alone, ends with noise that smudging hides.

A circuit is written once, against `Arithmetic`. On `NoiseBound`s (`NoiseModel`) it shows, before
any key exists, whether parameters leave room for it. On ciphertexts (`evaluator.Evaluator`) it
computes, and every ciphertext carries the same bound. The bound is proven, never a guess.

A ciphertext decrypts to v = m + t·e, m in ±t/2. The bound is on |v|, its largest coefficient.
Products: |v·w| ≤ N·|v|·|w|.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from urna.errors import ParameterError
from urna.protocols.he import sampling
from urna.protocols.he.ntt import LARGEST_PRIME_BITS, primes_below
from urna.protocols.he.parameters import (
    LARGEST_MODULUS_BITS,
    SMUDGING_BITS,
    Packing,
    Parameters,
)

Value = TypeVar("Value")


class Arithmetic(Protocol[Value]):
    """What a circuit may do with its inputs."""

    def subtract(self, left: Value, right: Value) -> Value:
        """Subtract; operands of different levels meet at the lower one."""
        ...

    def add_number(self, value: Value, number: int) -> Value:
        """Add a public number to all entries."""
        ...

    def repeat(self, value: Value, times: int) -> Value:
        """Add a value to itself: an integer multiple, negative ones included; no level used."""
        ...

    def multiply(self, left: Value, right: Value) -> Value:
        """Multiply entrywise. Uses up a level."""
        ...


@dataclass(frozen=True, slots=True)
class NoiseBound:
    """A proven bound of one ciphertext."""

    level: int
    error: int
    """Bound of message plus noise."""


class NoiseModel:
    """Bounds by the worst case for everything computed.

    Levels meet, and what does not fit is refused.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        degree, parties = parameters.degree, parameters.parties
        self._fresh = sampling.fresh_error(degree, parties)
        self._rounding = sampling.rounding_error(degree, parties)
        self._key = sampling.key_error(degree, parties)

    def fresh(self) -> NoiseBound:
        """Bound a fresh ciphertext: |m| ≤ t/2, and t times its error."""
        modulus = self.parameters.plaintext_modulus
        return NoiseBound(self.parameters.depth, modulus // 2 + 1 + modulus * self._fresh)

    def add(self, left: NoiseBound, right: NoiseBound) -> NoiseBound:
        """Bound a sum."""
        level = min(left.level, right.level)
        left, right = self.lower(left, level), self.lower(right, level)
        return self._fitting(NoiseBound(level, left.error + right.error))

    subtract = add  # a difference is bounded like a sum

    def add_number(self, noise: NoiseBound, number: int) -> NoiseBound:
        """Bound a sum with a public number in all entries: t/2 more."""
        del number
        half = self.parameters.plaintext_modulus // 2 + 1
        return self._fitting(replace(noise, error=noise.error + half))

    def repeat(self, noise: NoiseBound, times: int) -> NoiseBound:
        """Bound a multiple."""
        return self._fitting(replace(noise, error=abs(times) * noise.error))

    def multiply(self, left: NoiseBound, right: NoiseBound) -> NoiseBound:
        """Bound a product, relinearised and divided by the level's primes."""
        parameters = self.parameters
        level = min(left.level, right.level)
        if level == 0:
            raise ParameterError(
                f"{parameters.depth} multiplications in a row were planned, and this is "
                "one more; plan a greater depth"
            )
        left, right = self.lower(left, level), self.lower(right, level)
        product = parameters.degree * left.error * right.error
        modulus = parameters.plaintext_modulus
        product = self._fitting(NoiseBound(level, product + modulus * self._switching(level))).error
        group = math.prod(parameters.levels[level - 1])
        return self._fitting(NoiseBound(level - 1, product // group + 1 + modulus * self._rounding))

    def lower(self, noise: NoiseBound, level: int) -> NoiseBound:
        """Bound a ciphertext divided by the primes of the levels between."""
        if level == noise.level:
            return noise
        parameters = self.parameters
        dropped = math.prod(parameters.primes(noise.level)[len(parameters.primes(level)) :])
        rounding = parameters.plaintext_modulus * self._rounding
        return self._fitting(NoiseBound(level, noise.error // dropped + 1 + rounding))

    def hidden(self, noise: NoiseBound) -> bool:
        """Say whether smudging hides the error at decryption."""
        modulus = self.parameters.plaintext_modulus
        return (noise.error + modulus // 2) // modulus + 1 <= self.parameters.noise_limit

    def _fitting(self, noise: NoiseBound) -> NoiseBound:
        """Refuse what could wrap around the level's modulus."""
        if 2 * noise.error >= math.prod(self.parameters.primes(noise.level)):
            raise ParameterError(
                f"noise of up to {noise.error.bit_length()} bits does not fit level {noise.level}; "
                "plan this circuit with larger parameters"
            )
        return noise

    def _switching(self, level: int) -> int:
        """Bound what relinearising adds before the division, over the special primes.

        Digit j, of absolute size at most D_j/2, is multiplied by a key whose error is at most
        E: N·D_j/2·E each, divided by P.
        """
        parameters = self.parameters
        primes = parameters.primes(level)
        digits = [primes[first:last] for first, last in parameters.digits if first < len(primes)]
        total = sum(math.prod(digit) for digit in digits) * parameters.degree * self._key
        return total // (2 * math.prod(parameters.special)) + 1


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
        error = parties * (sampling.fresh_error(degree, parties) + 1)
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

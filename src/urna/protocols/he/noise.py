"""Noise as a number that every operation carries along: a proven bound, never a guess.

A circuit is written once, against `Arithmetic`. On `NoiseBound`s (`NoiseModel`) it shows, before
any key exists, whether parameters leave room for it. On ciphertexts (`evaluator.Evaluator`) it
computes, and every ciphertext carries the same bound.

A ciphertext decrypts to v = m + t·e, m in ±t/2. The bound is on |v|, its largest coefficient.
Products: |v·w| ≤ N·|v|·|w|.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from urna.errors import ParameterError
from urna.protocols.he import bounds
from urna.protocols.he.parameters import Parameters

__all__ = ["Arithmetic", "NoiseBound", "NoiseModel"]

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
        self._fresh = bounds.fresh_error(degree, parties)
        self._rounding = bounds.rounding_error(degree, parties)
        self._key = bounds.key_error(degree, parties)

    def fresh(self) -> NoiseBound:
        """Bound a fresh ciphertext: |m| ≤ t/2, and t times its error."""
        modulus = self.parameters.plaintext_modulus
        return NoiseBound(self.parameters.depth, modulus // 2 + 1 + modulus * self._fresh)

    def add(self, left: NoiseBound, right: NoiseBound) -> NoiseBound:
        """Bound a sum."""
        level = min(left.level, right.level)
        left, right = self.lower(left, level), self.lower(right, level)
        return self._fitting(NoiseBound(level, left.error + right.error))

    def subtract(self, left: NoiseBound, right: NoiseBound) -> NoiseBound:
        """Bound a difference: like a sum."""
        return self.add(left, right)

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

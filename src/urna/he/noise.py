"""Noise as a number that every operation carries along: a proven bound, never a guess.

A circuit is written once, against `Arithmetic`. Played on `Noise` by a model of this module it
tells before any key exists whether parameters leave room for it; played on ciphertexts by
`evaluator.Evaluator` it computes, and every ciphertext carries the same bound.

BGV (`ExactNoise`). A ciphertext decrypts to v = m + t·e, m in ±t/2. The bound is on |v|, its
largest coefficient. Products: |v·w| ≤ N·|v|·|w|.

CKKS (`ApproximateNoise`). A ciphertext decrypts to v = D·m + e, D the level's scale. Messages lie
in a subring of degree B (`Parameters.block`): polynomials in Y = X^(N/B). Sort e by powers of X
below X^(N/B): e = Σ X^i·e_i(Y). The bound is on the largest |e_i(y)| over all i and the roots y of
Y^B + 1. A message of magnitude M (largest |m(y)|, the entries themselves) multiplies each e_i(y)
by at most M, so no factor for the ring's degree enters; two errors multiply to at most
(N/B)·ε·ε'. A polynomial of largest coefficient c has a bound of at most B·c.
"""

import abc
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, TypeVar

from urna.errors import ParameterError
from urna.he import bounds
from urna.he.parameters import Parameters

__all__ = ["ApproximateNoise", "Arithmetic", "ExactNoise", "Noise", "Number", "noise_model"]

Value = TypeVar("Value")
Number = int | float
"""A public entry: an integer for BGV, a real number for CKKS."""


class Arithmetic(Protocol[Value]):
    """What a circuit may do with its inputs, whatever they are."""

    def add(self, left: Value, right: Value) -> Value:
        """Add; operands of different levels meet at the lower one."""
        ...

    def subtract(self, left: Value, right: Value) -> Value:
        """Subtract."""
        ...

    def add_plain(self, value: Value, plain: Sequence[Number]) -> Value:
        """Add a public vector, or one number to all entries if it has one."""
        ...

    def multiply_plain(self, value: Value, plain: Sequence[Number]) -> Value:
        """Multiply by a public vector or number. Uses up a level in CKKS, none in BGV."""
        ...

    def weighted_sum(self, values: Sequence[Value], weights: Sequence[Number]) -> Value:
        """Add up values times public numbers, at the price of one `multiply_plain`."""
        ...

    def align(self, values: Sequence[Value]) -> list[Value]:
        """Bring values to their lowest common level, for many uses of them there."""
        ...

    def repeat(self, value: Value, times: int) -> Value:
        """Add a value to itself: an integer multiple, negative ones included; no level used."""
        ...

    def multiply(self, left: Value, right: Value) -> Value:
        """Multiply entrywise. Uses up a level."""
        ...

    def inner_product(self, left: Sequence[Value], right: Sequence[Value]) -> Value:
        """Add up products of pairs at the price of little more than one."""
        ...

    def within(self, value: Value, magnitude: float) -> Value:
        """CKKS: promise that no entry is larger; bounds then rest on the promise."""
        ...


@dataclass(frozen=True, slots=True)
class Noise:
    """A proven bound of one ciphertext."""

    level: int
    error: int
    """BGV: bound of message plus noise. CKKS: bound of the noise alone."""
    magnitude: float = 0.0
    """CKKS: bound of the entries. BGV: 0."""


class _Model(abc.ABC):
    """What both models share: levels meet, and what does not fit is refused."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        degree, parties = parameters.degree, parameters.parties
        self._fresh = bounds.fresh_error(degree, parties)
        self._rounding = bounds.rounding_error(degree, parties)
        self._key = bounds.key_error(degree, parties)

    @abc.abstractmethod
    def lower(self, noise: Noise, level: int) -> Noise:
        """Bound a ciphertext brought down to a level; at its own level nothing changes."""

    @abc.abstractmethod
    def inner_product(self, left: Sequence[Noise], right: Sequence[Noise]) -> Noise:
        """Bound a sum of products."""

    @abc.abstractmethod
    def fitting(self, noise: Noise) -> Noise:
        """Refuse what could wrap around the level's modulus."""

    def subtract(self, left: Noise, right: Noise) -> Noise:
        """Bound a difference: like a sum."""
        return self.add(left, right)

    def add(self, left: Noise, right: Noise) -> Noise:
        """Bound a sum."""
        level = min(left.level, right.level)
        left, right = self.lower(left, level), self.lower(right, level)
        magnitude = _above(left.magnitude + right.magnitude)
        return self.fitting(Noise(level, left.error + right.error, magnitude))

    def align(self, values: Sequence[Noise]) -> list[Noise]:
        """Bound values brought to their lowest common level."""
        level = min(noise.level for noise in values)
        return [self.lower(noise, level) for noise in values]

    def repeat(self, noise: Noise, times: int) -> Noise:
        """Bound a multiple."""
        factor = abs(times)
        magnitude = _above(factor * noise.magnitude)
        return self.fitting(Noise(noise.level, factor * noise.error, magnitude))

    def multiply(self, left: Noise, right: Noise) -> Noise:
        """Bound a product."""
        return self.inner_product([left], [right])

    def _multiplied_level(self, factors: Sequence[Noise]) -> int:
        level = min(noise.level for noise in factors)
        if level == 0:
            raise ParameterError(
                f"{self.parameters.depth} multiplications in a row were planned, and this is "
                "one more; plan a greater depth"
            )
        return level

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


class ExactNoise(_Model):
    """Bounds for BGV, by the worst case for everything computed."""

    def fresh(self, level: int) -> Noise:
        """Bound a fresh ciphertext: |m| ≤ t/2, and t times its error."""
        self.parameters.check_level(level)
        modulus = self.parameters.plaintext_modulus
        return Noise(level, modulus // 2 + 1 + modulus * self._fresh)

    def add_plain(self, noise: Noise, plain: Sequence[Number]) -> Noise:
        """Bound a sum with a public vector: t/2 more."""
        del plain
        half = self.parameters.plaintext_modulus // 2 + 1
        return self.fitting(replace(noise, error=noise.error + half))

    def multiply_plain(self, noise: Noise, plain: Sequence[Number]) -> Noise:
        """Bound a product with a public vector: at most `block` coefficients of at most t/2.

        One number for all entries is a constant polynomial, and costs its own size.
        """
        modulus = self.parameters.plaintext_modulus
        if len(plain) == 1:
            residue = int(plain[0]) % modulus
            return self.repeat(noise, min(residue, modulus - residue))
        factor = self.parameters.block * (modulus // 2 + 1)
        return self.fitting(replace(noise, error=noise.error * factor))

    def weighted_sum(self, values: Sequence[Noise], weights: Sequence[Number]) -> Noise:
        """Bound a sum of public multiples."""
        terms = [
            self.multiply_plain(value, [weight])
            for value, weight in zip(self.align(values), weights, strict=True)
        ]
        return functools.reduce(self.add, terms)

    def inner_product(self, left: Sequence[Noise], right: Sequence[Noise]) -> Noise:
        """Bound a sum of products, relinearised and divided by the level's primes."""
        parameters = self.parameters
        level = self._multiplied_level([*left, *right])
        pairs = [
            (self.lower(a, level), self.lower(b, level)) for a, b in zip(left, right, strict=True)
        ]
        product = parameters.degree * sum(a.error * b.error for a, b in pairs)
        modulus = parameters.plaintext_modulus
        product = self.fitting(Noise(level, product + modulus * self._switching(level))).error
        group = math.prod(parameters.levels[level - 1])
        return self.fitting(Noise(level - 1, product // group + 1 + modulus * self._rounding))

    def lower(self, noise: Noise, level: int) -> Noise:
        """Bound a ciphertext divided by the primes of the levels between."""
        if level == noise.level:
            return noise
        parameters = self.parameters
        dropped = math.prod(parameters.primes(noise.level)[len(parameters.primes(level)) :])
        rounding = parameters.plaintext_modulus * self._rounding
        return self.fitting(Noise(level, noise.error // dropped + 1 + rounding))

    def within(self, noise: Noise, magnitude: float) -> Noise:
        """Change nothing: exact messages are bounded by their modulus."""
        del magnitude
        return noise

    def fitting(self, noise: Noise) -> Noise:
        """Refuse what could wrap around the level's modulus."""
        if 2 * noise.error >= math.prod(self.parameters.primes(noise.level)):
            raise ParameterError(
                f"noise of up to {noise.error.bit_length()} bits does not fit level {noise.level}; "
                "plan this circuit with larger parameters"
            )
        return noise

    def hidden(self, noise: Noise) -> bool:
        """Say whether smudging hides the error at decryption."""
        modulus = self.parameters.plaintext_modulus
        return (noise.error + modulus // 2) // modulus + 1 <= self.parameters.noise_limit


class ApproximateNoise(_Model):
    """Bounds for CKKS; `error` is in the embedding of the module docstring."""

    def fresh(self, level: int) -> Noise:
        """Bound a fresh ciphertext: its error in every coefficient, times the block."""
        self.parameters.check_level(level)
        return Noise(level, self.parameters.block * self._fresh, self.parameters.magnitude)

    def add_plain(self, noise: Noise, plain: Sequence[Number]) -> Noise:
        """Bound a sum with public entries: no error more, they are encoded as they are."""
        largest = max(abs(float(entry)) for entry in plain)
        return self.fitting(replace(noise, magnitude=_above(noise.magnitude + largest)))

    def multiply_plain(self, noise: Noise, plain: Sequence[Number]) -> Noise:
        """Bound a product with public entries, held at the scale that the level's primes undo."""
        return self.weighted_sum([noise], [max(abs(float(entry)) for entry in plain)])

    def weighted_sum(self, values: Sequence[Noise], weights: Sequence[Number]) -> Noise:
        """Bound a sum of public multiples, added up before one division."""
        level, parameters = self._multiplied_level(values), self.parameters
        error, magnitude = Fraction(0), 0.0
        for noise, weight in zip(self.align(values), weights, strict=True):
            error += Fraction(abs(weight)) * noise.error
            magnitude = _above(magnitude + _above(abs(weight) * noise.magnitude))
        ratio = parameters.scale(level - 1) / parameters.scale(level)
        return self.fitting(Noise(level - 1, math.ceil(error * ratio) + self._divided(), magnitude))

    def inner_product(self, left: Sequence[Noise], right: Sequence[Noise]) -> Noise:
        """Bound a sum of products: each error times the other message, and the two errors."""
        parameters = self.parameters
        level = self._multiplied_level([*left, *right])
        scale, copies = parameters.scale(level), parameters.degree // parameters.block
        error, magnitude = Fraction(parameters.block * self._switching(level)), 0.0
        for a, b in zip(left, right, strict=True):
            a, b = self.lower(a, level), self.lower(b, level)  # noqa: PLW2901
            error += scale * (Fraction(a.magnitude) * b.error + Fraction(b.magnitude) * a.error)
            error += copies * a.error * b.error
            magnitude = _above(magnitude + _above(a.magnitude * b.magnitude))
        if 2 * (scale**2 * Fraction(magnitude) + error) >= math.prod(parameters.primes(level)):
            raise ParameterError(
                f"a product of entries up to {magnitude:g} does not fit level {level}; plan with "
                "more base primes or scale the inputs"
            )
        group = math.prod(parameters.levels[level - 1])
        return self.fitting(Noise(level - 1, math.ceil(error / group) + self._divided(), magnitude))

    def lower(self, noise: Noise, level: int) -> Noise:
        """Bound a ciphertext multiplied by a constant and divided by the primes of one level."""
        if level == noise.level:
            return noise
        ratio = self.parameters.scale(level) / self.parameters.scale(noise.level)
        error = math.ceil(noise.error * ratio) + 1
        return self.fitting(Noise(level, error + self._divided(), noise.magnitude))

    def within(self, noise: Noise, magnitude: float) -> Noise:
        """Rest on a promise about the entries."""
        return self.fitting(replace(noise, magnitude=min(noise.magnitude, magnitude)))

    def fitting(self, noise: Noise) -> Noise:
        """Refuse what could wrap around the level's modulus."""
        largest = self.parameters.scale(noise.level) * Fraction(noise.magnitude) + noise.error
        if 2 * largest >= math.prod(self.parameters.primes(noise.level)):
            raise ParameterError(
                f"entries up to {noise.magnitude:g} do not fit level {noise.level}; plan with "
                "more base primes or scale the inputs"
            )
        return noise

    def hidden(self, noise: Noise) -> bool:
        """Say whether smudging hides the error, and itself fits beside the message."""
        parameters = self.parameters
        room = parameters.scale(noise.level) * Fraction(noise.magnitude) + noise.error
        room += parameters.threshold << parameters.smudging_exponent
        fits = 2 * room < math.prod(parameters.primes(noise.level))
        return fits and noise.error <= parameters.noise_limit

    def _divided(self) -> int:
        return self.parameters.block * self._rounding + 1


def _above(value: float) -> float:
    """Return the next larger float64, unless the value is an exact zero: bounds round up."""
    return math.nextafter(value, math.inf) if value else 0.0


def noise_model(parameters: Parameters) -> ExactNoise | ApproximateNoise:
    """Return the model of a scheme."""
    return ExactNoise(parameters) if parameters.exact else ApproximateNoise(parameters)

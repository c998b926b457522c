"""The public parameters of a joint key, checked once, when they are built."""

import enum
import functools
import hashlib
import json
import math
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.he import sampling
from urna.protocols.he.ntt import LARGEST_PRIME_BITS, bits_of, is_prime
from urna.protocols.he.rns import Basis, basis

LARGEST_MODULUS_BITS: Final = MappingProxyType(
    {1024: 26, 2048: 53, 4096: 106, 8192: 214, 16384: 430, 32768: 868}
)
"""Largest log2(Q·P) for 128-bit classical security with a ternary secret, by degree.

The table of the Security Guidelines for Implementing Homomorphic Encryption (Bossuat et al.,
ePrint 2024/463): uniform ternary secret, errors of standard deviation at least 3.19, any number
of samples. It is stricter than the standard's of 2018. An adversary with all shares of the secret
but one still lacks a ternary one, and a sum of secrets is no easier to find than one of them.
"""

SMUDGING_BITS: Final = 40
"""One decryption leaks at most a statistical distance of 2^-40, as planned."""

_MOST_PARTIES: Final = 10_000


class Packing(enum.Enum):
    """Where the entries of a vector lie in a polynomial."""

    COEFFICIENTS = "coefficients"
    """One entry per coefficient, any plaintext modulus: sums and multiples of them."""
    SLOTS = "slots"
    """A prime plaintext modulus: entrywise sums and products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Everything public that all parties must agree on.

    `urna.protocols.he.plan` chooses them; insecure ones, and those whose sums could not be
    decrypted, are refused.

    Guarantee:
        The product of all primes, special ones included, is within the guidelines' table for 128
        bits. A sum of all parties' fresh ciphertexts decrypts correctly, and its noise, like any
        within `noise_limit`, is hidden by smudging up to a statistical distance of
        2^-smudging_bits per decryption.

    Raises:
        ParameterError: They break a rule; the message says which.
    """

    degree: int
    """N: polynomials are taken modulo X^N + 1."""
    base: tuple[int, ...]
    """Primes of the lowest level, where results are decrypted."""
    levels: tuple[tuple[int, ...], ...] = ()
    """Primes each multiplication uses up, from the lowest level to the highest."""
    special: tuple[int, ...] = ()
    """Primes only evaluation keys have: P. Empty where nothing is multiplied."""
    packing: Packing
    width: int
    """Entries of a vector, and so coefficients that carry it. The others are never opened."""
    plaintext_modulus: int
    """t: results are taken modulo it."""
    parties: int
    """How many hold a share of the secret."""
    threshold: int
    """How many must help to decrypt: all of them, unless a smaller group was asked for."""
    smudging_exponent: int
    """A helper's smudging noise is uniform on −2^this … 2^this − 1."""
    smudging_bits: int = SMUDGING_BITS
    """Statistical distance one decryption may leak, as a negative power of two."""

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_primes()
        self._check_plaintext()
        self._check_smudging()

    @property
    def depth(self) -> int:
        """How many multiplications may follow one another: the highest level."""
        return len(self.levels)

    @property
    def chain(self) -> tuple[int, ...]:
        """All primes of ciphertexts, lowest level first."""
        return self.primes(self.depth)

    @property
    def digits(self) -> tuple[tuple[int, int], ...]:
        """First and last-plus-one prime of each digit a product is split into."""
        size = max(1, len(self.special))
        count = len(self.chain)
        return tuple((at, min(at + size, count)) for at in range(0, count, size))

    @property
    def modulus_bits(self) -> float:
        """log2(Q·P), which security depends on."""
        return bits_of(self.chain + self.special)

    @property
    def opened(self) -> npt.NDArray[np.int64]:
        """Which coefficients carry a vector, and are opened when it is decrypted."""
        gap = 1 if self.packing is Packing.COEFFICIENTS else self.degree // self.width
        return gap * np.arange(self.width)

    @property
    def noise_limit(self) -> int:
        """Largest error of a ciphertext that smudging hides."""
        return sampling.noise_limit(self.smudging_exponent, self.width, self.smudging_bits)

    @property
    def digest(self) -> bytes:
        """32 bytes that stand for these parameters in every message."""
        return _digest(self)

    def primes(self, level: int) -> tuple[int, ...]:
        """Return the primes of ciphertexts of a level."""
        self.check_level(level)
        return self.base + tuple(prime for group in self.levels[:level] for prime in group)

    def basis(self, level: int) -> Basis:
        """Return the basis of ciphertexts of a level."""
        return basis(self.degree, self.primes(level))

    def extended(self, level: int) -> Basis:
        """Return the basis of a level with the special primes behind."""
        return basis(self.degree, self.primes(level) + self.special)

    def check_level(self, level: int) -> None:
        """Refuse a level there is not."""
        if not 0 <= level <= len(self.levels):
            raise ParameterError(f"levels are 0 to {len(self.levels)}, got {level}")

    def _check_sizes(self) -> None:
        if self.degree not in LARGEST_MODULUS_BITS:
            raise ParameterError(
                f"the degree must be one of {sorted(LARGEST_MODULUS_BITS)}, got {self.degree}"
            )
        if not 2 <= self.parties <= _MOST_PARTIES:
            raise ParameterError(f"there are 2 to {_MOST_PARTIES} parties, got {self.parties}")
        if not 2 <= self.threshold <= self.parties:
            raise ParameterError(
                f"2 to {self.parties} parties must help to decrypt, got {self.threshold}"
            )
        if not 1 <= self.width <= self.degree:
            raise ParameterError(
                f"vectors have 1 to {self.degree} entries at degree {self.degree}, got {self.width}"
            )
        if self.packing is not Packing.COEFFICIENTS and self.width & (self.width - 1):
            raise ParameterError(f"the number of slots is a power of two, got {self.width}")
        if self.smudging_bits < 1:
            raise ParameterError(f"smudging_bits must be at least 1, got {self.smudging_bits}")

    def _check_primes(self) -> None:
        primes = self.base + tuple(p for group in self.levels for p in group) + self.special
        if not self.base or any(not group for group in self.levels):
            raise ParameterError("every level needs at least one prime")
        if bool(self.levels) != bool(self.special):
            raise ParameterError("special primes are needed exactly where something is multiplied")
        if len(set(primes)) != len(primes):
            raise ParameterError("all primes must be different")
        for prime in primes:
            if not 2 < prime < 1 << LARGEST_PRIME_BITS or not is_prime(prime):
                raise ParameterError(f"{prime} is not an odd prime below 2^{LARGEST_PRIME_BITS}")
            if prime % (2 * self.degree) != 1:
                raise ParameterError(f"the prime {prime} is not 1 modulo {2 * self.degree}")
        largest = LARGEST_MODULUS_BITS[self.degree]
        if math.prod(primes) > 1 << largest:
            raise ParameterError(
                f"at degree {self.degree} the primes' product may have {largest} bits for "
                f"128-bit security, got {bits_of(primes):.1f}; take a larger degree"
            )

    def _check_plaintext(self) -> None:
        modulus = self.plaintext_modulus
        if not 2 <= modulus < 1 << LARGEST_PRIME_BITS:
            raise ParameterError(
                f"the plaintext modulus is 2 to 2^{LARGEST_PRIME_BITS} − 1, got {modulus}"
            )
        if math.gcd(modulus, math.prod(self.chain + self.special)) != 1:
            raise ParameterError("the plaintext modulus has a factor in common with the primes")
        if self.packing is Packing.SLOTS and not (
            is_prime(modulus) and modulus % (2 * self.width) == 1
        ):
            raise ParameterError(
                f"{self.width} slots need a prime plaintext modulus that is 1 modulo "
                f"{2 * self.width}, got {modulus}"
            )
        for group in self.levels:
            if math.prod(group) % modulus != 1:
                raise ParameterError(
                    "the product of each level's primes must be 1 modulo the plaintext modulus"
                )

    def _check_smudging(self) -> None:
        if not 0 <= self.smudging_exponent < 256:
            raise ParameterError(
                f"smudging_exponent must be 0 to 255, got {self.smudging_exponent}"
            )
        widest = self.noise_limit + (self.threshold << self.smudging_exponent) + 1
        if 2 * self.plaintext_modulus * widest >= math.prod(self.base):
            raise ParameterError(
                f"{self.threshold} helpers' smudging noise of {self.smudging_exponent} bits does "
                f"not fit the lowest level's {bits_of(self.base):.0f} bits"
            )
        total = self.parties * (sampling.fresh_error(self.degree, self.parties) + 1)
        if total > self.noise_limit:
            raise ParameterError(
                f"smudging hides errors up to {self.noise_limit}; a sum of {self.parties} fresh "
                f"ciphertexts has up to {total}. Take more or larger base primes"
            )


@functools.lru_cache(maxsize=64)
def _digest(parameters: Parameters) -> bytes:
    named = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    named["packing"] = parameters.packing.value
    text = json.dumps(named, sort_keys=True)
    return hashlib.sha256(b"urna he parameters\0" + text.encode()).digest()

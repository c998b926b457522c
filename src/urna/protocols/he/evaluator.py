"""Computing with ciphertexts: vectors as polynomials and back, sums, products, and their levels.

A vector's entries lie in `Parameters.width` coefficients, evenly spread (or the first ones, where
entries are coefficients); only those are decrypted later. A polynomial in Y = X^(N/width) stays one
under sums and products, so the other coefficients of a message are always zero.

Anybody can encrypt under the joint public key. The server evaluates, without a secret. Every result
carries a proven bound of its noise (`plan`), and an operation after which decryption could fail
is refused.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, ProtocolError
from urna.protocols.he import ntt
from urna.protocols.he.messages import Ciphertext, PublicKey, RelinearisationKey, public_reference
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Packing, Parameters
from urna.protocols.he.plan import NoiseModel
from urna.protocols.he.rns import basis
from urna.protocols.he.sampling import Sampler
from urna.randomness import SecretSource

Entries = npt.NDArray[np.int64]


def encode(parameters: Parameters, entries: Sequence[int] | Entries) -> npt.NDArray[np.int64]:
    """Return a vector as the coefficients of a polynomial, at most half the modulus each.

    Entries are taken modulo the plaintext modulus; missing ones are zero.

    Raises:
        ParameterError: There are more than `width` entries, or they are not integers.
    """
    vector = np.asarray(entries)
    if vector.ndim != 1 or len(vector) > parameters.width:
        raise ParameterError(
            f"a vector has at most {parameters.width} entries in one row, got shape {vector.shape}"
        )
    modulus = parameters.plaintext_modulus
    if len(vector) and vector.dtype.kind not in "iuO":
        raise ParameterError(f"entries are integers, got {vector.dtype}")
    padded = np.zeros(parameters.width, dtype=np.int64)
    padded[: len(vector)] = vector % modulus
    if parameters.packing is Packing.SLOTS:
        padded = ntt.transform(parameters.width, modulus).inverse(padded)
    polynomial = np.zeros(parameters.degree, dtype=np.int64)
    polynomial[parameters.opened] = centred(padded, modulus)
    return polynomial


def decode(parameters: Parameters, residues: Residues, level: int) -> Entries:
    """Return the vector of decrypted coefficients, integers 0 … t − 1 (`centred` signs them)."""
    ring, modulus = parameters.basis(level), parameters.plaintext_modulus
    digits = ring.digits(residues)
    total = np.zeros(parameters.width, dtype=np.int64)
    radix = 1
    for row, prime in enumerate(ring.primes):
        total = (total + ntt.multiply_by(digits[row], radix, modulus)) % modulus
        radix *= prime
    if parameters.packing is Packing.SLOTS:
        return ntt.transform(parameters.width, modulus).forward(total)
    return total


def uniform_entries(parameters: Parameters, source: SecretSource) -> npt.NDArray[np.int64]:
    """Draw a vector of uniform residues modulo the plaintext modulus.

    Guarantee:
        If one party's vector is drawn so and stays secret, a sum of all parties' is uniform,
        whatever the others gave: what it multiplies stays zero or becomes uniform.
    """
    return Sampler.of(source).below(parameters.plaintext_modulus, parameters.width)


def centred(entries: npt.NDArray[np.int64], modulus: int) -> npt.NDArray[np.int64]:
    """Return residues as the integers nearest to zero.

    Example:
        >>> centred(np.array([0, 1, 6]), 7).tolist()
        [0, 1, -1]
    """
    return np.where(2 * entries > modulus, entries - modulus, entries)


def encrypt(
    public_key: PublicKey, entries: Sequence[int] | Entries, source: SecretSource
) -> Ciphertext:
    """Encrypt at most `width` integers under the joint key, at the highest level.

    Guarantee:
        Nobody learns anything about the entries without a decryption share of every party (or
        of `threshold` of them), under ring learning with errors.
    """
    parameters = public_key.session.parameters
    noise = NoiseModel(parameters).fresh()
    plain = encode(parameters, entries)
    ring, sampler = parameters.basis(parameters.depth), Sampler.of(source)
    blind = ring.forward_small(sampler.ternary(parameters.degree))
    errors = sampler.errors(2, parameters.degree)
    modulus = parameters.plaintext_modulus
    first = ring.forward(ring.combine([errors[0], plain], [modulus, 1]))
    second = ring.forward_small(errors[1], modulus)
    halves = np.stack(
        [
            ring.add(ring.multiply(public_key.values, blind), first),
            ring.add(ring.multiply(public_reference(public_key.session), blind), second),
        ]
    )
    return Ciphertext(public_key.digest, noise, halves)


class Evaluator:
    """Arithmetic on ciphertexts of one joint key (an `Arithmetic`).

    Operands of different levels meet at the lower one. All operations are deterministic. A
    relinearisation key is needed to multiply.
    """

    def __init__(
        self, public_key: PublicKey, relinearisation_key: RelinearisationKey | None = None
    ) -> None:
        if relinearisation_key is not None and relinearisation_key.key != public_key.digest:
            raise ProtocolError("the relinearisation key belongs to another joint key")
        self.parameters = public_key.session.parameters
        self._key, self._relinearisation = public_key.digest, relinearisation_key
        self._noise = NoiseModel(self.parameters)

    def total(self, terms: Sequence[Ciphertext]) -> Ciphertext:
        """Add up any number of ciphertexts."""
        if not terms:
            raise ParameterError("at least one ciphertext is needed")
        terms = self._meet(terms, min(term.level for term in terms))
        noise = functools.reduce(self._noise.add, [term.noise for term in terms])
        parts = self.parameters.basis(noise.level).total([term.parts for term in terms])
        return Ciphertext(self._key, noise, parts)

    def subtract(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        """Subtract one ciphertext from another."""
        noise = self._noise.subtract(left.noise, right.noise)
        left, right = self._meet([left, right], noise.level)
        parts = self.parameters.basis(noise.level).subtract(left.parts, right.parts)
        return Ciphertext(self._key, noise, parts)

    def add_number(self, value: Ciphertext, number: int) -> Ciphertext:
        """Add a public number to all entries."""
        (value,) = self._meet([value], value.level)
        noise = self._noise.add_number(value.noise, number)
        ring, parts = self.parameters.basis(value.level), value.parts.copy()
        spread = encode(self.parameters, [number] * self.parameters.width)
        parts[0] = ring.add(parts[0], ring.forward(ring.combine([spread], [1])))
        return Ciphertext(self._key, noise, parts)

    def repeat(self, value: Ciphertext, times: int) -> Ciphertext:
        """Multiply by an integer, which uses no level."""
        (value,) = self._meet([value], value.level)
        noise = self._noise.repeat(value.noise, times)
        parts = self.parameters.basis(value.level).multiply_by(value.parts, times)
        return Ciphertext(self._key, noise, parts)

    def multiply(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        """Multiply entrywise, relinearise, and go down a level.

        Raises:
            ParameterError: The planned depth is used up, or the noise would not fit.
        """
        if self._relinearisation is None:
            raise ParameterError("multiplying needs a relinearisation key")
        noise = self._noise.multiply(left.noise, right.noise)
        level = noise.level + 1
        a, b = (value.parts for value in self._meet([left, right], level))
        ring, wide = self.parameters.basis(level), self.parameters.extended(level)
        # (a₀ + a₁S)(b₀ + b₁S): what stands beside 1, S and S².
        constant = ring.multiply(a[0], b[0])
        linear = ring.add(ring.multiply(a[0], b[1]), ring.multiply(a[1], b[0]))
        parts = self._switch(ring.multiply(a[1], b[1]), level, self._relinearisation)
        special, rows = math.prod(self.parameters.special), len(ring)
        for part, product in enumerate((constant, linear)):
            scaled = ring.multiply_by(product, special)
            parts[part, :rows] = ring.add(parts[part, :rows], scaled)
        # One exact division by the special primes and the level's own: less noise than two.
        below = len(self.parameters.primes(noise.level))
        parts = wide.divide(parts, below, self.parameters.plaintext_modulus)
        return Ciphertext(self._key, noise, parts)

    def lower(self, value: Ciphertext, level: int) -> Ciphertext:
        """Bring a ciphertext down to a level: it becomes smaller, and so does its noise."""
        self.parameters.check_level(level)
        if level > value.level:
            raise ParameterError(f"a ciphertext of level {value.level} cannot rise to {level}")
        return self._meet([value], level)[0]

    def _meet(self, values: Sequence[Ciphertext], level: int) -> list[Ciphertext]:
        for value in values:
            if value.key != self._key:
                raise ProtocolError("the ciphertext belongs to another joint key")
        return [value if value.level == level else self._lower(value, level) for value in values]

    def _lower(self, value: Ciphertext, level: int) -> Ciphertext:
        noise = self._noise.lower(value.noise, level)
        ring, kept = self.parameters.basis(value.level), len(self.parameters.primes(level))
        parts = ring.divide(value.parts, kept, self.parameters.plaintext_modulus)
        return Ciphertext(self._key, noise, parts)

    def _switch(self, square: Residues, level: int, key: RelinearisationKey) -> Residues:
        """Return two polynomials that decrypt to P·square·S² and noise, over all primes.

        `square` is split into digits, one per group of primes; each, extended to all primes,
        multiplies its part of the key.
        """
        parameters = self.parameters
        ring, wide = parameters.basis(level), parameters.extended(level)
        rows, count = len(ring), len(parameters.chain)
        chosen = [*range(rows), *range(count, count + len(parameters.special))]
        coefficients = ring.inverse(square)
        terms: list[list[Residues]] = [[], []]
        for digit, (first, end) in enumerate(parameters.digits):
            last = min(end, rows)
            if first >= last:
                break
            own = ring.part(first, last)
            others = [row for row in range(len(wide)) if not first <= row < last]
            rest = basis(parameters.degree, tuple(wide.primes[row] for row in others))
            digits = own.digits(coefficients[first:last])
            extended = np.empty((len(wide), parameters.degree), dtype=np.int64)
            extended[others] = rest.forward(rest.residues_of(digits, own))
            extended[first:last] = square[first:last]  # there it is its own residue
            for part in (0, 1):
                terms[part].append(wide.multiply(extended, key.parts[part, digit][chosen]))
        return np.stack([wide.total(terms[0]), wide.total(terms[1])])

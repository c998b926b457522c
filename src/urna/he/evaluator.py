"""Computing with ciphertexts: sums, products, and the levels they use up.

Encryption is by the joint public key, so any party, or anyone else, can encrypt. Evaluation
needs no secret; it is the server's work. Every result carries a proven bound of its noise
(`noise`), and what would not decrypt rightly is refused before it is computed.
"""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from urna.errors import ParameterError, ProtocolError
from urna.he.encoding import Entries, encode
from urna.he.messages import Ciphertext, PublicKey, RelinearisationKey
from urna.he.noise import Noise, Number, noise_model
from urna.he.ntt import Residues
from urna.he.parameters import Packing
from urna.he.rns import basis
from urna.he.sampling import Sampler
from urna.he.session import public_reference
from urna.randomness import SecretSource

__all__ = ["Evaluator", "encrypt"]


def encrypt(
    public_key: PublicKey,
    entries: Sequence[Number] | Entries,
    source: SecretSource,
    *,
    level: int | None = None,
) -> Ciphertext:
    """Encrypt a vector under the joint key.

    Guarantee:
        Nobody learns anything about the entries without a decryption share of every party (or
        of `threshold` of them), under ring learning with errors.

    Args:
        public_key: The joint key.
        entries: At most `width` integers (BGV) or real numbers (CKKS).
        source: Where the encryption's randomness comes from.
        level: How many multiplications may follow; all that were planned, if left out. Fewer
            make a smaller ciphertext.

    Raises:
        ParameterError: The entries do not fit the parameters.
    """
    parameters = public_key.session.parameters
    level = parameters.depth if level is None else level
    noise = noise_model(parameters).fresh(level)
    if not parameters.exact:
        largest = float(np.abs(np.asarray(entries, dtype=np.float64)).max(initial=0.0))
        if not largest <= parameters.magnitude:
            raise ParameterError(f"an entry is larger than the planned {parameters.magnitude:g}")
    plain = encode(parameters, entries, parameters.scale(level))
    ring, sampler = parameters.basis(level), Sampler.of(source)
    blind = ring.forward_small(sampler.ternary(parameters.degree))
    errors = sampler.errors(2, parameters.degree)
    modulus = parameters.plaintext_modulus
    parts = [errors[0], *plain.limbs]
    first = ring.forward(ring.combine(parts, [modulus, *plain.weights]))
    second = ring.forward_small(errors[1], modulus)
    rows = len(ring)
    halves = np.stack(
        [
            ring.add(ring.multiply(public_key.values[:rows], blind), first),
            ring.add(ring.multiply(public_reference(public_key.session)[:rows], blind), second),
        ]
    )
    return Ciphertext(public_key.digest, noise, halves)


class Evaluator:
    """Arithmetic on ciphertexts of one joint key (an `Arithmetic`).

    Operands of different levels meet at the lower one. All operations are deterministic.

    Args:
        public_key: The joint key.
        relinearisation_key: Needed to multiply.
    """

    def __init__(
        self, public_key: PublicKey, relinearisation_key: RelinearisationKey | None = None
    ) -> None:
        if relinearisation_key is not None and relinearisation_key.key != public_key.digest:
            raise ProtocolError("the relinearisation key belongs to another joint key")
        self.parameters = public_key.session.parameters
        self._key, self._relinearisation = public_key.digest, relinearisation_key
        self._noise = noise_model(self.parameters)

    def add(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        """Add two ciphertexts."""
        noise = self._noise.add(left.noise, right.noise)
        left, right = self._meet([left, right], noise.level)
        parts = self.parameters.basis(noise.level).add(left.parts, right.parts)
        return Ciphertext(self._key, noise, parts)

    def subtract(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        """Subtract one ciphertext from another."""
        noise = self._noise.subtract(left.noise, right.noise)
        left, right = self._meet([left, right], noise.level)
        parts = self.parameters.basis(noise.level).subtract(left.parts, right.parts)
        return Ciphertext(self._key, noise, parts)

    def total(self, terms: Sequence[Ciphertext]) -> Ciphertext:
        """Add up any number of ciphertexts."""
        terms = self.align(terms)
        noise = functools.reduce(self._noise.add, [term.noise for term in terms])
        parts = self.parameters.basis(noise.level).total([term.parts for term in terms])
        return Ciphertext(self._key, noise, parts)

    def add_plain(self, value: Ciphertext, plain: Sequence[Number]) -> Ciphertext:
        """Add a public vector, or one number to all entries."""
        (value,) = self._meet([value], value.level)
        noise = self._noise.add_plain(value.noise, plain)
        polynomial = encode(
            self.parameters, self._spread(plain), self.parameters.scale(value.level)
        )
        ring = self.parameters.basis(value.level)
        parts = value.parts.copy()
        parts[0] = ring.add(parts[0], polynomial.values(self.parameters, value.level))
        return Ciphertext(self._key, noise, parts)

    def multiply_plain(self, value: Ciphertext, plain: Sequence[Number]) -> Ciphertext:
        """Multiply by a public vector, or all entries by one number.

        BGV: no level is used; noise grows by the vector's size, by little for one small number.
        CKKS: one level is used.
        """
        if len(plain) == 1:
            return self.weighted_sum([value], plain)
        parameters = self.parameters
        if parameters.packing is Packing.COEFFICIENTS:
            raise ParameterError("coefficients can only be multiplied by one number for all")
        (value,) = self._meet([value], value.level)
        noise = self._noise.multiply_plain(value.noise, plain)
        scale = Fraction(1) if parameters.exact else self._undone(value.level, noise.level)
        factor = encode(parameters, plain, scale).values(parameters, value.level)
        parts = parameters.basis(value.level).multiply(value.parts, factor)
        return Ciphertext(self._key, noise, self._divide(parts, value.level, noise.level))

    def weighted_sum(self, values: Sequence[Ciphertext], weights: Sequence[Number]) -> Ciphertext:
        """Add up ciphertexts times public numbers. CKKS: they go down one level together."""
        values = self.align(values)
        noise = self._noise.weighted_sum([value.noise for value in values], weights)
        level = values[0].level
        ring = self.parameters.basis(level)
        terms = [
            ring.multiply_by(value.parts, self._factor(weight, level, noise.level))
            for value, weight in zip(values, weights, strict=True)
        ]
        return Ciphertext(self._key, noise, self._divide(ring.total(terms), level, noise.level))

    def align(self, values: Sequence[Ciphertext]) -> list[Ciphertext]:
        """Bring ciphertexts to their lowest common level."""
        if not values:
            raise ParameterError("at least one ciphertext is needed")
        return self._meet(values, min(value.level for value in values))

    def repeat(self, value: Ciphertext, times: int) -> Ciphertext:
        """Multiply by an integer, which uses no level."""
        (value,) = self._meet([value], value.level)
        noise = self._noise.repeat(value.noise, times)
        parts = self.parameters.basis(value.level).multiply_by(value.parts, times)
        return Ciphertext(self._key, noise, parts)

    def multiply(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        """Multiply entrywise, relinearise, and go down a level."""
        return self.inner_product([left], [right])

    def inner_product(self, left: Sequence[Ciphertext], right: Sequence[Ciphertext]) -> Ciphertext:
        """Add up products of pairs; the costly part, relinearisation, is done once.

        Raises:
            ParameterError: The planned depth is used up, or the noise would not fit.
        """
        if len(left) != len(right) or not left:
            raise ParameterError("an inner product needs pairs, and at least one")
        if self._relinearisation is None:
            raise ParameterError("multiplying needs a relinearisation key")
        noise = self._noise.inner_product(
            [value.noise for value in left], [value.noise for value in right]
        )
        level = noise.level + 1
        pairs = list(zip(self._meet(left, level), self._meet(right, level), strict=True))
        ring, wide = self.parameters.basis(level), self.parameters.extended(level)
        # (a₀ + a₁S)(b₀ + b₁S): what stands beside 1, S and S².
        constant = ring.total([ring.multiply(a.parts[0], b.parts[0]) for a, b in pairs])
        linear = ring.total(
            [ring.multiply(a.parts[i], b.parts[1 - i]) for a, b in pairs for i in (0, 1)]
        )
        square = ring.total([ring.multiply(a.parts[1], b.parts[1]) for a, b in pairs])
        parts = self._switch(square, level, self._relinearisation)
        special, rows = math.prod(self.parameters.special), len(ring)
        for part, product in enumerate((constant, linear)):
            scaled = ring.multiply_by(product, special)
            parts[part, :rows] = ring.add(parts[part, :rows], scaled)
        # One exact division by the special primes and the level's own: less noise than two.
        below = len(self.parameters.primes(noise.level))
        parts = wide.divide(parts, below, self.parameters.plaintext_modulus)
        return Ciphertext(self._key, noise, parts)

    def within(self, value: Ciphertext, magnitude: float) -> Ciphertext:
        """CKKS: rest the bounds on a promise that no entry is larger."""
        (value,) = self._meet([value], value.level)
        return Ciphertext(self._key, self._noise.within(value.noise, magnitude), value.parts)

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
        parameters = self.parameters
        noise: Noise = self._noise.lower(value.noise, level)
        if parameters.exact:
            parts = self._divide(value.parts, value.level, level)
            return Ciphertext(self._key, noise, parts)
        # CKKS: drop primes without dividing down to one level above, then multiply by the
        # integer that makes the scale after the last division exactly the level's.
        above = parameters.basis(level + 1)
        factor = round(self._undone(value.level, level, divided=level + 1))
        parts = above.multiply_by(value.parts[:, : len(above)], factor)
        return Ciphertext(self._key, noise, self._divide(parts, level + 1, level))

    def _factor(self, weight: Number, level: int, target: int) -> int:
        """Return the integer that multiplies by a public number on the way to a level."""
        if not self.parameters.exact:
            return round(Fraction(weight) * self._undone(level, target))
        modulus = self.parameters.plaintext_modulus
        residue = int(weight) % modulus
        return residue - modulus if 2 * residue > modulus else residue

    def _undone(self, level: int, target: int, divided: int | None = None) -> Fraction:
        """CKKS: return the factor that takes a level's scale, once divided, to the target's."""
        group = self.parameters.levels[(divided or level) - 1]
        return self.parameters.scale(target) * math.prod(group) / self.parameters.scale(level)

    def _divide(self, parts: Residues, level: int, target: int) -> Residues:
        if level == target:
            return parts
        kept = len(self.parameters.primes(target))
        modulus = self.parameters.plaintext_modulus
        return self.parameters.basis(level).divide(parts, kept, modulus)

    def _spread(self, plain: Sequence[Number]) -> Sequence[Number]:
        """Repeat one number for all entries."""
        return list(plain) * self.parameters.width if len(plain) == 1 else plain

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

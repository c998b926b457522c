"""Vectors as polynomials, and back.

A vector's entries lie in `Parameters.block` coefficients, evenly spread (or the first ones, where
entries are coefficients); only those are opened later. A polynomial in Y = X^(N/B) stays one
under sums and products, so the other coefficients of a message are always zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.he import ntt
from urna.he.ntt import Residues
from urna.he.parameters import Packing, Parameters
from urna.he.sampling import Sampler
from urna.randomness import SecretSource

__all__ = ["Entries", "Plain", "centred", "decode", "encode", "uniform_entries"]

Entries = npt.NDArray[np.int64] | npt.NDArray[np.float64]

_MANTISSA_BITS = 52
_LIMB_BITS = 40
_LIMB = 1 << _LIMB_BITS


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """A polynomial with integer coefficients of any size: Σ limb_i·2^(40i)."""

    limbs: tuple[npt.NDArray[np.int64], ...] = field(repr=False)

    @property
    def weights(self) -> list[int]:
        """What the limbs count for."""
        return [1 << (_LIMB_BITS * place) for place in range(len(self.limbs))]

    def values(self, parameters: Parameters, level: int) -> Residues:
        """Return it transformed, for the primes of a level."""
        ring = parameters.basis(level)
        return ring.forward(ring.combine(self.limbs, self.weights))


def encode(
    parameters: Parameters, entries: Sequence[int | float] | Entries, scale: Fraction
) -> Plain:
    """Return a vector as a polynomial.

    Args:
        parameters: Say how entries are packed.
        entries: At most `width` of them; missing ones are zero. Integers of any sign for BGV,
            taken modulo the plaintext modulus; finite real numbers for CKKS, which are kept
            as exactly as float64 transforms allow, about 2^-50 of the largest.
        scale: CKKS: what an entry of 1 is held as. BGV: anything, not used.

    Raises:
        ParameterError: There are too many entries, or they are not of the right kind.
    """
    vector = np.asarray(entries)
    if vector.ndim != 1 or len(vector) > parameters.width:
        raise ParameterError(
            f"a vector has at most {parameters.width} entries in one row, got shape {vector.shape}"
        )
    if parameters.exact:
        return _encode_integers(parameters, vector)
    return _encode_reals(parameters, vector, scale)


def decode(parameters: Parameters, residues: Residues, level: int) -> Entries:
    """Return the vector of a decrypted polynomial.

    Args:
        parameters: Say how entries are packed.
        residues: Its opened coefficients, shape (primes of the level, block).
        level: The level it was decrypted at.

    Returns:
        BGV: integers 0 … t − 1 (`centred` makes signed ones). CKKS: real numbers.
    """
    basis = parameters.basis(level)
    digits = basis.digits(residues)
    if not parameters.exact:
        scale = parameters.scale(level)
        weights = [math.prod(basis.primes[:row]) / scale for row in range(len(basis))]
        # Digits are centred: the highest one that is not zero decides, and nothing cancels.
        coefficients = sum(
            (digit * float(weight) for digit, weight in zip(digits, weights, strict=True)),
            start=np.zeros(parameters.block),
        )
        return _entries_of(coefficients)
    modulus = parameters.plaintext_modulus
    total = np.zeros(parameters.block, dtype=np.int64)
    radix = 1
    for row, prime in enumerate(basis.primes):
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
    if not parameters.exact:
        raise ParameterError("real numbers have no uniform distribution to draw from")
    return Sampler.of(source).below(parameters.plaintext_modulus, parameters.width)


def centred(entries: npt.NDArray[np.int64], modulus: int) -> npt.NDArray[np.int64]:
    """Return residues as the integers nearest to zero.

    Example:
        >>> centred(np.array([0, 1, 6]), 7).tolist()
        [0, 1, -1]
    """
    return np.where(2 * entries > modulus, entries - modulus, entries)


def _encode_integers(parameters: Parameters, vector: npt.NDArray[np.generic]) -> Plain:
    modulus = parameters.plaintext_modulus
    if len(vector) and vector.dtype.kind not in "iuO":
        raise ParameterError(f"exact entries are integers, got {vector.dtype}")
    block = np.zeros(parameters.block, dtype=np.int64)
    block[: len(vector)] = vector % modulus
    if parameters.packing is Packing.SLOTS:
        block = ntt.transform(parameters.width, modulus).inverse(block)
    polynomial = np.zeros(parameters.degree, dtype=np.int64)
    polynomial[parameters.opened] = centred(block, modulus)
    return Plain((polynomial,))


def _encode_reals(
    parameters: Parameters, vector: npt.NDArray[np.generic], scale: Fraction
) -> Plain:
    reals = np.zeros(parameters.width)
    reals[: len(vector)] = vector
    if not np.isfinite(reals).all():
        raise ParameterError("entries must be finite")
    coefficients = _coefficients_of(reals)
    largest = float(np.abs(coefficients).max())
    # As integers below 2^53 over a power of two, which is exact, and from there in Python's own.
    shift = _MANTISSA_BITS - math.frexp(largest)[1] if largest else 0
    numbers = np.rint(np.ldexp(coefficients, shift)).astype(np.int64).astype(object)
    factor = scale / Fraction(2) ** shift
    doubled = 2 * numbers * factor.numerator + factor.denominator
    rest = doubled // (2 * factor.denominator)  # rounded to the nearest
    limbs: list[npt.NDArray[np.int64]] = []
    while not limbs or rest.any():
        limb = np.zeros(parameters.degree, dtype=np.int64)
        digits = (rest + _LIMB // 2) % _LIMB - _LIMB // 2
        limb[parameters.opened] = digits.astype(np.int64)
        rest = (rest - digits) // _LIMB
        limbs.append(limb)
    return Plain(tuple(limbs))


def _coefficients_of(reals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the real polynomial with these values at the roots of the upper half-plane.

    Entry k is the value at ζ^(2k+1), ζ = exp(iπ/B), and its conjugate at the conjugate root.
    """
    values = np.concatenate([reals, reals[::-1]])
    size = len(values)
    twist = np.exp(-1j * np.pi * np.arange(size) / size)
    result: npt.NDArray[np.float64] = (np.fft.fft(values) * twist).real / size
    return result


def _entries_of(coefficients: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Undo `_coefficients_of`."""
    size = len(coefficients)
    twist = np.exp(1j * np.pi * np.arange(size) / size)
    values: npt.NDArray[np.float64] = (np.fft.ifft(coefficients * twist) * size).real
    return values[: size // 2]

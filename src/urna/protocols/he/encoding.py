"""Vectors as polynomials, and back.

A vector's entries lie in `Parameters.width` coefficients, evenly spread (or the first ones, where
entries are coefficients); only those are decrypted later. A polynomial in Y = X^(N/width) stays one
under sums and products, so the other coefficients of a message are always zero.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.he import ntt
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Packing, Parameters
from urna.protocols.he.sampling import Sampler
from urna.randomness import SecretSource

__all__ = ["Entries", "centred", "decode", "encode", "uniform_entries"]

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
    basis = parameters.basis(level)
    digits = basis.digits(residues)
    modulus = parameters.plaintext_modulus
    total = np.zeros(parameters.width, dtype=np.int64)
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
    return Sampler.of(source).below(parameters.plaintext_modulus, parameters.width)


def centred(entries: npt.NDArray[np.int64], modulus: int) -> npt.NDArray[np.int64]:
    """Return residues as the integers nearest to zero.

    Example:
        >>> centred(np.array([0, 1, 6]), 7).tolist()
        [0, 1, -1]
    """
    return np.where(2 * entries > modulus, entries - modulus, entries)

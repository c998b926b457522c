"""What keys, ciphertexts and decryption shares are drawn from.

Every draw comes from the key stream of a 32-byte seed: a secret source's for what must stay
secret, a digest of the session's id for the common reference everyone must agree on.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.he.ntt import Residues
from urna.protocols.he.rns import Basis
from urna.randomness import SEED_BYTES, KeyStream, SecretSource, little_endian

__all__ = ["ERROR_BOUND", "ERROR_VARIANCE", "SECRET_VARIANCE", "Sampler"]

_COINS: Final = 21

ERROR_BOUND: Final = _COINS
"""No error coefficient is larger: heads among 21 coins minus heads among 21 others."""
ERROR_VARIANCE: Final = _COINS / 2
"""10.5: a standard deviation of 3.24, above the 8/√(2π) = 3.19 of the standard."""
SECRET_VARIANCE: Final = 2 / 3
"""Secrets are −1, 0 and 1 with equal chances."""

_LIMB: Final = 16  # bits of a limb of wide noise


class Sampler:
    """Draws polynomials from the key stream of one seed.

    Guarantee:
        Draws are exact for a uniform key stream: rejection where a range is no power of two,
        and no floating point. The stream, and so every draw, is the same on every platform.

    Args:
        seed: 32 bytes, used for this sampler alone.
    """

    def __init__(self, seed: bytes) -> None:
        self._stream = KeyStream(seed)

    @classmethod
    def of(cls, source: SecretSource) -> "Sampler":
        """Return a sampler with a fresh secret seed."""
        return cls(source.take(SEED_BYTES))

    def uniform(self, basis: Basis, *shape: int) -> Residues:
        """Draw uniform polynomials modulo a basis; they are uniform before and after transforms."""
        drawn = np.empty((*shape, len(basis), basis.degree), dtype=np.int64)
        for place in np.ndindex(*drawn.shape[:-1]):
            drawn[place] = self._below(basis.primes[place[-1]], basis.degree)
        return drawn

    def below(self, limit: int, count: int) -> npt.NDArray[np.int64]:
        """Draw uniform integers 0 … limit − 1, for a limit of at most 2^62."""
        if not 1 <= limit <= 1 << 62:
            raise ParameterError(f"limits are between 1 and 2^62, got {limit}")
        return self._below(limit, count)

    def ternary(self, *shape: int) -> npt.NDArray[np.int64]:
        """Draw −1, 0 and 1 with equal chances."""
        count = int(np.prod(shape))
        drawn = self._words(count, 8)
        while (over := np.flatnonzero(drawn >= 255)).size:  # 255 = 3·85
            drawn[over] = self._words(over.size, 8)
        return (drawn % 3).astype(np.int64).reshape(shape) - 1

    def errors(self, *shape: int, times: int = 1) -> npt.NDArray[np.int64]:
        """Draw centred binomial errors, or sums of `times` of them."""
        count = int(np.prod(shape))
        total = np.zeros(count, dtype=np.int64)
        for _ in range(times):
            coins = self._words(2 * count, 32) & np.uint32((1 << _COINS) - 1)
            heads = np.bitwise_count(coins).astype(np.int64)
            total += heads[:count]
            total -= heads[count:]
        return total.reshape(shape)

    def wide(self, basis: Basis, exponent: int, count: int) -> Residues:
        """Draw `count` integers uniform on −2^exponent … 2^exponent − 1, as residues.

        Args:
            basis: Shape of the result is (primes, count).
            exponent: At most 255.
            count: How many.
        """
        if not 0 <= exponent < 256:
            raise ParameterError(f"wide noise has an exponent of 0 to 255, got {exponent}")
        bits = exponent + 1
        limbs = [self._words(count, _LIMB).astype(np.int64) for _ in range(-(-bits // _LIMB))]
        limbs[-1] &= (1 << (bits - 1) % _LIMB + 1) - 1
        weights = [1 << (_LIMB * place) for place in range(len(limbs))]
        limbs.append(np.ones(count, dtype=np.int64))
        return basis.combine(limbs, [*weights, -(1 << exponent)])

    def _below(self, limit: int, count: int) -> npt.NDArray[np.int64]:
        mask = np.uint64((1 << (limit - 1).bit_length()) - 1)
        drawn = self._words(count, 64) & mask
        while (over := np.flatnonzero(drawn >= limit)).size:
            drawn[over] = self._words(over.size, 64) & mask
        return drawn.astype(np.int64)

    def _words(self, count: int, bits: int) -> npt.NDArray[np.unsignedinteger]:
        room = np.empty(count * bits // 8, dtype=np.uint8)
        self._stream.fill(room)
        return little_endian(room, bits)

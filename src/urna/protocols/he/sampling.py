"""What keys, ciphertexts and decryption shares are drawn from, and how large it can be: proven.

Every draw comes from the key stream of a 32-byte seed: a secret source's for what must stay
secret, a digest of the session's id for the common reference everyone must agree on.

Nothing here is an average or a rule of thumb. Three lemmas bound what honest parties draw,
except with a chance of 2^-64 for each statement; whatever is computed from ciphertexts is
bounded in the worst case. N is the ring's degree, n the number of parties, |·| the largest
coefficient, ‖·‖ the Euclidean length of the coefficients, S the joint secret (the parties' sum).

**Centred tails.** A variable X is *sub-Gaussian with variance v* if E exp(λX) ≤ exp(λ²v/2) for
all λ. A uniform choice of −1, 0, 1 is so with v = 2/3: E exp(λX) = 1 + Σ_k≥1 (2/3)·λ^2k/(2k)!, and
(2k)!/k! ≥ 2·3^(k−1) makes every term at most (λ²/3)^k/k!. Heads of 21 coins minus heads of 21
others are so with v = 21/2, being 42 signs over two (cosh λ/2 ≤ exp λ²/8). Independent sums add
their v.

**Lemma 1.** X_1 … X_N independent, sub-Gaussian with variance v, w fixed: |Σ w_i X_i| is at most
‖w‖·√(2v·ln(2/δ)) except with chance δ. (Chernoff; Σ w_i X_i has variance v‖w‖².)

**Lemma 2.** ‖X‖² ≤ v·(N + 2√(Nx) + 2x) except with chance e^-x. (With g a standard normal,
E exp(λX²) = E E_g exp(√(2λ)gX) ≤ E_g exp(λvg²): squares are dominated by those of a normal of
variance v, and for chi-square this is Laurent and Massart 2000, Lemma 1.)

**Lemma 3.** X and Y independent polynomials as above with variances v and w. A coefficient of XY
modulo X^N + 1 is an inner product of X with Y, permuted and with signs. So, by lemma 2 for Y, by
lemma 1 for X given Y, and over all N coefficients, |XY| ≤ √(vw)·R·κ except with chance 2δ, with
R² = N + 2√(Nx) + 2x, κ² = 2·ln(2N/δ), x = ln(1/δ).

In the worst case |ab| ≤ ‖a‖·‖b‖ ≤ N·|a|·|b| (Cauchy and Schwarz).
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.he.ntt import Residues
from urna.protocols.he.rns import Basis
from urna.randomness import SEED_BYTES, KeyStream, SecretSource, little_endian

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
            drawn[place] = self.below(basis.primes[place[-1]], basis.degree)
        return drawn

    def below(self, limit: int, count: int) -> npt.NDArray[np.int64]:
        """Draw uniform integers 0 … limit − 1, for a limit of at most 2^62."""
        if not 1 <= limit <= 1 << 62:
            raise ParameterError(f"limits are between 1 and 2^62, got {limit}")
        mask = np.uint64((1 << (limit - 1).bit_length()) - 1)
        drawn = self._words(count, 64) & mask
        while (over := np.flatnonzero(drawn >= limit)).size:
            drawn[over] = self._words(over.size, 64) & mask
        return drawn.astype(np.int64)

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

    def _words(self, count: int, bits: int) -> npt.NDArray[np.unsignedinteger]:
        room = np.empty(count * bits // 8, dtype=np.uint8)
        self._stream.fill(room)
        return little_endian(room, bits)


FAILURE_BITS: Final = 64
"""Each probabilistic statement fails with a chance of at most 2^-64."""


def fresh_error(degree: int, parties: int) -> int:
    """Bound |e| of a fresh ciphertext: it decrypts to its message plus t·e.

    The joint key is (t·E − a·S, a), E the sum of n errors. Encryption adds t·e₀ and t·e₁ and
    multiplies by a ternary u, so e = E·u + e₀ + e₁·S: lemma 3 twice and lemma 1 once.
    """
    spread, length = _spread(degree), _length(degree)
    error, secret = math.sqrt(ERROR_VARIANCE), math.sqrt(SECRET_VARIANCE)
    products = 2 * math.sqrt(parties) * error * secret * length * spread
    return _up(products + error * spread)


def secret_length(degree: int, parties: int) -> int:
    """Bound ‖S‖, by lemma 2: S is sub-Gaussian with variance 2n/3."""
    return _up(math.sqrt(SECRET_VARIANCE * parties) * _length(degree))


def rounding_error(degree: int, parties: int) -> int:
    """Bound what exact division adds, in units of the plaintext modulus t.

    Dividing both parts of a ciphertext leaves roundings ρ₀, ρ₁ with |ρ| ≤ t/2, and it decrypts to
    ρ₀ + ρ₁·S more: at most t/2·(1 + √N·‖S‖), whatever the roundings are.
    """
    return _up((1 + math.sqrt(degree) * secret_length(degree, parties)) / 2)


def key_error(degree: int, parties: int) -> int:
    """Bound |E_j| of a digit's relinearisation key: it decrypts to g_j·S² + t·E_j.

    The two rounds of Mouchet et al. 2021 leave E = S·e₀ + U·e₁ + e₂, with U, e₀ and e₁ sums of n
    draws each and e₂ of 2n: lemma 3 twice and lemma 1 once.
    """
    spread, length = _spread(degree), _length(degree)
    error, secret = math.sqrt(ERROR_VARIANCE * parties), math.sqrt(SECRET_VARIANCE * parties)
    return _up(2 * error * secret * length * spread + math.sqrt(2) * error * spread)


def noise_limit(exponent: int, opened: int, bits: int) -> int:
    """Return the largest |e| that smudging hides.

    Every helper adds t·η to each opened coefficient of its share, η uniform on
    −2^exponent … 2^exponent − 1. Moving η by e_k changes its distribution by |e_k|/2^(exponent+1)
    in statistical distance, so m + t·(e + η) and m + t·η, which a simulator makes from the result m
    alone, differ by at most opened·|e|/2^(exponent+1) ≤ 2^-bits. One helper's η is enough: all
    others may collude and subtract theirs (`decryption` has the whole argument).
    """
    return (1 << (exponent + 1)) // (opened << bits)


def _spread(degree: int) -> float:
    return math.sqrt(2 * math.log(2) * (1 + math.log2(degree) + FAILURE_BITS))


def _length(degree: int) -> float:
    tail = FAILURE_BITS * math.log(2)
    return math.sqrt(degree + 2 * math.sqrt(degree * tail) + 2 * tail)


def _up(value: float) -> int:
    """Round up, and past the error of some float64 operations."""
    return math.ceil(value * (1 + 1e-12))

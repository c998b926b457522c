"""How large noise can be, proven, and how much of it hides the rest.

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

from urna.protocols.he.sampling import ERROR_VARIANCE, SECRET_VARIANCE

__all__ = [
    "FAILURE_BITS",
    "fresh_error",
    "key_error",
    "noise_limit",
    "rounding_error",
    "secret_length",
]

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

"""Shamir's secret sharing over GF(65521), many secrets and many holders at a time.

The one piece of arithmetic this package writes by hand. A 32-byte secret is sixteen 16-bit
limbs, each below the prime 65521, so a share is as long as the secret. Sharing is one matrix
product: all entries are below 2^16 and sums have fewer than 2^20 terms, so float64 (exact
below 2^53) holds every sum and the fast library product gives the exact one.

Guarantee:
    Fewer than `threshold` shares are independent of the secret; any `threshold` rebuild it.
"""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.randomness import SEED_BYTES, SecretSource

PRIME = 65521
"""The largest prime below 2^16."""

_LIMBS = SEED_BYTES // 2
_ONE_THREAD = 1 << 18  # multiplications below which OpenBLAS does not start threads

Limbs = npt.NDArray[np.uint16]


def shareable(secret: bytes) -> bool:
    """Say whether every limb of a 32-byte secret lies in the field."""
    return bool((np.frombuffer(secret, dtype="<u2") < PRIME).all())


def draw_secret(source: SecretSource) -> bytes:
    """Draw a uniform secret whose limbs all lie in the field: 255.99 bits of entropy."""
    return _field_elements(source, _LIMBS).astype("<u2").tobytes()


def share(
    secrets: Sequence[bytes], threshold: int, holders: int, source: SecretSource
) -> list[bytes]:
    """Split secrets into one bundle of shares per holder; any `threshold` bundles rebuild them.

    Args:
        secrets: 32-byte secrets for which `shareable` holds.
        threshold: Bundles needed to rebuild.
        holders: Bundles made. Holder i has the point i + 1.
        source: Where the polynomials come from.

    Returns:
        One bundle per holder: the shares of all secrets, in order, 32 bytes each.
    """
    if not 1 <= threshold <= holders < PRIME:
        raise ParameterError(
            f"1 <= threshold <= holders < {PRIME} must hold, got {threshold} and {holders}"
        )
    limbs = np.frombuffer(b"".join(secrets), dtype="<u2")
    if (limbs >= PRIME).any():
        raise ParameterError("a secret has a limb outside the field; draw it with draw_secret")
    rows = np.empty((threshold, limbs.size))
    rows[0] = limbs
    rows[1:] = _field_elements(source, (threshold - 1) * limbs.size).reshape(-1, limbs.size)
    powers = _powers(holders, threshold)
    bundles = np.empty((holders, limbs.size), dtype="<u2")
    # Narrow strips stay on one thread: more threads cost more than such products take.
    width = max(1, _ONE_THREAD // (holders * threshold))
    for start in range(0, limbs.size, width):
        # Below threshold·2^32 < 2^48: exact in float64, whatever order the library adds in.
        strip = powers @ rows[:, start : start + width]
        bundles[:, start : start + width] = strip.astype(np.int64) % PRIME
    return [bundle.tobytes() for bundle in bundles]


def recover(points: npt.NDArray[np.int64], shares: Limbs) -> Limbs:
    """Rebuild many clients' secrets at once, each from exactly `threshold` shares.

    Args:
        points: Shape (clients, threshold); the holders' points of each client, all different.
        shares: Shape (clients, threshold, limbs); what those holders gave.

    Returns:
        Shape (clients, limbs): the value at zero of the polynomials through the shares.
    """
    if (shares >= PRIME).any():
        raise ParameterError("a share has a limb outside the field")
    weights = _weights_at_zero(points).astype(np.float64)
    sums = np.matmul(weights[:, None, :], shares.astype(np.float64))[:, 0, :]
    found: Limbs = (sums % PRIME).astype(np.uint16)
    return found


def _weights_at_zero(points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return Lagrange's coefficients at zero: the product over j≠i of x_j / (x_j − x_i)."""
    count, threshold = points.shape
    above = np.ones((count, threshold), dtype=np.int64)
    below = np.ones((count, threshold), dtype=np.int64)
    for j in range(threshold):
        other = points[:, j : j + 1]
        apart = (other - points) % PRIME
        own = np.arange(threshold) == j
        above = np.where(own, above, above * other % PRIME)
        below = np.where(own, below, below * apart % PRIME)
    if not below.all():
        raise ParameterError("two shares have the same point")
    return above * _inverse(below) % PRIME


def _inverse(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return inverses by Fermat: x^(p−2)."""
    result, power, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power = power * power % PRIME
        exponent >>= 1
    return result


@functools.lru_cache(maxsize=8)
def _powers(holders: int, threshold: int) -> npt.NDArray[np.float64]:
    """Return the powers 0..threshold−1 of the holders' points, one row per holder."""
    points = np.arange(1, holders + 1, dtype=np.int64)
    columns = [np.ones_like(points)]
    for _ in range(threshold - 1):
        columns.append(columns[-1] * points % PRIME)
    return np.stack(columns, axis=1).astype(np.float64)


def _field_elements(source: SecretSource, count: int) -> Limbs:
    """Draw uniform field elements by rejection."""
    drawn = np.frombuffer(source.take(2 * count), dtype="<u2").astype(np.uint16)
    while (over := np.flatnonzero(drawn >= PRIME)).size:
        drawn[over] = np.frombuffer(source.take(2 * over.size), dtype="<u2")
    return drawn

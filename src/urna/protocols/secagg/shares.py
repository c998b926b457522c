"""Sharing secrets: Shamir's scheme over GF(65521), and the bundles in which shares travel.

The one piece of arithmetic this package writes by hand. A 32-byte secret is sixteen 16-bit
limbs, each below the prime 65521, so a share is as long as the secret. Sharing is one matrix
product: all entries are below 2^16 and sums have fewer than 2^20 terms, so float64 (exact
below 2^53) holds every sum and the fast library product gives the exact one.

A bundle is what one client gives one neighbour to keep: that neighbour's share of each of the
sender's secrets, in order: its mask key, its self-mask seed, its noise seeds. The server sees a
bundle encrypted, with a digest beside it. The digest is that of the shares' own digests, so that
some of the shares can be held against it later without the others being shown.

Guarantee:
    Fewer than `threshold` shares are independent of the secret; any `threshold` rebuild it.
    Whoever finds two different shares under one digest has found a collision or a second
    preimage of SHA-256 cut to 128 bits; a digest of a share, which has 255 bits of entropy,
    tells nothing of it (SHA-256 as a random oracle).
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.secagg.messages import ClientId
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


TAG_BYTES = 16
"""What encryption adds to a bundle."""
DIGEST_BYTES = 16
KEY, SEED = 0, 1
"""Places in a bundle; noise component k stands at SEED + k."""


def bundle_digest(bundle: bytes, round_id: bytes, sender: ClientId, recipient: ClientId) -> bytes:
    """Return the digest by which a bundle, or parts of it, are recognised."""
    return _root(_leaves(bundle), round_id, sender, recipient)


def partial_size(shown: int, secrets: int) -> int:
    """Return how long a bundle is of which so many shares are shown, the others as digests."""
    return SEED_BYTES * shown + DIGEST_BYTES * (secrets - shown)


def partly_shown(bundles: npt.NDArray[np.uint8], places: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return the shares at some places of each bundle, and digests of the others."""
    count, secrets = len(bundles), bundles.shape[1] // SEED_BYTES
    rows = bundles.reshape(count, secrets, SEED_BYTES)
    hidden = [place for place in range(secrets) if place not in places]
    packed = b"".join(_leaves(rows[:, hidden].tobytes()))
    shown = rows[:, places].reshape(count, SEED_BYTES * len(places))
    digests = np.frombuffer(packed, dtype=np.uint8).reshape(count, DIGEST_BYTES * len(hidden))
    return np.concatenate([shown, digests], axis=1)


def shown_digest(
    row: bytes,
    places: Sequence[int],
    secrets: int,
    round_id: bytes,
    sender: ClientId,
    recipient: ClientId,
) -> bytes:
    """Return the digest of the bundle that a partly shown one belongs to."""
    at, leaves = SEED_BYTES * len(places), dict[int, bytes]()
    for number, place in enumerate(places):
        (leaves[place],) = _leaves(row[SEED_BYTES * number : SEED_BYTES * (number + 1)])
    for place in range(secrets):
        if place not in leaves:
            leaves[place], at = row[at : at + DIGEST_BYTES], at + DIGEST_BYTES
    return _root([leaves[place] for place in range(secrets)], round_id, sender, recipient)


def good_bundle(
    bundle: bytes, digest: bytes, round_id: bytes, sender: ClientId, recipient: ClientId
) -> bool:
    """Say whether a bundle is the one its digest names, with every limb in the field."""
    inside = in_field(np.frombuffer(bundle, dtype=np.uint8)[None])
    return bool(inside[0]) and bundle_digest(bundle, round_id, sender, recipient) == digest


def in_field(bundles: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Say of each bundle whether every limb of its shares is in the field."""
    largest: npt.NDArray[np.uint16] = bundles.view("<u2").max(axis=1)
    return largest < PRIME


def _leaves(shares: bytes) -> list[bytes]:
    digest = hashlib.sha256  # a million times in a large round
    return [
        digest(shares[at : at + SEED_BYTES]).digest()[:DIGEST_BYTES]
        for at in range(0, len(shares), SEED_BYTES)
    ]


def _root(leaves: Sequence[bytes], round_id: bytes, sender: ClientId, recipient: ClientId) -> bytes:
    ends = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    packed = b"".join([b"urna secagg bundle\0", round_id, ends, *leaves])
    return hashlib.sha256(packed).digest()[:DIGEST_BYTES]

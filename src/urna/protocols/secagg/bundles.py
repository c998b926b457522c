"""Bundles of shares and their digests: what one client gives one neighbour to keep.

A bundle holds a neighbour's share of each of the sender's secrets, in order: its mask key, its
self-mask seed, its noise seeds. The server sees a bundle encrypted, with a digest beside it. The
digest is that of the shares' own digests, so that some of the shares can be held against it
later without the others being shown.

Guarantee:
    Whoever finds two different shares under one digest has found a collision or a second
    preimage of SHA-256 cut to 128 bits; a digest of a share, which has 255 bits of entropy,
    tells nothing of it (SHA-256 as a random oracle).
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from urna.protocols.secagg.messages import ClientId
from urna.protocols.secagg.shamir import PRIME
from urna.randomness import SEED_BYTES

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

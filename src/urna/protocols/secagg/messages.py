"""What is said: one value per message. `wire` alone turns them into bytes.

Every message but the invitation carries the id of its round, which is a digest of the plan, the
round's number and its coin: a message of another round or another plan is recognised as such.
"""

import functools
import hashlib
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from urna.protocols.secagg.parts import Parts

ClientId = int
"""A client's number in the plan, 0 … clients − 1."""


class Stage(IntEnum):
    """The exchanges of a round, in order.

    AGREE takes place only with a dishonest server, VOID only after a round that came to nothing.
    """

    ADVERTISE = 1
    SHARE = 2
    MASK = 3
    AGREE = 4
    UNMASK = 5
    VOID = 6


@dataclass(frozen=True, slots=True)
class Invitation:
    """Server to client, stage 1: a round begins."""

    number: int
    """Rounds are numbered upwards; a client answers each number at most once."""
    coin: bytes
    """32 public bytes that decide the graph."""
    plan_digest: bytes
    """The plan both sides must hold."""

    @property
    def round_id(self) -> bytes:
        """The id that binds every later message to number, coin and plan."""
        number = self.number.to_bytes(8, "big")
        return hashlib.sha256(
            b"urna secagg round\0" + self.plan_digest + number + self.coin
        ).digest()


@dataclass(frozen=True, slots=True)
class Advertisement:
    """Client to server, stage 1, and in key books: two public keys, signed."""

    round_id: bytes
    client: ClientId
    channel_key: bytes
    """For encrypting shares; its private half is never shared."""
    mask_key: bytes
    """For pairwise masks; its private half is shared and rebuilt if the client drops out."""
    signature: bytes
    """Ed25519 over all of the above, or empty where there is no directory."""


@dataclass(frozen=True, slots=True)
class KeyBook:
    """Server to client, stage 2: the advertisements of its neighbours."""

    round_id: bytes
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class SealedShares:
    """Client to server, stage 2: one encrypted bundle of shares per neighbour."""

    round_id: bytes
    client: ClientId
    commitments: tuple[bytes, ...]
    """Digests of the self-mask seed and the noise seeds: wrong shares are noticed."""
    bundles: Parts
    """For each neighbour: the encrypted bundle, its digest, and a signature over both where the
    server may be dishonest."""


@dataclass(frozen=True, slots=True)
class ShareBox:
    """Server to client, stage 3: the bundles its neighbours encrypted to it."""

    round_id: bytes
    bundles: Parts


@dataclass(frozen=True, slots=True)
class MaskedVector:
    """Client to server, stage 3: vector, noise and masks, modulo 2^ring_bits."""

    round_id: bytes
    client: ClientId
    peers_digest: bytes
    """Digest of the neighbours it masked with: a mask that only one of two adds would stay."""
    words: bytes = field(repr=False)
    """Little-endian words of the ring."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Client to server, stage 3, in place of a vector: a neighbour's bundle is not what it says."""

    round_id: bytes
    client: ClientId
    against: ClientId
    proof: bytes
    """What lets the server read that one bundle (`evidence`). Empty where the bundle does not
    bear its sender's signature: the server can see that for itself."""


@dataclass(frozen=True, slots=True)
class AgreeRequest:
    """Server to client, stage 4 (dishonest servers only): the lists to sign."""

    round_id: bytes
    survivors: frozenset[ClientId]
    dropped: frozenset[ClientId]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Client to server, stage 4 (dishonest servers only): the one pair of lists it signs."""

    round_id: bytes
    client: ClientId
    signature: bytes


@dataclass(frozen=True, slots=True)
class UnmaskRequest:
    """Server to client, last stage: whose vectors are in the sum and who dropped out."""

    round_id: bytes
    survivors: frozenset[ClientId]
    """Those whose vectors arrived."""
    dropped: frozenset[ClientId]
    """Those who shared their keys and whose vectors did not arrive."""
    signatures: Parts
    """Agreements on these lists; empty with an honest-but-curious server."""


@dataclass(frozen=True, slots=True)
class UnmaskReply:
    """Client to server, last stage: what it holds of its neighbours' secrets.

    For a survivor: shares of its self-mask seed and of the noise seeds that are opened. For a
    dropped client: the share of its mask key. Never both. Of the shares that are not shown there
    are digests, so that those shown can be held against what was shared.
    """

    round_id: bytes
    client: ClientId
    survivors: Parts
    dropped: Parts


@dataclass(frozen=True, slots=True)
class Void:
    """Server to client, after a round that came to nothing: forget it, and say that you did."""

    round_id: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """Client to server: it has revealed nothing in this round, and holds nothing of it now."""

    round_id: bytes
    client: ClientId
    signature: bytes
    """Empty where there is no directory."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Client to server, any stage: why it does not answer. Holds no secrets and no data."""

    client: ClientId
    reason: str


Message = (
    Invitation
    | Advertisement
    | KeyBook
    | SealedShares
    | ShareBox
    | MaskedVector
    | AgreeRequest
    | Agreement
    | UnmaskRequest
    | UnmaskReply
    | Refusal
    | Complaint
    | Void
    | Receipt
)


def peers_digest(round_id: bytes, peers: npt.NDArray[np.int64]) -> bytes:
    """Return the digest of the neighbours, ascending, that a client masked its vector with."""
    packed = peers.astype(">u4").tobytes()
    return hashlib.sha256(b"urna secagg peers\0" + round_id + packed).digest()


@functools.lru_cache(maxsize=4)
def lists_digest(
    round_id: bytes, survivors: frozenset[ClientId], dropped: frozenset[ClientId]
) -> bytes:
    """Return the digest of a round's lists that clients sign: the same for all, so kept."""
    ids = [len(survivors), *sorted(survivors), len(dropped), *sorted(dropped)]
    packed = b"".join(number.to_bytes(4, "big") for number in ids)
    return hashlib.sha256(b"urna secagg lists\0" + round_id + packed).digest()

"""What is said: one value per message. `wire` alone turns them into bytes.

Every message but the invitation carries the id of its round, which is a digest of the plan, the
round's number and its coin: a message of another round or another plan is recognised as such.

Bundles of shares and what is rebuilt from them travel in `Parts`: byte strings of one length, one
for each of some clients, kept as one block. A round of 10,000 clients moves a million of them; in
one block they are checked, passed on and stacked without touching each.
"""

import functools
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from urna.errors import ProtocolError

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Parts(Mapping[int, bytes]):
    """A map from clients to byte strings of one length, sorted by client.

    It reads like any other mapping and never changes.

    Raises:
        ProtocolError: The clients do not ascend, or there is not one row of bytes for each.

    Example:
        >>> shares = Parts.of({7: b"four", 2: b"five"}, size=4)
        >>> list(shares), shares[7], shares.size
        ([2, 7], b'four', 4)
    """

    clients: npt.NDArray[np.int64]
    """Whose they are, or for whom: ascending."""
    rows: npt.NDArray[np.uint8] = field(repr=False)
    """The byte strings, one row per client."""

    def __post_init__(self) -> None:
        clients, rows = self.clients, self.rows
        if rows.ndim != 2 or not rows.shape[1] or clients.shape != rows.shape[:1]:
            raise ProtocolError("a map must hold one part of at least one byte for each client")
        if len(clients) and (clients[0] < 0 or not (clients[1:] > clients[:-1]).all()):
            raise ProtocolError("the clients of a map must ascend and be no less than zero")
        # A frozen value: what it holds cannot be written through it.
        object.__setattr__(self, "clients", _read_only(clients))
        object.__setattr__(self, "rows", _read_only(rows))

    @classmethod
    def of(cls, parts: Mapping[int, bytes], size: int) -> "Parts":
        """Pack byte strings of `size` bytes.

        Raises:
            ProtocolError: One of them has another length.
        """
        if set(map(len, parts.values())) - {size}:
            raise ProtocolError(f"all parts must have {size} bytes")
        order = sorted(parts)
        packed = b"".join([parts[client] for client in order])
        rows = np.frombuffer(packed, dtype=np.uint8).reshape(len(order), size)
        return cls(np.array(order, dtype=np.int64), rows)

    @property
    def size(self) -> int:
        """Length of each byte string."""
        return int(self.rows.shape[1])

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Yield each client and its byte string, ascending: `items`, cut in one pass."""
        packed, size = self.rows.tobytes(), self.size
        cut = (packed[at : at + size] for at in range(0, len(packed), size))
        return zip(self.clients.tolist(), cut, strict=True)

    def __getitem__(self, client: int) -> bytes:
        place = int(np.searchsorted(self.clients, client))
        if place == len(self.clients) or self.clients[place] != client:
            raise KeyError(client)
        return bytes(self.rows[place])

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients.tolist())

    def __len__(self) -> int:
        return len(self.clients)


def turned(parts: Mapping[int, Parts]) -> dict[int, Parts]:
    """Return the same byte strings by recipient instead of by sender.

    What `parts[a]` holds for b is what the result's `[b]` holds from a.

    Raises:
        ProtocolError: They are not all of one length.

    Example:
        >>> sent = {1: Parts.of({2: b"x", 3: b"y"}, 1), 2: Parts.of({3: b"z"}, 1)}
        >>> {client: dict(came) for client, came in turned(sent).items()}
        {2: {1: b'x'}, 3: {1: b'y', 2: b'z'}}
    """
    senders = sorted(parts)
    sizes = {parts[sender].size for sender in senders if parts[sender]}
    if not sizes:
        return {}
    if len(sizes) > 1:
        raise ProtocolError("parts that are passed on must all have one length")
    recipients = np.concatenate([parts[sender].clients for sender in senders])
    # Stable: the parts of one recipient stay sorted by sender.
    order = np.argsort(recipients, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    rows = np.empty((len(order), sizes.pop()), dtype=np.uint8)
    start = 0
    for sender in senders:
        block = parts[sender].rows
        rows[places[start : start + len(block)]] = block
        start += len(block)
    origins = np.repeat(senders, [len(parts[sender]) for sender in senders])[order]
    found, starts = np.unique(recipients[order], return_index=True)
    bounds = itertools.pairwise([*starts.tolist(), len(order)])
    return {
        recipient: Parts(origins[start:end], rows[start:end])
        for recipient, (start, end) in zip(found.tolist(), bounds, strict=True)
    }


def _read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


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

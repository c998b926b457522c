"""What parties and the server send each other, one value per message. `wire` turns them into bytes.

A message names neither its session nor its sender: `wire.decode` refuses those of another session
and of another sender. What depends on the joint key carries that key's digest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from urna.protocols.he.noise import NoiseBound
from urna.protocols.he.ntt import Residues
from urna.protocols.he.session import PartyId, Session

__all__ = [
    "ChannelBook",
    "ChannelKey",
    "Ciphertext",
    "DecryptionRequest",
    "DecryptionShare",
    "EncryptedShareBox",
    "EncryptedShares",
    "KeyShare",
    "KeySum",
    "Message",
    "PublicKey",
    "RelinearisationKey",
    "RelinearisationShare",
]


@dataclass(frozen=True, slots=True, eq=False)
class KeyShare:
    """Party to server, first exchange: its part of the public and of the relinearisation key."""

    public: Residues = field(repr=False)
    """Shape (chain, degree)."""
    relinearisation: Residues | None = field(repr=False)
    """Shape (2, digits, chain + special, degree); none where nothing is multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class KeySum:
    """Server to party: the sums of all key shares."""

    public: Residues = field(repr=False)
    relinearisation: Residues | None = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class RelinearisationShare:
    """Party to server, second exchange: its part of the finished relinearisation key."""

    parts: Residues = field(repr=False)
    """Shape (digits, chain + special, degree)."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicKey:
    """The joint public key (values, common reference)."""

    session: Session
    values: Residues = field(repr=False)
    """Shape (chain, degree)."""
    digest: bytes
    """32 bytes that stand for session and key in every ciphertext."""


@dataclass(frozen=True, slots=True, eq=False)
class RelinearisationKey:
    """What turns a product back into an ordinary ciphertext; public."""

    key: bytes
    parts: Residues = field(repr=False)
    """Shape (2, digits, chain + special, degree)."""


@dataclass(frozen=True, slots=True, eq=False)
class Ciphertext:
    """Two polynomials (c₀, c₁): c₀ + c₁·S is the message and its noise."""

    key: bytes
    """Digest of the joint public key."""
    noise: NoiseBound
    """Its level, and how large its noise can be."""
    parts: Residues = field(repr=False)
    """Shape (2, primes of the level, degree), transformed."""

    @property
    def level(self) -> int:
        """How many multiplications may still follow."""
        return self.noise.level


@dataclass(frozen=True, slots=True, eq=False)
class DecryptionRequest:
    """Server to party: help to decrypt. Only c₁ is needed for it."""

    key: bytes
    noise: NoiseBound
    helpers: frozenset[PartyId]
    """Exactly these parties' shares decrypt it."""
    second: Residues = field(repr=False)
    """c₁, shape (primes of the level, degree), transformed."""


@dataclass(frozen=True, slots=True, eq=False)
class DecryptionShare:
    """Party to server: its part of the decrypted coefficients, smudged."""

    key: bytes
    request: bytes
    """Digest of the request it answers."""
    level: int
    residues: Residues = field(repr=False)
    """Shape (primes of the level, decrypted coefficients)."""


@dataclass(frozen=True, slots=True)
class ChannelKey:
    """Party to server, t-of-n only: a public key to encrypt shares to."""

    key: bytes
    """X25519."""


@dataclass(frozen=True, slots=True)
class ChannelBook:
    """Server to party, t-of-n only: all parties' channel keys, in order."""

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EncryptedShares:
    """Party to server, t-of-n only: one encrypted share of its secret for every party."""

    bundles: Mapping[PartyId, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EncryptedShareBox:
    """Server to party, t-of-n only: what the others encrypted to it, by sender."""

    party: PartyId
    """The recipient."""
    bundles: Mapping[PartyId, bytes] = field(repr=False)


Message = (
    ChannelBook
    | ChannelKey
    | Ciphertext
    | DecryptionRequest
    | DecryptionShare
    | KeyShare
    | KeySum
    | RelinearisationKey
    | RelinearisationShare
    | EncryptedShares
    | EncryptedShareBox
)

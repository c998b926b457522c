"""A joint key's name, and what parties and the server send each other, one value per message.

`wire` turns messages into bytes. A message names neither its session nor its sender: `wire.decode`
refuses those of another session and of another sender. What depends on the joint key carries that
key's digest.
"""

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from urna.errors import ParameterError, ProtocolError
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.plan import NoiseBound
from urna.protocols.he.rns import Basis
from urna.protocols.he.sampling import Sampler

PartyId = int
"""A party's number, 0 … parties − 1."""

_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """One joint key: its parameters and an id nobody used before.

    Assumes:
        The id is fresh and no adversary chose it: the common reference is a digest of it. 32
        random bytes from any honest party are right.
    """

    parameters: Parameters
    identifier: bytes

    def __post_init__(self) -> None:
        if len(self.identifier) != _ID_BYTES:
            raise ParameterError(
                f"a session's id has {_ID_BYTES} bytes, got {len(self.identifier)}"
            )

    @property
    def binding(self) -> bytes:
        """32 bytes that stand for the id and the parameters."""
        parts = self.identifier + self.parameters.digest
        return hashlib.sha256(b"urna he session\0" + parts).digest()

    def check_everyone(self, parties: Collection[PartyId], what: str) -> None:
        """Refuse messages of more or fewer than all parties."""
        everyone = set(range(self.parameters.parties))
        if missing := everyone - set(parties):
            raise ProtocolError(f"{what} of every party are needed; {sorted(missing)} are missing")
        if unknown := set(parties) - everyone:
            raise ProtocolError(f"there are no parties {sorted(unknown)}")


@functools.lru_cache(maxsize=2)
def public_reference(session: Session) -> Residues:
    """Return the uniform polynomial a of the joint public key; every party derives the same."""
    parameters = session.parameters
    return _reference(session, b"public key", parameters.basis(parameters.depth))


@functools.lru_cache(maxsize=2)
def relinearisation_reference(session: Session) -> Residues:
    """Return the uniform polynomials of the relinearisation key, one per digit."""
    parameters = session.parameters
    wide = parameters.extended(parameters.depth)
    return _reference(session, b"relinearisation", wide, len(parameters.digits))


def _reference(session: Session, label: bytes, basis: Basis, *shape: int) -> Residues:
    seed = hashlib.sha256(b"urna he reference\0" + session.binding + label).digest()
    drawn = Sampler(seed).uniform(basis, *shape)
    drawn.flags.writeable = False  # it is kept, and given to everyone
    return drawn


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

"""One joint key's name, and the random polynomials that everyone derives from it."""

import functools
import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from urna.errors import ParameterError, ProtocolError
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.rns import Basis
from urna.protocols.he.sampling import Sampler

__all__ = ["PartyId", "Session", "public_reference", "relinearisation_reference"]

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

"""A joint key: every party draws a share of the secret, and nobody ever knows the sum.

The public key is one exchange, the relinearisation key two (Mouchet, Troncoso-Pastoriza, Bossuat
and Hubaux 2021, protocols 1 and 2); they run together. Writing S for the sum of secrets s_i:

    first    b_i = t·e − a·s_i;   h₀_i = s_i·g + t·e₀ − u_i·r,   h₁_i = s_i·r + t·e₁
    second   k_i = s_i·h₀ + (u_i − s_i)·h₁ + t·e₂

with a and r from the common reference, g the gadget (P on a digit's own primes, 0 on the others)
and sums without an index. The key (k, h₁) decrypts to S·h₀ + U·h₁ = g·S² and noise.

Guarantee:
    An adversary who knows all messages and the secrets of all parties but one learns nothing
    about the last one's secret, under ring learning with errors (and circular security for the
    relinearisation key, as everywhere).

Assumes:
    All parties are semi-honest. A party that sends something else can spoil the key, and one that
    picks its share after seeing the others' can choose the sum; neither is noticed.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from urna.errors import ProtocolError
from urna.protocols.he.messages import (
    KeyShare,
    KeySum,
    PublicKey,
    RelinearisationKey,
    RelinearisationShare,
)
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.rns import Basis
from urna.protocols.he.sampling import Sampler
from urna.protocols.he.session import PartyId, Session, public_reference, relinearisation_reference
from urna.randomness import SecretSource

__all__ = [
    "Drawn",
    "KeyHolder",
    "add_key_shares",
    "draw_key",
    "finish_key",
    "join_public_key",
    "join_relinearisation_key",
]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A party that has drawn its share and waits for the sums."""

    session: Session
    secret: Residues = field(repr=False)
    """s_i, transformed, for all primes, special ones included."""
    mask: Residues | None = field(repr=False)
    """u_i, likewise; none where nothing is multiplied."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyHolder:
    """A party that has the joint public key and can help to decrypt."""

    party: PartyId
    public_key: PublicKey
    secret: Residues = field(repr=False)
    """Its share of the joint secret, transformed, shape (chain, degree)."""
    shared: bool = False
    """t of n: whether the shares of any `threshold` parties rebuild the secret."""


def draw_key(session: Session, source: SecretSource) -> tuple[Drawn, KeyShare]:
    """First exchange, party: draw a share of the secret, and send what hides it.

    Guarantee:
        `source` must be private for the key to be: the seed of the share comes from it alone.
    """
    parameters = session.parameters
    sampler = Sampler.of(source)
    wide = parameters.extended(parameters.depth)
    chain = parameters.basis(parameters.depth)
    secret = wide.forward_small(sampler.ternary(parameters.degree))
    error = _errors(sampler, chain, parameters.plaintext_modulus, 1)[0]
    own = secret[: len(chain)]
    public = chain.subtract(error, chain.multiply(public_reference(session), own))
    if not parameters.levels:
        return Drawn(session, secret, None), KeyShare(public, None)
    mask = wide.forward_small(sampler.ternary(parameters.degree))
    reference, digits = relinearisation_reference(session), len(parameters.digits)
    shares = np.empty((2, *reference.shape), dtype=np.int64)
    errors = _errors(sampler, wide, parameters.plaintext_modulus, 2 * digits)
    shares[0] = wide.subtract(errors[:digits], wide.multiply(reference, mask))
    _add_gadget(parameters, secret, shares[0])
    shares[1] = wide.add(errors[digits:], wide.multiply(reference, secret))
    return Drawn(session, secret, mask), KeyShare(public, shares)


def add_key_shares(session: Session, shares: Mapping[PartyId, KeyShare]) -> KeySum:
    """First exchange, server: add up the shares of all parties."""
    parameters = session.parameters
    session.check_everyone(shares, "key shares")
    listed = [shares[party] for party in sorted(shares)]
    public = parameters.basis(parameters.depth).total([share.public for share in listed])
    hidden = [share.relinearisation for share in listed if share.relinearisation is not None]
    wide = parameters.extended(parameters.depth)
    return KeySum(public, wide.total(hidden) if hidden else None)


def finish_key(
    party: PartyId, state: Drawn, sums: KeySum, source: SecretSource
) -> tuple[KeyHolder, RelinearisationShare | None]:
    """Second exchange, party: take the public key, and send the rest of the other one.

    Returns:
        The holder, and its share of the relinearisation key where there is one.
    """
    parameters = state.session.parameters
    public_key = join_public_key(state.session, sums)
    holder = KeyHolder(party, public_key, state.secret[: len(parameters.chain)])
    if state.mask is None or sums.relinearisation is None:
        return holder, None
    wide = parameters.extended(parameters.depth)
    # The paper sends s·h₀ + t·e₂ and (u − s)·h₁ + t·e₃ and lets the server add them; their
    # sum, with the sum of both errors, says less and is half as long.
    digits = len(parameters.digits)
    errors = _errors(Sampler.of(source), wide, parameters.plaintext_modulus, digits, times=2)
    first = wide.multiply(sums.relinearisation[0], state.secret)
    second = wide.multiply(sums.relinearisation[1], wide.subtract(state.mask, state.secret))
    return holder, RelinearisationShare(wide.total([first, second, errors]))


def join_public_key(session: Session, sums: KeySum) -> PublicKey:
    """Return the joint public key of summed shares."""
    digest = hashlib.sha256(b"urna he public key\0" + session.binding)
    digest.update(np.ascontiguousarray(sums.public, dtype="<i8").data)
    return PublicKey(session, sums.public, digest.digest())


def join_relinearisation_key(
    session: Session, sums: KeySum, shares: Mapping[PartyId, RelinearisationShare]
) -> RelinearisationKey:
    """Second exchange, server: finish the relinearisation key."""
    parameters = session.parameters
    session.check_everyone(shares, "relinearisation shares")
    if sums.relinearisation is None:
        raise ProtocolError("nothing is multiplied under these parameters")
    total = parameters.extended(parameters.depth).total(
        [shares[party].parts for party in sorted(shares)]
    )
    parts = np.stack([total, sums.relinearisation[1]])
    return RelinearisationKey(join_public_key(session, sums).digest, parts)


def _errors(sampler: Sampler, basis: Basis, modulus: int, count: int, times: int = 1) -> Residues:
    """Draw errors, transformed and times the plaintext modulus."""
    return basis.forward_small(sampler.errors(count, basis.degree, times=times), modulus)


def _add_gadget(parameters: Parameters, secret: Residues, shares: Residues) -> None:
    """Add secret·g: P·secret on each digit's own primes."""
    special = math.prod(parameters.special)
    chain = parameters.basis(parameters.depth)
    scaled = chain.multiply_by(secret[: len(chain)], special)
    for digit, (first, last) in enumerate(parameters.digits):
        own = chain.part(first, last)
        shares[digit, first:last] = own.add(shares[digit, first:last], scaled[first:last])

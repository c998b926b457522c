"""A joint key: every party draws a share of the secret, and nobody ever knows the sum.

The public key is one exchange, the relinearisation key two (Mouchet, Troncoso-Pastoriza, Bossuat
and Hubaux 2021, protocols 1 and 2); they run together. Writing S for the sum of secrets s_i:

    first    b_i = t·e − a·s_i;   h₀_i = s_i·g + t·e₀ − u_i·r,   h₁_i = s_i·r + t·e₁
    second   k_i = s_i·h₀ + (u_i − s_i)·h₁ + t·e₂

with a and r from the common reference, g the gadget (P on a digit's own primes, 0 on the others)
and sums without an index. The key (k, h₁) decrypts to S·h₀ + U·h₁ = g·S² and noise.

t of n: any `threshold` parties can decrypt, so that the others may be away. Each party shares its
secret s_i among all by Shamir's scheme over every prime of the chain: a random polynomial of
degree threshold − 1 with s_i at zero, each coefficient of s_i on its own. Party j adds up what it
gets: its share σ_j of the joint secret. With Lagrange's weights the σ_j of any `threshold` parties
add up to S, so they decrypt as all parties would. Shares travel through the server, sealed: X25519
with the recipient, HKDF-SHA256 to a key for this session, sender, recipient and their two channel
keys, AES-256-GCM.

Guarantee:
    An adversary who knows all messages and the secrets of all parties but one learns nothing
    about the last one's secret, under ring learning with errors (and circular security for the
    relinearisation key, as everywhere).
    With t of n, fewer than `threshold` parties, with the server, learn nothing about the joint
    secret.

Assumes:
    All parties are semi-honest. A party that sends something else can spoil the key, and one that
    picks its share after seeing the others' can choose the sum; neither is noticed.
    With t of n, channel keys reach the others unchanged: a semi-honest server passes them on.
    What is given up: `threshold` colluding parties decrypt everything, where all parties would
    have been needed. A party's share lies, encrypted, in the server's messages, so an adversary
    who later breaks the recipients' channel keys has it.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from urna.errors import ProtocolError
from urna.protocols.he.messages import (
    ChannelBook,
    ChannelKey,
    EncryptedShareBox,
    EncryptedShares,
    KeyShare,
    KeySum,
    PartyId,
    PublicKey,
    RelinearisationKey,
    RelinearisationShare,
    Session,
    public_reference,
    relinearisation_reference,
)
from urna.protocols.he.ntt import Residues
from urna.protocols.he.parameters import Parameters
from urna.protocols.he.rns import Basis
from urna.protocols.he.sampling import Sampler
from urna.protocols.he.wire import pack, unpack
from urna.protocols.x25519 import agree
from urna.randomness import SEED_BYTES, SecretSource


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


_NONCE = bytes(12)  # every key seals one message only


@dataclass(frozen=True, slots=True)
class Channel:
    """A party that waits for the others' channel keys."""

    session: Session
    party: PartyId
    private: bytes = field(repr=False)


def open_channel(
    session: Session, party: PartyId, source: SecretSource
) -> tuple[Channel, ChannelKey]:
    """Before the shares, party: draw a channel key."""
    private = source.take(SEED_BYTES)
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return Channel(session, party, private), ChannelKey(public)


def pass_on_channel_keys(session: Session, keys: Mapping[PartyId, ChannelKey]) -> ChannelBook:
    """Server: list all channel keys."""
    session.check_everyone(keys, "channel keys")
    return ChannelBook(tuple(keys[party].key for party in sorted(keys)))


def share_secret(
    state: Drawn, channel: Channel, book: ChannelBook, source: SecretSource
) -> EncryptedShares:
    """Party: share its secret among all parties, itself included, each share sealed."""
    session = channel.session
    session.check_everyone(range(len(book.keys)), "channel keys")
    parameters = session.parameters
    ring = parameters.basis(parameters.depth)
    sampler = Sampler.of(source)
    powers = [state.secret[: len(ring)]]
    powers += [sampler.uniform(ring) for _ in range(parameters.threshold - 1)]
    bundles = {}
    for peer, key in enumerate(book.keys):
        data = pack(_evaluate(ring, powers, peer + 1), ring.primes)
        box = AESGCM(_channel_key(channel, key, channel.party, peer))
        bundles[peer] = box.encrypt(_NONCE, data, session.binding)
    return EncryptedShares(bundles)


def pass_on_shares(
    session: Session, sealed: Mapping[PartyId, EncryptedShares]
) -> dict[PartyId, EncryptedShareBox]:
    """Server: sort the sealed shares by recipient."""
    session.check_everyone(sealed, "shares of secrets")
    return {
        peer: EncryptedShareBox(peer, {p: sealed[p].bundles[peer] for p in sorted(sealed)})
        for peer in sorted(sealed)
    }


def take_shares(
    holder: KeyHolder, channel: Channel, book: ChannelBook, box: EncryptedShareBox
) -> KeyHolder:
    """Party: add up what the others shared; from now on it has a share of the joint secret.

    Raises:
        ProtocolError: A share is missing, or was not sealed by its sender for this party.
    """
    session = channel.session
    parameters = session.parameters
    if box.party != channel.party:
        raise ProtocolError("the share box is another party's")
    session.check_everyone(range(len(book.keys)), "channel keys")
    session.check_everyone(box.bundles, "shares of secrets")
    ring = parameters.basis(parameters.depth)
    shares: list[Residues] = []
    for peer, key in enumerate(book.keys):
        opener = AESGCM(_channel_key(channel, key, peer, channel.party))
        try:
            data = opener.decrypt(_NONCE, box.bundles[peer], session.binding)
        except InvalidTag as error:
            raise ProtocolError(f"the share of party {peer} was not sealed for this one") from error
        shares.append(unpack(memoryview(data), ring.primes, (), parameters.degree))
    return replace(holder, secret=ring.total(shares), shared=True)


def lagrange(primes: tuple[int, ...], helpers: Collection[PartyId], party: PartyId) -> list[int]:
    """Return, for every prime, the weight of a party's share among some helpers'.

    Example:
        >>> lagrange((17,), (0, 1), 0), lagrange((17,), (0, 1), 1)
        ([2], [16])
    """
    weights = []
    for prime in primes:
        above = below = 1
        for other in helpers:
            if other != party:
                above = above * (other + 1) % prime
                below = below * (other - party) % prime
        weights.append(above * pow(below, -1, prime) % prime)
    return weights


def _evaluate(ring: Basis, powers: list[Residues], point: int) -> Residues:
    """Return the sharing polynomial at a point, by Horner's rule."""
    result = powers[-1]
    for coefficient in reversed(powers[:-1]):
        result = ring.add(ring.multiply_by(result, point), coefficient)
    return result


def _channel_key(channel: Channel, public: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    private = X25519PrivateKey.from_private_bytes(channel.private)
    secret = agree(private, public)
    # Other keys can give the same common value, so both are bound, the sender's first.
    both = (private.public_key().public_bytes_raw(), public)
    keys = b"".join(both if channel.party == sender else reversed(both))
    ends = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    info = b"urna he share\0" + channel.session.binding + ends + keys
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)

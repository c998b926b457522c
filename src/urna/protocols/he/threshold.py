"""t of n: any `threshold` parties can decrypt, so that the others may be away.

Each party shares its secret s_i among all by Shamir's scheme over every prime of the chain: a
random polynomial of degree threshold − 1 with s_i at zero, each coefficient of s_i on its own.
Party j adds up what it gets: its share σ_j of the joint secret. With Lagrange's weights the σ_j of
any `threshold` parties add up to S, so they decrypt as all parties would.

Shares travel through the server, sealed: X25519 with the recipient, HKDF-SHA256 to a key for
this session, sender, recipient and their two channel keys, AES-256-GCM.

Guarantee:
    Fewer than `threshold` parties, with the server, learn nothing about the joint secret.

Assumes:
    Channel keys reach the others unchanged: a semi-honest server passes them on.
    What is given up: `threshold` colluding parties decrypt everything, where all parties would
    have been needed. A party's share lies, encrypted, in the server's messages, so an adversary
    who later breaks the recipients' channel keys has it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from urna.errors import ProtocolError
from urna.protocols.he.keys import Drawn, KeyHolder
from urna.protocols.he.messages import (
    ChannelBook,
    ChannelKey,
    EncryptedShareBox,
    EncryptedShares,
)
from urna.protocols.he.ntt import Residues
from urna.protocols.he.rns import Basis
from urna.protocols.he.sampling import Sampler
from urna.protocols.he.session import PartyId, Session
from urna.protocols.he.wire import pack, unpack
from urna.protocols.x25519 import canonical
from urna.randomness import SEED_BYTES, SecretSource

__all__ = [
    "Channel",
    "lagrange",
    "open_channel",
    "pass_on_channel_keys",
    "pass_on_shares",
    "share_secret",
    "take_shares",
]

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
    if not canonical(public):
        raise ProtocolError("a channel key is not written as X25519 writes it")
    private = X25519PrivateKey.from_private_bytes(channel.private)
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a point of small order
        raise ProtocolError("a channel key is not one to agree with") from error
    # Other keys can give the same common value, so both are bound, the sender's first.
    both = (private.public_key().public_bytes_raw(), public)
    keys = b"".join(both if channel.party == sender else reversed(both))
    ends = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    info = b"urna he share\0" + channel.session.binding + ends + keys
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)

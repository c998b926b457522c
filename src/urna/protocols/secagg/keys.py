"""Keys: agreement between two clients, encryption of shares, identities and signatures.

Every primitive is `cryptography`'s: X25519 and HKDF-SHA256 for agreement, AES-256-GCM for
shares, Ed25519 for signatures.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from urna.errors import ParameterError, ProtocolError
from urna.protocols.secagg.evidence import signs
from urna.protocols.secagg.messages import Advertisement, ClientId
from urna.protocols.secagg.shares import draw_secret
from urna.protocols.x25519 import agree
from urna.randomness import SEED_BYTES, SecretSource

SIGNATURE_BYTES = 64
"""Length of an Ed25519 signature."""

_CHANNEL = b"urna secagg channel\0"
_NONCE = bytes(12)  # each channel key encrypts one bundle only


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An X25519 key pair whose private half can be shared by Shamir's scheme."""

    private: bytes = field(repr=False)
    public: bytes
    _key: X25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, private: bytes) -> Self:
        """Return the pair of a private key of 32 bytes."""
        key = X25519PrivateKey.from_private_bytes(private)
        return cls(private, key.public_key().public_bytes_raw(), key)

    @classmethod
    def draw(cls, source: SecretSource) -> Self:
        """Draw a fresh pair."""
        return cls.of(draw_secret(source))

    def agree(self, peer: bytes, round_id: bytes, purpose: bytes, length: int) -> bytes:
        """Return secret bytes that only the holder of the other private key also computes.

        Raises:
            ProtocolError: The peer's key is written in another way than X25519 writes it, or the
                result would be public.
        """
        return derived(agree(self._key, peer), self.public, peer, round_id, purpose, length)


def derived(
    shared: bytes, own: bytes, peer: bytes, round_id: bytes, purpose: bytes, length: int
) -> bytes:
    """Return secret bytes of a common value; both public keys enter, so they are bound to both."""
    both = b"".join(sorted((own, peer)))
    return HKDF(SHA256(), length, salt=round_id, info=purpose + both).derive(shared)


def mask_seed(pair: KeyPair, peer: bytes, round_id: bytes) -> bytes:
    """Return the seed of the mask between two clients."""
    return pair.agree(peer, round_id, b"urna secagg mask\0", SEED_BYTES)


def channel_keys(pair: KeyPair, peer: bytes, round_id: bytes) -> tuple[bytes, bytes]:
    """Return the keys for sending to a peer and for receiving from it."""
    both = pair.agree(peer, round_id, _CHANNEL, 2 * SEED_BYTES)
    return _directed(both, pair.public < peer)


def shown_channel_keys(
    shared: bytes, own: bytes, peer: bytes, round_id: bytes
) -> tuple[bytes, bytes]:
    """Return the same keys from the common value that a proof shows (`evidence`)."""
    both = derived(shared, own, peer, round_id, _CHANNEL, 2 * SEED_BYTES)
    return _directed(both, own < peer)


def _directed(both: bytes, first: bool) -> tuple[bytes, bytes]:
    low, high = both[:SEED_BYTES], both[SEED_BYTES:]
    return (low, high) if first else (high, low)


def seal(key: bytes, plain: bytes, round_id: bytes, sender: ClientId, recipient: ClientId) -> bytes:
    """Encrypt one bundle of shares; the key must not be used again."""
    return AESGCM(key).encrypt(_NONCE, plain, _context(round_id, sender, recipient))


def unseal(
    key: bytes, sealed: bytes, round_id: bytes, sender: ClientId, recipient: ClientId
) -> bytes | None:
    """Decrypt one bundle of shares; None if it is not this sender's to this recipient."""
    try:
        return AESGCM(key).decrypt(_NONCE, sealed, _context(round_id, sender, recipient))
    except InvalidTag:
        return None


def _context(round_id: bytes, sender: ClientId, recipient: ClientId) -> bytes:
    ends = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    return b"urna secagg shares\0" + round_id + ends


def commitment(secret: bytes, round_id: bytes, client: ClientId, place: int) -> bytes:
    """Return a digest by which the server recognises a rightly rebuilt secret.

    Guarantee:
        It hides the secret, which has 255 bits of entropy (SHA-256 as a random oracle).
    """
    where = round_id + client.to_bytes(4, "big") + place.to_bytes(4, "big")
    return hashlib.sha256(b"urna secagg commitment\0" + where + secret).digest()


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's long-lived signing key."""

    client: ClientId
    public: bytes
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def draw(cls, client: ClientId, source: SecretSource) -> Self:
        """Draw a fresh identity."""
        return cls.of(client, source.take(SEED_BYTES))

    @classmethod
    def of(cls, client: ClientId, private: bytes) -> Self:
        """Return the identity of a private key of 32 bytes."""
        key = Ed25519PrivateKey.from_private_bytes(private)
        return cls(client, key.public_key().public_bytes_raw(), key)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)


def check_identity_key(public: bytes) -> None:
    """Refuse bytes that are no Ed25519 key of prime order, or not written in the one way.

    Two keys with the same bytes are then one key, and other bytes are another.
    """
    if len(public) != SEED_BYTES:
        raise ParameterError(f"an identity key has {SEED_BYTES} bytes, got {len(public)}")
    if not signs(public):
        raise ParameterError(
            "an identity key is not one that Ed25519 makes: ask its owner for the public line "
            "that `urna keys make` prints"
        )


class Directory:
    """The identity keys of all clients, held by every client.

    Guarantee:
        With it, a server that puts its own keys in place of a client's is refused.

    Assumes:
        It reached the client by a way the server does not control. Without a directory the
        server must be trusted to forward keys: security is honest-but-curious only.
    """

    def __init__(self, keys: Mapping[ClientId, bytes]) -> None:
        for key in keys.values():
            check_identity_key(key)
        self._keys = {
            client: Ed25519PublicKey.from_public_bytes(key) for client, key in keys.items()
        }

    def __contains__(self, client: ClientId) -> bool:
        return client in self._keys

    def verify(self, client: ClientId, signature: bytes, message: bytes, what: str) -> None:
        """Refuse a message that the client of that number did not sign."""
        if client not in self._keys:
            raise ProtocolError(f"client {client} is not in the directory")
        try:
            self._keys[client].verify(signature, message)
        except InvalidSignature as error:
            raise ProtocolError(f"{what} of client {client} is not signed by it") from error

    def replied(self, client: ClientId, signature: bytes, request: bytes, reply: bytes) -> bool:
        """Say whether a client signed these bytes as its reply to a request of this digest.

        Where it did not, request or reply may have been altered on the way: nobody is to blame.
        """
        try:
            self.verify(client, signature, _replied(client, request, reply), "the reply")
        except ProtocolError:
            return False
        return True

    def verify_advertisement(self, advertisement: Advertisement) -> None:
        """Refuse keys that are not their owner's, or not for this round."""
        signed = _advertised(
            advertisement.round_id,
            advertisement.client,
            advertisement.channel_key,
            advertisement.mask_key,
        )
        self.verify(advertisement.client, advertisement.signature, signed, "the key advertisement")

    def verify_bundle(
        self, sender: ClientId, recipient: ClientId, round_id: bytes, bundle: bytes, signed: bytes
    ) -> None:
        """Refuse a bundle that its sender did not send to this recipient in this round."""
        self.verify(sender, signed, _bundled(round_id, sender, recipient, bundle), "a bundle")

    def verify_receipt(self, client: ClientId, signature: bytes, round_id: bytes) -> None:
        """Refuse a receipt that is not that client's, or not of this round."""
        self.verify(client, signature, _received(round_id), "the receipt")

    def verify_lists(self, client: ClientId, signature: bytes, digest: bytes) -> None:
        """Refuse an agreement that is not that client's, or not on these lists."""
        self.verify(client, signature, _agreed(digest), "the agreement on the lists")


def sign_reply(identity: Identity, request: bytes, reply: bytes) -> bytes:
    """Sign a whole reply, and the whole request that it answers.

    Both hold the round's id and say by their kind which stage they belong to.
    """
    return identity.sign(_replied(identity.client, hashlib.sha256(request).digest(), reply))


def sign_advertisement(
    identity: Identity, round_id: bytes, channel_key: bytes, mask_key: bytes
) -> bytes:
    """Sign two public keys for one round."""
    return identity.sign(_advertised(round_id, identity.client, channel_key, mask_key))


def sign_lists(identity: Identity, digest: bytes) -> bytes:
    """Sign the digest of a round's lists."""
    return identity.sign(_agreed(digest))


def sign_bundle(identity: Identity, recipient: ClientId, round_id: bytes, bundle: bytes) -> bytes:
    """Sign one encrypted bundle and its digest."""
    return identity.sign(_bundled(round_id, identity.client, recipient, bundle))


def sign_receipt(identity: Identity, round_id: bytes) -> bytes:
    """Sign that nothing of a round was revealed and nothing is held any more."""
    return identity.sign(_received(round_id))


def _replied(client: ClientId, request: bytes, reply: bytes) -> bytes:
    who = client.to_bytes(4, "big")
    return b"urna secagg reply\0" + who + request + hashlib.sha256(reply).digest()


def _bundled(round_id: bytes, sender: ClientId, recipient: ClientId, bundle: bytes) -> bytes:
    return b"urna secagg bundle\0" + _context(round_id, sender, recipient) + bundle


def _received(round_id: bytes) -> bytes:
    return b"urna secagg receipt\0" + round_id


def _advertised(round_id: bytes, client: ClientId, channel_key: bytes, mask_key: bytes) -> bytes:
    return b"urna secagg keys\0" + round_id + client.to_bytes(4, "big") + channel_key + mask_key


def _agreed(digest: bytes) -> bytes:
    return b"urna secagg agreement\0" + digest

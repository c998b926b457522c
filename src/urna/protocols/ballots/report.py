"""What is announced, what a client sends, and how it is sealed and signed."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from urna.errors import ParameterError, ProtocolError
from urna.noise import IntVector
from urna.protocols.ballots.codec import HELPER, LEADER, Codec, CountPlan, Shards
from urna.protocols.secagg.keys import Directory, Identity, KeyPair, seal, unseal
from urna.protocols.secagg.messages import ClientId
from urna.randomness import SEED_BYTES, SecretSource

_KEY = 32


@dataclass(frozen=True, slots=True)
class PublicParameters:
    """Everything public about one count, decided before anybody casts a ballot.

    Args:
        number: Of the count; clients and helper refuse one they have seen.
        session: 32 random bytes, so that no two counts are alike.
        plan: What will be done.
        leader_key: What shares for the leader are sealed with.
        helper_key: The same for the helper; empty until it has vouched for the statement.
    """

    number: int
    session: bytes
    plan: CountPlan
    leader_key: bytes
    helper_key: bytes = b""

    def __post_init__(self) -> None:
        if type(self.number) is not int or self.number < 1:
            raise ParameterError(f"counts are numbered from 1 on, got {self.number}")
        if len(self.session) != SEED_BYTES or len(self.leader_key) != _KEY:
            raise ParameterError("a session and a key have 32 bytes")
        if len(self.helper_key) not in (0, _KEY):
            raise ParameterError("a key has 32 bytes")

    @property
    def digest(self) -> bytes:
        """What every key, seal and signature of the count is bound to."""
        return _digest(self)

    def encode(self) -> bytes:
        """Return the statement as bytes."""
        mapping = {
            "number": self.number,
            "session": self.session.hex(),
            "plan": self.plan.as_mapping(),
            "leader_key": self.leader_key.hex(),
            "helper_key": self.helper_key.hex(),
        }
        return json.dumps(mapping, sort_keys=True).encode()

    @classmethod
    def read(cls, data: bytes) -> "PublicParameters":
        """Read what `encode` wrote.

        Raises:
            ProtocolError: It is no statement.
        """
        try:
            mapping: Mapping[str, Any] = json.loads(data)
            keys = [bytes.fromhex(mapping[name]) for name in ("leader_key", "helper_key")]
            session = bytes.fromhex(mapping["session"])
            found = cls(mapping["number"], session, CountPlan.read(mapping["plan"]), *keys)
            same = found.encode() == data
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"a statement cannot be read: {error!r:.200}") from error
        if not same:
            raise ProtocolError("a statement is written in one way only")
        return found


@dataclass(frozen=True, slots=True)
class VouchedStatement:
    """A statement for which the helper has vouched."""

    statement: PublicParameters
    signature: bytes

    def check(self, helper: bytes) -> None:
        """Refuse a statement that this helper has not signed: its key could be anybody's.

        Args:
            helper: The helper's identity key, which came another way than the statement.
        """
        if not self.statement.helper_key:
            raise ProtocolError("no helper has vouched for the statement")
        try:
            key = Ed25519PublicKey.from_public_bytes(helper)
            key.verify(self.signature, _vouched(self.statement.digest))
        except (ValueError, InvalidSignature) as error:
            raise ProtocolError(
                "the statement is not signed by the helper that is known"
            ) from error


def vouch_for(
    statement: PublicParameters, helper_key: bytes, identity: Identity
) -> VouchedStatement:
    """Put the helper's key into a statement and sign it."""
    whole = replace(statement, helper_key=helper_key)
    return VouchedStatement(whole, identity.sign(_vouched(whole.digest)))


@dataclass(frozen=True, slots=True)
class Report:
    """A client's ballot, shared between leader and helper, sealed and signed."""

    client: ClientId
    ephemeral: bytes
    """The client's public key for this report alone."""
    leader_box: bytes
    helper_box: bytes
    signature: bytes

    def part(self, who: int) -> "Part":
        """Return what one of the two gets: its own box, and a digest of the other's."""
        own, other = (self.leader_box, self.helper_box)[:: 1 if who == LEADER else -1]
        digest = hashlib.sha256(other).digest()
        return Part(self.client, self.ephemeral, own, digest, self.signature)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a report that is for the leader or for the helper."""

    client: ClientId
    ephemeral: bytes
    box: bytes
    other: bytes
    """SHA-256 of the box for the other."""
    signature: bytes

    def signed(self, who: int, digest: bytes) -> bytes:
        """Return what the client must have signed; it names the report."""
        boxes = [hashlib.sha256(self.box).digest(), self.other]
        leader, helper = boxes if who == LEADER else boxes[::-1]
        return _signed(digest, self.client, self.ephemeral, leader, helper)


@dataclass(frozen=True, slots=True)
class BallotClient:
    """A client of a count.

    Args:
        identity: Its number and signing key.
        helper: The helper's identity key.
        latest: Number of the last count it took part in.
    """

    identity: Identity
    helper: bytes
    latest: int = 0


def cast(
    voter: BallotClient, announcement: VouchedStatement, ballot: IntVector, secrets: SecretSource
) -> Report:
    """Share, prove, seal and sign a ballot.

    Guarantee:
        Leader alone, or helper alone, learns nothing of the ballot but that it is valid,
        whatever it does (`docs/decisions/0028-verified-ballots.md`).

    Assumes:
        Leader and helper do not collude. The client casts one ballot in a count.

    Raises:
        ProtocolError: The helper has not signed the statement, or its number is not new.
        ParameterError: The ballot is not valid. Nothing is sent.
    """
    statement = announcement.statement
    announcement.check(voter.helper)
    if statement.number <= voter.latest:
        raise ProtocolError(
            f"count {statement.number} is not new: the last one was {voter.latest}. A ballot is "
            "cast once"
        )
    shards = statement.plan.codec.shard(ballot, secrets)
    return seal_report(voter.identity, statement, shards, secrets)


def seal_report(
    identity: Identity, statement: PublicParameters, shards: Shards, secrets: SecretSource
) -> Report:
    """Seal each share to whom it is for, and sign all of it."""
    digest, client = statement.digest, identity.client
    pair = KeyPair.of(secrets.take(SEED_BYTES))
    boxes = []
    for who, (key, share) in enumerate(
        ((statement.leader_key, shards.leader), (statement.helper_key, shards.helper))
    ):
        secret = pair.agree(key, digest, _PURPOSES[who], SEED_BYTES)
        boxes.append(seal(secret, share, digest, client, who))
    hashes = [hashlib.sha256(box).digest() for box in boxes]
    signature = identity.sign(_signed(digest, client, pair.public, *hashes))
    return Report(client, pair.public, boxes[0], boxes[1], signature)


def check_signature(who: int, part: Part, digest: bytes, directory: Directory) -> None:
    """Refuse a report that its client has not signed, or that belongs to another count.

    Raises:
        ProtocolError: Says so.
    """
    directory.verify(part.client, part.signature, part.signed(who, digest), "the report")


def open_part(who: int, part: Part, pair: KeyPair, digest: bytes, codec: Codec) -> bytes:
    """Return one party's share of a report that is signed.

    Raises:
        ProtocolError: Says what is wrong, for the client to be named with.
    """
    if len(part.box) != codec.sizes[who] + _TAG:
        raise ProtocolError("its report has the wrong size")
    secret = pair.agree(part.ephemeral, digest, _PURPOSES[who], SEED_BYTES)
    share = unseal(secret, part.box, digest, part.client, who)
    if share is None:
        raise ProtocolError(f"its share for the {_NAMES[who]} cannot be opened")
    if not codec.well_formed(who, share):
        raise ProtocolError(f"its share for the {_NAMES[who]} is malformed")
    return share


_TAG = 16  # bytes that sealing adds
_NAMES = {LEADER: "leader", HELPER: "helper"}
_PURPOSES = {LEADER: b"urna verified leader\0", HELPER: b"urna verified helper\0"}


@functools.lru_cache(maxsize=64)
def _digest(statement: PublicParameters) -> bytes:
    return hashlib.sha256(b"urna verified statement\0" + statement.encode()).digest()


def _vouched(digest: bytes) -> bytes:
    return b"urna verified vouched\0" + digest


def _signed(
    digest: bytes, client: ClientId, ephemeral: bytes, leader: bytes, helper: bytes
) -> bytes:
    number = client.to_bytes(4, "big")
    return b"urna verified report\0" + digest + number + ephemeral + leader + helper

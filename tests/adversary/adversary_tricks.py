"""Ways in which one client deviates, each in one place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from adversary_room import CURIOUS, DISHONEST, Liar, Trick

from urna.errors import RoundAborted, RoundUnfinished
from urna.protocols.secagg import Outcome, ServerModel, Stage
from urna.protocols.secagg.client import complaint_context
from urna.protocols.secagg.evidence import PROOF_BYTES, on_curve, prove
from urna.protocols.secagg.keys import sign_advertisement, sign_lists, sign_receipt
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    Complaint,
    Message,
    Parts,
    Receipt,
    Refusal,
    SealedShares,
    ShareBox,
    UnmaskReply,
    lists_digest,
    peers_digest,
)
from urna.protocols.secagg.messages import MaskedVector as Masked
from urna.protocols.secagg.wire import encode, largest_message
from urna.randomness import ScriptedSecrets

__all__ = ["DEEDS", "MALFORMED", "Deed", "deeds"]

BOTH = (CURIOUS, DISHONEST)
PRIME = 65521
P = 2**255 - 19
SMALL = (
    0,
    1,
    P - 1,
    P,  # zero, written otherwise
    P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


@dataclass(frozen=True)
class Deed:
    """A trick, and how a round in which one client plays it must end."""

    name: str
    trick: Trick
    ending: type = Outcome
    named: bool = True
    """Whether the liar is found out. What does no harm at all may go unnoticed."""
    stays: bool = False
    """Whether its vector is in the sum all the same."""
    servers: tuple[ServerModel, ...] = BOTH
    vanishes: Stage | None = None
    """A stage from which on the liar is silent."""
    others_vanish: bool = False
    """Whether another client drops out, so that shares of its mask key are asked for."""
    moves: bool = False
    """Whether the sum may hold anything: the client put in another vector."""


def at(kind: type, change: Callable[[Liar, Message], Message | bytes]) -> Trick:
    """Play a trick on one kind of message and let all others pass."""

    def trick(liar: Liar, request: Message, reply: Message) -> Message | bytes:
        del request
        return change(liar, reply) if type(reply) is kind else reply

    return trick


# Keys.


def keys(**fields: Callable[[Liar], bytes]) -> Trick:
    """Advertise other keys, and sign them as one's own."""

    def change(liar: Liar, reply: Message) -> Message:
        assert isinstance(reply, Advertisement)
        made = replace(reply, **{name: make(liar) for name, make in fields.items()})  # type: ignore[arg-type]
        identity = liar.member.identity
        if identity is None:
            return made
        signature = sign_advertisement(identity, made.round_id, made.channel_key, made.mask_key)
        return replace(made, signature=signature)

    return at(Advertisement, change)


def fixed(number: int) -> Callable[[Liar], bytes]:
    return lambda liar: (number % 2**256).to_bytes(32, "little")


def own_mask_key(liar: Liar) -> bytes:
    assert liar.advertised is not None
    return liar.advertised.mask_pair.public


def anothers(field: str) -> Callable[[Liar], bytes]:
    """The key of a client that advertised before."""

    def make(liar: Liar) -> bytes:
        state = liar.room.parties[0].advertised
        assert state is not None
        pair = state.channel_pair if field == "channel_key" else state.mask_pair
        return pair.public

    return make


def topped(field: str) -> Callable[[Liar], bytes]:
    """The same key in other bytes: X25519 ignores the top bit."""

    def make(liar: Liar) -> bytes:
        key = anothers(field)(liar)
        return key[:-1] + bytes([key[-1] | 0x80])

    return make


def off_curve(liar: Liar) -> bytes:
    """A key that no private key belongs to."""
    tries = (ScriptedSecrets(b"off %d" % i).take(31) + b"\0" for i in range(99))
    return next(key for key in tries if not on_curve(key))


def then_any_vector(first: Trick) -> Trick:
    """Play a trick, and do not complain about what comes of it."""

    def trick(liar: Liar, request: Message, reply: Message) -> Message | bytes:
        if not isinstance(request, ShareBox):
            return first(liar, request, reply)
        digest = peers_digest(liar.round_id, request.bundles.clients)
        return Masked(liar.round_id, liar.client, digest, liar.source.take(liar.plan.vector_bytes))

    return trick


def key_deeds() -> Iterator[Deed]:
    for field in ("channel_key", "mask_key"):
        for place, number in enumerate(SMALL):
            yield Deed(f"{field} of small order {place}", keys(**{field: fixed(number)}))
            yield Deed(
                f"{field} of small order {place}, top bit set",
                keys(**{field: fixed(number | 1 << 255)}),
            )
        yield Deed(f"another client's {field}", keys(**{field: anothers(field)}))
        yield Deed(f"another client's {field}, top bit set", keys(**{field: topped(field)}))
        yield Deed(f"a {field} above the prime", keys(**{field: fixed(P + 2)}))
    yield Deed("one key twice", keys(channel_key=own_mask_key))
    yield Deed("another client's mask key as channel key", keys(channel_key=anothers("mask_key")))
    # It cannot agree with anybody on a key, so all its bundles are garbage to those who get them.
    crooked = keys(channel_key=off_curve)
    yield Deed("channel key off the curve", crooked, RoundAborted)
    yield Deed(
        "channel key off the curve, then silence", crooked, RoundAborted, vanishes=Stage.MASK
    )
    yield Deed("channel key off the curve, then a vector", then_any_vector(crooked), RoundAborted)


# Shares.


def shares(change: Callable[[Liar, SealedShares], Message]) -> Trick:
    def changed(liar: Liar, reply: Message) -> Message:
        assert isinstance(reply, SealedShares)
        return change(liar, reply)

    return at(SealedShares, changed)


def some(liar: Liar, reply: SealedShares, part: str) -> set[int]:
    """Which of its neighbours a liar harms."""
    peers = sorted(reply.bundles)
    middle = len(peers) // 2
    return {
        "first": {peers[0]},
        "last": {peers[-1]},
        "middle": {peers[middle]},
        "half": set(peers[::2]),
        "all": set(peers),
    }[part]


def garbled(part: str, place: int, *, signed: bool = True) -> Trick:
    """Turn one bit of the encrypted rows to some neighbours."""

    def change(liar: Liar, reply: SealedShares) -> Message:
        harmed = some(liar, reply, part)

        def row(peer: int, body: bytes) -> bytes:
            if peer not in harmed:
                return body
            wrong = bytearray(body)
            wrong[place] ^= 1
            return bytes(wrong)

        return liar.sent(reply, row, signed=signed)

    return shares(change)


def dealt_wrongly(part: str, secret: int, *, outside: bool = False) -> Trick:
    """Deal some neighbours another share of one secret, with the digest that belongs to it."""

    def change(liar: Liar, reply: SealedShares) -> Message:
        harmed = some(liar, reply, part)

        def bundle(peer: int, right: bytes) -> bytes:
            limbs = np.frombuffer(right, dtype="<u2").copy()
            if peer in harmed:
                # Not the first limb: X25519 does not look at some bits of it.
                place = 16 * secret + 5
                moved = int(limbs[place]) + 1 + int.from_bytes(liar.source.take(2)) % (PRIME - 1)
                limbs[place] = PRIME if outside else moved % PRIME
            return limbs.tobytes()

        return liar.dealt(reply, bundle)

    return shares(change)


def swapped(liar: Liar, reply: SealedShares) -> Message:
    """Send two neighbours each other's bundles."""
    first, second, *_ = sorted(reply.bundles)
    rows = {first: reply.bundles[second], second: reply.bundles[first]}
    cut = liar.plan.sealed_bytes + 16
    return liar.sent(reply, lambda peer, body: rows.get(peer, body)[:cut])


def uncommitted(place: int) -> Trick:
    def change(liar: Liar, reply: SealedShares) -> Message:
        wrong = list(reply.commitments)
        wrong[place] = bytes(32)
        return replace(reply, commitments=tuple(wrong))

    return shares(change)


def fewer_recipients(liar: Liar, reply: SealedShares) -> Message:
    rows = dict(reply.bundles)
    rows.pop(min(rows))
    return replace(reply, bundles=Parts.of(rows, reply.bundles.size))


def other_recipient(liar: Liar, reply: SealedShares) -> Message:
    """Send a bundle to itself in place of a neighbour."""
    rows = dict(reply.bundles)
    rows[liar.client] = rows.pop(min(rows))
    return replace(reply, bundles=Parts.of(rows, reply.bundles.size))


def unsigned(liar: Liar, reply: SealedShares) -> Message:
    rows = {peer: row[:-64] + bytes(64) for peer, row in reply.bundles.items()}
    return replace(reply, bundles=Parts.of(rows, reply.bundles.size))


def share_deeds() -> Iterator[Deed]:
    for part in ("first", "middle", "last", "half", "all"):
        yield Deed(f"garbage to {part}", garbled(part, 5), RoundAborted)
        yield Deed(f"another digest to {part}", garbled(part, -1), RoundAborted)
        yield Deed(
            f"unsigned garbage to {part}",
            garbled(part, 5, signed=False),
            RoundAborted,
            servers=(DISHONEST,),
        )
        yield Deed(
            f"a share outside the field to {part}",
            dealt_wrongly(part, 1, outside=True),
            RoundAborted,
        )
    for part in ("first", "middle", "last"):
        for secret, what in ((1, "seed"), (2, "noise seed")):
            yield Deed(
                f"a share of its {what} off the polynomial to {part}",
                dealt_wrongly(part, secret),
                stays=True,
            )
        yield Deed(
            f"a share of its key off the polynomial to {part}, then silence",
            dealt_wrongly(part, 0),
            vanishes=Stage.MASK,
        )
        # Nobody ever needs it: the client is there at the end.
        yield Deed(
            f"a share of its key off the polynomial to {part}",
            dealt_wrongly(part, 0),
            named=False,
            stays=True,
        )
    yield Deed("shares of its seed off any polynomial", dealt_wrongly("all", 1), RoundUnfinished)
    yield Deed("shares of its noise off any polynomial", dealt_wrongly("all", 2), RoundUnfinished)
    yield Deed(
        "shares of its key off any polynomial, then silence",
        dealt_wrongly("all", 0),
        RoundUnfinished,
        vanishes=Stage.MASK,
    )
    yield Deed("two bundles swapped", shares(swapped), RoundAborted)
    yield Deed("another commitment to its seed", uncommitted(0), RoundUnfinished)
    yield Deed("another commitment to its noise", uncommitted(1), RoundUnfinished)
    yield Deed("a neighbour left out", shares(fewer_recipients))
    yield Deed("shares to itself", shares(other_recipient))
    # Who can read a bundle does not ask for its signature: it is needed in a dispute only.
    yield Deed(
        "good bundles unsigned", shares(unsigned), named=False, stays=True, servers=(DISHONEST,)
    )


# Vectors and complaints.


def other_peers(liar: Liar, reply: Message) -> Message:
    assert isinstance(reply, Masked)
    return replace(reply, peers_digest=bytes(32))


def any_words(liar: Liar, reply: Message) -> Message:
    assert isinstance(reply, Masked)
    return replace(reply, words=liar.source.take(len(reply.words)))


def complaint(against: Callable[[Liar], int], proof: Callable[[Liar, int], bytes]) -> Trick:
    """Complain about a neighbour whose bundle is good, in place of a vector."""

    def change(liar: Liar, reply: Message) -> Message:
        whom = against(liar)
        return Complaint(liar.round_id, liar.client, whom, proof(liar, whom))

    return at(Masked, change)


def a_neighbour(liar: Liar) -> int:
    return liar.room.neighbours(liar.client)[0]


def itself(liar: Liar) -> int:
    return liar.client


def a_stranger(liar: Liar) -> int:
    near = {liar.client, *liar.room.neighbours(liar.client)}
    return next((c for c in range(liar.plan.clients) if c not in near), liar.client)


def no_proof(liar: Liar, against: int) -> bytes:
    return b""


def any_proof(liar: Liar, against: int) -> bytes:
    return liar.source.take(PROOF_BYTES)


def real_proof(liar: Liar, against: int) -> bytes:
    """What an honest client would show: the server then reads a good bundle."""
    return proof_of(liar, against, complaint_context(liar.round_id, liar.client, against))


def proof_of(liar: Liar, against: int, context: bytes) -> bytes:
    state = liar.shared
    assert state is not None
    return prove(state.channel_pair.private, state.channel_keys[against], context, liar.source)


def proof_of_another_pair(liar: Liar, against: int) -> bytes:
    other = liar.room.neighbours(liar.client)[1]
    return proof_of(liar, other, complaint_context(liar.round_id, liar.client, against))


def proof_of_another_round(liar: Liar, against: int) -> bytes:
    return proof_of(liar, against, complaint_context(bytes(32), liar.client, against))


def proof_in_the_others_name(liar: Liar, against: int) -> bytes:
    return proof_of(liar, against, complaint_context(liar.round_id, against, liar.client))


def altered_proof(place: int) -> Callable[[Liar, int], bytes]:
    def make(liar: Liar, against: int) -> bytes:
        wrong = bytearray(real_proof(liar, against))
        wrong[place] ^= 1
        return bytes(wrong)

    return make


def at_another_stage(kind: type) -> Trick:
    def change(liar: Liar, reply: Message) -> Message:
        return Complaint(liar.round_id, liar.client, a_neighbour(liar), b"")

    return at(kind, change)


def vector_deeds() -> Iterator[Deed]:
    yield Deed("another digest of its peers", at(Masked, other_peers))
    yield Deed("any words for a vector", at(Masked, any_words), named=False, stays=True, moves=True)
    for proof in (
        no_proof,
        any_proof,
        real_proof,
        proof_of_another_pair,
        proof_of_another_round,
        proof_in_the_others_name,
    ):
        said = proof.__name__.replace("_", " ")
        yield Deed(f"a false complaint with {said}", complaint(a_neighbour, proof))
    for place in (0, 40, 70, 127):
        said = f"with byte {place} of its proof altered"
        yield Deed(f"a false complaint {said}", complaint(a_neighbour, altered_proof(place)))
    yield Deed("a complaint about itself", complaint(itself, any_proof))
    yield Deed("a complaint about a stranger", complaint(a_stranger, no_proof))
    yield Deed("a complaint in place of shares", at_another_stage(SealedShares))
    # It might be one that the network has delayed.
    yield Deed(
        "a complaint in place of a reply", at_another_stage(UnmaskReply), named=False, stays=True
    )


# The end.


def other_lists(liar: Liar, reply: Message) -> Message:
    assert isinstance(reply, Agreement)
    identity = liar.member.identity
    assert identity is not None
    everyone = frozenset(range(liar.plan.clients))
    digest = lists_digest(liar.round_id, everyone - {0}, frozenset({0}))
    return replace(reply, signature=sign_lists(identity, digest))


def handed_out(which: str, change: Callable[[dict[int, bytes]], dict[int, bytes]]) -> Trick:
    def altered(liar: Liar, reply: Message) -> Message:
        assert isinstance(reply, UnmaskReply)
        parts: Parts = getattr(reply, which)
        return replace(reply, **{which: Parts.of(change(dict(parts)), parts.size)})  # type: ignore[arg-type]

    return at(UnmaskReply, altered)


def one_limb(part: str, byte: int, *, outside: bool = False) -> Callable[..., dict[int, bytes]]:
    def change(rows: dict[int, bytes]) -> dict[int, bytes]:
        owners = sorted(rows)
        chosen = {"first": owners[:1], "last": owners[-1:], "all": owners}[part]
        made = dict(rows)
        for owner in chosen:
            row = bytearray(rows[owner])
            if outside:
                row[byte : byte + 2] = PRIME.to_bytes(2, "little")
            else:
                row[byte] ^= 1
            made[owner] = bytes(row)
        return made

    return change


def withheld(rows: dict[int, bytes]) -> dict[int, bytes]:
    return {owner: row for owner, row in rows.items() if owner != min(rows)}


def nothing(rows: dict[int, bytes]) -> dict[int, bytes]:
    return {}


def bad_signature(liar: Liar, reply: Message) -> Message:
    return replace(reply, signature=bytes(64))  # type: ignore[type-var]


def end_deeds() -> Iterator[Deed]:
    signed = (DISHONEST,)
    yield Deed("an advertisement signed wrongly", at(Advertisement, bad_signature), servers=signed)
    yield Deed(
        "an agreement signed wrongly", at(Agreement, bad_signature), servers=signed, stays=True
    )
    yield Deed(
        "an agreement on other lists", at(Agreement, other_lists), servers=signed, stays=True
    )
    for part in ("first", "last", "all"):
        yield Deed(
            f"a wrong share of a seed of {part}",
            handed_out("survivors", one_limb(part, 0)),
            stays=True,
        )
        yield Deed(
            f"a wrong share of a noise seed of {part}",
            handed_out("survivors", one_limb(part, 40)),
            stays=True,
        )
    yield Deed(
        "a wrong digest of a share that is not shown",
        handed_out("survivors", one_limb("first", -1)),
        stays=True,
    )
    yield Deed(
        "a wrong share of a key",
        handed_out("dropped", one_limb("first", 0)),
        stays=True,
        others_vanish=True,
    )
    yield Deed(
        "a share outside the field at the end",
        handed_out("survivors", one_limb("first", 0, outside=True)),
        stays=True,
    )
    yield Deed("shares withheld", handed_out("survivors", withheld), stays=True)
    yield Deed("all shares withheld", handed_out("survivors", nothing), stays=True)
    yield Deed(
        "shares of a key withheld",
        handed_out("dropped", nothing),
        stays=True,
        others_vanish=True,
    )


def deeds() -> Iterator[Deed]:
    """Yield all of them."""
    yield from key_deeds()
    yield from share_deeds()
    yield from vector_deeds()
    yield from end_deeds()


DEEDS = list(deeds())


# Bytes that are no such message, at every stage.

Mangling = Callable[[Liar, Message], Message | bytes]


def cut(liar: Liar, reply: Message) -> bytes:
    return encode(reply, liar.plan)[:-1]


def head_alone(liar: Liar, reply: Message) -> bytes:
    return encode(reply, liar.plan)[:10]


def continued(liar: Liar, reply: Message) -> bytes:
    return encode(reply, liar.plan) + b"\0"


def empty(liar: Liar, reply: Message) -> bytes:
    return b""


def too_long(liar: Liar, reply: Message) -> bytes:
    return encode(reply, liar.plan)[:10] + bytes(largest_message(liar.plan))


def noise(liar: Liar, reply: Message) -> bytes:
    return liar.source.take(len(encode(reply, liar.plan)))


def old_version(liar: Liar, reply: Message) -> bytes:
    data = bytearray(encode(reply, liar.plan))
    data[4] = 1
    return bytes(data)


def unknown_kind(liar: Liar, reply: Message) -> bytes:
    data = bytearray(encode(reply, liar.plan))
    data[5] = 99
    return bytes(data)


def another_round(liar: Liar, reply: Message) -> Message:
    return replace(reply, round_id=bytes(32))  # type: ignore[type-var]


def another_client(liar: Liar, reply: Message) -> Message:
    other = (liar.client + 1) % liar.plan.clients
    return replace(reply, client=other)  # type: ignore[type-var]


def a_receipt(liar: Liar, reply: Message) -> Message:
    identity = liar.member.identity
    signature = sign_receipt(identity, liar.round_id) if identity else b""
    return Receipt(liar.round_id, liar.client, signature)


def a_servers_message(liar: Liar, reply: Message) -> bytes:
    """A message that only a server sends."""
    return b"URNA\x03\x0d" + (32).to_bytes(4, "big") + liar.round_id


def a_refusal_in_anothers_name(liar: Liar, reply: Message) -> Message:
    return Refusal((liar.client + 1) % liar.plan.clients, "not me")


MALFORMED: list[Mangling] = [
    cut,
    head_alone,
    continued,
    empty,
    too_long,
    noise,
    old_version,
    unknown_kind,
    another_round,
    another_client,
    a_receipt,
    a_servers_message,
]

"""The server's side of a round: one state per stage, one function per stage.

The server forwards keys and encrypted shares, adds the masked vectors, and removes masks and
excess noise with the shares the survivors hand over. It holds no secret of its own. Replies
that are missing or wrong make their sender a dropout; too many of them abort the round before
anything is revealed.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ProtocolError, RoundAborted, RoundUnfinished
from urna.noise import IntVector
from urna.randomness import SEED_BYTES
from urna.secagg.graph import ServerModel, ring
from urna.secagg.keys import SIGNATURE_BYTES, Directory, KeyPair, commitment, mask_seed
from urna.secagg.masks import Words, add_mask, centred, subtract_mask, wrapped, zeros
from urna.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    ClientId,
    Invitation,
    KeyBook,
    MaskedVector,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    lists_digest,
    peers_digest,
)
from urna.secagg.parts import Parts, turned
from urna.secagg.plan import Plan
from urna.secagg.shamir import PRIME, recover

__all__ = [
    "Certified",
    "Invited",
    "Keyed",
    "Routed",
    "Summed",
    "Unmasked",
    "add_vectors",
    "ask_to_agree",
    "ask_to_unmask",
    "certify",
    "check_agreement",
    "check_reply",
    "check_shares",
    "check_vector",
    "invite",
    "pass_on_keys",
    "pass_on_shares",
    "unmask",
]

_BATCH = 512  # clients whose secrets are rebuilt at a time: bounds the memory

Clients = npt.NDArray[np.int64]
"""Numbers of clients, ascending."""


@dataclass(frozen=True, slots=True)
class Invited:
    """After the invitation: the graph is fixed."""

    plan: Plan
    round_id: bytes
    neighbours: Clients = field(repr=False)
    """One row per client, as in every later state."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """After stage 1: the public keys of all who advertised."""

    plan: Plan
    round_id: bytes
    neighbours: Clients = field(repr=False)
    mask_keys: Mapping[ClientId, bytes] = field(repr=False)
    listed: Mapping[ClientId, Clients] = field(repr=False)
    """The neighbours in each client's key book."""


@dataclass(frozen=True, slots=True)
class Routed:
    """After stage 2: who shared, and what they committed to."""

    plan: Plan
    round_id: bytes
    neighbours: Clients = field(repr=False)
    mask_keys: Mapping[ClientId, bytes] = field(repr=False)
    commitments: Mapping[ClientId, tuple[bytes, ...]] = field(repr=False)
    peers: Mapping[ClientId, Clients] = field(repr=False)
    """The neighbours of each client that shared, and that shared with it."""


@dataclass(frozen=True, slots=True)
class Summed:
    """After stage 3: the masked sum of the survivors. The lists do not change any more."""

    routed: Routed
    survivors: frozenset[ClientId]
    dropped: frozenset[ClientId]
    total: Words = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certified:
    """After stage 4 (dishonest servers only): enough clients signed the lists."""

    summed: Summed
    signatures: Mapping[ClientId, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unmasked:
    """The end: the sum of the survivors' vectors and what is left of their noise."""

    total: IntVector
    survivors: frozenset[ClientId]
    noise_variance: Fraction
    """Variance of the noise in every entry, if all survivors added theirs."""


def invite(plan: Plan, number: int, coin: bytes) -> tuple[Invited, Invitation]:
    """Begin a round: every client gets the same invitation."""
    invitation = Invitation(number, coin, plan.digest)
    graph = ring(invitation.round_id, plan.clients, plan.neighbours)
    return Invited(plan, invitation.round_id, graph.table()), invitation


def pass_on_keys(
    state: Invited, replies: Mapping[ClientId, Advertisement]
) -> tuple[Keyed, dict[ClientId, KeyBook]]:
    """Stage 1, server: give every client the keys of its neighbours.

    Raises:
        RoundAborted: Fewer clients are left than the plan allows.
    """
    _check_enough(state.plan, replies)
    mask_keys = {client: entry.mask_key for client, entry in replies.items()}
    answered = frozenset(replies)
    listed = {client: _among(state.neighbours[client], answered, state.plan) for client in replies}
    books = {
        client: KeyBook(state.round_id, tuple(replies[peer] for peer in peers.tolist()))
        for client, peers in listed.items()
    }
    return Keyed(state.plan, state.round_id, state.neighbours, mask_keys, listed), books


def check_shares(state: Keyed, sealed: SealedShares) -> None:
    """Refuse shares that do not go to exactly the neighbours in the client's key book."""
    plan = state.plan
    if not np.array_equal(sealed.bundles.clients, state.listed[sealed.client]):
        raise ProtocolError("the shares do not go to the client's neighbours")
    if sealed.bundles.size != plan.bundle_bytes:
        raise ProtocolError(f"a bundle of shares must have {plan.bundle_bytes} bytes")
    if len(sealed.commitments) != plan.secrets - 1:
        raise ProtocolError(f"{plan.secrets - 1} commitments were expected")


def pass_on_shares(
    state: Keyed, replies: Mapping[ClientId, SealedShares]
) -> tuple[Routed, dict[ClientId, ShareBox]]:
    """Stage 2, server: give every client the bundles encrypted to it.

    Assumes:
        Every reply has passed `check_shares`: it goes to the sender's neighbours and no others.

    Raises:
        RoundAborted: Fewer clients are left than the plan allows.
    """
    _check_enough(state.plan, replies)
    commitments = {client: sealed.commitments for client, sealed in replies.items()}
    received = turned({client: sealed.bundles for client, sealed in replies.items()})
    nothing = Parts.of({}, state.plan.bundle_bytes)
    boxes = {client: ShareBox(state.round_id, received.get(client, nothing)) for client in replies}
    peers = {client: box.bundles.clients for client, box in boxes.items()}
    routed = Routed(
        state.plan, state.round_id, state.neighbours, state.mask_keys, commitments, peers
    )
    return routed, boxes


def check_vector(state: Routed, sent: MaskedVector) -> None:
    """Refuse a vector whose masks are not those that its neighbours' masks will cancel."""
    if sent.peers_digest != peers_digest(state.round_id, state.peers[sent.client]):
        raise ProtocolError("the vector was not masked with all neighbours that shared")


def add_vectors(state: Routed, replies: Mapping[ClientId, MaskedVector]) -> Summed:
    """Stage 3, server: add the masked vectors; who sent one is a survivor from here on.

    Raises:
        RoundAborted: Fewer clients are left than the plan allows. Nothing is revealed.
    """
    plan = state.plan
    _check_enough(plan, replies)
    total = zeros(plan.dimension, plan.ring_bits)
    for reply in replies.values():
        total += np.frombuffer(reply.words, dtype=f"<u{plan.ring_bits // 8}")
    survivors = frozenset(replies)
    return Summed(state, survivors, frozenset(state.commitments) - survivors, total)


def ask_to_agree(state: Summed) -> AgreeRequest:
    """Stage 4, server: the lists for the clients to sign."""
    return AgreeRequest(state.routed.round_id, state.survivors, state.dropped)


def check_agreement(state: Summed, directory: Directory, reply: Agreement) -> None:
    """Refuse a signature that other clients would refuse, and with it the whole list."""
    digest = lists_digest(state.routed.round_id, state.survivors, state.dropped)
    directory.verify_lists(reply.client, reply.signature, digest)


def certify(state: Summed, replies: Mapping[ClientId, Agreement]) -> Certified:
    """Stage 4, server: keep as many signatures as clients ask for.

    Raises:
        RoundAborted: Too few clients signed the lists. Nothing is revealed.
    """
    needed = state.routed.plan.signers
    if len(replies) < needed:
        raise RoundAborted(
            f"{len(replies)} clients signed the lists, {needed} are needed; nothing was revealed"
        )
    kept = sorted(replies)[:needed]
    return Certified(state, {client: replies[client].signature for client in kept})


def ask_to_unmask(state: Summed | Certified) -> UnmaskRequest:
    """Last stage, server: whose masks are to be removed how."""
    summed = state.summed if isinstance(state, Certified) else state
    signatures = state.signatures if isinstance(state, Certified) else {}
    if not signatures and summed.routed.plan.server is ServerModel.DISHONEST:
        raise ProtocolError("clients that expect a dishonest server ask for signed lists")
    packed = Parts.of(signatures, SIGNATURE_BYTES)
    return UnmaskRequest(summed.routed.round_id, summed.survivors, summed.dropped, packed)


def check_reply(state: Summed, reply: UnmaskReply) -> None:
    """Refuse a reply that does not hold exactly the shares it was asked for."""
    peers = state.routed.peers[reply.client]
    asked = (
        ("survivors", reply.survivors, state.survivors, SEED_BYTES * (1 + len(_opened(state)))),
        ("dropped clients", reply.dropped, state.dropped, SEED_BYTES),
    )
    for what, parts, listed, size in asked:
        if not np.array_equal(parts.clients, _among(peers, listed, state.routed.plan)):
            raise ProtocolError(f"the shares of {what} are not those asked for")
        if parts and parts.size != size:
            raise ProtocolError("a share has the wrong length")
        if parts and (parts.rows.view("<u2") >= PRIME).any():
            raise ProtocolError("a share has a limb outside the field")


def unmask(state: Summed | Certified, replies: Mapping[ClientId, UnmaskReply]) -> Unmasked:
    """Last stage, server: rebuild what is needed, remove masks and excess noise.

    Raises:
        RoundUnfinished: Too few neighbours of some client answered, or their shares do not
            rebuild what it committed to. Answers that come late could still unmask the sum,
            so it counts as released.
    """
    summed = state.summed if isinstance(state, Certified) else state
    plan, total = summed.routed.plan, summed.total.copy()
    _remove_own_masks_and_noise(summed, replies, total)
    _remove_masks_of_dropped(summed, replies, total)
    variance = Fraction(0)
    if plan.noise:
        variance = len(summed.survivors) * plan.noise.left(plan.clients - len(summed.survivors))
    return Unmasked(centred(total), summed.survivors, variance)


def _remove_own_masks_and_noise(
    state: Summed, replies: Mapping[ClientId, UnmaskReply], total: Words
) -> None:
    plan, round_id = state.routed.plan, state.routed.round_id
    lost, opened = plan.clients - len(state.survivors), _opened(state)
    places = (0, *opened)
    noise_seeds = []
    shares = turned({holder: reply.survivors for holder, reply in replies.items()})
    for client, secrets in _rebuild(state, sorted(state.survivors), shares):
        committed = state.routed.commitments[client]
        for place, secret in zip(places, secrets, strict=True):
            if commitment(secret, round_id, client, place) != committed[place]:
                raise RoundUnfinished(
                    f"the shares of client {client} do not rebuild what it committed to: it or "
                    "one of its neighbours deviates from the protocol"
                )
        subtract_mask(total, secrets[0])
        if plan.noise and opened:
            revealed = dict(zip(opened, secrets[1:], strict=True))
            noise_seeds.append(plan.noise.seeds_from(revealed, lost))
    if plan.noise:
        total -= wrapped(plan.noise.draw_sum(noise_seeds, plan.dimension), plan.ring_bits)


def _remove_masks_of_dropped(
    state: Summed, replies: Mapping[ClientId, UnmaskReply], total: Words
) -> None:
    routed = state.routed
    shares = turned({holder: reply.dropped for holder, reply in replies.items()})
    for client, (private,) in _rebuild(state, sorted(state.dropped), shares):
        pair = KeyPair.of(private)
        if pair.public != routed.mask_keys[client]:
            raise RoundUnfinished(
                f"the shares of client {client} do not rebuild its mask key: it or one of its "
                "neighbours deviates from the protocol"
            )
        for peer in routed.neighbours[client].tolist():
            if peer in state.survivors:
                seed = mask_seed(pair, routed.mask_keys[peer], routed.round_id)
                # The survivor added this mask if its number is the lower one.
                (subtract_mask if peer < client else add_mask)(total, seed)


def _rebuild(
    state: Summed, owners: list[ClientId], shares: Mapping[ClientId, Parts]
) -> Iterable[tuple[ClientId, list[bytes]]]:
    """Yield each owner's secrets, rebuilt from the shares of `threshold` neighbours."""
    routed, threshold = state.routed, state.routed.plan.threshold
    for start in range(0, len(owners), _BATCH):
        batch = owners[start : start + _BATCH]
        points, rows = [], []
        for owner in batch:
            held = shares.get(owner)
            answered = len(held) if held is not None else 0
            if held is None or answered < threshold:
                raise RoundUnfinished(
                    f"{answered} neighbours of client {owner} answered, {threshold} are "
                    "needed to unmask the sum; more clients were lost than planned. The sum counts "
                    "as released: late answers could unmask it"
                )
            holders = held.clients[:threshold]
            points.append(np.searchsorted(routed.neighbours[owner], holders) + 1)
            rows.append(held.rows[:threshold])
        found = recover(np.stack(points), np.stack(rows).view("<u2").astype(np.uint16))
        for owner, row in zip(batch, found.astype("<u2"), strict=True):
            packed = row.tobytes()
            yield (
                owner,
                [packed[at : at + SEED_BYTES] for at in range(0, len(packed), SEED_BYTES)],
            )


def _among(clients: Clients, chosen: frozenset[ClientId], plan: Plan) -> Clients:
    """Return those of some clients that are among the chosen."""
    return clients[_marks(chosen, plan.clients)[clients]]


@functools.lru_cache(maxsize=4)
def _marks(chosen: frozenset[ClientId], count: int) -> npt.NDArray[np.bool_]:
    """Return for each of all clients whether it is chosen: kept, since every reply asks."""
    marks = np.zeros(count, dtype=np.bool_)
    marks[list(chosen)] = True
    return marks


def _opened(state: Summed) -> tuple[int, ...]:
    plan = state.routed.plan
    return plan.noise.opened(plan.clients - len(state.survivors)) if plan.noise else ()


def _check_enough(plan: Plan, left: Mapping[ClientId, object]) -> None:
    if len(left) < plan.least_survivors:
        raise RoundAborted(
            f"{len(left)} of {plan.clients} clients are left; the plan needs "
            f"{plan.least_survivors}. Nothing was revealed. Plan for more dropouts."
        )

"""The server's side of a round: one state per stage, one function per stage.

The server forwards keys and encrypted shares, adds the masked vectors, and removes masks and
excess noise with the shares the survivors hand over. It holds no secret of its own. Replies
that are missing or wrong make their sender a dropout; too many of them abort the round before
anything is revealed.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from urna.errors import ProtocolError, RoundAborted, RoundUnfinished
from urna.noise import IntVector
from urna.protocols.secagg.client import complaint_context
from urna.protocols.secagg.evidence import on_curve, small_order, verified
from urna.protocols.secagg.graph import ServerModel, ring
from urna.protocols.secagg.keys import (
    SIGNATURE_BYTES,
    Directory,
    KeyPair,
    commitment,
    mask_seed,
    shown_channel_keys,
    unseal,
)
from urna.protocols.secagg.masks import Words, add_mask, centred, subtract_mask, zeros
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    ClientId,
    Complaint,
    Invitation,
    KeyBook,
    MaskedVector,
    Parts,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    lists_digest,
    peers_digest,
    turned,
)
from urna.protocols.secagg.plan import Plan
from urna.protocols.secagg.shares import (
    DIGEST_BYTES,
    KEY,
    PRIME,
    SEED,
    good_bundle,
    partial_size,
    recover,
    shown_digest,
)
from urna.protocols.x25519 import canonical
from urna.randomness import SEED_BYTES

_BATCH = 512  # clients whose secrets are rebuilt at a time: bounds the memory
_LOOK_AT_ALL = 50_000  # digests: about 30 ms
_TRIES = 200  # choices of shares tried where a client's shares do not fit together

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
class Keyed(Invited):
    """After stage 1: the public keys of all who advertised."""

    channel_keys: Mapping[ClientId, bytes] = field(repr=False)
    mask_keys: Mapping[ClientId, bytes] = field(repr=False)
    listed: Mapping[ClientId, Clients] = field(repr=False)
    """The neighbours in each client's key book."""


@dataclass(frozen=True, slots=True)
class Routed(Keyed):
    """After stage 2: who shared, and what they committed to."""

    commitments: Mapping[ClientId, tuple[bytes, ...]] = field(repr=False)
    digests: Mapping[ClientId, Parts] = field(repr=False)
    """Each client's own digests of the bundles it sent, by recipient."""
    peers: Mapping[ClientId, Clients] = field(repr=False)
    """The neighbours of each client that shared, and that shared with it."""


@dataclass(slots=True)
class Folding:
    """During stage 3: the masked vectors that came so far, added up and forgotten."""

    routed: Routed
    total: Words = field(repr=False)
    senders: set[ClientId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Summed:
    """After stage 3: the masked sum of the survivors. The lists do not change any more."""

    routed: Routed
    survivors: frozenset[ClientId]
    dropped: frozenset[ClientId]
    total: Words = field(repr=False)
    signatures: Mapping[ClientId, bytes] = field(default_factory=dict, repr=False)
    """After stage 4 (dishonest servers only): enough clients signed the lists."""


@dataclass(frozen=True, slots=True)
class Unmasked:
    """The end: the sum of the survivors' vectors and what is left of their noise."""

    total: IntVector
    survivors: frozenset[ClientId]
    noise_variance: Fraction
    """Variance of the noise in every entry, if all survivors added theirs."""
    faults: Mapping[ClientId, str]
    """Who shared or handed out what is not right, and what it did."""


def invite(plan: Plan, number: int, coin: bytes) -> tuple[Invited, Invitation]:
    """Begin a round: every client gets the same invitation."""
    invitation = Invitation(number, coin, plan.digest)
    graph = ring(invitation.round_id, plan.clients, plan.neighbours)
    return Invited(plan, invitation.round_id, graph.table()), invitation


class KeyCheck:
    """Refuses keys that would harm those who use them, as they come in.

    A key of small order makes what two clients have in common public; a key that somebody else
    advertised before cannot be this client's own.
    """

    def __init__(self, directory: Directory | None = None) -> None:
        self._directory = directory
        self._seen: set[bytes] = set()

    def __call__(self, advertisement: Advertisement) -> None:
        """Raise ProtocolError unless both keys may be passed on."""
        if self._directory is not None:
            self._directory.verify_advertisement(advertisement)
        keys = (advertisement.channel_key, advertisement.mask_key)
        if not all(map(canonical, keys)):
            raise ProtocolError("it advertised a key that is not written as X25519 writes it")
        if any(small_order(key) for key in keys):
            raise ProtocolError("it advertised a key of small order")
        if keys[0] == keys[1] or self._seen.intersection(keys):
            raise ProtocolError("it advertised a key that was advertised before")
        self._seen.update(keys)


def pass_on_keys(
    state: Invited, replies: Mapping[ClientId, Advertisement]
) -> tuple[Keyed, dict[ClientId, KeyBook]]:
    """Stage 1, server: give every client the keys of its neighbours.

    Raises:
        RoundAborted: Fewer clients are left than the plan allows.
    """
    _check_enough(state.plan, replies)
    channel_keys = {client: entry.channel_key for client, entry in replies.items()}
    mask_keys = {client: entry.mask_key for client, entry in replies.items()}
    answered = frozenset(replies)
    listed = {client: _among(state.neighbours[client], answered, state.plan) for client in replies}
    books = {
        client: KeyBook(state.round_id, tuple(replies[peer] for peer in peers.tolist()))
        for client, peers in listed.items()
    }
    known = (state.plan, state.round_id, state.neighbours)
    return Keyed(*known, channel_keys, mask_keys, listed), books


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
    size = state.plan.sealed_bytes
    digests = {
        # A copy: a view would keep all encrypted bundles alive.
        client: Parts(s.bundles.clients, s.bundles.rows[:, size : size + DIGEST_BYTES].copy())
        for client, s in replies.items()
    }
    peers = {client: box.bundles.clients for client, box in boxes.items()}
    known = (state.plan, state.round_id, state.neighbours)
    keys = (state.channel_keys, state.mask_keys, state.listed)
    return Routed(*known, *keys, commitments, digests, peers), boxes


def judge(
    state: Routed, complaint: Complaint, box: ShareBox, directory: Directory | None = None
) -> tuple[ClientId, str]:
    """Stage 3, server: decide a complaint; return who is to blame and for what."""
    plan, client, against = state.plan, complaint.client, complaint.against
    if against not in box.bundles:
        return client, f"complained about client {against}, whose shares it did not get"
    row, own, peer = box.bundles[against], state.channel_keys[client], state.channel_keys[against]
    if not on_curve(peer):
        return against, "advertised a key that is on no point of the curve"
    if plan.server is ServerModel.DISHONEST and directory is not None:
        bundle, signature = row[:-SIGNATURE_BYTES], row[-SIGNATURE_BYTES:]
        try:
            directory.verify_bundle(against, client, state.round_id, bundle, signature)
        except ProtocolError:
            return against, f"did not sign its shares for client {client}"
    context = complaint_context(state.round_id, client, against)
    shared = verified(complaint.proof, own, peer, context)
    if shared is None:
        return client, f"complained about client {against} without a proof"
    _, receiving = shown_channel_keys(shared, own, peer, state.round_id)
    size = plan.sealed_bytes
    shown = unseal(receiving, row[:size], state.round_id, against, client)
    digest = row[size : size + DIGEST_BYTES]
    if shown is not None and good_bundle(shown, digest, state.round_id, against, client):
        return client, f"complained about client {against} without reason"
    what = "cannot be decrypted" if shown is None else "are not those it committed to"
    return against, f"sent client {client} shares that {what}"


def check_vector(state: Routed, sent: MaskedVector) -> None:
    """Refuse a vector whose masks are not those that its neighbours' masks will cancel."""
    if sent.peers_digest != peers_digest(state.round_id, state.peers[sent.client]):
        raise ProtocolError("the vector was not masked with all neighbours that shared")


def begin_sum(state: Routed) -> Folding:
    """Stage 3, server: begin with nothing; vectors are folded in as they come."""
    return Folding(state, zeros(state.plan.dimension, state.plan.ring_bits))


def fold(state: Folding, sent: MaskedVector) -> None:
    """Add one masked vector, which is not kept."""
    bits = state.routed.plan.ring_bits
    state.total += np.frombuffer(sent.words, dtype=f"<u{bits // 8}")
    state.senders.add(sent.client)


def end_sum(state: Folding) -> Summed:
    """Stage 3, server: who sent a vector is a survivor from here on.

    Raises:
        RoundAborted: Fewer clients are left than the plan allows. Nothing is revealed.
    """
    _check_enough(state.routed.plan, state.senders)
    survivors = frozenset(state.senders)
    dropped = frozenset(state.routed.commitments) - survivors
    return Summed(state.routed, survivors, dropped, state.total)


def ask_to_agree(state: Summed) -> AgreeRequest:
    """Stage 4, server: the lists for the clients to sign."""
    return AgreeRequest(state.routed.round_id, state.survivors, state.dropped)


def check_agreement(state: Summed, directory: Directory, reply: Agreement) -> None:
    """Refuse a signature that other clients would refuse, and with it the whole list."""
    digest = lists_digest(state.routed.round_id, state.survivors, state.dropped)
    directory.verify_lists(reply.client, reply.signature, digest)


def certify(state: Summed, replies: Mapping[ClientId, Agreement]) -> Summed:
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
    return replace(state, signatures={client: replies[client].signature for client in kept})


def ask_to_unmask(state: Summed) -> UnmaskRequest:
    """Last stage, server: whose masks are to be removed how."""
    if not state.signatures and state.routed.plan.server is ServerModel.DISHONEST:
        raise ProtocolError("clients that expect a dishonest server ask for signed lists")
    packed = Parts.of(state.signatures, SIGNATURE_BYTES)
    return UnmaskRequest(state.routed.round_id, state.survivors, state.dropped, packed)


def check_reply(state: Summed, reply: UnmaskReply) -> None:
    """Refuse a reply that does not hold exactly the shares it was asked for."""
    plan = state.routed.plan
    peers = state.routed.peers[reply.client]
    asked = (
        ("survivors", reply.survivors, state.survivors, 1 + len(_opened(state))),
        ("dropped clients", reply.dropped, state.dropped, 1),
    )
    for what, parts, listed, shown in asked:
        if not np.array_equal(parts.clients, _among(peers, listed, plan)):
            raise ProtocolError(f"the shares of {what} are not those asked for")
        if parts and parts.size != partial_size(shown, plan.secrets):
            raise ProtocolError("a share has the wrong length")
        shares = np.ascontiguousarray(parts.rows[:, : SEED_BYTES * shown]).view("<u2")
        if (shares >= PRIME).any():
            raise ProtocolError("a share has a limb outside the field")


def unmask(state: Summed, replies: Mapping[ClientId, UnmaskReply]) -> Unmasked:
    """Last stage, server: rebuild what is needed, remove masks and excess noise.

    Shares that are not those their owner committed to are left out, and who handed them out is
    named. So is an owner whose shares do not fit together.

    Raises:
        RoundUnfinished: Too few neighbours of some client answered rightly, or its shares do
            not rebuild what it committed to. Answers that come late could still unmask the
            sum, so it counts as released.
    """
    plan, total = state.routed.plan, state.total.copy()
    faults: dict[ClientId, str] = {}
    _remove_own_masks_and_noise(state, replies, total, faults)
    _remove_masks_of_dropped(state, replies, total, faults)
    variance = Fraction(0)
    if plan.noise:
        variance = len(state.survivors) * plan.noise.left(plan.clients - len(state.survivors))
    return Unmasked(centred(total), state.survivors, variance, faults)


def _remove_own_masks_and_noise(
    state: Summed,
    replies: Mapping[ClientId, UnmaskReply],
    total: Words,
    faults: dict[ClientId, str],
) -> None:
    plan, round_id = state.routed.plan, state.routed.round_id
    lost, opened = plan.clients - len(state.survivors), _opened(state)
    shown = (SEED, *(SEED + k for k in opened))
    noise_seeds = []
    shares = turned({holder: reply.survivors for holder, reply in replies.items()})

    def right(client: ClientId, secrets: list[bytes]) -> bool:
        committed = state.routed.commitments[client]
        return all(
            commitment(secret, round_id, client, place - SEED) == committed[place - SEED]
            for place, secret in zip(shown, secrets, strict=True)
        )

    rebuilding = _Rebuilding(state, shares, shown, right, faults)
    for _, secrets in rebuilding.all_of(sorted(state.survivors)):
        subtract_mask(total, secrets[0])
        if plan.noise and opened:
            revealed = dict(zip(opened, secrets[1:], strict=True))
            noise_seeds.append(plan.noise.seeds_from(revealed, lost))
    if plan.noise:
        plan.noise.remove_from(total, noise_seeds)


def _remove_masks_of_dropped(
    state: Summed,
    replies: Mapping[ClientId, UnmaskReply],
    total: Words,
    faults: dict[ClientId, str],
) -> None:
    routed = state.routed
    shares = turned({holder: reply.dropped for holder, reply in replies.items()})

    def right(client: ClientId, secrets: list[bytes]) -> bool:
        return KeyPair.of(secrets[0]).public == routed.mask_keys[client]

    rebuilding = _Rebuilding(state, shares, (KEY,), right, faults)
    for client, (private,) in rebuilding.all_of(sorted(state.dropped)):
        pair = KeyPair.of(private)
        for peer in routed.neighbours[client].tolist():
            if peer in state.survivors:
                seed = mask_seed(pair, routed.mask_keys[peer], routed.round_id)
                # The survivor added this mask if its number is the lower one.
                (subtract_mask if peer < client else add_mask)(total, seed)


@dataclass(frozen=True, slots=True)
class _Rebuilding:
    """Rebuilds clients' secrets from the shares that their neighbours handed out."""

    state: Summed
    shares: Mapping[ClientId, Parts]
    """What was handed out of each client's secrets, by holder."""
    shown: tuple[int, ...]
    """The places of a bundle that were asked for."""
    right: Callable[[ClientId, list[bytes]], bool]
    """Whether secrets are those a client committed to."""
    faults: dict[ClientId, str]

    def all_of(self, owners: list[ClientId]) -> Iterable[tuple[ClientId, list[bytes]]]:
        """Yield each owner's secrets, rebuilt from the shares of `threshold` neighbours.

        Few shares are all held against their digests and each other, so that whoever deviates
        is named even where it does no harm. Of many only those are looked at that are needed,
        and all of an owner's where these do not fit.
        """
        plan = self.state.routed.plan
        some, count = np.arange(plan.threshold), sum(len(parts) for parts in self.shares.values())
        for start in range(0, len(owners), _BATCH):
            batch = owners[start : start + _BATCH]
            held = [self._held(owner) for owner in batch]
            rebuilt = self._recover(batch, held, [some] * len(batch))
            for owner, parts, secrets in zip(batch, held, rebuilt, strict=True):
                every = count * plan.secrets <= _LOOK_AT_ALL
                if every or not self.right(owner, secrets):
                    yield owner, self._repaired(owner, parts, every)
                else:
                    yield owner, secrets

    def _held(self, owner: ClientId) -> Parts:
        held, needed = self.shares.get(owner), self.state.routed.plan.threshold
        if held is None or len(held) < needed:
            raise RoundUnfinished(
                f"{0 if held is None else len(held)} neighbours of client {owner} answered, "
                f"{needed} are needed to unmask the sum; more clients were lost than planned. The "
                "sum counts as released: late answers could unmask it",
                faults=self.faults,
            )
        return held

    def _recover(
        self, owners: list[ClientId], held: list[Parts], chosen: list[npt.NDArray[np.int64]]
    ) -> list[list[bytes]]:
        routed, size = self.state.routed, SEED_BYTES * len(self.shown)
        points = [
            np.searchsorted(routed.neighbours[owner], parts.clients[rows]) + 1
            for owner, parts, rows in zip(owners, held, chosen, strict=True)
        ]
        limbs = np.stack(
            [parts.rows[rows, :size] for parts, rows in zip(held, chosen, strict=True)]
        )
        found = recover(np.stack(points), limbs.view("<u2").astype(np.uint16))
        return [
            [packed[at : at + SEED_BYTES] for at in range(0, len(packed), SEED_BYTES)]
            for packed in (row.tobytes() for row in found.astype("<u2"))
        ]

    def _repaired(self, owner: ClientId, held: Parts, every: bool) -> list[bytes]:
        """Leave out shares that are not what the owner committed to; name who is to blame."""
        routed = self.state.routed
        plan, digests = routed.plan, routed.digests[owner]
        honest = []
        for place, (holder, row) in enumerate(held.pairs()):
            shown = shown_digest(row, self.shown, plan.secrets, routed.round_id, owner, holder)
            if shown == digests[holder]:
                honest.append(place)
            else:
                self.faults[holder] = f"handed out a wrong share of client {owner}'s secrets"
        if len(honest) < plan.threshold:
            raise RoundUnfinished(
                f"{len(honest)} neighbours of client {owner} handed out the right shares, "
                f"{plan.threshold} are needed to unmask the sum. It counts as released",
                faults=self.faults,
            )
        # Public: which shares are tried first does not matter to anybody.
        rng = np.random.default_rng([*routed.round_id, owner])
        size, found = plan.threshold, None
        # Every share is in one of these.
        ways = [honest[at : at + size] for at in range(0, len(honest) - size, size)]
        ways.append(honest[-size:])
        for turn in range(len(ways) + _TRIES):
            some = ways[turn] if turn < len(ways) else rng.choice(honest, size, replace=False)
            (secrets,) = self._recover([owner], [held], [np.sort(some)])
            fits = self.right(owner, secrets)
            if not fits:
                self.faults[owner] = "shared secrets in parts that do not fit together"
            found = secrets if fits else found
            if found is not None and (turn >= len(ways) - 1 or not every):
                return found
        self.faults[owner] = "shared secrets that are not those it committed to"
        raise RoundUnfinished(
            f"the shares of client {owner} do not rebuild what it committed to. The sum counts as "
            "released",
            faults=self.faults,
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


def _check_enough(plan: Plan, left: Collection[ClientId]) -> None:
    if len(left) < plan.least_survivors:
        raise RoundAborted(
            f"{len(left)} of {plan.clients} clients are left; the plan needs "
            f"{plan.least_survivors}. Nothing was revealed. Plan for more dropouts."
        )
    if missing := plan.required - set(left):
        raise RoundAborted(
            f"client {min(missing)} is lost, without whom this sum is not opened. Nothing was "
            "revealed: hold it again"
        )

"""The client's side of a round: one state per stage, one function per stage.

A function takes the state the stage before left and the server's message, checks the message,
and returns the next state and the reply. A message that breaks the protocol raises
`ProtocolError` and nothing is answered. Nothing here sends, waits, logs or reads a clock.

Guarantee:
    Against an honest-but-curious server with at most `plan.colluders` colluding clients, the
    server learns the sum of the survivors' vectors and left-over noise, who survived, and
    nothing else, except with probability 2^-40 over the graph (Bell et al. 2020, section 3,
    with the bounds of `graph`).
    Against a dishonest server (`plan.server`) the same holds for one pair of lists of its
    choice with at least `plan.least_survivors` survivors. In short: all honest clients that
    reveal anything hold the same lists, because two pairs of lists cannot both have
    `plan.signers` signatures. So a client is a survivor or dropped for everyone, and the
    server gets its self-mask seed or its mask key, not both. With a threshold above half of
    the neighbours and the colluders, the honest clients that reveal close the ring, and every
    survivor whose seed is rebuilt shares a mask with one of them: only the whole sum is free
    of pairwise masks. A client listed as survivor that sent no vector leaves its neighbours'
    masks in that sum, so the number of lost clients is true, or nothing is learned. The proof
    is in docs/decisions/0003-secure-summation.md.

Assumes:
    X25519, HKDF, AES-256 and SHA-256 are what they are believed to be; Ed25519 signatures and
    an authentic directory against a dishonest server, and against a network that alters messages
    (without a directory: an authentic channel to the server, TLS); the coin of the round does
    not depend on who colludes. A dishonest *client* may put in any vector and may spoil the sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from urna.errors import ParameterError, ProtocolError
from urna.noise import IntVector
from urna.protocols.secagg.evidence import on_curve, prove
from urna.protocols.secagg.graph import ServerModel, ring
from urna.protocols.secagg.keys import (
    SIGNATURE_BYTES,
    Directory,
    Identity,
    KeyPair,
    channel_keys,
    commitment,
    mask_seed,
    seal,
    sign_advertisement,
    sign_bundle,
    sign_lists,
    sign_receipt,
    unseal,
)
from urna.protocols.secagg.masks import add_mask, residues, subtract_mask
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
    Receipt,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    Void,
    lists_digest,
    peers_digest,
)
from urna.protocols.secagg.plan import Plan
from urna.protocols.secagg.shares import (
    DIGEST_BYTES,
    KEY,
    SEED,
    bundle_digest,
    draw_secret,
    in_field,
    partly_shown,
    share,
)
from urna.protocols.x25519 import canonical
from urna.randomness import SEED_BYTES, SecretSource


class BadShares(ProtocolError):
    """A neighbour's bundle cannot be decrypted, or is not what its digest says."""

    def __init__(self, peer: ClientId) -> None:
        """Keep whose bundle it is."""
        self.peer = peer
        super().__init__(f"the bundle of client {peer} is not what it says")


@dataclass(frozen=True, slots=True)
class Member:
    """What a client knows before a round, by its own means and not from the server."""

    client: ClientId
    plan: Plan
    latest_round: int = 0
    """The highest round number it ever answered. Keep it across restarts."""
    identity: Identity | None = None
    directory: Directory | None = None
    coin: bytes | None = None
    """The coin of the next round, where it comes from elsewhere than the server."""

    def __post_init__(self) -> None:
        if not 0 <= self.client < self.plan.clients:
            raise ParameterError(
                f"clients are numbered 0 to {self.plan.clients - 1}, got {self.client}"
            )
        if (self.identity is None) != (self.directory is None):
            raise ParameterError("an identity and a directory are used together or not at all")
        if self.identity is not None and self.identity.client != self.client:
            raise ParameterError(
                f"the identity of client {self.identity.client} cannot act for {self.client}"
            )
        if self.plan.server is ServerModel.DISHONEST and self.directory is None:
            raise ParameterError(
                "a plan against a dishonest server needs a directory of identity keys"
            )


@dataclass(frozen=True, slots=True)
class Advertised:
    """After stage 1: its two key pairs exist."""

    member: Member
    round_id: bytes
    round_number: int
    neighbours: tuple[ClientId, ...]
    channel_pair: KeyPair
    mask_pair: KeyPair


@dataclass(frozen=True, slots=True)
class Shared:
    """After stage 2: its secrets are shared among its neighbours."""

    member: Member
    round_id: bytes
    neighbours: frozenset[ClientId]
    channel_pair: KeyPair
    mask_pair: KeyPair
    channel_keys: Mapping[ClientId, bytes]
    mask_keys: Mapping[ClientId, bytes]
    receiving_keys: Mapping[ClientId, bytes] = field(repr=False)
    self_mask_seed: bytes = field(repr=False)
    noise_seeds: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Masked:
    """After stage 3: its vector is sent; of its own secrets it needs none any more."""

    member: Member
    round_id: bytes
    neighbours: frozenset[ClientId]
    bundles: Parts
    """Shares it holds for its neighbours."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """After stage 4: it has signed one pair of lists and will help with no other."""

    digest: bytes
    held: Masked


@dataclass(frozen=True, slots=True)
class Complained:
    """After a complaint: no secret is left, but it can still sign that it revealed nothing."""

    member: Member
    round_id: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """After the last stage: no secret is left, and nothing more is answered."""

    round_id: bytes


def advertise(
    member: Member, invitation: Invitation, source: SecretSource
) -> tuple[Advertised, Advertisement]:
    """Stage 1, client: make two key pairs for this round and sign them.

    Raises:
        ProtocolError: The plan, the coin or the round number is not what the client holds.
    """
    plan = member.plan
    if invitation.plan_digest != plan.digest:
        raise ProtocolError(
            "the server plans another round than this client: clients, dimension, ring, "
            "neighbours, threshold, noise and server model must all be the same"
        )
    if invitation.number <= member.latest_round:
        raise ProtocolError(
            f"round {invitation.number} is not after round {member.latest_round}, which this "
            "client has answered: a replayed or reordered round"
        )
    if member.coin is not None and invitation.coin != member.coin:
        raise ProtocolError("the round's coin is not the one this client holds")
    round_id = invitation.round_id
    channel_pair, mask_pair = KeyPair.draw(source), KeyPair.draw(source)
    signature = b""
    if member.identity is not None:
        signature = sign_advertisement(
            member.identity, round_id, channel_pair.public, mask_pair.public
        )
    neighbours = ring(round_id, plan.clients, plan.neighbours).of(member.client)
    state = Advertised(member, round_id, invitation.number, neighbours, channel_pair, mask_pair)
    return state, Advertisement(
        round_id, member.client, channel_pair.public, mask_pair.public, signature
    )


def share_keys(
    state: Advertised, book: KeyBook, source: SecretSource
) -> tuple[Shared, SealedShares]:
    """Stage 2, client: share mask key, self-mask seed and noise seeds among the neighbours.

    Raises:
        ProtocolError: The book is of another round, lists others than this client's
            neighbours, too few of them, one twice, or keys that are not theirs.
    """
    plan, client, round_id = state.member.plan, state.member.client, state.round_id
    _check_round(book.round_id, round_id, "the key book")
    _check_book(state, book)
    self_mask_seed = draw_secret(source)
    noise_seeds = plan.noise.draw_seeds(source) if plan.noise else ()
    committed = (self_mask_seed, *noise_seeds[1:])
    points = {neighbour: place for place, neighbour in enumerate(state.neighbours)}
    shares = share([state.mask_pair.private, *committed], plan.threshold, len(points), source)
    sealed, receiving_keys = dict[ClientId, bytes](), dict[ClientId, bytes]()
    for entry in book.advertisements:
        peer = entry.client
        sending, receiving = channel_keys(state.channel_pair, entry.channel_key, round_id)
        bundle = shares[points[peer]]
        sealed[peer] = seal(sending, bundle, round_id, client, peer) + bundle_digest(
            bundle, round_id, client, peer
        )
        if plan.server is ServerModel.DISHONEST and state.member.identity is not None:
            sealed[peer] += sign_bundle(state.member.identity, peer, round_id, sealed[peer])
        receiving_keys[peer] = receiving
    commitments = tuple(
        commitment(secret, round_id, client, place) for place, secret in enumerate(committed)
    )
    after = Shared(
        state.member,
        round_id,
        frozenset(state.neighbours),
        state.channel_pair,
        state.mask_pair,
        {entry.client: entry.channel_key for entry in book.advertisements},
        {entry.client: entry.mask_key for entry in book.advertisements},
        receiving_keys,
        self_mask_seed,
        noise_seeds,
    )
    bundles = Parts.of(sealed, plan.bundle_bytes)
    return after, SealedShares(round_id, client, commitments, bundles)


def mask_vector(state: Shared, box: ShareBox, vector: IntVector) -> tuple[Masked, MaskedVector]:
    """Stage 3, client: add noise, the self-mask and one mask per neighbour that shared.

    Between two neighbours the lower number adds their mask and the higher subtracts it.

    Raises:
        ParameterError: The vector has another length than planned or does not fit the ring.
        BadShares: A neighbour's bundle is not what it says; see `complain`.
        ProtocolError: The box is of another round, holds bundles from others than neighbours,
            or too few.
    """
    plan, client, round_id = state.member.plan, state.member.client, state.round_id
    _check_round(box.round_id, round_id, "the share box")
    if strangers := set(box.bundles) - state.receiving_keys.keys():
        raise ProtocolError(f"shares of {_few(strangers)} were not expected")
    if len(box.bundles) < plan.threshold:
        raise ProtocolError(
            f"{len(box.bundles)} neighbours shared their keys; {plan.threshold} are needed"
        )
    if box.bundles.size != plan.bundle_bytes:
        raise ProtocolError(f"a bundle of shares must have {plan.bundle_bytes} bytes")
    check_vector(vector, plan)
    bundles = {peer: _checked_bundle(state, peer, row) for peer, row in box.bundles.pairs()}
    held = Parts.of(bundles, SEED_BYTES * plan.secrets)
    inside = in_field(held.rows)
    if not inside.all():
        raise BadShares(int(held.clients[int(inside.argmin())]))
    words = residues(vector, plan.ring_bits)
    if plan.noise:
        plan.noise.add_to(words, [dict(enumerate(state.noise_seeds))])
    add_mask(words, state.self_mask_seed)
    for peer in bundles:
        seed = mask_seed(state.mask_pair, state.mask_keys[peer], round_id)
        (add_mask if client < peer else subtract_mask)(words, seed)
    sent = words.astype(words.dtype.newbyteorder("<")).tobytes()
    after = Masked(state.member, round_id, state.neighbours, held)
    digest = peers_digest(round_id, held.clients)
    return after, MaskedVector(round_id, client, digest, sent)


def complain(
    state: Shared, box: ShareBox, against: ClientId, source: SecretSource
) -> tuple[Complained, Complaint]:
    """Stage 3, client, in place of a vector: show the server what a neighbour has sent.

    Guarantee:
        Nothing is shown of a bundle that the neighbour may not have sent: against a dishonest
        server only with the neighbour's signature. What is shown, that neighbour knows
        (`evidence`). The client takes no further part; its vector has not left it.

        With a key that is on no point of the curve nothing can be proven, and need not be:
        the server sees it.
    """
    member, plan, round_id = state.member, state.member.plan, state.round_id
    proof, key = b"", state.channel_keys[against]
    sent = plan.server is not ServerModel.DISHONEST or _signed(state, against, box.bundles[against])
    if sent and on_curve(key):
        context = complaint_context(round_id, member.client, against)
        proof = prove(state.channel_pair.private, key, context, source)
    return Complained(member, round_id), Complaint(round_id, member.client, against, proof)


def give_up(
    state: Advertised | Shared | Masked | Agreed | Complained, request: Void
) -> tuple[Finished, Receipt]:
    """Client, after a round that came to nothing: forget everything, and sign that it did.

    Guarantee:
        A client that signs has revealed nothing in this round and never will: it holds no
        state any more from which it could. (One that complained has shown what it has in
        common with a client that deviates, which that client knows.)
    """
    member = state.held.member if isinstance(state, Agreed) else state.member
    round_id = state.held.round_id if isinstance(state, Agreed) else state.round_id
    _check_round(request.round_id, round_id, "the notice")
    signature = sign_receipt(member.identity, round_id) if member.identity is not None else b""
    return Finished(round_id), Receipt(round_id, member.client, signature)


def agree(state: Masked, request: AgreeRequest) -> tuple[Agreed, Agreement]:
    """Stage 4, client, where the server may be dishonest: sign the lists, once.

    Raises:
        ProtocolError: The lists are not acceptable; see `reveal_shares`.
    """
    member = state.member
    if member.identity is None or member.plan.server is not ServerModel.DISHONEST:
        raise ProtocolError("this plan has no agreement on lists")
    _check_round(request.round_id, state.round_id, "the list")
    _check_lists(state, request.survivors, request.dropped)
    digest = lists_digest(state.round_id, request.survivors, request.dropped)
    signature = sign_lists(member.identity, digest)
    return Agreed(digest, state), Agreement(state.round_id, member.client, signature)


def reveal_shares(state: Masked | Agreed, request: UnmaskRequest) -> tuple[Finished, UnmaskReply]:
    """Last stage, client: hand over the shares that remove masks and excess noise.

    Guarantee:
        For each neighbour the reply holds shares of its self-mask seed or of its mask key,
        not both. Of its noise seeds it holds only shares of those that the target does not
        need with as many survivors as listed. Nothing is answered after this.

    Raises:
        ProtocolError: The lists overlap, are too short, leave this client or a neighbour out,
            or name one that never shared; or, where the server may be dishonest, they are not
            the lists this client signed, or too few others did.
    """
    held = state.held if isinstance(state, Agreed) else state
    plan = held.member.plan
    _check_round(request.round_id, held.round_id, "the unmask request")
    _check_lists(held, request.survivors, request.dropped)
    if plan.server is ServerModel.DISHONEST:
        if not isinstance(state, Agreed):
            raise ProtocolError("this client has not signed any lists yet")
        _check_agreements(state, request)
    lost = plan.clients - len(request.survivors)
    opened = plan.noise.opened(lost) if plan.noise else ()
    places = [SEED, *(SEED + k for k in opened)]
    survivors = _shares_of(held.bundles, request.survivors, places)
    dropped = _shares_of(held.bundles, request.dropped, [KEY])
    reply = UnmaskReply(held.round_id, held.member.client, survivors, dropped)
    return Finished(held.round_id), reply


def check_vector(vector: IntVector, plan: Plan) -> None:
    """Refuse a vector that has not the planned length, is not integer or does not fit the ring.

    Raises:
        ParameterError: It cannot be summed under this plan.
    """
    if vector.shape != (plan.dimension,) or vector.dtype.kind not in "iu":
        raise ParameterError(
            f"a vector must hold {plan.dimension} integers, got shape {vector.shape} of "
            f"{vector.dtype}"
        )
    residues(vector, plan.ring_bits)


def _check_book(state: Advertised, book: KeyBook) -> None:
    plan, directory = state.member.plan, state.member.directory
    listed = [entry.client for entry in book.advertisements]
    if len(set(listed)) < len(listed):
        raise ProtocolError("a neighbour is listed twice in the key book")
    if strangers := set(listed) - set(state.neighbours):
        raise ProtocolError(f"{_few(strangers)} are no neighbours of this client in this round")
    if len(listed) < plan.threshold:
        raise ProtocolError(
            f"the key book lists {len(listed)} neighbours of {plan.neighbours} planned; at "
            f"least {plan.threshold} are needed to share among"
        )
    own = {state.channel_pair.public, state.mask_pair.public}
    keys = [key for entry in book.advertisements for key in (entry.channel_key, entry.mask_key)]
    if not all(map(canonical, keys)):
        raise ProtocolError("a public key is not written as X25519 writes it")
    if len(own | set(keys)) < len(own) + len(keys):
        raise ProtocolError("a public key appears twice in the key book")
    for entry in book.advertisements:
        _check_round(entry.round_id, state.round_id, "a key advertisement")
        if directory is not None:
            directory.verify_advertisement(entry)


def _check_lists(
    state: Masked, survivors: frozenset[ClientId], dropped: frozenset[ClientId]
) -> None:
    plan, client = state.member.plan, state.member.client
    if both := survivors & dropped:
        raise ProtocolError(f"{_few(both)} are listed as survivors and as dropped")
    everyone = survivors | dropped
    if everyone and not 0 <= min(everyone) <= max(everyone) < plan.clients:
        raise ProtocolError("the lists name clients that are not in the plan")
    if client not in survivors:
        raise ProtocolError("this client sent its vector and is not listed as a survivor")
    if len(survivors) < plan.least_survivors:
        raise ProtocolError(
            f"{len(survivors)} vectors are in the sum; this client helps to unmask no sum of "
            f"fewer than {plan.least_survivors}"
        )
    if missing := plan.required - survivors:
        raise ProtocolError(f"{_few(missing)} must be in the sum and are not listed as survivors")
    listed = state.neighbours & everyone
    shared = frozenset(state.bundles)
    if missing := shared - listed:
        raise ProtocolError(f"{_few(missing)} shared their keys and are in neither list")
    if silent := listed - shared:
        raise ProtocolError(f"{_few(silent)} are listed and never shared with this client")
    staying = len(state.neighbours & survivors)
    if staying < plan.threshold:
        raise ProtocolError(
            f"{staying} neighbours are listed as survivors; the threshold is {plan.threshold}"
        )


def _check_agreements(state: Agreed, request: UnmaskRequest) -> None:
    held = state.held
    plan, directory = held.member.plan, held.member.directory
    digest = lists_digest(held.round_id, request.survivors, request.dropped)
    if digest != state.digest:
        raise ProtocolError("these are not the lists this client signed")
    if len(request.signatures) < plan.signers:
        raise ProtocolError(
            f"{len(request.signatures)} clients signed the lists; {plan.signers} are needed"
        )
    if others := set(request.signatures) - request.survivors:
        raise ProtocolError(f"{_few(others)} signed the lists and are not survivors")
    if directory is None:
        raise ProtocolError("agreements need a directory of identity keys")
    for signer, signature in request.signatures.pairs():
        directory.verify_lists(signer, signature, digest)


def _check_round(found: bytes, held: bytes, what: str) -> None:
    if found != held:
        raise ProtocolError(f"{what} belongs to another round")


def complaint_context(round_id: bytes, client: ClientId, against: ClientId) -> bytes:
    """Return what a complaint's proof is bound to."""
    return round_id + client.to_bytes(4, "big") + against.to_bytes(4, "big")


def _checked_bundle(state: Shared, peer: ClientId, row: bytes) -> bytes:
    """Decrypt a neighbour's bundle and hold it against its digest, not yet against the field."""
    plan, client, round_id = state.member.plan, state.member.client, state.round_id
    size = plan.sealed_bytes
    bundle = unseal(state.receiving_keys[peer], row[:size], round_id, peer, client)
    digest = row[size : size + DIGEST_BYTES]
    if bundle is None or bundle_digest(bundle, round_id, peer, client) != digest:
        raise BadShares(peer)
    return bundle


def _signed(state: Shared, peer: ClientId, row: bytes) -> bool:
    member, cut = state.member, -SIGNATURE_BYTES
    if member.directory is None:
        return False
    try:
        member.directory.verify_bundle(peer, member.client, state.round_id, row[:cut], row[cut:])
    except ProtocolError:
        return False
    return True


def _shares_of(bundles: Parts, listed: frozenset[ClientId], places: Sequence[int]) -> Parts:
    """Return the shares at some places of the bundles, of those listed and of nobody else."""
    chosen = [row for row, peer in enumerate(bundles) if peer in listed]
    return Parts(bundles.clients[chosen], partly_shown(bundles.rows[chosen], places))


def _few(clients: set[ClientId] | frozenset[ClientId]) -> str:
    """Name a few clients: an error message does not grow with a hostile list."""
    named = ", ".join(str(client) for client in sorted(clients)[:5])
    more = f" and {len(clients) - 5} more" if len(clients) > 5 else ""
    return f"clients {named}{more}"

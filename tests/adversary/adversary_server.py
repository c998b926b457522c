"""A server that does as it likes with honest clients, and an oracle for what it can compute.

The server is a test. It sends any message to any client and keeps all it gets; some clients may
be its own. The oracle knows every client's true secrets and works out from what was sent to the
server which sums of honest clients' vectors have no unknown mask left in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from urna.noise import IntVector
from urna.protocols import secagg
from urna.protocols.secagg import ClientSession, Directory, Identity, Member, ServerModel, server
from urna.protocols.secagg.client import Masked, Shared
from urna.protocols.secagg.keys import mask_seed, sign_lists
from urna.protocols.secagg.masks import add_mask, centred, subtract_mask, zeros
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    AgreeRequest,
    Complaint,
    KeyBook,
    MaskedVector,
    Message,
    Parts,
    Receipt,
    Refusal,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
    Void,
    lists_digest,
)
from urna.protocols.secagg.shares import KEY, SEED
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets

Lists = tuple[frozenset[int], frozenset[int]]


@dataclass
class Game:
    """A server's game with the clients of one round."""

    plan: secagg.Plan
    colluding: frozenset[int] = frozenset()
    """Clients that the server plays itself."""
    coin: bytes = b"a coin the server likes the best"
    held_coin: bytes | None = None
    label: bytes = b"game"

    def __post_init__(self) -> None:
        plan = self.plan
        rng = np.random.default_rng([*self.label])
        self.vectors: dict[int, IntVector] = {
            c: rng.integers(-1000, 1000, size=plan.dimension) for c in range(plan.clients)
        }
        self.identities = {
            c: Identity.draw(c, ScriptedSecrets(b"identity %d" % c)) for c in range(plan.clients)
        }
        self.directory = Directory({c: i.public for c, i in self.identities.items()})
        signed = plan.server is ServerModel.DISHONEST
        self.sessions: dict[int, ClientSession] = {}
        for c in range(plan.clients):
            identity = self.identities[c] if signed else None
            directory = self.directory if signed else None
            member = Member(c, plan, 0, identity, directory, self.held_coin)
            source = ScriptedSecrets(self.label + b" %d" % c)
            self.sessions[c] = ClientSession(member, self.vectors[c], source)
        self.invited, self.invitation = server.invite(plan, 1, self.coin)
        self.round_id = self.invited.round_id
        self.replies: list[tuple[int, Message, Message]] = []
        self.shared: dict[int, Shared] = {}
        self.masked: dict[int, Masked] = {}
        self.boxes: dict[int, ShareBox] = {}
        self.vectors_sent: dict[int, MaskedVector] = {}

    @property
    def everyone(self) -> frozenset[int]:
        return frozenset(range(self.plan.clients))

    @property
    def honest(self) -> frozenset[int]:
        return self.everyone - self.colluding

    def neighbours(self, client: int) -> list[int]:
        found: list[int] = self.invited.neighbours[client].tolist()
        return found

    def send(self, client: int, message: Message) -> Message:
        """Send one message to one client and keep what it answers."""
        session = self.sessions[client]
        answer = session.handle(encode(message, self.plan))
        reply = decode(without_signature(answer), self.plan)
        self.replies.append((client, message, reply))
        state = session.state
        if isinstance(state, Shared):
            self.shared[client] = state
        if isinstance(state, Masked):
            self.masked[client] = state
        if isinstance(message, ShareBox):
            self.boxes[client] = message
        if isinstance(reply, MaskedVector):
            self.vectors_sent[client] = reply
        return reply

    def send_all(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        return {client: self.send(client, message) for client, message in messages.items()}

    # The honest way through the stages, from which a test deviates where it likes.

    def keys(self) -> dict[int, KeyBook]:
        replies = self.send_all(dict.fromkeys(range(self.plan.clients), self.invitation))
        adverts = {c: r for c, r in replies.items() if isinstance(r, Advertisement)}
        self.keyed, books = server.pass_on_keys(self.invited, adverts)
        return books

    def shares(self, books: Mapping[int, KeyBook] | None = None) -> dict[int, ShareBox]:
        replies = self.send_all(books or self.keys())
        sealed = {c: r for c, r in replies.items() if isinstance(r, SealedShares)}
        self.routed, boxes = server.pass_on_shares(self.keyed, sealed)
        return boxes

    def masks(self, boxes: Mapping[int, ShareBox] | None = None) -> dict[int, Message]:
        return self.send_all(boxes or self.shares())

    def agree(self, views: Mapping[int, Lists]) -> dict[int, bytes]:
        """Ask clients to sign lists, each its own; return the signatures."""
        signed = {}
        for client, (survivors, dropped) in views.items():
            reply = self.send(client, AgreeRequest(self.round_id, survivors, dropped))
            if isinstance(reply, Agreement):
                signed[client] = reply.signature
        return signed

    def signatures(self, signed: Mapping[int, bytes], lists: Lists) -> dict[int, bytes]:
        """Signatures on one pair of lists: those that are, and what colluders sign for it."""
        digest = lists_digest(self.round_id, *lists)
        own = {c: sign_lists(self.identities[c], digest) for c in self.colluding & lists[0]}
        return {**signed, **own}

    def unmask(
        self, clients: Iterable[int], lists: Lists, signatures: Mapping[int, bytes]
    ) -> dict[int, Message]:
        request = UnmaskRequest(self.round_id, *lists, Parts.of(signatures, 64))
        return self.send_all(dict.fromkeys(clients, request))

    def void(self, clients: Iterable[int]) -> set[int]:
        """Ask clients to forget the round; return who signed that it did."""
        replies = self.send_all(dict.fromkeys(clients, Void(self.round_id)))
        return {c for c, reply in replies.items() if isinstance(reply, Receipt)}

    @property
    def refusals(self) -> dict[int, str]:
        """Why each client refused last, where it did."""
        return {c: r.reason for c, _, r in self.replies if isinstance(r, Refusal)}

    # What the server can compute.

    def known_shares(self, place: int) -> dict[int, set[int]]:
        """Return for each owner the holders whose share of one secret the server has."""
        known: dict[int, set[int]] = {c: set() for c in range(self.plan.clients)}
        for client, _, reply in self.replies:
            if isinstance(reply, UnmaskReply):
                for parts in (reply.survivors, reply.dropped):
                    for owner, row in parts.items():
                        # By the bytes, not by what was asked for.
                        if self._share(owner, client, place) in row:
                            known[owner].add(client)
            if isinstance(reply, Complaint) and reply.proof:
                # What the two have in common opens the bundles both ways.
                known[reply.against].add(client)
                known[client].add(reply.against)
        for holder in self.colluding & self.masked.keys():
            for owner in self.masked[holder].bundles:
                known[owner].add(holder)
        return known

    def known_secret(self, place: int) -> set[int]:
        """Return whose secret the server can rebuild, or was told."""
        shares = self.known_shares(place)
        enough = {c for c, holders in shares.items() if len(holders) >= self.plan.threshold}
        return enough | self.colluding

    def learnt(self) -> list[frozenset[int]]:
        """Return the least groups of honest clients whose sum has no unknown mask in it.

        Every vector is under a self-mask and a mask for each peer. Masks of two clients that
        both sent theirs cancel in their sum. So honest clients whose common masks are unknown
        stand or fall together, and fall if all their seeds are known and no unknown mask
        leads to anybody whose vector is not there.
        """
        seeds, keys = self.known_secret(SEED), self.known_secret(KEY)
        sent = self.vectors_sent.keys() & self.honest
        peers = {c: set(self.boxes[c].bundles) for c in sent}
        unknown = {c: {p for p in peers[c] if c not in keys and p not in keys} for c in sent}
        groups, left = [], set(sent)
        while left:
            group, todo = set[int](), {min(left)}
            while todo:
                here = todo.pop()
                group.add(here)
                todo |= {p for p in unknown[here] if p in sent} - group
            left -= group
            leads_out = any(p not in sent or c not in peers[p] for c in group for p in unknown[c])
            if group <= seeds and not leads_out:
                groups.append(frozenset(group))
        return groups

    def compute(self, group: Iterable[int]) -> IntVector:
        """Take the masks off the sum of a group, with secrets the server can rebuild."""
        plan, chosen = self.plan, sorted(group)
        total = zeros(plan.dimension, plan.ring_bits)
        keys = self.known_secret(KEY)
        for c in chosen:
            assert c in self.known_secret(SEED)
            total += np.frombuffer(self.vectors_sent[c].words, dtype=f"<u{plan.ring_bits // 8}")
            subtract_mask(total, self.shared[c].self_mask_seed)
            for p in self.boxes[c].bundles:
                if p in chosen:
                    continue
                assert c in keys or p in keys
                seed = mask_seed(
                    self.shared[c].mask_pair, self.shared[c].mask_keys[p], self.round_id
                )
                (subtract_mask if c < p else add_mask)(total, seed)
        return centred(total)

    def check(self) -> None:
        """Fail if the server can compute more than one sum, or one of too few clients.

        And if that one sum holds less noise of honest clients than the plan promises.
        """
        groups = self.learnt()
        assert len(groups) <= 1, f"more than one sum can be computed: {groups}"
        for group in groups:
            least = self.plan.least_survivors - len(self.colluding)
            assert len(group) >= least, f"a sum of {sorted(group)} can be computed"
            self._check_noise(group)
        for _, _, reply in self.replies:
            if isinstance(reply, UnmaskReply):
                assert not reply.survivors.keys() & reply.dropped.keys()

    def _check_noise(self, group: frozenset[int]) -> None:
        noise = self.plan.noise
        if noise is None:
            return
        variances, left = noise.components(), noise.target * 0
        bare = {k: self.known_secret(SEED + k) for k in range(1, noise.shared + 1)}
        for c in group:
            # One rung of a ladder gives all after it.
            known = {k for k in bare if any(c in bare[j] for j in bare if j <= k)}
            if noise.removal is not secagg.Removal.PRECISE:
                known = {k for k in bare if c in bare[k]}
            left += sum(v for k, v in enumerate(variances) if k not in known)
        assert left >= noise.target, f"the sum holds {left} of {noise.target}"

    def _share(self, owner: int, holder: int, place: int) -> bytes:
        bundle = self.masked[holder].bundles[owner]
        return bundle[32 * place : 32 * (place + 1)]


def splits(clients: frozenset[int]) -> Iterable[tuple[frozenset[int], frozenset[int]]]:
    """Return every way to show clients one of two things."""
    ordered = sorted(clients)
    for size in range(len(ordered) + 1):
        for some in combinations(ordered, size):
            yield frozenset(some), clients - frozenset(some)

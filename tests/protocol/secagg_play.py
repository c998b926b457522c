"""Rounds played stage by stage, so that tests can step in between."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from urna.noise import IntVector
from urna.protocols import secagg
from urna.protocols.secagg import client as stages
from urna.protocols.secagg import server
from urna.protocols.secagg.keys import Directory, Identity, KeyPair, mask_seed
from urna.protocols.secagg.masks import add_mask, centred, subtract_mask
from urna.protocols.secagg.messages import (
    Advertisement,
    Invitation,
    KeyBook,
    MaskedVector,
    SealedShares,
    ShareBox,
    UnmaskReply,
    UnmaskRequest,
)
from urna.protocols.secagg.shares import recover
from urna.randomness import ScriptedSecrets

COIN = b"c" * 32


def small_plan(clients: int = 12, dimension: int = 6, **changes: object) -> secagg.Plan:
    """A plan for a dozen clients; two may drop out and one may collude."""
    wanted: dict[str, object] = {
        "colluders": 1,
        "dropouts": 2,
        "noise_variance": None,
    }
    return secagg.plan(clients=clients, dimension=dimension, **(wanted | changes))  # type: ignore[arg-type]


def ballots(plan: secagg.Plan) -> dict[int, IntVector]:
    """Small different vectors."""
    return {c: np.arange(plan.dimension) * (c + 1) - 3 * c for c in range(plan.clients)}


def summed(routed: server.Routed, sent: Mapping[int, MaskedVector]) -> server.Summed:
    """Stage 3, server: add masked vectors that are all there."""
    folding = server.begin_sum(routed)
    for vector in sent.values():
        server.fold(folding, vector)
    return server.end_sum(folding)


@dataclass
class Play:
    """All parties of a round; `to_keys`, `to_shares`, `to_vectors` take it that far."""

    plan: secagg.Plan
    label: bytes = b"play"
    signed: bool = False
    number: int = 1
    vectors: Mapping[int, IntVector] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    """Clients that do not send their vectors."""

    def __post_init__(self) -> None:
        self.vectors = self.vectors or ballots(self.plan)
        self.sources = {
            c: ScriptedSecrets(self.label + b"%d" % c) for c in range(self.plan.clients)
        }
        self.identities = {c: Identity.draw(c, self.sources[c]) for c in self.sources}
        self.directory = Directory({c: i.public for c, i in self.identities.items()})
        signed = self.signed or self.plan.server is secagg.ServerModel.DISHONEST
        self.members = {
            c: secagg.Member(
                c,
                self.plan,
                identity=self.identities[c] if signed else None,
                directory=self.directory if signed else None,
            )
            for c in self.sources
        }
        self.invited, self.invitation = server.invite(self.plan, self.number, COIN)
        self.round_id = self.invited.round_id
        self.neighbours = dict(enumerate(map(tuple, self.invited.neighbours.tolist())))

    def to_keys(self) -> "Play":
        self.advertised: dict[int, stages.Advertised] = {}
        self.advertisements: dict[int, Advertisement] = {}
        for c, member in self.members.items():
            self.advertised[c], self.advertisements[c] = stages.advertise(
                member, self.invitation, self.sources[c]
            )
        self.keyed, self.books = server.pass_on_keys(self.invited, self.advertisements)
        return self

    def to_shares(self) -> "Play":
        self.to_keys()
        self.shared: dict[int, stages.Shared] = {}
        self.sealed: dict[int, SealedShares] = {}
        for c, state in self.advertised.items():
            self.shared[c], self.sealed[c] = stages.share_keys(
                state, self.books[c], self.sources[c]
            )
        self.routed, self.boxes = server.pass_on_shares(self.keyed, self.sealed)
        return self

    def to_vectors(self) -> "Play":
        self.to_shares()
        self.masked: dict[int, stages.Masked] = {}
        self.sent: dict[int, MaskedVector] = {}
        for c, state in self.shared.items():
            if c not in self.silent:
                self.masked[c], self.sent[c] = stages.mask_vector(
                    state, self.boxes[c], self.vectors[c]
                )
        self.summed = summed(self.routed, self.sent)
        return self

    def request(self) -> UnmaskRequest:
        """The honest server's unmask request, with all signatures where the plan has them."""
        if self.plan.server is not secagg.ServerModel.DISHONEST:
            return server.ask_to_unmask(self.summed)
        asked = server.ask_to_agree(self.summed)
        self.agreed: dict[int, stages.Agreed] = {}
        agreements = {}
        for c, state in self.masked.items():
            self.agreed[c], agreements[c] = stages.agree(state, asked)
        return server.ask_to_unmask(server.certify(self.summed, agreements))

    def truth(self) -> IntVector:
        return np.sum([self.vectors[c] for c in self.summed.survivors], axis=0)


def rebuild(play: Play, owner: int, shares: Mapping[int, bytes]) -> bytes:
    """What a server rebuilds of an owner's secret from shares of its neighbours."""
    holders = sorted(shares)[: play.plan.threshold]
    points = [play.neighbours[owner].index(h) + 1 for h in holders]
    limbs = np.stack([np.frombuffer(shares[h], dtype="<u2") for h in holders])
    return recover(np.array([points]), limbs[None].astype(np.uint16))[0].astype("<u2").tobytes()


def unmask_alone(play: Play, victim: int, seed: bytes, key: bytes) -> IntVector:
    """What a server that holds both secrets of one client learns: its vector."""
    words = np.frombuffer(play.sent[victim].words, dtype=f"<u{play.plan.ring_bits // 8}").copy()
    subtract_mask(words, seed)
    pair = KeyPair.of(key)
    for peer in play.boxes[victim].bundles:
        pairwise = mask_seed(pair, play.advertisements[peer].mask_key, play.round_id)
        (subtract_mask if victim < peer else add_mask)(words, pairwise)
    return centred(words)


__all__ = [
    "COIN",
    "Invitation",
    "KeyBook",
    "Play",
    "ShareBox",
    "UnmaskReply",
    "ballots",
    "rebuild",
    "small_plan",
    "unmask_alone",
]

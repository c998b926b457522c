"""A round with clients that deviate, and an oracle that knows what each has put in.

Everybody runs the real `ClientSession`. A liar is one whose replies pass through a trick on
their way: a small function that alters one of them, with all that this client knows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from urna.errors import ProtocolError, RoundAborted, RoundFailed
from urna.noise import IntVector
from urna.protocols import secagg
from urna.protocols.secagg import (
    ClientSession,
    Directory,
    Identity,
    Member,
    ServerModel,
    Stage,
    server,
)
from urna.protocols.secagg.client import Advertised, Shared
from urna.protocols.secagg.keys import channel_keys, seal, sign_bundle, sign_reply, unseal
from urna.protocols.secagg.masks import centred, wrapped
from urna.protocols.secagg.messages import Message, Parts, Refusal, SealedShares, UnmaskReply
from urna.protocols.secagg.shares import bundle_digest
from urna.protocols.secagg.transport import Letter
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets

COIN = b"adversary's own coin, 32 bytes.."
CURIOUS, DISHONEST = ServerModel.HONEST_BUT_CURIOUS, ServerModel.DISHONEST

Trick = Callable[["Liar", Message, Message], "Message | bytes"]
"""What a liar makes of the reply an honest client would give to a message."""


def plan_for(clients: int, model: ServerModel, **changes: object) -> secagg.Plan:
    """A plan with removable noise; a sixth of the clients may be lost and a few may collude."""
    wanted: dict[str, object] = {
        "dimension": 5,
        "colluders": max(1, clients // 20),
        "dropouts": max(1, clients // 6),
        "noise_variance": Fraction(60),
        "server": model,
    }
    return secagg.plan(clients=clients, **(wanted | changes))  # type: ignore[arg-type]


class Watched:
    """An honest client whose states are noted as it goes."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.advertised: Advertised | None = None
        self.shared: Shared | None = None

    def handle(self, data: bytes) -> bytes:
        answer = self.session.handle(data)
        self._note()
        return answer

    def _note(self) -> None:
        state = self.session.state
        if isinstance(state, Advertised):
            self.advertised = state
        if isinstance(state, Shared):
            self.shared = state


class Liar(Watched):
    """A client that plays a trick on every reply it gives."""

    def __init__(self, session: ClientSession, member: Member, trick: Trick, room: "Room") -> None:
        super().__init__(session)
        self.member, self.plan, self.client, self.room = member, member.plan, member.client, room
        self.source = ScriptedSecrets(b"liar %d" % member.client)
        self._trick = trick

    def handle(self, data: bytes) -> bytes:
        answer = super().handle(data)
        right = decode(without_signature(answer), self.plan)
        reply = self._trick(self, decode(data, self.plan), right)
        sent = reply if isinstance(reply, bytes) else encode(reply, self.plan)
        if self.member.identity is None or isinstance(reply, Refusal):
            return sent
        return sent + sign_reply(self.member.identity, data, sent)  # it signs its lies

    @property
    def round_id(self) -> bytes:
        return self.room.round_id

    def dealt(self, reply: SealedShares, change: Callable[[int, bytes], bytes]) -> SealedShares:
        """Return the same shares with some bundles changed, encrypted and signed as they should."""
        state = self.shared
        assert state is not None

        def again(peer: int, row: bytes) -> bytes:
            sending, _ = channel_keys(state.channel_pair, state.channel_keys[peer], self.round_id)
            size = self.plan.sealed_bytes
            bundle = unseal(sending, row[:size], self.round_id, self.client, peer)
            assert bundle is not None
            new = change(peer, bundle)
            sealed = seal(sending, new, self.round_id, self.client, peer)
            return sealed + bundle_digest(new, self.round_id, self.client, peer)

        return self.sent(reply, again)

    def sent(
        self, reply: SealedShares, change: Callable[[int, bytes], bytes], *, signed: bool = True
    ) -> SealedShares:
        """Return the same shares with some encrypted rows changed, and signed again."""
        cut = self.plan.sealed_bytes + 16
        rows = {}
        for peer, row in reply.bundles.pairs():
            body = change(peer, row[:cut])
            rows[peer] = body + row[cut:]
            if body != row[:cut] and signed and self.plan.server is DISHONEST:
                assert self.member.identity is not None
                rows[peer] = body + sign_bundle(self.member.identity, peer, self.round_id, body)
        bundles = Parts.of(rows, self.plan.bundle_bytes)
        return SealedShares(reply.round_id, reply.client, reply.commitments, bundles)


@dataclass(frozen=True)
class Said:
    """One letter and its answer."""

    stage: Stage
    client: int
    request: Message
    reply: Message | None
    """None where the answer is no message."""


@dataclass
class Ended:
    """How a round ended."""

    room: "Room"
    outcome: secagg.Outcome | None
    failed: RoundFailed | None
    said: list[Said]

    @property
    def faults(self) -> set[int]:
        """Who is named."""
        source = self.outcome or self.failed
        assert source is not None
        return set(source.faults)

    @property
    def lost(self) -> set[int]:
        """Who is lost."""
        source = self.outcome or self.failed
        assert source is not None
        return set(source.lost)

    @property
    def revealed(self) -> set[int]:
        """Which honest clients handed out shares."""
        return {
            said.client
            for said in self.said
            if isinstance(said.reply, UnmaskReply) and said.client not in self.room.liars
        }

    @property
    def kind(self) -> type:
        """What the round ended in."""
        return type(self.failed or self.outcome)

    def check(self) -> None:
        """The oracle: sums are exact, aborted rounds have revealed nothing, nobody is blamed
        who kept to the protocol."""
        assert self.faults <= set(self.room.liars), f"an innocent client is named: {self.faults}"
        if self.outcome is not None:
            wanted = self.room.truth(self.outcome.survivors)
            np.testing.assert_array_equal(self.outcome.total, wanted)
        if isinstance(self.failed, RoundAborted) and not self.failed.receipts:
            assert not self.revealed


class Recorder:
    """A transport that notes what passes."""

    client_seconds = own_seconds = 0.0

    def __init__(self, room: "Room", faults: secagg.Faults) -> None:
        self._inner = secagg.MemoryTransport(room.parties, faults)
        self._plan, self.said = room.plan, list[Said]()

    def exchange(self, stage: Stage, letters: Iterable[Letter]) -> list[Letter]:
        there = list(letters)
        back = list(self._inner.exchange(stage, there))
        asked = dict(there)
        for client, answer in back:
            request = decode(asked[client], self._plan) if client in asked else Refusal(client, "")
            self.said.append(Said(stage, client, request, self._read(answer)))
        return back

    def _read(self, answer: bytes) -> Message | None:
        try:
            return decode(without_signature(answer), self._plan)
        except ProtocolError:
            return None


@dataclass
class Room:
    """All parties of one round."""

    plan: secagg.Plan
    liars: Mapping[int, Trick] = field(default_factory=dict)
    vanish: Mapping[int, Stage] = field(default_factory=dict)
    absent: frozenset[int] = frozenset()
    """Clients that are not invited: their letters reach nobody."""
    number: int = 1
    label: bytes = b"room"
    signed: bool = False
    faults: secagg.Faults | None = None
    vectors: Mapping[int, IntVector] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        rng = np.random.default_rng([*self.label, self.number])
        self.vectors = self.vectors or {
            c: rng.integers(-100, 100, size=plan.dimension) for c in range(plan.clients)
        }
        signed = self.signed or plan.server is DISHONEST
        self.identities = {
            c: Identity.draw(c, ScriptedSecrets(b"identity %d" % c)) for c in range(plan.clients)
        }
        keys = Directory({c: identity.public for c, identity in self.identities.items()})
        self.directory = keys if signed else None
        self._invited, invitation = server.invite(plan, self.number, COIN)
        self.round_id = invitation.round_id
        self.parties: dict[int, Watched] = {}
        for c in range(plan.clients):
            if c in self.absent:
                continue
            identity = self.identities[c] if signed else None
            member = Member(c, plan, self.number - 1, identity, self.directory)
            source = ScriptedSecrets(self.label + b" %d %d" % (self.number, c))
            session = ClientSession(member, self.vectors[c], source)
            trick = self.liars.get(c)
            self.parties[c] = (
                Watched(session) if trick is None else Liar(session, member, trick, self)
            )

    def play(self) -> Ended:
        """Hold the round."""
        faults = self.faults or secagg.Faults(vanish=self.vanish)
        recorder = Recorder(self, faults)
        try:
            outcome = secagg.conduct(
                self.plan, recorder, number=self.number, coin=COIN, directory=self.directory
            )
        except RoundFailed as failed:
            return Ended(self, None, failed, recorder.said)
        return Ended(self, outcome, None, recorder.said)

    def again_without(self, culprits: Iterable[int]) -> "Room":
        """The next round, to which some are not invited."""
        return Room(self.plan, absent=frozenset(culprits), number=self.number + 1, label=self.label)

    def truth(self, survivors: Iterable[int]) -> IntVector:
        """What the sum must be: vectors, and noise that was not removed, drawn again."""
        plan = self.plan
        chosen = sorted(survivors)
        words = wrapped(np.sum([self.vectors[c] for c in chosen], axis=0), plan.ring_bits)
        if plan.noise is not None:
            removed = plan.noise.removed(plan.clients - len(chosen))
            seeds = []
            for c in chosen:
                state = self.parties[c].shared
                assert state is not None
                drawn = enumerate(state.noise_seeds)
                seeds.append({k: seed for k, seed in drawn if k not in removed})
            plan.noise.add_to(words, seeds)
        return centred(words)

    def neighbours(self, client: int) -> list[int]:
        """The neighbours of a client in this round."""
        found: list[int] = self._invited.neighbours[client].tolist()
        return found

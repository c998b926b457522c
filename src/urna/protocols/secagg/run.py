"""A whole round: the server over a transport, and all parties in memory.

`conduct` is the server's part of a round, stage by stage, over any `Transport`. `run` adds the
clients. Together they are the executable specification: every message passes through `wire`.
"""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

from urna.errors import (
    Altered,
    ParameterError,
    ProtocolError,
    RoundAborted,
    RoundFailed,
    RoundUnfinished,
)
from urna.noise import IntVector
from urna.protocols.secagg import server
from urna.protocols.secagg.client import Member, check_vector
from urna.protocols.secagg.graph import ServerModel
from urna.protocols.secagg.keys import SIGNATURE_BYTES, Directory, Identity
from urna.protocols.secagg.messages import (
    Advertisement,
    Agreement,
    ClientId,
    Complaint,
    MaskedVector,
    Message,
    Receipt,
    Refusal,
    SealedShares,
    Stage,
    UnmaskReply,
    Void,
)
from urna.protocols.secagg.plan import Plan, closed_for_all
from urna.protocols.secagg.session import ClientSession, Vector
from urna.protocols.secagg.transport import (
    Faults,
    MemoryTransport,
    Party,
    Transport,
    WorkerTransport,
)
from urna.protocols.secagg.wire import decode, encode_each, kind_of, without_signature
from urna.randomness import SEED_BYTES, SecretSource, StreamSecrets

_LARGE = 100_000  # pairs of neighbours above which starting processes pays

Reply = TypeVar("Reply", Advertisement, SealedShares, MaskedVector, Agreement, UnmaskReply, Receipt)


@dataclass(frozen=True, slots=True)
class LostClient:
    """When a client was lost, and why."""

    stage: Stage
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.stage.name.lower()})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round gave."""

    total: IntVector = field(repr=False)
    """Sum of the survivors' vectors and of what is left of their noise."""
    survivors: frozenset[ClientId]
    """Whose vectors are in the sum."""
    lost: Mapping[ClientId, LostClient]
    """Who stopped answering. One lost in the last stages is still a survivor."""
    noise_variance: Fraction
    """Variance of the noise in every entry, if all survivors added theirs."""
    traffic: Mapping[ClientId, int] = field(repr=False)
    """Bytes each client received and sent."""
    client_seconds: float
    """CPU time of all clients together."""
    server_seconds: float
    """CPU time of the server."""
    faults: Mapping[ClientId, str] = field(default_factory=dict)
    """Who broke the protocol and how, whether its vector is in the sum or not.

    Where the server has a directory, by what each of them signed. Without one, by what arrived in
    its name."""

    @property
    def bytes_per_client(self) -> int:
        """Most bytes any client received and sent."""
        return max(self.traffic.values(), default=0)


def run(
    vectors: Mapping[ClientId, Vector],
    plan: Plan,
    secrets: SecretSource,
    *,
    dropouts: Mapping[ClientId, Stage] | None = None,
    faults: Faults | None = None,
    signed: bool = False,
    number: int = 1,
    workers: int | None = None,
) -> Outcome:
    """Play a whole round in memory: every client, the server, and what goes wrong between.

    Args:
        vectors: Each client's vector of integers, or what produces it once it is asked for,
            by its number below `plan.clients`. Clients that are left out never answer.
        plan: The plan of the round.
        secrets: Where all parties' randomness comes from.
        dropouts: Clients that are silent from a stage on.
        faults: More that goes wrong on the way; `dropouts` is a short form.
        signed: Whether everybody holds a directory, and clients sign all they send. Always so
            where the plan expects a dishonest server.
        number: The number of the round.
        workers: Processes for the clients; by default all cores for many clients and
            this process for a small one. A script that starts processes needs the usual
            `if __name__ == "__main__":`.

    Raises:
        ParameterError: A vector does not fit the plan, or a client is not in it.
        RoundAborted: More clients were lost than planned. Nothing was revealed.
        RoundUnfinished: They were lost after others had begun to reveal.

    Example:
        >>> import numpy as np
        >>> from urna.randomness import ScriptedSecrets
        >>> from urna.protocols.secagg.plan import plan
        >>> small = plan(clients=5, dimension=2, dropouts=1)
        >>> votes = {client: np.array([1, client]) for client in range(5)}
        >>> outcome = run(votes, small, ScriptedSecrets(b"a"), dropouts={3: Stage.MASK})
        >>> outcome.total.tolist(), sorted(outcome.survivors)
        ([4, 7], [0, 1, 2, 4])
    """
    for client, vector in vectors.items():
        if not 0 <= client < plan.clients:
            raise ParameterError(f"clients are numbered below {plan.clients}, got {client}")
        if not callable(vector):
            check_vector(vector, plan)
    if faults is not None and dropouts is not None:
        raise ParameterError("give `dropouts` or `faults.vanish`, not both")
    faults = faults or Faults(vanish=dropouts or {})
    coin = secrets.take(SEED_BYTES)
    seeds = {client: secrets.take(SEED_BYTES) for client in range(plan.clients)}
    signed = signed or plan.server is ServerModel.DISHONEST
    signing_keys = {client: secrets.take(SEED_BYTES) for client in seeds} if signed else None
    everybody = _Clients(plan, vectors, seeds, signing_keys, number - 1, secrets.private)
    directory = None
    if signing_keys is not None:
        directory = Directory({c: Identity.of(c, k).public for c, k in signing_keys.items()})
    if workers is None:
        large = plan.clients * plan.neighbours >= _LARGE
        produced = any(map(callable, vectors.values()))  # what produces stays in this process
        workers = _cores() if large and not produced else 1
    if workers == 1:
        transport = MemoryTransport(everybody.parties(), faults)
        return conduct(plan, transport, number=number, coin=coin, directory=directory)
    groups = [everybody.part(place, workers) for place in range(workers)]
    with WorkerTransport(groups, faults, plan.vector_bytes) as spread:
        return conduct(plan, spread, number=number, coin=coin, directory=directory)


def conduct(
    plan: Plan,
    transport: Transport,
    *,
    number: int,
    coin: bytes,
    directory: Directory | None = None,
) -> Outcome:
    """Be the server of one round.

    Args:
        plan: The plan of the round; clients must hold the same.
        transport: Reaches the clients.
        number: The number of the round; clients refuse one they have seen.
        coin: 32 public bytes that decide the graph.
        directory: The clients' identity keys, if the server has them too. A reply without its
            sender's signature then counts as none, so that what the network alters spoils no
            sum and blames nobody. A plan against a dishonest server needs it.

    Assumes:
        Without a directory, that the network alters nothing (TLS): a vector that was altered on its
        way makes the sum wrong, and whose message was altered is named in `faults`.

    Raises:
        ParameterError: The plan needs a directory, and there is none.
        RoundAborted: More clients were lost than planned. Nothing was revealed.
        RoundUnfinished: They were lost after others had begun to reveal.
    """
    if plan.server is ServerModel.DISHONEST and directory is None:
        raise ParameterError("a plan against a dishonest server needs a directory of identity keys")
    desk = _Desk(plan, transport, directory)
    try:
        return _conduct(desk, number=number, coin=coin)
    except RoundFailed as failed:
        receipts = desk.void()
        kind: type[RoundFailed] = type(failed)
        reason = failed.reason
        if kind is RoundUnfinished and desk.closed(receipts):
            kind = RoundAborted
            reason += (
                ". But enough clients have deleted what it would take to open it: nothing was "
                "revealed, and nothing ever will be"
            )
        lost = {client: str(loss) for client, loss in desk.lost.items()}
        raise kind(reason, lost, desk.faults | desk.deeds(failed.faults), receipts) from failed


def _conduct(desk: "_Desk", *, number: int, coin: bytes) -> Outcome:
    plan, directory = desk.plan, desk.directory
    invited, invitation = server.invite(plan, number, coin)
    everyone = dict.fromkeys(range(plan.clients), invitation)
    check_keys = server.KeyCheck(directory)
    keys = desk.ask(Stage.ADVERTISE, everyone, invited.round_id, Advertisement, check_keys)
    keyed, books = server.pass_on_keys(invited, keys)
    check_shares = functools.partial(server.check_shares, keyed)
    shares = desk.ask(Stage.SHARE, books, keyed.round_id, SealedShares, check_shares)
    routed, boxes = server.pass_on_shares(keyed, shares)
    desk.routed = routed
    del shares  # many megabytes in a large round, and the boxes hold them now
    check_masks = functools.partial(server.check_vector, routed)
    folding = server.begin_sum(routed)

    def hear(complaint: Complaint) -> str:
        blamed, deed = server.judge(routed, complaint, boxes[complaint.client], directory)
        if blamed == complaint.client:
            return deed
        desk.faults |= desk.deeds({blamed: deed})
        raise RoundAborted(
            f"client {blamed} {desk.faults[blamed]}. Nothing was revealed: hold the round again "
            "without it"
        )

    desk.ask(
        Stage.MASK,
        boxes,
        routed.round_id,
        MaskedVector,
        check_masks,
        take=functools.partial(server.fold, folding),
        hear=hear,
    )
    boxes.clear()
    summed = server.end_sum(folding)
    desk.survivors = summed.survivors
    if plan.server is ServerModel.DISHONEST:
        lists = dict.fromkeys(sorted(summed.survivors), server.ask_to_agree(summed))
        check = functools.partial(server.check_agreement, summed, directory) if directory else None
        agreements = desk.ask(Stage.AGREE, lists, routed.round_id, Agreement, check)
        summed = server.certify(summed, agreements)
    asked = sorted(summed.survivors - desk.lost.keys())
    request = dict.fromkeys(asked, server.ask_to_unmask(summed))
    check_reply = functools.partial(server.check_reply, summed)
    replies = desk.ask(Stage.UNMASK, request, routed.round_id, UnmaskReply, check_reply)
    unmasked = server.unmask(summed, replies)
    return Outcome(
        unmasked.total,
        unmasked.survivors,
        desk.lost,
        unmasked.noise_variance,
        desk.traffic,
        desk.client_seconds(),
        desk.seconds(),
        {**desk.faults, **desk.deeds(unmasked.faults)},
    )


class _Desk:
    """Where the server's letters leave and arrive: encodes, decodes, counts, notes losses."""

    def __init__(self, plan: Plan, transport: Transport, directory: Directory | None) -> None:
        self.plan, self._transport, self.directory = plan, transport, directory
        self._start = time.process_time()
        self.lost: dict[ClientId, LostClient] = {}
        self.faults: dict[ClientId, str] = {}
        self.routed: server.Routed | None = None
        self.survivors: frozenset[ClientId] = frozenset()
        self.traffic: dict[ClientId, int] = {}
        self._past: set[type] = set()
        self._sent: dict[ClientId, bytes] = {}  # digests of the latest letters, where replies sign

    def ask(
        self,
        stage: Stage,
        messages: Mapping[ClientId, Message],
        round_id: bytes,
        kind: type[Reply],
        check: Callable[[Reply], None] | None = None,
        *,
        take: Callable[[Reply], None] | None = None,
        hear: Callable[[Complaint], str] | None = None,
    ) -> dict[ClientId, Reply]:
        """Send one stage's messages; return the first right reply of each client.

        A reply to an earlier stage is nobody's fault: a network may be late or repeat itself. Nor
        is what its sender did not sign, where there is a directory.

        Args:
            stage: The stage.
            messages: What each client is sent.
            round_id: What replies must belong to.
            kind: What replies must be.
            check: Refuses a reply that breaks the protocol.
            take: Uses a reply up as it comes, so that it is not kept.
            hear: Hears a complaint; returns what the complaining client did wrong, if anything.
        """
        replies: dict[ClientId, Reply] = {}
        answered: set[ClientId] = set()
        reasons: dict[ClientId, str] = {}
        failed: RoundFailed | None = None

        def keep(reply: Reply) -> None:
            replies[reply.client] = reply

        use = take or keep
        past = frozenset(self._past)
        self._past |= {kind, Complaint} if hear is not None else {kind}
        letters = self._letters(messages)
        for sender, data in self._transport.exchange(stage, letters):
            self._count(sender, len(data))
            if sender not in messages or sender in answered:
                continue
            try:
                if kind_of(data) in past:
                    continue
                reply = self._read(sender, data)
                if isinstance(reply, Refusal):
                    reasons[sender] = f"refused: {reply.reason}"
                    continue
                if isinstance(reply, Complaint) and hear is not None:
                    self._check_sender(reply, sender, round_id)
                    raise ProtocolError(hear(reply))
                if not isinstance(reply, kind):
                    wanted, found = kind.__name__, type(reply).__name__
                    raise ProtocolError(f"sent {found} instead of {wanted}")
                self._check_sender(reply, sender, round_id)
                if check is not None:
                    check(reply)
            except RoundFailed as error:
                failed = failed or error
                continue
            except Altered as error:
                reasons[sender] = str(error)
                continue
            except ProtocolError as error:
                self.faults |= self.deeds({sender: str(error)})
                reasons[sender] = self.faults[sender]
                continue
            answered.add(sender)
            use(reply)
        # Only now: a transport that is left half-way would bring the rest with the next stage.
        if failed is not None:
            raise failed
        for client in messages.keys() - answered:
            self.lost[client] = LostClient(stage, reasons.get(client, "did not answer in time"))
        return dict(sorted(replies.items()))

    def _read(self, sender: ClientId, data: bytes) -> Message:
        """Return what a client sent.

        Raises:
            Altered: The client did not sign it as the answer to the latest letter to it.
            ProtocolError: The client sent what is no message.
        """
        if self.directory is None:
            return decode(without_signature(data), self.plan)
        reply, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if self.directory.replied(sender, signature, self._sent.get(sender, b""), reply):
            return decode(reply, self.plan)
        with contextlib.suppress(ProtocolError):
            if isinstance(refusal := decode(data, self.plan), Refusal):
                return refusal  # unsigned: it says no more than silence does
        raise Altered(
            "its message arrived altered, or the one it answers did: its signature does not fit"
        )

    def deeds(self, faults: Mapping[ClientId, str]) -> dict[ClientId, str]:
        """Return what is said of those who broke the protocol: no more than is known."""
        known = "" if self.directory is not None else ", as it was sent or as it arrived"
        return {client: deed + known for client, deed in faults.items()}

    def void(self) -> dict[ClientId, bytes]:
        """Ask all who shared to forget the round; return the receipts of those who could.

        Who has revealed anything refuses, and who is gone is silent.
        """
        if self.routed is None:
            return {}
        round_id, lost, directory = self.routed.round_id, dict(self.lost), self.directory

        def check(receipt: Receipt) -> None:
            if directory is not None:
                directory.verify_receipt(receipt.client, receipt.signature, round_id)

        everyone = dict.fromkeys(sorted(self.routed.commitments), Void(round_id))
        receipts = self.ask(Stage.VOID, everyone, round_id, Receipt, check)
        self.lost = lost  # who keeps silent now was not lost by it
        return {client: receipt.signature for client, receipt in receipts.items()}

    def closed(self, receipts: Mapping[ClientId, bytes]) -> bool:
        """Say whether the sum can never be opened any more."""
        if self.routed is None:
            return True
        holders = (
            (client, self.routed.neighbours[client].tolist()) for client in sorted(self.survivors)
        )
        return closed_for_all(self.plan, holders, receipts)

    @staticmethod
    def _check_sender(
        reply: "Complaint | Reply",
        sender: ClientId,
        round_id: bytes,
    ) -> None:
        if reply.client != sender or reply.round_id != round_id:
            raise ProtocolError("sent a message of another client or another round")

    def seconds(self) -> float:
        """Return the server's CPU time: this process without what the transport spent in it."""
        return time.process_time() - self._start - self._transport.own_seconds

    def client_seconds(self) -> float:
        """Return the CPU time of all clients that the transport runs."""
        return self._transport.client_seconds

    def _letters(self, messages: Mapping[ClientId, Message]) -> Iterator[tuple[ClientId, bytes]]:
        for client, data in encode_each(messages, self.plan):
            self._count(client, len(data))
            if self.directory is not None:
                self._sent[client] = hashlib.sha256(data).digest()
            yield client, data

    def _count(self, client: ClientId, size: int) -> None:
        self.traffic[client] = self.traffic.get(client, 0) + size


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Clients:
    """Some of the clients of a round, before they exist: what a worker needs to build them."""

    plan: Plan
    vectors: Mapping[ClientId, Vector] = field(repr=False)
    seeds: Mapping[ClientId, bytes] = field(repr=False)
    signing_keys: Mapping[ClientId, bytes] | None = field(repr=False)
    latest_round: int
    private: bool

    @property
    def clients(self) -> frozenset[ClientId]:
        """The clients of this part."""
        return frozenset(self.vectors)

    def part(self, place: int, parts: int) -> "_Clients":
        """Return every `parts`-th client from `place` on."""
        chosen = sorted(self.vectors)[place::parts]
        return replace(self, vectors={client: self.vectors[client] for client in chosen})

    def parties(self) -> dict[ClientId, Party]:
        """Build the clients."""
        identities: dict[ClientId, Identity] = {}
        directory = None
        if self.signing_keys is not None:
            identities = {c: Identity.of(c, key) for c, key in self.signing_keys.items()}
            directory = Directory({c: identity.public for c, identity in identities.items()})
        return {
            client: ClientSession(
                Member(client, self.plan, self.latest_round, identities.get(client), directory),
                vector,
                StreamSecrets(self.seeds[client], private=self.private),
            )
            for client, vector in self.vectors.items()
        }

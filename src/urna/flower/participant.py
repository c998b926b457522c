"""The node's side of private sums: one thing to mount on a ClientApp that people already have."""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Protocol, TypeVar

import numpy as np
from flwr.app import Context

from urna.errors import ProtocolError, Refused
from urna.flower.announcement import Announcement
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.policy import Policy
from urna.flower.site import (
    Memory,
    Mounted,
    PartyScript,
    Site,
    answered,
    forget,
    keep,
    recall,
    seed_of,
    simulated,
    trace_of,
)
from urna.flower.transcript import Transcript
from urna.flower.vote_subject import is_verified, read_vouched, report_of
from urna.local.generators import own_generators
from urna.noise import IntVector
from urna.protocols.secagg import ClientSession, ClientState, Member, freeze, thaw
from urna.protocols.secagg.client import Advertised, Finished, Masked, Shared
from urna.tally import to_grid

_ROOM = 0.8  # part of the server's patience that a contribution may take

_ENDED = "the contribution ended its process"

_log = logging.getLogger(__name__)

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True, slots=True)
class Call:
    """What a contributor is asked for."""

    announcement: Announcement
    context: Context
    policy: Policy
    number: int
    """The round's number in its series, from one; zero while nodes are gathered."""
    inputs: bytes = field(repr=False)
    """What the round starts from."""
    key: bytes = field(repr=False)
    """32 secret bytes for whatever the contribution decides by lot."""
    seconds: float
    """How long it may take."""

    def subject(self, kind: type[SubjectT], named: str) -> SubjectT:
        """Return what is summed, if it is of this kind.

        Raises:
            Refused: It is of another.
        """
        subject = self.announcement.subject
        if not isinstance(subject, kind):
            raise Refused(f"this is no {named}")
        return subject


class Contributor(Protocol):
    """Computes what a node puts into sums of one kind."""

    @property
    def kind(self) -> str:
        """The kind of subject it answers."""
        ...

    def check(self, call: Call) -> None:
        """Refuse what no data can change: wrong settings, too few records.

        Asked at the gathering, so that who refuses is not counted on, and again before each
        contribution.

        Raises:
            Refused: With a reason for the server.
        """
        ...

    def contribute(self, call: Call) -> IntVector:
        """Return the node's contribution, in units.

        Whatever it raises, the node contributes nothing under its full share of noise, and
        says nothing about it but in its own log; see `Policy.reports_failures`.
        """
        ...


def _in_time(contributor: Contributor, call: Call) -> IntVector:
    """Return the contribution, if it comes before the server's patience ends."""
    if simulated():  # one person owns all nodes, and a worker has one thread
        with own_generators(seed_of(call.context, call.number)):
            try:
                return contributor.contribute(call)
            except SystemExit as error:
                raise RuntimeError(_ENDED) from error
    found: Queue[IntVector | BaseException] = Queue()

    def compute() -> None:
        try:
            found.put(contributor.contribute(call))
        except BaseException as error:
            found.put(error)

    Thread(target=compute, daemon=True).start()
    patience = (call.seconds + call.announcement.seconds) / 2
    try:
        answer = found.get(timeout=patience)
    except Empty as error:
        raise TimeoutError("the contribution took too long") from error
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, BaseException):  # sys.exit(), say: not this process's end
        raise RuntimeError(_ENDED) from answer
    return answer


class Role(Protocol):
    """What differs between nodes in a round: what one checks, puts in, and hands in."""

    def check(self, call: Call) -> None:
        """Refuse what no data can change; see `Contributor.check`."""

    def vector(self, call: Call) -> tuple[IntVector, str]:
        """Return what the node puts into a secure sum, in grid steps, and `trace_of` a failure."""

    def check_count(self, letter: Letter, call: Call) -> None:
        """Refuse a verified count that is not the one announced."""

    def report(self, letter: Letter, call: Call, member: Member) -> Reply:
        """Answer the letter that begins a verified count."""


class Participant(Mounted):
    """A node's part in private sums. Mount it on the node's ClientApp.

    Every request is held against the node's policy and its ledger before anything is computed.
    What leaves the node is its contribution under noise and masks. Whatever its data do to the
    computation, the node takes part: a failure is an empty contribution with the full noise,
    and its traceback stays in the node's own log, unless the policy `reports_failures`. A refusal
    has a reason that no data enter.

    Args:
        contributors: What the node can contribute to.
        policy: The node's limits, or the file that holds them. A file named in the node's own
            configuration (`--node-config 'urna-policy="…"'`) goes before. Without any policy
            every request is refused, but for simulated nodes, which take part in everything.
        name: The node's name where it has no identity key; its partition by default.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.
    """

    def __init__(
        self,
        contributors: Sequence[Contributor],
        *,
        policy: Policy | Path | str | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
    ) -> None:
        site, self.contributors = Site(policy, name, script), tuple(contributors)
        super().__init__(Rounds(site, _Contributing(site, contributors)).answer)


class _Contributing:
    """The part of a node that has data."""

    def __init__(self, site: Site, contributors: Sequence[Contributor]) -> None:
        self._site = site
        self._contributors = {contributor.kind: contributor for contributor in contributors}

    def check(self, call: Call) -> None:
        """Refuse what nothing here contributes to, or what the contributor refuses."""
        self._contributor(call).check(call)

    def check_count(self, letter: Letter, call: Call) -> None:
        """Refuse a count that is not the one announced, or for which the helper did not vouch."""
        read_vouched(letter.body, call.announcement, letter.number, call.policy)

    def report(self, letter: Letter, call: Call, member: Member) -> Reply:
        """Cast a verified ballot: counted before it leaves, and nothing of it is kept."""
        announcement, policy = call.announcement, call.policy
        vouched = read_vouched(letter.body, announcement, letter.number, policy)
        ballot, _ = self.vector(call)
        source = self._site.source(announcement, member.client, 0)
        report = report_of(vouched, announcement, member, policy, ballot, source)
        coin = announcement.coin(letter.number, letter.inputs)
        policy.account.count(announcement, letter.number, coin, private=self._site.private)
        return Reply(report)

    def vector(self, call: Call) -> tuple[IntVector, str]:
        """Return what the node puts in, in grid steps; nothing where anything went wrong."""
        contributor, plan = self._contributor(call), call.announcement.plan
        start = time.monotonic()
        try:
            return to_grid(np.asarray(_in_time(contributor, call)), plan), ""
        except Exception as error:
            # Under the relation promised, data that fail are data like any other: whatever the
            # error says stays in this log, unless the owner chose to tell that there was one.
            _log.exception("this node's own code failed after %.1f s", time.monotonic() - start)
            if call.policy.reports_failures:
                raise Refused("this node's own code failed; its own log says why") from error
            _log.error("this node contributes nothing, under its full share of noise")
            return np.zeros(plan.dimension, dtype=np.int64), trace_of(error)

    def _contributor(self, call: Call) -> Contributor:
        kind = call.announcement.kind
        if kind not in self._contributors:
            raise Refused(f"nothing on this node contributes to a {kind[:40]}")
        return self._contributors[kind]


class Rounds:
    """A node's way through rounds, whatever its role in them.

    Args:
        site: The node.
        role: What it is in them.
    """

    def __init__(self, site: Site, role: Role) -> None:
        self._site, self._role = site, role

    def answer(self, letter: Letter, context: Context) -> Reply:
        """Answer one letter of a server."""
        match letter.kind:
            case Kind.ANNOUNCE:
                return self._gather(letter, context)
            case Kind.BEGIN | Kind.STAGE:
                if again := answered(context, letter.digest):  # of a server that was killed
                    return Reply(again)
                begins = letter.kind is Kind.BEGIN
                return self._begin(letter, context) if begins else self._go_on(letter, context)
            case Kind.END:
                return self._end(letter, context)
            case Kind.HELP:
                raise Refused("this node is no helper")

    def _gather(self, letter: Letter, context: Context) -> Reply:
        """Say whether the node would take part. Nothing is computed and nothing is kept."""
        policy = self._site.policy_of(context, letter)
        announcement = policy.read_announcement(letter.announcement, letter.signature)
        policy.account.check(announcement, private=self._site.private)
        call = Call(announcement, context, policy, 0, b"", b"", 0.0)
        self._role.check(call)
        keeps = policy.transcripts is not None
        return self._site.present(announcement, policy, context, keeps=keeps)

    def _begin(self, letter: Letter, context: Context) -> Reply:
        """Compute the contribution and answer the invitation, or hand in a report."""
        call, member = self._admit(letter, context)
        policy, announcement = call.policy, call.announcement
        if is_verified(announcement):
            return self._role.report(letter, call, member)
        vector, trace = self._role.vector(call)
        digest = hashlib.sha256(letter.inputs).digest()
        memory = Memory(letter.announcement, member.client, letter.number, digest, vector, 0, b"")
        memory = replace(memory, resumes=letter.resumes)
        reply = self._step(policy, announcement, member, memory, letter, context)
        return replace(reply, trace=trace)

    def _admit(self, letter: Letter, context: Context) -> tuple[Call, Member]:
        """Take the one right to begin a round, if nothing speaks against it.

        All that may lead to a refusal comes first: limits, number, ledger, disk. Only then is
        the old state given up, so a letter that comes twice changes nothing.
        """
        policy = self._site.policy_of(context, letter)
        announcement = policy.read_announcement(letter.announcement, letter.signature)
        if not 1 <= letter.number <= announcement.rounds:
            raise Refused(f"the series has {announcement.rounds} rounds")
        coin = announcement.coin(letter.number, letter.inputs)
        member = self._site.member(announcement, letter.client, policy, context, coin)
        key = self._site.key(announcement, member.client)
        seconds = _ROOM * announcement.seconds
        call = Call(announcement, context, policy, letter.number, letter.inputs, key, seconds)
        policy.account.check(announcement, private=self._site.private)
        self._role.check(call)
        if is_verified(announcement):
            self._role.check_count(letter, call)
        policy.account.begin(announcement, letter.number)
        forget(context)
        return call, member

    def _go_on(self, letter: Letter, context: Context) -> Reply:
        """Take the next step of a round that has begun."""
        memory, policy = recall(context), self._site.policy_of(context)
        if not memory.state:
            raise ProtocolError("this node has answered the round's last stage")
        announcement = Announcement.read(memory.announcement)
        coin = _coin(announcement, memory)
        member = self._site.member(announcement, memory.client, policy, context, coin)
        return self._step(policy, announcement, member, memory, letter, context)

    def _end(self, letter: Letter, context: Context) -> Reply:
        """Forget a round that is over; stop counting it if it is closed for good."""
        forget(context)
        if letter.body:
            policy, transcript = self._site.policy_of(context), Transcript.read(letter.body)
            announcement, account = transcript.announcement, policy.account
            if account.begun(announcement, transcript.number):
                name = self._site.name_in(announcement, policy, context)
                if policy.ledger is not None and transcript.void_for(name, policy):
                    reason = "the round came to nothing, and can never be opened any more"
                    account.withdraw(announcement, transcript.number, transcript.coin, reason)
                if policy.transcripts is not None and name in announcement.names:
                    transcript.keep(policy.transcripts)
        return Reply()

    def _step(
        self,
        policy: Policy,
        announcement: Announcement,
        member: Member,
        memory: Memory,
        letter: Letter,
        context: Context,
    ) -> Reply:
        """Hand the server's bytes to the protocol and keep what it must remember."""
        before: ClientState | None = thaw(memory.state, member) if memory.state else None
        source = self._site.source(announcement, member.client, memory.taken)
        # Once it is sent the contribution is forgotten, and no later step looks at it.
        vector = memory.vector
        if vector is None:
            vector = np.zeros(announcement.plan.dimension, dtype=np.int64)
        session = ClientSession(member, vector, source, before)
        answer, after = session.handle(letter.body), session.state
        coin = _coin(announcement, memory)
        if before is not None and type(after) is not type(before):
            policy.account.claims.claim(coin, type(before).__name__)
        forget(context)
        if isinstance(after, Masked) and not isinstance(before, Masked):
            # From here on the vector is out: count it first. A crash between counts too much.
            policy.account.count(announcement, memory.number, coin, private=self._site.private)
        over = isinstance(after, Finished | Member)
        if not over or (memory.resumes and not isinstance(after, Member)):
            taken = source.taken if isinstance(source, PartyScript) else 0
            waits = isinstance(after, Advertised | Shared)  # for the stage that sends it
            kept = replace(memory, vector=vector if waits else None, taken=taken)
            if memory.resumes:
                kept = replace(kept, asked=letter.digest, answer=answer)
            keep(context, replace(kept, state=b"" if over else freeze(after)))
        return Reply(answer)


def _coin(announcement: Announcement, memory: Memory) -> bytes:
    return announcement.coin_of(memory.number, memory.inputs_digest)

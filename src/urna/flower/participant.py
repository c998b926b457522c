"""The node's side of private sums: one thing to mount on a ClientApp that people already have."""

import hashlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from urna.data import MIN_SAMPLES
from urna.errors import ParameterError, ProtocolError, Refused, UrnaError
from urna.flower.announcement import Announced, Announcement, check_name
from urna.flower.casting import read_vouched, report_of
from urna.flower.contributor import Call, Contributor, in_time, simulated
from urna.flower.mail import ACTION, Kind, Letter, Reply
from urna.flower.memory import Memory, answered, forget, keep, recall
from urna.flower.policy import Grant, Policy
from urna.flower.script import PartyScript, Script
from urna.flower.transcript import Transcript, presence
from urna.flower.vote_subject import is_verified
from urna.noise import IntVector
from urna.privacy import Adjacency, Unit
from urna.protocols.secagg import ClientSession, ClientState, Member, freeze, thaw
from urna.protocols.secagg.client import Advertised, Finished, Masked, Shared
from urna.randomness import SEED_BYTES, OsSecrets, SecretSource
from urna.tally import to_grid

__all__ = ["POLICY_KEY", "Participant"]

POLICY_KEY = "urna-policy"
"""Key of the node's configuration that names its policy file."""

_ROOM = 0.8  # part of the server's patience that a contribution may take

_log = logging.getLogger(__name__)


class Participant:
    """A node's part in private sums. Mount it on the node's ClientApp.

    Every request is held against the node's policy and its ledger before anything is computed.
    What leaves the node is its contribution under noise and masks. Whatever its data do to the
    computation, the node takes part: a failure is an empty contribution with the full noise,
    and its reason stays in the node's own log. A refusal has a reason that no data enter.

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
        self._contributors = {contributor.kind: contributor for contributor in contributors}
        self._policy = policy
        self._name = name or _partition_name
        self._script = script

    def mount(self, app: ClientApp) -> None:
        """Let a ClientApp take part in private sums. What it does already is left alone."""
        app.query(ACTION)(self.handle)

    def handle(self, message: Message, context: Context) -> Message:
        """Answer one message of a server."""
        try:
            letter = Letter.read(message.content)
            reply = self._answer(letter, context)
        except UrnaError as error:
            reply = Reply.refusal(_public_reason(error))
        except Exception as error:
            # An error of our own or of a file: its text may hold data.
            where = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "this node could not take part: %s in %s, line %s",
                type(error).__name__,
                where.filename,
                where.lineno,
            )
            _log.debug("the error itself, for this node's eyes only", exc_info=True)
            reply = Reply.refusal("the node failed; its own log says why")
        return Message(reply.as_records(), reply_to=message)

    def _answer(self, letter: Letter, context: Context) -> Reply:
        match letter.kind:
            case Kind.ANNOUNCE:
                return self._gather(letter, context)
            case Kind.BEGIN | Kind.STAGE:
                if again := answered(context, letter.digest):  # of a server that was killed
                    return Reply.letter(again)
                begins = letter.kind is Kind.BEGIN
                return self._begin(letter, context) if begins else self._go_on(letter, context)
            case Kind.END:
                return self._end(letter, context)
            case Kind.HELP:
                raise Refused("this node is no helper")

    def _gather(self, letter: Letter, context: Context) -> Reply:
        """Say whether the node would take part. Nothing is computed and nothing is kept."""
        policy = self._policy_of(context, letter)
        announcement = policy.read_announcement(letter.announcement, letter.signature)
        policy.account.check(announcement, private=self._private)
        call = Call(announcement, context, policy, 0, b"", b"", 0.0)
        self._contributor(announcement).check(call)
        name, proof = self._name_in(announcement, policy, context), b""
        if announcement.signed and (key := policy.node_key()) is not None:
            proof = key.sign(presence(announcement, name))
        keeps = policy.transcripts is not None
        return Reply.ready(name, proof, private=self._private, keeps=keeps)

    def _begin(self, letter: Letter, context: Context) -> Reply:
        """Compute the contribution and answer the invitation, or hand in a report."""
        call, member = self._admit(letter, context)
        policy, announcement = call.policy, call.announcement
        if is_verified(announcement):
            return self._report(letter, call, member)
        vector = self._contribution(self._contributor(announcement), call)
        digest = hashlib.sha256(letter.inputs).digest()
        memory = Memory(letter.announcement, member.client, letter.number, digest, vector, 0, b"")
        memory = replace(memory, resumes=letter.resumes)
        return self._step(policy, announcement, member, memory, letter, context)

    def _admit(self, letter: Letter, context: Context) -> tuple[Call, Member]:
        """Take the one right to begin a round, if nothing speaks against it.

        All that may lead to a refusal comes first: limits, number, ledger, disk. Only then is
        the old state given up, so a letter that comes twice changes nothing.
        """
        policy = self._policy_of(context, letter)
        announcement = policy.read_announcement(letter.announcement, letter.signature)
        if not 1 <= letter.number <= announcement.rounds:
            raise Refused(f"the series has {announcement.rounds} rounds")
        coin = announcement.coin(letter.number, letter.inputs)
        member = self._member(announcement, letter.client, policy, context, coin)
        key = OsSecrets().take(SEED_BYTES)
        if self._script is not None:
            key = Script(self._script.encode(), announcement.terms.clients).ballot_key(
                member.client
            )
        seconds = _ROOM * announcement.seconds
        call = Call(announcement, context, policy, letter.number, letter.inputs, key, seconds)
        policy.account.check(announcement, private=self._private)
        self._contributor(announcement).check(call)
        if is_verified(announcement):
            self._check_count(letter, call)
        policy.account.begin(announcement, letter.number)
        forget(context)
        return call, member

    def _check_count(self, letter: Letter, call: Call) -> None:
        """Refuse a count that is not the one announced, or for which the helper did not vouch."""
        read_vouched(letter.body, call.announcement, letter.number, call.policy)

    def _report(self, letter: Letter, call: Call, member: Member) -> Reply:
        """Cast a verified ballot: counted before it leaves, and nothing of it is kept."""
        announcement, policy = call.announcement, call.policy
        vouched = read_vouched(letter.body, announcement, letter.number, policy)
        ballot = self._contribution(self._contributor(announcement), call)
        source = self._source(announcement, member.client, 0)
        report = report_of(vouched, announcement, member, policy, ballot, source)
        coin = announcement.coin(letter.number, letter.inputs)
        policy.account.count(announcement, letter.number, coin, private=self._private)
        return Reply.letter(report)

    def _go_on(self, letter: Letter, context: Context) -> Reply:
        """Take the next step of a round that has begun."""
        memory, policy = recall(context), self._policy_of(context)
        if not memory.state:
            raise ProtocolError("this node has answered the round's last stage")
        announcement = Announcement.read(memory.announcement)
        coin = _coin(announcement, memory)
        member = self._member(announcement, memory.client, policy, context, coin)
        return self._step(policy, announcement, member, memory, letter, context)

    def _end(self, letter: Letter, context: Context) -> Reply:
        """Forget a round that is over; stop counting it if it is closed for good."""
        forget(context)
        if letter.body:
            policy, transcript = self._policy_of(context), Transcript.read(letter.body)
            announcement, account = transcript.announcement, policy.account
            if account.begun(announcement, transcript.number):
                name = self._name_in(announcement, policy, context)
                if policy.ledger is not None and transcript.void_for(name, policy):
                    reason = "the round came to nothing, and can never be opened any more"
                    account.withdraw(announcement, transcript.number, transcript.coin, reason)
                if policy.transcripts is not None and name in announcement.names:
                    transcript.keep(policy.transcripts)
        return Reply.done()

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
        source = self._source(announcement, member.client, memory.taken)
        # Once it is sent the contribution is forgotten, and no later step looks at it.
        vector = memory.vector
        if vector is None:
            vector = np.zeros(announcement.plan.dimension, dtype=np.int64)
        session = ClientSession(member, vector, source, before)
        answer, after = session.handle(letter.body), session.state
        coin = _coin(announcement, memory)
        if before is not None and type(after) is not type(before):
            policy.account.claim(coin, type(before).__name__)
        forget(context)
        if isinstance(after, Masked) and not isinstance(before, Masked):
            # From here on the vector is out: count it first. A crash between counts too much.
            policy.account.count(announcement, memory.number, coin, private=self._private)
        over = isinstance(after, Finished | Member)
        if not over or (memory.resumes and not isinstance(after, Member)):
            taken = source.taken if isinstance(source, PartyScript) else 0
            waits = isinstance(after, Advertised | Shared)  # for the stage that sends it
            kept = replace(memory, vector=vector if waits else None, taken=taken)
            if memory.resumes:
                kept = replace(kept, asked=letter.digest, answer=answer)
            keep(context, replace(kept, state=b"" if over else freeze(after)))
        return Reply.letter(answer)

    def _contribution(self, contributor: Contributor, call: Call) -> IntVector:
        """Return what the node puts in, in grid steps; nothing where anything went wrong."""
        plan = call.announcement.plan
        start = time.monotonic()
        try:
            vector = to_grid(np.asarray(in_time(contributor, call)), plan)
        except Exception as error:
            # Under the relation promised, data that fail are data like any other.
            _log.warning(
                "this node contributes nothing: %s after %.1f s",
                type(error).__name__,
                time.monotonic() - start,
            )
            _log.debug("the error itself, for this node's eyes only", exc_info=True)
            vector = np.zeros(plan.dimension, dtype=np.int64)
        return vector

    def _contributor(self, announcement: Announcement) -> Contributor:
        found = self._contributors.get(announcement.kind)
        if found is None:
            raise Refused(f"nothing on this node contributes to a {announcement.kind[:40]}")
        return found

    def _name_in(self, announcement: Announced, policy: Policy, context: Context) -> str:
        key = policy.node_key() if announcement.signed else None
        return key.name if key is not None else check_name(self._name(context))

    def _member(
        self,
        announcement: Announcement,
        client: int,
        policy: Policy,
        context: Context,
        coin: bytes,
    ) -> Member:
        if not 0 <= client < len(announcement.names):
            raise Refused("the node's number is not among those who take part")
        round_plan = announcement.round_plan
        key, directory = policy.node_key(), policy.directory_file()
        if not announcement.signed or key is None or directory is None:
            if announcement.names[client] != check_name(self._name(context)):
                raise Refused("the node's number belongs to another name")
            return Member(client, round_plan, coin=coin)
        if announcement.names[client] != key.name or directory.keys.get(key.name) != key.public:
            raise Refused("the node's number belongs to another name or key")
        try:
            keys = directory.for_round(announcement.names)
        except ParameterError as error:
            raise Refused(str(error)) from error
        return Member(client, round_plan, 0, key.identity(client), keys, coin)

    def _source(self, announcement: Announcement, client: int, taken: int) -> SecretSource:
        if self._script is None:
            return OsSecrets()
        return Script(self._script.encode(), announcement.terms.clients).party(client, taken)

    def _policy_of(self, context: Context, letter: Letter | None = None) -> Policy:
        named = context.node_config.get(POLICY_KEY, self._policy)
        if isinstance(named, Policy):
            return named
        if simulated() and (named is None or not Path(str(named)).exists()):
            return _simulated_policy(letter)
        if named is None:
            raise Refused("this node has no policy, so it takes part in nothing")
        try:
            policy = Policy.read(Path(str(named)))
        except ParameterError as error:
            _log.error("this node takes part in nothing: %s", error)
            raise Refused("this node's policy cannot be read; its own log says why") from error
        if simulated() and policy.ledger is not None:
            # Every simulated node is a node of its own, and so is its ledger.
            folder = policy.ledger.with_suffix(".simulated") / str(context.run_id)
            folder.mkdir(parents=True, exist_ok=True)
            policy = replace(policy, ledger=folder / f"{check_name(self._name(context))}.ledger")
        return policy

    @property
    def _private(self) -> bool:
        return self._script is None


def _simulated_policy(letter: Letter | None) -> Policy:
    """Return what a simulated node without a policy agrees to: everything it is asked."""
    asked = Adjacency.REPLACE_ONE_CLIENT
    if letter is not None and letter.announcement:
        asked = Announcement.read(letter.announcement).terms.adjacency
    return Policy(
        epsilon=1e6,
        delta=0.5,
        relation=asked,
        smallest_shard=MIN_SAMPLES if asked.unit is Unit.RECORD else None,
        forgets=True,
        grants=_Everything(),
        fewest_clients=2,
        largest_dropout="999/1000",
        least_colluding=0,
    )


class _Everything(dict[str, Grant]):
    """Grants whatever is asked for."""

    def get(self, kind: str, default: Grant | None = None) -> Grant:  # type: ignore[override]
        del kind, default
        return Grant(10**9, 10**6, most_runs=None, fewest_in_cluster=2)


def _coin(announcement: Announcement, memory: Memory) -> bytes:
    return announcement.coin_of(memory.number, memory.inputs_digest)


def _partition_name(context: Context) -> str:
    """Return the partition of a simulated or configured node, or its Flower id."""
    return str(context.node_config.get("partition-id", f"node-{context.node_id}"))


def _public_reason(error: UrnaError) -> str:
    """Return what may travel: refusals. Errors of files, data and settings stay here."""
    if isinstance(error, ProtocolError | Refused):
        return str(error)
    _log.error("%s", error)
    return "the node's set-up does not allow it; its own log says why"

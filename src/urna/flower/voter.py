"""The client's side: one thing to mount on a ClientApp that people already have."""

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from urna.errors import ParameterError, ProtocolError, Refused, UrnaError
from urna.flower.announcement import Announcement, check_name
from urna.flower.mail import ACTION, Kind, Letter, Reply
from urna.flower.memory import Memory, forget, keep, recall
from urna.flower.policy import Policy
from urna.flower.script import PartyScript, Script
from urna.local import Objective
from urna.noise import IntVector
from urna.privacy import Unit
from urna.randomness import SEED_BYTES, OsSecrets, SecretSource
from urna.secagg import ClientSession, ClientState, Member
from urna.secagg.client import Finished, Masked
from urna.space import Space
from urna.tally import encode, encode_ballots
from urna.vote import check_records, fill_ballot, shard_ballots

__all__ = ["POLICY_KEY", "Voter"]

POLICY_KEY = "urna-policy"
"""Key of the node's configuration that names its policy file."""

_LARGEST_SKEW = 86_400.0  # seconds by which a server's clock may differ from the node's

_log = logging.getLogger(__name__)

DataT = TypeVar("DataT")


class Voter(Generic[DataT]):
    """A node's part in private votes. Mount it on the node's ClientApp.

    Every request is held against the node's policy and its ledger before any training happens.
    Losses and ballots never leave the node; what leaves is the ballot under noise and masks.
    An answer that is not the protocol's is a refusal with a reason that holds no data: the text
    of an error raised by the objective or by the data's loader stays on the node.

    Args:
        objective: How this node evaluates candidates on its data.
        data: Returns the node's data; called with Flower's context, once per vote.
        policy: The node's limits, or the file that holds them. A file named in the node's own
            configuration (`--node-config 'urna-policy="…"'`) goes before. Without any policy
            every request is refused.
        space: The one space this node votes on; any space within the policy by default.
        name: The node's name where it has no identity key; its partition by default.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.

    Example:
        >>> from urna.local import CallableObjective
        >>> app = ClientApp()
        >>> objective = CallableObjective(lambda candidate, data: candidate["lr"])
        >>> policy = Policy(epsilon=1.0, delta=1e-5)
        >>> Voter(objective, data=lambda context: None, policy=policy).mount(app)
    """

    def __init__(
        self,
        objective: Objective[DataT],
        data: Callable[[Context], DataT],
        *,
        policy: Policy | Path | str | None = None,
        space: Space | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
    ) -> None:
        self._objective, self._data = objective, data
        self._policy, self._space = policy, space
        self._name = name or _partition_name
        self._script = script

    def mount(self, app: ClientApp) -> None:
        """Let a ClientApp take part in votes. What it does already is left alone."""
        app.query(ACTION)(self.handle)

    def handle(self, message: Message, context: Context) -> Message:
        """Answer one message of a server."""
        try:
            letter = Letter.read(message.content)
            reply = self._answer(letter, context)
        except UrnaError as error:
            forget(context)
            reply = Reply.refusal(_public_reason(error))
        except Exception as error:
            # Whatever a stranger's loader or objective raises: its text may hold data.
            forget(context)
            where = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "this node could not take part: %s in %s, line %s",
                type(error).__name__,
                where.filename,
                where.lineno,
            )
            _log.debug("the error itself, for this node's eyes only", exc_info=True)
            reply = Reply.refusal(f"the node failed with {type(error).__name__}")
        return Message(reply.as_records(), reply_to=message)

    def _answer(self, letter: Letter, context: Context) -> Reply:
        match letter.kind:
            case Kind.ANNOUNCE:
                return self._gather(letter, context)
            case Kind.BEGIN:
                return self._begin(letter, context)
            case Kind.STAGE:
                return self._go_on(letter, context)
            case Kind.END:
                forget(context)
                return Reply.ready("", b"", private=True)

    def _gather(self, letter: Letter, context: Context) -> Reply:
        """Say whether the node would take part. Nothing is trained and nothing is kept."""
        policy = self._policy_of(context)
        announcement = self._checked(letter, policy)
        policy.check_budget(announcement, private=self._private)
        if announcement.signed and (key := policy.node_key()) is not None:
            proof = key.sign(presence(announcement, context.node_id))
            return Reply.ready(key.name, proof, private=self._private)
        return Reply.ready(check_name(self._name(context)), b"", private=self._private)

    def _begin(self, letter: Letter, context: Context) -> Reply:
        """Evaluate the candidates, fill the ballot and answer the invitation."""
        forget(context)
        policy = self._policy_of(context)
        announcement = self._checked(letter, policy)
        member = self._member(announcement, letter.client, policy, context)
        policy.check_budget(announcement, private=self._private)
        policy.claim(announcement, Member.__name__)
        ballot = self._ballot(announcement, member.client, policy, context)
        return self._step(_Turn(announcement, policy, member, ballot), letter.body, context)

    def _go_on(self, letter: Letter, context: Context) -> Reply:
        """Take the next step of a round that has begun."""
        memory, policy = recall(context), self._policy_of(context)
        announcement = Announcement.read(memory.announcement)
        member = self._member(announcement, memory.client, policy, context, memory.latest_round)
        # Once it is sent the ballot is forgotten, and no later step looks at the vector.
        sent = np.zeros(announcement.plan.tally.dimension, dtype=np.int64)
        ballot = sent if memory.ballot is None else memory.ballot
        state = memory.client_state(member)
        turn = _Turn(announcement, policy, member, ballot, state, memory.taken)
        return self._step(turn, letter.body, context)

    def _step(self, turn: "_Turn", body: bytes, context: Context) -> Reply:
        """Hand the server's bytes to the protocol and keep what it must remember."""
        source = self._source(turn.announcement, turn.member.client, turn.taken)
        session = ClientSession(turn.member, turn.ballot, source, turn.state)
        answer, after = session.handle(body), session.state
        if turn.state is not None and type(after) is not type(turn.state):
            turn.policy.claim(turn.announcement, type(turn.state).__name__)
        if isinstance(after, Masked) and not isinstance(turn.state, Masked):
            # From here on the vector is out: count it first. A crash between counts too much.
            turn.policy.enter(turn.announcement, after.round_id, private=self._private)
        if isinstance(after, Finished | Member):
            forget(context)
        else:
            taken = source.taken if isinstance(source, PartyScript) else 0
            announced = turn.announcement.as_bytes()
            keep(context, Memory.of(announced, turn.member, turn.ballot, taken, after))
        return Reply.letter(answer)

    def _checked(self, letter: Letter, policy: Policy) -> Announcement:
        announcement = Announcement.read(letter.announcement)
        if self._space is not None and self._space.fingerprint != announcement.space.fingerprint:
            raise Refused("the space announced is not the one this node votes on")
        if abs(announcement.number / 1000 - time.time()) > _LARGEST_SKEW:
            # A number far ahead, once answered, would shut out every later round.
            raise Refused("the round's number is not about this node's time in milliseconds")
        policy.check(announcement, letter.signature)
        return announcement

    def _member(
        self,
        announcement: Announcement,
        client: int,
        policy: Policy,
        context: Context,
        latest_round: int | None = None,
    ) -> Member:
        if not 0 <= client < len(announcement.names):
            raise Refused("the node's number is not among those who take part")
        latest = policy.latest_round() if latest_round is None else latest_round
        round_plan, coin = announcement.round_plan, announcement.coin
        key, directory = policy.node_key(), policy.directory_file()
        if not announcement.signed or key is None or directory is None:
            if announcement.names[client] != check_name(self._name(context)):
                raise Refused("the node's number belongs to another name")
            return Member(client, round_plan, latest, coin=coin)
        if announcement.names[client] != key.name or directory.keys.get(key.name) != key.public:
            raise Refused("the node's number belongs to another name or key")
        keys = directory.for_round(announcement.names)
        return Member(client, round_plan, latest, key.identity(client), keys, coin)

    def _ballot(
        self, announcement: Announcement, client: int, policy: Policy, context: Context
    ) -> IntVector:
        tally, space, seed = announcement.plan.tally, announcement.space, announcement.seed
        key = OsSecrets().take(SEED_BYTES)
        if self._script is not None:
            key = Script(self._script.encode(), announcement.clients).ballot_key(client)
        data, smallest = self._data(context), policy.smallest_shard
        if tally.adjacency.unit is Unit.CLIENT or smallest is None:
            losses = self._objective.losses(data, space, seed=seed)
            return encode(fill_ballot(np.asarray(losses), tally.shape, key), tally)
        try:
            check_records(data, tally.shards, smallest)
        except ParameterError as error:
            _log.error("%s", error)  # the node's own log may name its number of records
            raise Refused(
                f"this node's data does not fill {tally.shards} shards of {smallest} records"
            ) from error
        ballots = shard_ballots(
            self._objective,
            data,
            space,
            tally,
            key=key,
            seed=seed,
            shard_key=policy.key_of_shards(),
            smallest=smallest,
        )
        return encode_ballots(ballots, tally)

    def _source(self, announcement: Announcement, client: int, taken: int) -> SecretSource:
        if self._script is None:
            return OsSecrets()
        return Script(self._script.encode(), announcement.clients).party(client, taken)

    def _policy_of(self, context: Context) -> Policy:
        named = context.node_config.get(POLICY_KEY, self._policy)
        if named is None:
            raise Refused("this node has no policy, so it takes part in nothing")
        if isinstance(named, Policy):
            return named
        try:
            return Policy.read(Path(str(named)))
        except ParameterError as error:
            _log.error("%s", error)
            raise Refused("this node's policy cannot be read") from error

    @property
    def _private(self) -> bool:
        return self._script is None


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one step of the protocol needs: the round, the node's own files, where it stood."""

    announcement: Announcement
    policy: Policy
    member: Member
    ballot: IntVector = field(repr=False)
    state: ClientState | None = field(default=None, repr=False)
    taken: int = 0


def presence(announcement: Announcement, node: int) -> bytes:
    """Return the bytes by which a node proves at the gathering that it holds its key."""
    return b"urna flower presence\0" + announcement.coin + node.to_bytes(16, "big")


def _partition_name(context: Context) -> str:
    """Return the partition of a simulated or configured node, or its Flower id."""
    return str(context.node_config.get("partition-id", f"node-{context.node_id}"))


def _public_reason(error: UrnaError) -> str:
    """Return what may travel: refusals. Errors of files, data and settings stay here."""
    if isinstance(error, ProtocolError | Refused):
        return str(error)
    _log.error("%s", error)
    return "the node's set-up does not allow it; its own log says why"

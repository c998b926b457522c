"""A node as its owner set it up, how it is asked, and what it keeps between two messages.

What it keeps lies in the state Flower keeps for a series of runs, in the memory of the node's own
SuperNode. It holds secrets: the contribution until it is sent, the round's keys and shares, and
where a killed server may go on the latest answer. It is wiped when the round ends or is refused,
and what is older than a day is not used any more; a node that restarts has lost it and answers no
more.
"""

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from urna.data import MIN_SAMPLES
from urna.errors import ParameterError, ProtocolError, Refused, UrnaError
from urna.flower.accounts import LARGEST_SKEW
from urna.flower.announcement import Announced, Announcement, check_name
from urna.flower.messages import ACTION, Letter, Reply
from urna.flower.policy import Grant, Policy
from urna.flower.transcript import presence
from urna.local.engine.batches import step_key
from urna.noise import IntVector
from urna.privacy import Adjacency, Unit
from urna.protocols.secagg import Directory, Identity, Member
from urna.randomness import SEED_BYTES, OsSecrets, ScriptedSecrets, SecretSource, expand

POLICY_KEY = "urna-policy"
"""Key of the node's configuration that names its policy file."""

ON_APP = "urna_mounted"
"""Where a ClientApp names what is mounted on it to answer with contributions."""

_log = logging.getLogger(__name__)


class Mounted:
    """What answers a server's messages on a node. Mount it on the node's ClientApp.

    Args:
        answer: Answers one letter; what it raises is a refusal, whose reason holds no data.
        action: Which messages it answers.
    """

    def __init__(self, answer: Callable[[Letter, Context], Reply], action: str = ACTION) -> None:
        self.answer, self._action = answer, action

    def mount(self, app: ClientApp) -> None:
        """Let a ClientApp take part. What it does already is left alone."""
        app.query(self._action)(self.handle)
        if self._action == ACTION:
            vars(app)[ON_APP] = self

    def handle(self, message: Message, context: Context) -> Message:
        """Answer one message of a server."""
        try:
            letter = Letter.read(message.content)
            reply = self.answer(letter, context)
        except UrnaError as error:
            plain = isinstance(error, ProtocolError | Refused) and error.__cause__ is None
            reply = Reply.refusal(_public_reason(error), "" if plain else trace_of(error))
        except Exception as error:
            # An error of our own or of a file: its text may hold data, and stays in this log.
            _log.exception("this node could not take part")
            reply = Reply.refusal("the node failed; its own log says why", trace_of(error))
        return Message(reply.as_records(), reply_to=message)


class PartyScript:
    """One client's share of a script, which can be taken up again where it was left.

    Args:
        seed: The client's seed.
        taken: Bytes that earlier stages took.
    """

    private = False

    def __init__(self, seed: bytes, taken: int = 0) -> None:
        self._seed = seed
        self.taken = taken

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        start, self.taken = self.taken, self.taken + count
        return expand(self._seed, self.taken)[start:]


@dataclass(frozen=True, slots=True)
class Script:
    """All draws of a vote among `clients`, in the order of the in-memory search.

    The search takes every client's ballot key, then the round's coin, then every client's
    seed for the protocol, 32 bytes each (`vote.search`, `secagg.run`).
    """

    label: bytes
    clients: int

    def ballot_key(self, client: int) -> bytes:
        """Return the key that breaks ties in a client's ballot."""
        return self._draw(client)

    def party(self, client: int, taken: int = 0) -> PartyScript:
        """Return a client's source of keys, seeds and polynomials."""
        return PartyScript(self._draw(self.clients + 1 + client), taken)

    def _draw(self, place: int) -> bytes:
        secrets = ScriptedSecrets(self.label)
        secrets.take(SEED_BYTES * place)
        return secrets.take(SEED_BYTES)


@dataclass(frozen=True, slots=True)
class Site:
    """A node's policy, its name where it has no identity key, and its script where it has one."""

    policy: Policy | Path | str | None = None
    name: Callable[[Context], str] | None = None
    script: str | None = None

    @property
    def private(self) -> bool:
        """Whether the node's randomness is secret."""
        return self.script is None

    def own_name(self, context: Context) -> str:
        """Return what the node is called without a key."""
        return (self.name or _partition_name)(context)

    def name_in(self, announcement: Announced, policy: Policy, context: Context) -> str:
        """Return the node's name among those who take part."""
        key = policy.node_key() if announcement.signed else None
        return key.name if key is not None else check_name(self.own_name(context))

    def key(self, announcement: Announcement, client: int) -> bytes:
        """Return fresh secret bytes for whatever a contribution decides by lot."""
        if self.script is None:
            return OsSecrets().take(SEED_BYTES)
        return Script(self.script.encode(), announcement.terms.clients).ballot_key(client)

    def source(self, announcement: Announcement, client: int, taken: int) -> SecretSource:
        """Return where the protocol's randomness comes from."""
        if self.script is None:
            return OsSecrets()
        return Script(self.script.encode(), announcement.terms.clients).party(client, taken)

    def member(
        self,
        announcement: Announcement,
        client: int,
        policy: Policy,
        context: Context,
        coin: bytes,
    ) -> Member:
        """Return the node's part in a round's protocol."""
        if not 0 <= client < len(announcement.names):
            raise Refused("the node's number is not among those who take part")
        known, round_plan = self.identity(announcement, client, policy), announcement.round_plan
        if known is not None:
            return Member(client, round_plan, 0, *known, coin)
        if announcement.names[client] != check_name(self.own_name(context)):
            raise Refused("the node's number belongs to another name")
        return Member(client, round_plan, coin=coin)

    def identity(
        self, announced: Announced, client: int, policy: Policy
    ) -> tuple[Identity, Directory] | None:
        """Return who signs for the node, and everybody's keys; None where nobody signs."""
        key, directory = policy.node_key(), policy.directory_file()
        if not announced.signed or key is None or directory is None:
            return None
        if announced.names[client] != key.name or directory.keys.get(key.name) != key.public:
            raise Refused("the node's number belongs to another name or key")
        try:
            return key.identity(client), directory.for_round(announced.names)
        except ParameterError as error:
            raise Refused(str(error)) from error

    def present(
        self, announced: Announced, policy: Policy, context: Context, *, keeps: bool = False
    ) -> Reply:
        """Return the answer of a node that takes part, proven by its key where it has one."""
        name = self.name_in(announced, policy, context)
        key = policy.node_key() if announced.signed else None
        proof = b"" if key is None else key.sign(presence(announced, name))
        return Reply(name=name, proof=proof, private=self.private, keeps=keeps)

    def policy_of(self, context: Context, letter: Letter | None = None) -> Policy:
        """Return the policy that the node's configuration names, or its owner gave."""
        named = context.node_config.get(POLICY_KEY, self.policy)
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
            policy = replace(policy, ledger=folder / f"{check_name(self.own_name(context))}.ledger")
        return policy


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


def _partition_name(context: Context) -> str:
    """Return the partition of a simulated or configured node, or its Flower id."""
    return str(context.node_config.get("partition-id", f"node-{context.node_id}"))


def _public_reason(error: UrnaError) -> str:
    """Return what may travel: refusals. Errors of files, data and settings stay here."""
    if isinstance(error, ProtocolError | Refused):
        return str(error)
    _log.error("%s", error)
    return "the node's set-up does not allow it; its own log says why"


def seed_of(context: Context, number: int = 0) -> int:
    """Return where global generators begin when a node evaluates: by its place and the round."""
    return step_key(int(str(context.node_config.get("partition-id", 0))), number)


def trace_of(error: BaseException) -> str:
    """Return an error with its traceback where the node is simulated, and nothing elsewhere.

    One person owns all nodes of a simulation; the text of an error may hold data.
    """
    return "".join(traceback.format_exception(error)) if simulated() else ""


def simulated() -> bool:
    """Say whether this process is a worker of Flower's simulation engine.

    That one of its actors lives here: a deployed node may use Ray for reasons of its own.
    """
    worker = sys.modules.get("ray._private.worker")
    actors = getattr(getattr(worker, "global_worker", None), "actors", None) or {}
    return any(type(actor).__module__.startswith("flwr.") for actor in actors.values())


_PLACE = "urna"


@dataclass(frozen=True, slots=True)
class Memory:
    """One round's state, without what the node's own files say."""

    announcement: bytes
    client: int
    number: int
    """The round's number in its series."""
    inputs_digest: bytes
    vector: IntVector | None = field(repr=False)
    """The contribution in grid steps, until it is sent."""
    taken: int
    """Bytes already taken from a scripted source."""
    state: bytes = field(repr=False)
    """The protocol's state, frozen (`secagg.freeze`); empty when its last stage was answered."""
    resumes: bool = False
    """Whether the server may ask for the latest answer again."""
    asked: bytes = b""
    """Digest of the letter that was answered last, where it may come again."""
    answer: bytes = field(default=b"", repr=False)
    """The answer to it: the same bytes for the same letter tell nothing new."""


def store(context: Context, place: str, values: Mapping[str, Any]) -> None:
    """Put a round's state into the node's context; since when is said by who stores it again."""
    context.state[place] = ConfigRecord({"since": time.time(), **values})


def stored(context: Context, place: str) -> dict[str, Any]:
    """Return what `store` put there.

    It is forgotten long before the claims of its answers are: no answer is given twice.
    """
    if place not in context.state:
        raise ProtocolError("this node holds no state of a round: it was restarted, or it is done")
    values = dict(cast(Mapping[str, Any], context.state[place]))
    if time.time() - values["since"] > LARGEST_SKEW:
        forget(context, place)
        raise ProtocolError("what this node held of a round is too old")
    return values


def forget(context: Context, place: str = _PLACE) -> None:
    """Wipe the round's state."""
    if place in context.state:
        del context.state[place]


def keep(context: Context, memory: Memory) -> None:
    """Put the state of a round of private sums into the node's context."""
    values = {one.name: getattr(memory, one.name) for one in fields(memory)}
    vector = b"" if memory.vector is None else memory.vector.astype("<i8").tobytes()
    store(context, _PLACE, values | {"vector": vector, "sent": memory.vector is None})


def recall(context: Context) -> Memory:
    """Return the state of a round of private sums."""
    values = stored(context, _PLACE)
    del values["since"]
    vector, sent = values.pop("vector"), values.pop("sent")
    numbers = None if sent else np.frombuffer(vector, "<i8").astype(np.int64)
    return Memory(vector=numbers, **values)


def answered(context: Context, asked: bytes) -> bytes:
    """Return the answer to a letter that was the last one answered; empty for any other."""
    if _PLACE not in context.state:
        return b""
    memory = recall(context)
    return memory.answer if memory.asked == asked else b""

"""A verified count with all parties in memory: the executable specification."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.noise import IntVector
from urna.protocols.ballots import helper, leader
from urna.protocols.ballots.codec import CountPlan
from urna.protocols.ballots.messages import (
    Answers,
    Batch,
    Confirmation,
    Message,
    Verdict,
    decode,
    encode,
    open_letter,
    seal_letter,
)
from urna.protocols.ballots.report import (
    BallotClient,
    PublicParameters,
    Report,
    VouchedStatement,
    cast,
)
from urna.protocols.secagg.keys import Directory, Identity, KeyPair
from urna.protocols.secagg.messages import ClientId
from urna.randomness import SEED_BYTES, SecretSource

HELPER_NUMBER = (1 << 32) - 1
"""The helper's number among identities; no client has it."""

Tamper = Callable[[str, ClientId, bytes], list[bytes]]
"""What arrives of a letter: its kind, its sender and its bytes; nothing if it is lost."""

Casting = Callable[[BallotClient, VouchedStatement, SecretSource], Report]

_Kind = TypeVar("_Kind", Batch, Answers, Verdict, Confirmation)


@dataclass(frozen=True, slots=True)
class PlayedCount:
    """How a count went."""

    statement: PublicParameters
    accepted: frozenset[ClientId]
    refused: Mapping[ClientId, str]
    lost: Mapping[ClientId, str]
    leader_share: list[int] = field(repr=False)
    helper_share: list[int] = field(repr=False)
    seconds: Mapping[str, float]
    """CPU time of all clients, of the leader and of the helper."""
    traffic: Mapping[str, int]
    """Bytes of all letters of a kind."""

    def shares(self) -> tuple[list[int], list[int], int]:
        """Return leader's and helper's share of the exact sum, and the modulus."""
        return self.leader_share, self.helper_share, self.statement.plan.codec.modulus


def play(
    ballots: Mapping[ClientId, IntVector],
    plan: CountPlan,
    secrets: SecretSource,
    *,
    number: int = 1,
    casting: Mapping[ClientId, Casting] | None = None,
    tamper: Tamper | None = None,
) -> PlayedCount:
    """Play a count: announce, cast, examine, decide, confirm.

    Args:
        ballots: Every client's levels.
        plan: What is to be done.
        secrets: Where everybody's keys and masks come from.
        number: Of the count.
        casting: What some clients do instead of casting their ballot, for trying things out.
        tamper: What becomes of letters on their way.

    Raises:
        RoundAborted: Too few ballots are valid. Nothing was opened.
        ProtocolError: Leader or helper breaks the protocol. Nothing was opened.
    """
    if len(ballots) != plan.clients or not all(0 <= c < HELPER_NUMBER for c in ballots):
        raise ParameterError(
            f"the plan is for {plan.clients} clients, numbered below {HELPER_NUMBER}; got "
            f"{len(ballots)} ballots"
        )
    desk = _Desk(tamper or (lambda kind, sender, data: [data]))
    keys = {client: Identity.of(client, secrets.take(SEED_BYTES)) for client in ballots}
    directory = Directory({client: identity.public for client, identity in keys.items()})
    identity = Identity.of(HELPER_NUMBER, secrets.take(SEED_BYTES))
    member = helper.HelperMember(identity, directory, plan.least, number - 1)

    prepared = leader.prepare(plan, number=number, secrets=secrets)
    vouched, announcement = helper.vouch(member, prepared.statement, secrets)
    opened = leader.open_count(prepared, announcement, identity.public)
    statement = opened.statement

    there, back = (opened.pair, vouched.pair), (vouched.pair, opened.pair)
    letters = []
    with desk.clock("clients"):
        for client, ballot in sorted(ballots.items()):
            voter = BallotClient(keys[client], identity.public, number - 1)
            if casting is not None and client in casting:
                report = casting[client](voter, announcement, secrets)
            else:
                report = cast(voter, announcement, ballot, secrets)
            letters += [(client, data) for data in desk.post("report", client, report)]
    with desk.clock("leader"):
        collected, batch = leader.collect(opened, letters, directory)
    del letters
    with desk.clock("helper"):
        examined, answers = helper.examine(vouched, desk.pass_on(batch, statement, there))
    with desk.clock("leader"):
        decided, verdict = leader.decide(collected, desk.pass_on(answers, statement, back))
    with desk.clock("helper"):
        confirmed, said = helper.confirm(examined, desk.pass_on(verdict, statement, there))
    with desk.clock("leader"):
        leader.check_confirmation(decided, desk.pass_on(said, statement, back))
    refused = dict(sorted(decided.refused.items()))
    return PlayedCount(
        statement,
        frozenset(decided.accepted),
        refused,
        collected.lost,
        decided.share,
        confirmed.share,
        desk.seconds,
        desk.traffic,
    )


class _Desk:
    """Where letters leave and arrive: encodes, decodes, counts, keeps time."""

    def __init__(self, tamper: Tamper) -> None:
        self._tamper = tamper
        self.seconds = dict.fromkeys(("clients", "leader", "helper"), 0.0)
        self.traffic: dict[str, int] = {}

    @contextmanager
    def clock(self, who: str) -> Iterator[None]:
        """Count CPU time for one party."""
        start = time.process_time()
        yield
        self.seconds[who] += time.process_time() - start

    def post(self, kind: str, sender: ClientId, message: Message) -> list[bytes]:
        """Return what arrives of a letter."""
        data = encode(message)
        self.traffic[kind] = self.traffic.get(kind, 0) + len(data)
        return self._tamper(kind, sender, data)

    def pass_on(
        self, message: _Kind, statement: PublicParameters, pairs: tuple[KeyPair, KeyPair]
    ) -> _Kind:
        """Send a letter between leader and helper; the first that arrives is read.

        `tamper` gets it twice: as its sender writes it, and sealed, as it travels.
        """
        name = type(message).__name__.lower()
        for data in self.post(name, HELPER_NUMBER, message):
            message = self._written(data, message, statement)
        there, back = pairs
        sealed = seal_letter(message, statement, there, back.public)
        arrived = self._tamper(f"sealed {name}", HELPER_NUMBER, sealed)
        if not arrived:
            raise RoundAborted(f"the {name} did not arrive. Nothing was opened")
        return open_letter(arrived[0], type(message), statement, back, there.public)

    @staticmethod
    def _written(data: bytes, message: _Kind, statement: PublicParameters) -> _Kind:
        found = decode(data, statement)
        if not isinstance(found, type(message)):
            raise ProtocolError(f"expected {type(message).__name__}, got {type(found).__name__}")
        return found

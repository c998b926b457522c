"""The helper of a verified count, stage by stage: an organisation of its own.

It trusts the leader with nothing but its half of the shares: signatures, one report per client,
the least number of ballots and every verdict are checked here again. `HelperSession` speaks bytes:
it is what a network wraps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from urna.errors import ProtocolError, Refused
from urna.protocols.ballots.codec import HELPER, Examination
from urna.protocols.ballots.leader import check_enough, judge, query_key
from urna.protocols.ballots.messages import (
    Answers,
    Batch,
    Confirmation,
    Verdict,
    batch_digest,
    encode_announcement,
    open_letter,
    seal_letter,
)
from urna.protocols.ballots.report import (
    PublicParameters,
    VouchedStatement,
    check_signature,
    open_part,
    vouch_for,
)
from urna.protocols.secagg.keys import Directory, Identity, KeyPair
from urna.protocols.secagg.messages import ClientId
from urna.randomness import SecretSource


@dataclass(frozen=True, slots=True)
class HelperMember:
    """What a helper knows before any count.

    Args:
        identity: Its signing key, whose public half clients hold.
        directory: The clients' identity keys.
        least: Fewest valid ballots with which it confirms a count.
        latest: Number of the last count it took part in.
    """

    identity: Identity
    directory: Directory
    least: int
    latest: int = 0


@dataclass(frozen=True, slots=True)
class Vouched:
    """The helper has signed a statement and waits for the batch. It serves one batch only."""

    statement: PublicParameters
    directory: Directory
    pair: KeyPair = field(repr=False)


@dataclass(frozen=True, slots=True)
class Examined:
    """The helper has answered, and waits for the verdict."""

    vouched: Vouched
    batch: bytes
    clients: tuple[ClientId, ...]
    """Those it answered for."""
    examination: Examination = field(repr=False)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The helper accepts the same reports as the leader."""

    examined: Examined
    places: tuple[int, ...] = field(repr=False)
    """Of whom, among those it answered for."""

    @property
    def share(self) -> list[int]:
        """The helper's share of the exact sum, for a computation that hides it."""
        return self.examined.examination.exact_share(self.places)


def vouch(
    member: HelperMember, statement: PublicParameters, secrets: SecretSource
) -> tuple[Vouched, VouchedStatement]:
    """Sign a statement, with a fresh key for this count.

    Raises:
        Refused: The count is not new, or would be opened with fewer ballots than this helper
            allows.
    """
    if statement.number <= member.latest:
        raise Refused(f"count {statement.number} is not new: the last one was {member.latest}")
    if statement.plan.least < member.least:
        raise Refused(
            f"this helper opens nothing with fewer than {member.least} valid ballots; the "
            f"statement allows {statement.plan.least}"
        )
    if statement.helper_key:
        raise ProtocolError("the statement names a helper's key already")
    pair = KeyPair.draw(secrets)
    announcement = vouch_for(statement, pair.public, member.identity)
    return Vouched(announcement.statement, member.directory, pair), announcement


def examine(vouched: Vouched, batch: Batch) -> tuple[Examined, Answers]:
    """Check every report alone; answer the query for those that stand.

    Raises:
        ProtocolError: The batch belongs to another count, lists a client twice, or holds what
            no client signed.
        RoundAborted: Too few reports stand. Nothing was revealed.
    """
    statement, digest = vouched.statement, vouched.statement.digest
    codec = statement.plan.codec
    if batch.digest != digest:
        raise ProtocolError("the batch belongs to another count")
    numbers = [part.client for part in batch.parts]
    if len(set(numbers)) != len(numbers):
        raise ProtocolError("the batch lists a client twice")
    refused: dict[ClientId, str] = {}
    standing, shares = [], []
    for part in batch.parts:
        if part.client not in vouched.directory:
            refused[part.client] = "it is not in the helper's directory"
            continue
        try:
            check_signature(HELPER, part, digest, vouched.directory)
        except ProtocolError as error:  # no client can do this: the leader checks it as well
            raise ProtocolError(f"the leader passed on what is no report: {error}") from error
        try:
            share = open_part(HELPER, part, vouched.pair, digest, codec)
        except ProtocolError as error:
            refused[part.client] = str(error)
            continue
        standing.append(part)
        shares.append(share)
    check_enough(len(standing), statement, refused)
    name = batch_digest(HELPER, digest, batch.parts)
    key = query_key(vouched.pair, statement.leader_key, digest, name)
    examination = codec.examine(HELPER, key, shares)
    state = Examined(vouched, name, tuple(part.client for part in standing), examination)
    return state, Answers(name, refused, tuple(examination.answers))


def confirm(examined: Examined, verdict: Verdict) -> tuple[Confirmed, Confirmation]:
    """Decide again, and confirm the verdict if it is the same.

    Raises:
        ProtocolError: The leader decided otherwise. Nothing was opened.
        RoundAborted: Too few are valid. Nothing was opened.
    """
    if verdict.batch != examined.batch:
        raise ProtocolError("the verdict is about another batch")
    if len(verdict.answers) != len(examined.clients):
        raise ProtocolError(
            f"the leader has {len(verdict.answers)} answers for {len(examined.clients)} reports"
        )
    places = judge(examined.examination, list(range(len(examined.clients))), verdict.answers)
    accepted = tuple(examined.clients[place] for place in places)
    if accepted != verdict.accepted:
        wrong = sorted(set(accepted) ^ set(verdict.accepted))
        raise ProtocolError(f"the leader's verdict on clients {wrong[:10]} is not what follows")
    check_enough(len(accepted), examined.vouched.statement)
    return Confirmed(examined, places), Confirmation(examined.batch)


class HelperSession:
    """Takes the leader's letters in their order, each once, and writes the answers.

    Guarantee:
        No report is answered twice: a letter that comes again, or a second one of its kind, is
        refused, also after one that was refused. A letter out of order changes nothing.

    Args:
        member: Who the helper is and what it insists on.
        secrets: Where its key for this count comes from.
        agree: Looks at the statement before the helper vouches for it, and raises to refuse it:
            the place for a policy.
        enter: Called before a verdict is confirmed, with the statement: the place for a ledger.
    """

    def __init__(
        self,
        member: HelperMember,
        secrets: SecretSource,
        *,
        agree: Callable[[PublicParameters], None] | None = None,
        enter: Callable[[PublicParameters], None] | None = None,
    ) -> None:
        self._member, self._secrets = member, secrets
        self._agree, self._enter = agree, enter
        self._state: Vouched | Examined | Confirmed | None = None
        self._begun = False

    @property
    def share(self) -> list[int]:
        """The helper's share of the exact sum, once all is confirmed."""
        if not isinstance(self._state, Confirmed):
            raise ProtocolError("there is no sum yet")
        return self._state.share

    def vouch(self, statement: bytes) -> bytes:
        """Return the announcement of a statement, signed.

        Raises:
            Refused: The helper does not take part in such a count.
            ProtocolError: This is no statement, or not the first.
        """
        if self._begun:
            raise ProtocolError("the helper has vouched for a statement of this count already")
        self._begun = True
        found = PublicParameters.read(statement)
        if self._agree is not None:
            self._agree(found)
        self._state, announcement = vouch(self._member, found, self._secrets)
        return encode_announcement(announcement)

    def examine(self, letter: bytes) -> bytes:
        """Answer the batch.

        Raises:
            ProtocolError: It is none of the leader's, or not the first.
            RoundAborted: Too few reports stand.
        """
        state = self._state
        if not isinstance(state, Vouched):
            raise ProtocolError("the helper expects no batch now: each is answered once")
        self._state = None  # whatever happens, there is no second answer
        statement = state.statement
        batch = open_letter(letter, Batch, statement, state.pair, statement.leader_key)
        self._state, answers = examine(state, batch)
        return seal_letter(answers, statement, state.pair, statement.leader_key)

    def confirm(self, letter: bytes) -> bytes:
        """Decide again, and confirm the verdict.

        Raises:
            ProtocolError: It is no verdict of the leader's, or does not follow. Nothing was opened.
        """
        state = self._state
        if not isinstance(state, Examined):
            raise ProtocolError("the helper expects no verdict now: each count is confirmed once")
        self._state = None
        statement, pair = state.vouched.statement, state.vouched.pair
        verdict = open_letter(letter, Verdict, statement, pair, statement.leader_key)
        confirmed, confirmation = confirm(state, verdict)
        if self._enter is not None:
            self._enter(statement)
        self._state = confirmed
        return seal_letter(confirmation, statement, pair, statement.leader_key)

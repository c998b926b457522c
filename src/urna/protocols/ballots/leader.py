"""The leader of a verified count, stage by stage: the federation's server.

It announces, collects reports, passes the helper's parts on, decides with the helper which are
valid, and keeps its share of their sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from urna.errors import Exposing, ProtocolError, RoundAborted
from urna.protocols.ballots.codec import HELPER, LEADER, CountPlan, Examination
from urna.protocols.ballots.messages import (
    Answers,
    Batch,
    Confirmation,
    Verdict,
    batch_digest,
    decode,
)
from urna.protocols.ballots.report import (
    PublicParameters,
    Report,
    VouchedStatement,
    check_signature,
    open_part,
)
from urna.protocols.secagg.keys import Directory, KeyPair
from urna.protocols.secagg.messages import ClientId
from urna.randomness import SEED_BYTES, SecretSource


@dataclass(frozen=True, slots=True)
class PreparedCount:
    """The leader has a statement that nobody has vouched for yet."""

    statement: PublicParameters
    pair: KeyPair = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenCount:
    """The count is open: clients may cast ballots."""

    announcement: VouchedStatement
    """What they are shown."""
    pair: KeyPair = field(repr=False)

    @property
    def statement(self) -> PublicParameters:
        """What was announced."""
        return self.announcement.statement


@dataclass(frozen=True, slots=True)
class Collected:
    """The leader holds its shares, and waits for the helper's answers."""

    statement: PublicParameters
    batch: bytes
    clients: tuple[ClientId, ...]
    examination: Examination = field(repr=False)
    refused: Mapping[ClientId, str]
    lost: Mapping[ClientId, str]
    """Of whom nothing arrived that it had signed: it may have been altered on its way."""


@dataclass(frozen=True, slots=True)
class Decided:
    """It is decided who is accepted; the leader waits for the helper to agree."""

    collected: Collected
    accepted: tuple[ClientId, ...]
    places: tuple[int, ...] = field(repr=False)
    refused: Mapping[ClientId, str]
    """Who signed a report that is not in the sum, and why: every one of them is to blame for it,
    unless leader or helper lied, who can refuse anybody."""

    @property
    def share(self) -> list[int]:
        """The leader's share of the exact sum, for a computation that hides it."""
        return self.collected.examination.exact_share(self.places)


def prepare(
    plan: CountPlan, *, number: int, secrets: SecretSource, session: bytes | None = None
) -> PreparedCount:
    """Write the statement of a count, with fresh keys.

    Args:
        plan: What will be done.
        number: Of the count.
        secrets: Where its keys come from.
        session: 32 bytes that no other count has; drawn by default.
    """
    named, pair = session or secrets.take(SEED_BYTES), KeyPair.draw(secrets)
    return PreparedCount(PublicParameters(number, named, plan, pair.public), pair)


def open_count(prepared: PreparedCount, announcement: VouchedStatement, helper: bytes) -> OpenCount:
    """Open the count once the helper has vouched for the statement.

    Raises:
        ProtocolError: It vouched for another one, or is not the helper that is known.
        Exposing: It signed a key on which nothing secret can be agreed.
    """
    announcement.check(helper)
    found = announcement.statement
    if replace(found, helper_key=b"") != prepared.statement:
        raise ProtocolError("the helper vouched for another statement than was asked for")
    try:
        query_key(prepared.pair, found.helper_key, found.digest, b"")
    except ProtocolError as error:
        raise Exposing(f"the helper's key cannot be used: {error}") from error
    return OpenCount(announcement, prepared.pair)


def collect(
    opened: OpenCount, letters: Iterable[tuple[ClientId, bytes]], directory: Directory
) -> tuple[Collected, Batch]:
    """Open the leader's part of each report; pass the helper's parts on.

    A report that came twice is one report. Who signs two different ones is refused. What its
    sender did not sign is no report, and nobody is to blame for it.

    Raises:
        RoundAborted: Fewer reports are left than the statement asks for. Nothing was revealed.
    """
    statement, digest = opened.statement, opened.statement.digest
    codec = statement.plan.codec
    reports: dict[ClientId, Report] = {}
    shares: dict[ClientId, bytes] = {}
    refused: dict[ClientId, str] = {}
    altered: dict[ClientId, str] = {}
    for sender, data in letters:
        try:
            report = _signed_report(data, sender, statement, directory)
        except ProtocolError as error:
            altered[sender] = f"its report arrived altered: {error}"
            continue
        if reports.get(sender) == report or sender in refused:
            continue
        try:
            share = open_part(LEADER, report.part(LEADER), opened.pair, digest, codec)
            if sender in reports:
                raise ProtocolError("signed two different reports")
        except ProtocolError as error:
            reports.pop(sender, None)
            refused[sender] = str(error)
            continue
        reports[sender], shares[sender] = report, share
    lost = {c: why for c, why in sorted(altered.items()) if c not in reports and c not in refused}
    clients = tuple(sorted(reports))
    check_enough(len(clients), statement, refused, lost)
    parts = tuple(reports[client].part(HELPER) for client in clients)
    batch = batch_digest(HELPER, digest, parts)
    key = query_key(opened.pair, statement.helper_key, digest, batch)
    examination = codec.examine(LEADER, key, [shares[client] for client in clients])
    state = Collected(statement, batch, clients, examination, refused, lost)
    return state, Batch(digest, parts)


def decide(collected: Collected, answers: Answers) -> tuple[Decided, Verdict]:
    """Decide which reports are valid, from both parties' answers.

    Raises:
        ProtocolError: The helper answers something else. Nothing was revealed.
        RoundAborted: Too few are valid. Nothing was revealed.
    """
    if answers.batch != collected.batch:
        raise ProtocolError("the helper answered another batch")
    if unknown := answers.refused.keys() - set(collected.clients):
        raise ProtocolError(f"the helper refuses clients {sorted(unknown)}, who are not there")
    kept = [
        place for place, client in enumerate(collected.clients) if client not in answers.refused
    ]
    if len(kept) != len(answers.answers):
        raise ProtocolError(
            f"the helper has {len(answers.answers)} answers for {len(kept)} reports"
        )
    refused = dict(collected.refused)
    refused |= {client: f"the helper refuses it: {why}" for client, why in answers.refused.items()}
    valid = judge(collected.examination, kept, answers.answers)
    accepted = tuple(collected.clients[place] for place in valid)
    refused |= {collected.clients[place]: INVALID for place in sorted(set(kept) - set(valid))}
    check_enough(len(accepted), collected.statement, refused, collected.lost)
    own = collected.examination.answers
    given = tuple(own[place] for place in kept)
    state = Decided(collected, accepted, valid, refused)
    return state, Verdict(collected.batch, given, accepted)


def check_confirmation(decided: Decided, confirmation: Confirmation) -> None:
    """Refuse a confirmation of another batch."""
    if confirmation.batch != decided.collected.batch:
        raise ProtocolError("the helper confirmed another batch")


def judge(examination: Examination, kept: list[int], theirs: tuple[bytes, ...]) -> tuple[int, ...]:
    """Return the places of valid reports among those both parties answered."""
    own = examination.answers
    whole = list(own)  # a report that was refused before is compared with itself, and left out
    for place, answer in zip(kept, theirs, strict=True):
        whole[place] = answer
    valid = examination.decide(whole)
    return tuple(place for place in kept if valid[place])


def query_key(pair: KeyPair, peer: bytes, digest: bytes, batch: bytes) -> bytes:
    """Return what leader and helper draw the query from, and no client knows."""
    return pair.agree(peer, digest, b"urna verified query\0" + batch, SEED_BYTES)


INVALID = "its ballot is not valid: the proof fails"


def _signed_report(
    data: bytes, sender: ClientId, statement: PublicParameters, directory: Directory
) -> Report:
    """Read a report and refuse what its sender has not signed."""
    report = decode(data, statement)
    if not isinstance(report, Report):
        raise ProtocolError(f"it is {type(report).__name__} instead of a report")
    if report.client != sender:
        raise ProtocolError(f"it is in the name of client {report.client}")
    check_signature(LEADER, report.part(LEADER), statement.digest, directory)
    return report


def check_enough(
    count: int,
    statement: PublicParameters,
    refused: Mapping[ClientId, str] | None = None,
    lost: Mapping[ClientId, str] | None = None,
) -> None:
    """Refuse to go on with fewer ballots than the statement asks for."""
    if count < statement.plan.least:
        raise RoundAborted(
            f"{count} valid ballots are left; the statement asks for {statement.plan.least}. "
            "Nothing was opened",
            lost,
            refused,
        )

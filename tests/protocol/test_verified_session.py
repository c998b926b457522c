"""A helper that speaks bytes: every letter once, in order, and nothing twice."""

from dataclasses import dataclass

import numpy as np
import pytest
from verified_play import LEVELS, ballots_for

from urna.errors import ProtocolError, Refused
from urna.protocols.ballots import (
    BallotClient,
    HelperMember,
    HelperSession,
    PublicParameters,
    cast,
    leader,
)
from urna.protocols.ballots.messages import (
    Answers,
    Confirmation,
    decode_announcement,
    encode,
    open_letter,
    seal_letter,
)
from urna.protocols.secagg.keys import Directory, Identity
from urna.randomness import ScriptedSecrets


@dataclass
class Table:
    """A leader and eight clients, and the helper's session."""

    session: HelperSession
    opened: leader.OpenCount
    collected: leader.Collected
    batch: bytes


def member() -> tuple[HelperMember, list[Identity], ScriptedSecrets]:
    secrets = ScriptedSecrets(b"session")
    voters = [Identity.draw(client, secrets) for client in range(LEVELS.clients)]
    directory = Directory({voter.client: voter.public for voter in voters})
    return HelperMember(Identity.draw(99, secrets), directory, 5), voters, secrets


def table(**hooks: object) -> Table:
    helper, voters, secrets = member()
    session = HelperSession(helper, secrets, **hooks)  # type: ignore[arg-type]
    prepared = leader.prepare(LEVELS, number=1, secrets=secrets)
    announcement = decode_announcement(session.vouch(prepared.statement.encode()))
    opened = leader.open_count(prepared, announcement, helper.identity.public)
    letters = []
    for voter in voters:
        me = BallotClient(voter, helper.identity.public)
        report = cast(me, announcement, ballots_for(LEVELS)[voter.client], secrets)
        letters.append((voter.client, encode(report)))
    collected, batch = leader.collect(opened, letters, helper.directory)
    statement = opened.statement
    sealed = seal_letter(batch, statement, opened.pair, statement.helper_key)
    return Table(session, opened, collected, sealed)


def verdict_of(at: Table, answers: bytes) -> tuple[leader.Decided, bytes]:
    statement, pair = at.opened.statement, at.opened.pair
    read = open_letter(answers, Answers, statement, pair, statement.helper_key)
    decided, verdict = leader.decide(at.collected, read)
    return decided, seal_letter(verdict, statement, pair, statement.helper_key)


def test_a_session_counts_and_enters_what_it_confirms_before_it_is_confirmed() -> None:
    entered: list[PublicParameters] = []
    at = table(enter=entered.append)
    decided, verdict = verdict_of(at, at.session.examine(at.batch))
    assert entered == []
    with pytest.raises(ProtocolError, match="no sum yet"):
        _ = at.session.share
    statement, pair = at.opened.statement, at.opened.pair
    letter = at.session.confirm(verdict)
    assert entered == [statement]
    said = open_letter(letter, Confirmation, statement, pair, statement.helper_key)
    leader.check_confirmation(decided, said)
    exact = np.sum(list(ballots_for(LEVELS).values()), axis=0)
    modulus = LEVELS.codec.modulus
    both = [(a + b) % modulus for a, b in zip(decided.share, at.session.share, strict=True)]
    assert both == exact.tolist()


def test_no_letter_is_taken_twice_or_out_of_order() -> None:
    at = table()
    with pytest.raises(ProtocolError, match="vouched"):
        at.session.vouch(at.opened.statement.encode())
    answers = at.session.examine(at.batch)
    with pytest.raises(ProtocolError, match="answered once"):
        at.session.examine(at.batch)
    _, verdict = verdict_of(at, answers)
    at.session.confirm(verdict)
    with pytest.raises(ProtocolError, match="confirmed once"):
        at.session.confirm(verdict)
    assert len(at.session.share) == LEVELS.layout.candidates


def test_a_session_ends_with_a_letter_that_is_refused() -> None:
    at = table()
    with pytest.raises(ProtocolError, match="no batch of the other"):
        at.session.examine(at.batch[:-1] + b"\0")
    with pytest.raises(ProtocolError, match="answered once"):
        at.session.examine(at.batch)


def test_a_verdict_before_a_batch_is_refused() -> None:
    at = table()
    with pytest.raises(ProtocolError, match="no verdict now"):
        at.session.confirm(at.batch)


def test_a_policy_may_refuse_a_statement() -> None:
    def never(statement: PublicParameters) -> None:
        raise Refused(f"{statement.plan.layout.candidates} candidates are too many")

    with pytest.raises(Refused, match="too many"):
        table(agree=never)


def test_a_full_ledger_confirms_nothing() -> None:
    def full(statement: PublicParameters) -> None:
        raise Refused("the ledger is full")

    at = table(enter=full)
    _, verdict = verdict_of(at, at.session.examine(at.batch))
    with pytest.raises(Refused, match="full"):
        at.session.confirm(verdict)
    with pytest.raises(ProtocolError, match="no sum yet"):
        _ = at.session.share

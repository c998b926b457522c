"""A node's part in a verified count: hold the statement against the announcement, cast once.

Nothing is kept between messages: a report leaves with the answer to the letter that began it.
"""

from urna.errors import ProtocolError, Refused
from urna.flower.announcement import Announcement
from urna.flower.policy import Policy
from urna.flower.vote_subject import vote_of
from urna.noise import IntVector
from urna.protocols.ballots import BallotClient, PublicParameters, cast
from urna.protocols.ballots import VouchedStatement as Vouched
from urna.protocols.ballots.messages import decode_announcement, encode
from urna.protocols.secagg import Member
from urna.randomness import SecretSource

__all__ = ["check_statement", "helper_key", "read_vouched", "report_of"]


def check_statement(statement: PublicParameters, announcement: Announcement, number: int) -> None:
    """Refuse a statement that is not the one which follows from what was announced.

    Nothing in it is left to the server but its own key: candidates, levels, the proof, the
    fewest ballots follow from subject and terms, the session from the announcement itself.

    Raises:
        Refused: It is not.
    """
    if (statement.number, statement.session) != (number, announcement.place(number)):
        raise Refused("the statement is one of another announcement")
    if statement.plan != vote_of(announcement).count(announcement.terms):
        raise Refused("the statement says something else than the announcement")


def helper_key(announcement: Announcement, policy: Policy) -> bytes:
    """Return the identity key of the helper announced, from this node's own directory.

    Raises:
        Refused: The node knows no such helper.
    """
    directory, helper = policy.directory_file(), vote_of(announcement).helper
    if directory is None or helper not in directory.keys:
        raise Refused("the helper announced is not in this node's directory")
    return directory.keys[helper]


def read_vouched(data: bytes, announcement: Announcement, number: int, policy: Policy) -> Vouched:
    """Return a statement for which the helper vouched, by the key in this node's own directory.

    Raises:
        Refused: The helper is unknown, or the statement is not what was announced.
        ProtocolError: It is no statement, or not signed by the helper.
    """
    key, vouched = helper_key(announcement, policy), decode_announcement(data)
    check_statement(vouched.statement, announcement, number)
    vouched.check(key)
    return vouched


def report_of(
    vouched: Vouched,
    announcement: Announcement,
    member: Member,
    policy: Policy,
    ballot: IntVector,
    source: SecretSource,
) -> bytes:
    """Return a ballot shared, proven, sealed and signed, as it travels.

    Args:
        vouched: From `read_vouched`.
        announcement: What was announced.
        member: Who this node is.
        policy: Its policy.
        ballot: Levels.
        source: Where seeds and keys come from.
    """
    if member.identity is None:
        raise ProtocolError("a verified ballot is signed, and this node has no key")
    voter = BallotClient(member.identity, helper_key(announcement, policy))
    return encode(cast(voter, vouched, ballot, source))

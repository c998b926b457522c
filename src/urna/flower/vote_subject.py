"""Votes as announced: counts of ballots, or a winner of ballots under masks or verified."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError, ProtocolError, Refused
from urna.flower.announcement import Announcement
from urna.flower.policy import Policy
from urna.flower.subjects import register
from urna.noise import IntVector
from urna.protocols.ballots import CODEC, BallotClient, CountPlan, PublicParameters, cast
from urna.protocols.ballots import VouchedStatement as Vouched
from urna.protocols.ballots.messages import decode_announcement, encode
from urna.protocols.secagg import Member
from urna.protocols.winner import Circuit
from urna.randomness import SecretSource
from urna.space import Space
from urna.systems.vote import COUNTS, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.ballot import Ballot, read_ballot
from urna.tally import SelectionPlan, SharedPlan, TallyPlan, Terms
from urna.tally.selection_plan import circuit_modulo, count_of

KINDS = ("vote", "winner", "verified")
"""Kinds of votes in announcements and policies. Verified ballots ask for more trust than masks:
server and helper together could read every single one, and not only the sum of all."""


@dataclass(frozen=True, slots=True)
class VoteSubject:
    """A vote on the candidates of a space."""

    space: Space
    ballot: Ballot | None = None
    """What is counted; None where only the winner is revealed, whose levels follow from terms."""
    seed: int = 0
    """Public seed of the nodes' local training."""
    reveal: Reveal = COUNTS
    """What is revealed. A helper is one of those who take part."""

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return kind_of(self.reveal)

    @property
    def name(self) -> str | None:
        """What a policy grants by name: the helper it trusts not to collude with the server."""
        return self.reveal.helper

    @property
    def helper(self) -> str:
        """Who helps.

        Raises:
            Refused: Nobody does.
        """
        if self.reveal.helper is None:
            raise Refused("this is no vote of which only the winner is revealed")
        return self.reveal.helper

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return f"{'winner of a ' * self.reveal.winner}vote on {len(self.space)} candidates"

    def vote(self, terms: Terms) -> VotePlan:
        """Return the vote's plan: a helper is one of those who take part and has no ballot."""
        voters = terms.among(terms.clients - 1) if self.reveal.winner else terms
        return plan_vote(voters, self.space, VoteSettings(reveal=self.reveal, ballot=self.ballot))

    def count(self, terms: Terms) -> CountPlan:
        """Return what a valid ballot is, and with how many of them the count goes on.

        Raises:
            Refused: Ballots are not verified.
        """
        if not self.reveal.verified:
            raise Refused("this is no vote whose ballots are verified")
        return count_of(self.vote(terms).selection)

    def circuit(self, terms: Terms) -> Circuit:
        """Return what server and helper compute on shares, modulo a proof's prime if verified."""
        selection = self.vote(terms).selection
        if not self.reveal.verified:
            return selection.circuit
        return circuit_modulo(selection, self.count(terms).codec.modulus)

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        """Return the plan of the sum; a count of ballots that cannot be held has none."""
        if rounds != 1:
            raise ParameterError("a vote has one round; announce another for a second")
        if not self.reveal.winner:
            return self.vote(terms).tally
        self.circuit(terms)
        return SharedPlan.of(terms, self.vote(terms).selection)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        said: dict[str, Any] = {
            "space": self.space.as_mapping(),
            "fingerprint": self.space.fingerprint,
        }
        if self.ballot is not None:
            said["ballot"] = self.ballot.as_mapping()
        if self.reveal.winner:
            said["helper"] = self.reveal.helper
        said["seed"] = self.seed
        if self.reveal.verified:
            said["codec"] = CODEC
        return said

    @classmethod
    def read(cls, mapping: Mapping[str, Any], *, kind: str) -> "VoteSubject":
        """Read what `as_mapping` wrote of a vote of this kind."""
        space = Space.from_mapping(mapping["space"])
        if space.fingerprint != mapping["fingerprint"]:
            raise ProtocolError("the space announced is not the one its fingerprint names")
        seed = int(mapping["seed"])
        if kind == "vote":
            return cls(space, read_ballot(mapping["ballot"], len(space)), seed)
        reveal = Reveal("winner", str(mapping["helper"]), kind == "verified")
        if reveal.verified and mapping["codec"] != CODEC:
            raise ProtocolError(
                f"ballots are proven by {CODEC}, the announcement says {mapping['codec']!r:.50}. "
                "Announce the vote with a server of this version"
            )
        return cls(space, None, seed, reveal)

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many candidates are announced, before any of them is made."""
        space = mapping["space"]
        if "chosen" in space:
            return len(space["chosen"])
        return math.prod(len(axis["values"]) for axis in space["axes"])


for _kind in KINDS:
    register(_kind, functools.partial(VoteSubject.read, kind=_kind), VoteSubject.size)


def kind_of(reveal: Reveal) -> str:
    """Return which kind a vote is that reveals this."""
    return KINDS[reveal.winner + reveal.verified]


def vote_of(announcement: Announcement) -> VoteSubject:
    """Return the vote that is announced."""
    if not isinstance(announcement.subject, VoteSubject):
        raise Refused("this is no vote")
    return announcement.subject


def is_verified(announcement: Announcement) -> bool:
    """Say whether ballots are handed in with proofs, and not summed under masks."""
    return announcement.kind == "verified"


def selection_of(announcement: Announcement) -> SelectionPlan:
    """Return the plan of what is revealed."""
    return vote_of(announcement).vote(announcement.terms).selection


def check_statement(statement: PublicParameters, announcement: Announcement, number: int) -> None:
    """Refuse a statement that is not the one which follows from what was announced.

    Nothing in it is left to the server but its own key: candidates, levels, the proof, the
    fewest ballots follow from subject and terms, the session from the announcement itself.
    """
    if (statement.number, statement.session) != (number, announcement.place(number)):
        raise Refused("the statement is one of another announcement")
    if statement.plan != vote_of(announcement).count(announcement.terms):
        raise Refused("the statement says something else than the announcement")


def helper_key(announcement: Announcement, policy: Policy) -> bytes:
    """Return the identity key of the helper announced, from this node's own directory."""
    directory, helper = policy.directory_file(), vote_of(announcement).helper
    if directory is None or helper not in directory.keys:
        raise Refused("the helper announced is not in this node's directory")
    return directory.keys[helper]


def read_vouched(data: bytes, announcement: Announcement, number: int, policy: Policy) -> Vouched:
    """Return a statement for which the helper vouched, by the key in this node's own directory."""
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

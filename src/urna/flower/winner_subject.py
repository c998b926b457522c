"""Votes of which only the winner is opened, as announced: summed under masks, or verified."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from urna.errors import ProtocolError, Refused
from urna.flower.subjects import VoteSubject, register
from urna.protocols.ballots import CODEC, CountPlan
from urna.protocols.winner import Circuit
from urna.space import Space
from urna.systems.vote import WinnerPlan, plan_winner
from urna.tally import SelectionPlan, SharedPlan, Terms
from urna.tally.verified import circuit_modulo, count_of

if TYPE_CHECKING:
    from urna.flower.announcement import Announcement

__all__ = [
    "VerifiedSubject",
    "WinnerSubject",
    "is_verified",
    "selection_of",
    "subject_of",
    "verified_of",
]


@dataclass(frozen=True, slots=True)
class WinnerSubject:
    """A vote of which only the winner is opened; `helper` is one of those who take part."""

    space: Space
    helper: str
    seed: int = 0
    """Public seed of the nodes' local training."""

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return "winner"

    @property
    def name(self) -> str:
        """What a policy grants by name: the helper it trusts not to collude with the server."""
        return self.helper

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return f"winner of a vote on {len(self.space)} candidates"

    def vote(self, terms: Terms) -> WinnerPlan:
        """Return the vote's plan: one of those who take part is the helper and has no ballot."""
        return plan_winner(terms.among(terms.clients - 1), self.space)

    def circuit(self, terms: Terms) -> Circuit:
        """Return what server and helper compute on their shares."""
        return self.vote(terms).selection.circuit

    def plan(self, terms: Terms, rounds: int) -> SharedPlan:
        """Return the plan of the sum. A vote has one round."""
        if rounds != 1:
            raise ProtocolError("a vote has one round; announce another for a second")
        return SharedPlan.of(terms, self.vote(terms).selection)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {
            "space": self.space.as_mapping(),
            "fingerprint": self.space.fingerprint,
            "helper": self.helper,
            "seed": self.seed,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> Self:
        """Read what `as_mapping` wrote."""
        space = Space.from_mapping(mapping["space"])
        if space.fingerprint != mapping["fingerprint"]:
            raise ProtocolError("the space announced is not the one its fingerprint names")
        return cls(space, str(mapping["helper"]), int(mapping["seed"]))


@dataclass(frozen=True, slots=True)
class VerifiedSubject(WinnerSubject):
    """The same of verified ballots: each is handed in with a proof, and nothing is masked.

    A kind of its own, because it asks for more trust: server and helper together could read
    every single ballot, and not only the sum of all.
    """

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return "verified"

    def count(self, terms: Terms) -> CountPlan:
        """Return what a valid ballot is, and with how many of them the count goes on."""
        return count_of(self.vote(terms).selection)

    def circuit(self, terms: Terms) -> Circuit:
        """Return what server and helper compute on their shares, modulo the proof's prime."""
        modulus = self.count(terms).codec.modulus
        return circuit_modulo(self.vote(terms).selection, modulus)

    def plan(self, terms: Terms, rounds: int) -> SharedPlan:
        """Return the plan of what is released. A count that cannot be held has none."""
        self.circuit(terms)
        # Not `super()`: it would name the class as it was before it had slots.
        return WinnerSubject.plan(self, terms, rounds)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {**WinnerSubject.as_mapping(self), "codec": CODEC}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> Self:
        """Read what `as_mapping` wrote."""
        if mapping["codec"] != CODEC:
            raise ProtocolError(
                f"ballots are proven by {CODEC}, the announcement says {mapping['codec']!r:.50}. "
                "Announce the vote with a server of this version"
            )
        plain = WinnerSubject.read(mapping)
        return cls(plain.space, plain.helper, plain.seed)


register("winner", WinnerSubject.read, VoteSubject.size)
register("verified", VerifiedSubject.read, VoteSubject.size)


def subject_of(announcement: "Announcement") -> WinnerSubject:
    """Return the vote that is announced, if only its winner is opened."""
    subject = announcement.subject
    if not isinstance(subject, WinnerSubject):
        raise Refused("this is no vote of which only the winner is opened")
    return subject


def is_verified(announcement: "Announcement") -> bool:
    """Say whether ballots are handed in with proofs, and not summed under masks."""
    return isinstance(announcement.subject, VerifiedSubject)


def verified_of(announcement: "Announcement") -> VerifiedSubject:
    """Return the vote that is announced, if its ballots are verified."""
    subject = announcement.subject
    if not isinstance(subject, VerifiedSubject):
        raise Refused("this is no vote whose ballots are verified")
    return subject


def selection_of(announcement: "Announcement") -> SelectionPlan:
    """Return the plan of what is opened."""
    return subject_of(announcement).vote(announcement.terms).selection

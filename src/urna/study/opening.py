"""What the vote of a study opens, its tally or its winner alone, and what depends on that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError
from urna.privacy import Budget, Ledger, Release, parts_of, pure_first
from urna.space import Space
from urna.systems.vote import (
    Ballot,
    BallotKind,
    Result,
    VotePlan,
    WinnerPlan,
    WinnerResult,
    plan_vote,
    plan_winner,
)
from urna.systems.vote.selecting import check_opening
from urna.systems.vote.winner import WINNER
from urna.tally import HelperSelection, Selection, Terms

__all__ = [
    "TALLY",
    "Opening",
    "Vote",
    "Voting",
    "check_same",
    "event_of",
    "read_vote",
    "said_of",
]

Vote = Result | WinnerResult
"""The result of a vote, whatever was opened of it."""

Voting = VotePlan | WinnerPlan
"""The plan of a vote, whatever will be opened of it."""

_OF_A_TALLY: tuple[str, ...] = ("budget", "contribution", "noise_variance_per_client", "scale")
_OF_A_WINNER = ("selection", "levels")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a vote opens.

    Args:
        helper: Who helps to open the winner alone; None where the tally is opened.
        selection: How winners are found in one process; shares by SecAgg+ by default.
    """

    helper: str | None = None
    selection: Selection | None = None

    @classmethod
    def of(
        cls, opens: str, helper: str | None, selection: Selection | None, *of_tallies: object
    ) -> "Opening":
        """Return what is to be opened, as it is asked for in words; see `urna.search`.

        Raises:
            ParameterError: A helper is missing or has nothing to do, or something is asked for
                (`of_tallies`) that only a tally has.
        """
        check_opening(opens, helper, selection, *of_tallies)
        return cls(helper, selection)

    @property
    def winner(self) -> bool:
        """Whether only the winner is opened."""
        return self.helper is not None

    @property
    def finds(self) -> Selection:
        """What finds the winner, all parties played in this process.

        Raises:
            ParameterError: The tally is opened.
        """
        if self.helper is None:
            raise ParameterError("nobody helps: the tally is opened")
        return self.selection or HelperSelection(self.helper)

    def divide(self, budget: Budget, part: float) -> tuple[Budget, Budget]:
        """Divide a budget between the vote, with this part of μ², and what follows it.

        Guarantee:
            Both fit into one ledger whose cap is the budget, the vote entered first: squares of
            μ add up; a winner counts by its epsilon, and what follows by the rest.
        """
        if self.winner:
            return pure_first(budget, part)
        voting, rest = parts_of(budget, (part, 1 - part))
        return voting, rest

    def plan(
        self,
        terms: Terms,
        space: Space,
        *,
        ballot: Ballot | BallotKind | str | None = None,
        votes: int | None = None,
        removes_excess: bool = True,
    ) -> Voting:
        """Plan the vote; what is said of ballots and of excess noise is a tally's."""
        if self.winner:
            return plan_winner(terms, space)
        return plan_vote(
            terms, len(space), ballot=ballot, votes=votes, removes_excess=removes_excess
        )


TALLY = Opening()
"""The noisy tally, from which everybody reads the winner."""


def event_of(voting: Voting) -> Release | None:
    """Return what a vote is in a ledger; None where it is exact."""
    return voting.release if isinstance(voting, WinnerPlan) else voting.tally.event


def read_vote(mapping: Mapping[str, Any]) -> Vote:
    """Read the result of a vote, whatever was opened of it."""
    return (WinnerResult if mapping.get("kind") == WINNER else Result).read(mapping)


def said_of(vote: Vote) -> tuple[str, ...]:
    """Return what a statement about a vote and more must say of the vote itself.

    Why it is not private, where it is not; and on whom a winner rests.
    """
    if isinstance(vote, WinnerResult):
        return vote.privacy.caveats
    return () if vote.privacy.private else vote.privacy.caveats[:1]


def check_same(vote: Vote, voting: Voting, space: Space, ledger: Ledger | None) -> None:
    """Refuse a vote that is not the one that this plan would hold.

    Raises:
        ParameterError: It is another one, or is counted elsewhere.
    """
    winner = isinstance(voting, WinnerPlan)
    asked = voting.as_mapping() if isinstance(voting, WinnerPlan) else voting.tally.as_mapping()
    names = _OF_A_WINNER if winner else _OF_A_TALLY
    same = (
        isinstance(vote, WinnerResult) is winner
        and vote.terms == voting.terms
        and vote.space.fingerprint == space.fingerprint
        and all(vote.plan.get(name) == asked[name] for name in names)
    )
    if not same:
        raise ParameterError(
            "the vote that was held is another one: its budget, delta, plan or candidates are not "
            "those of this division. Go on with the same, or begin anew in another folder."
        )
    if ledger is not None and all(entry.id != vote.entry for entry in ledger.entries()):
        raise ParameterError(
            f"the vote that was held is not counted in {ledger.path}: go on with its ledger"
        )

"""What a vote may reveal, and what it has revealed. All rules of what goes with what are here."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.privacy import Budget, parts_of, pure_first
from urna.protocols.secagg import ServerModel
from urna.tally import HelperSelection, Selection, Terms, VerifiedSelection

__all__ = ["COUNTS", "Reveal", "Revealed"]

_KINDS = ("counts", "winner")


@dataclass(frozen=True, slots=True)
class Reveal:
    """What a vote is to reveal, and whom that rests on.

    Args:
        kind: `counts`, noisy votes for each candidate, of which everybody reads the winner and
            its rivals; or `winner`, the winner alone, which needs far less noise, and a helper.
        helper: Where only the winner is revealed: who holds the other share of the sum, and is
            trusted not to collude with whoever leads.
        verified: Whether leader and helper check every ballot; an invalid one is refused, and its
            client named.

    Raises:
        ParameterError: The parts do not go with each other; it says what to leave out, or what
            is missing.
    """

    kind: str = "counts"
    helper: str | None = None
    verified: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UnknownName("thing to reveal", str(self.kind), _KINDS)
        if not self.winner:
            if self.helper is not None or self.verified:
                raise ParameterError(
                    "a helper only helps to reveal the winner, and to verify its ballots: reveal "
                    "the winner alone (--opens winner), or leave the helper out"
                )
            return
        if self.helper is None:
            raise ParameterError(
                "revealing only the winner takes a helper, an organisation that does not collude "
                "with the leader: name it (`helper=`, --helper)"
            )
        if (
            not isinstance(self.helper, str)
            or not self.helper.strip()
            or not self.helper.isprintable()
        ):
            raise ParameterError(
                f"a helper's name is text that can be printed, got {self.helper!r}"
            )

    @property
    def winner(self) -> bool:
        """Whether only the winner is revealed."""
        return self.kind == "winner"

    def check(self, terms: Terms | None = None, **of_counts: object) -> None:
        """Refuse what does not go with what is revealed.

        Args:
            terms: Who takes part, what it may cost, and what may go wrong, once that is known.
            of_counts: What is asked for that only counts have, each by its name; None where not.

        Raises:
            ParameterError: It says what to leave out.
        """
        asked = [f"`{name}`" for name, value in of_counts.items() if value is not None]
        if self.winner and asked:
            raise ParameterError(
                "where only the winner is revealed, ballots are levels and there are no counts: "
                f"leave {' and '.join(asked)} out"
            )
        if self.verified and terms is not None and terms.server is ServerModel.DISHONEST:
            raise ParameterError(
                "verified ballots are not summed under masks, so nothing is planned against a "
                "dishonest server: leave `server` (--server) out"
            )

    def selection(self, chosen: Selection | None = None) -> Selection:
        """Return what finds the winner where all parties are played in this process.

        Args:
            chosen: Finds it instead, with the same helper.

        Raises:
            ParameterError: Counts are revealed, or another helper is named.
        """
        if self.helper is None:
            raise ParameterError("nobody helps where counts are revealed: leave `selection` out")
        if chosen is None:
            return VerifiedSelection(self.helper) if self.verified else HelperSelection(self.helper)
        if chosen.helper != self.helper:
            raise ParameterError(
                f"the helper is {self.helper}, and the selection names {chosen.helper}: name one"
            )
        return chosen

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


COUNTS = Reveal()
"""Noisy votes for each candidate, of which everybody reads the winner."""


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a vote has revealed beside its winner, and whom that rested on.

    Raises:
        ParameterError: No vote reveals this.
    """

    counts: npt.NDArray[np.float64] | None = None
    """Noisy votes for each candidate; None where nobody has seen any."""
    gap: float | None = None
    """Fewest votes the winner would have to lose to be overtaken, noise included, where a full
    ballot gives three; None where it was not revealed."""
    by: Reveal = COUNTS
    """What was to be revealed, and who helped."""

    def __post_init__(self) -> None:
        if (self.counts is None) is not self.by.winner or (
            self.gap is not None and not self.by.winner
        ):
            raise ParameterError("a vote reveals counts, or its winner and perhaps the gap to it")

    @property
    def kind(self) -> str:
        """`counts`, or `winner` where nothing else is known."""
        return self.by.kind

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": self.kind,
            "counts": None if self.counts is None else self.counts.tolist(),
            "gap": self.gap,
            "helper": self.by.helper,
            "verified": self.by.verified,
        }

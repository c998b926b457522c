"""A vote that was held, and what follows it: that it is the same, and what is said of it."""

from collections.abc import Callable
from dataclasses import dataclass

from urna.errors import ParameterError
from urna.privacy import Ledger
from urna.progress import Steps
from urna.space import Space
from urna.systems.vote import VotePlan, VoteResult

__all__ = ["Held", "check_same", "said_of"]

_SAME = ("budget", "contribution", "noise_variance_per_client", "scale", "selection", "levels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A vote that something follows: where it was held before, and what becomes of it.

    Args:
        vote: Its result, where it was held before under the same plan: it is not held again.
        entry: Its id in the ledger; see `Run`.
        keep: Called with its result as soon as there is one, and again once the winner is
            weighed: its part of the budget is spent by then, and nothing that follows is there.
        progress: Called while it is held.
    """

    vote: VoteResult | None = None
    entry: str | None = None
    keep: Callable[[VoteResult], None] | None = None
    progress: Steps | None = None


def said_of(vote: VoteResult) -> tuple[str, ...]:
    """Return what a statement about a vote and more must say of the vote itself.

    Why it is not private, where it is not; and on whom a winner rests.
    """
    if vote.revealed.counts is None:
        return vote.privacy.caveats
    return () if vote.privacy.private else vote.privacy.caveats[:1]


def check_same(vote: VoteResult, plan: VotePlan, space: Space, ledger: Ledger | None) -> None:
    """Refuse a vote that is not the one that this plan would hold.

    Raises:
        ParameterError: It is another one, or is counted elsewhere.
    """
    asked = plan.as_mapping()
    same = (
        vote.revealed.kind == plan.reveal.kind
        and vote.terms == plan.terms
        and vote.space.fingerprint == space.fingerprint
        and all(vote.plan.get(name) == asked.get(name) for name in _SAME)
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

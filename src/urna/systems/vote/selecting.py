"""Votes of which only the winner is opened: what goes with them, and how one is held."""

from collections.abc import Callable, Mapping

from urna.errors import ParameterError, UnknownName
from urna.files import today
from urna.noise import IntVector
from urna.privacy import Ledger, PrivacyStatement, Unit
from urna.randomness import SecretSource
from urna.space import Space
from urna.systems.vote.winner import WinnerPlan, WinnerResult
from urna.tally import Selected, Selection, Terms, open_selection

__all__ = ["check_opening", "hold_winner", "label_of", "winner_result"]


def check_opening(
    opens: str, helper: str | None, selection: Selection | None, *of_tallies: object
) -> None:
    """Refuse what does not go with what is opened; `of_tallies` is what only a tally has.

    Raises:
        ParameterError: It says what to leave out, or what is missing.
    """
    if opens == "winner":
        if any(given is not None for given in of_tallies):
            raise ParameterError(
                "where only the winner is opened, ballots are levels and there is no tally: leave "
                "`ballot`, `votes`, `summation`, `decoder` and `rehearsal` out"
            )
        if helper is None:
            raise ParameterError(
                "opening only the winner takes a helper, an organisation that does not collude "
                "with the leader: name it (`helper=`, --helper)"
            )
        if not isinstance(helper, str) or not helper.strip() or not helper.isprintable():
            raise ParameterError(f"a helper's name is text that can be printed, got {helper!r}")
    elif opens != "tally":
        raise UnknownName("opening", str(opens), ("tally", "winner"))
    elif helper is not None or selection is not None:
        raise ParameterError("a helper only helps to open the winner: ask for opens='winner'")
    if selection is not None and selection.helper != helper:
        raise ParameterError(
            f"the helper is {helper}, and the selection names {selection.helper}: name one"
        )


def hold_winner(
    space: Space,
    vote: WinnerPlan,
    selection: Selection,
    ballots: Mapping[int, IntVector],
    ledger: Ledger | None,
    secrets: SecretSource,
    entry: str | None,
    keep: Callable[[WinnerResult], None] | None = None,
) -> WinnerResult:
    """Open the winner of ballots that are filled: counted before it happens, then kept."""
    results: list[WinnerResult] = []

    def take(found: Selected, privacy: PrivacyStatement, counted: str | None) -> None:
        results.append(winner_result(space, vote, selection.helper, found, privacy, counted))
        if keep is not None:
            keep(results[0])

    open_selection(
        vote.selection,
        lambda started: selection.select(ballots, vote.selection, secrets, started),
        label=f"winner of a {label_of(space, vote.terms)}",
        described=selection.describe(vote.terms),
        ledger=ledger,
        private=secrets.private,
        id=entry,
        keep=take,
    )
    return results[0]


def winner_result(
    space: Space,
    vote: WinnerPlan,
    helper: str,
    found: Selected,
    privacy: PrivacyStatement,
    entry: str | None,
) -> WinnerResult:
    """Return what a selection says about the candidates."""
    return WinnerResult(
        space=space,
        winner=found.winner,
        gap=found.gap,
        privacy=privacy,
        terms=vote.terms,
        ballot=vote.shape,
        helper=helper,
        verified=found.verified,
        took_part=len(found.accepted),
        lost=found.lost,
        faults=found.faults,
        plan=vote.as_mapping(),
        entry=entry,
        when=today() if privacy.private else None,
    )


def label_of(space: Space, terms: Terms) -> str:
    """Return what a ledger calls a vote."""
    shards = f", {terms.shards} shards" if terms.adjacency.unit is Unit.RECORD else ""
    return f"vote on {len(space)} candidates{shards}"

"""The page about a vote of which only the winner was opened."""

import datetime

from urna.report.sections import electorate, privacy
from urna.report.shell import document, facts, notes, section
from urna.vote import WinnerResult

__all__ = ["winner_page"]


def winner_page(result: WinnerResult, *, title: str) -> str:
    """Return the page about a winner. It shows what was opened and public facts."""
    gap: tuple[str, ...] = ()
    if result.gap is not None:
        gap = (
            f"It would have to lose {result.gap:g} votes to be overtaken by the runner-up, noise "
            f"included. Each candidate's noise has a deviation of {result.noise_std:.1f} votes; a "
            f"ballot gives 0 to {result.ballot.levels}.",
        )
    body = [
        section(
            "Winner",
            facts("best", {name: f"{value}" for name, value in result.best.items()}),
            notes(
                *gap,
                f"This rests on the leader and {result.helper} not colluding. Nobody, neither of "
                "the two included, has seen a tally; together they could read the exact sum of all "
                "ballots.",
            ),
        ),
        section(
            "Who could learn what",
            notes(
                f"The leader alone, or {result.helper} alone: the winner"
                + (" and its gap" if gap else "")
                + ", and random shares of the sum.",
                f"The leader and {result.helper} together: the exact sum of all ballots, without "
                "noise; not a single ballot.",
                "By cheating: either can make another candidate win. A helper that garbles "
                "another function can put some bits of the exact sum into the result; a leader "
                "that shifts its share can learn one comparison. The promise is for parties that "
                "follow the protocol and are curious.",
                "Clients: the winner. A client that lies about its ballot can move the outcome, as "
                "in any vote of secret ballots that nobody checks.",
            ),
        ),
        privacy(result.privacy, result.terms, "geometric, from the coins of leader and helper"),
        electorate(
            result.terms,
            result.took_part,
            result.lost,
            result.faults,
            {
                "candidates": f"{len(result.space)}",
                "ballots": str(result.ballot),
                "helper": result.helper,
            },
        ),
    ]
    held = ""
    if result.when is not None:
        held = f"{datetime.datetime.fromtimestamp(result.when, datetime.UTC):%Y-%m-%d %H:%M} UTC. "
    footer = (
        f"{held}Everything on this page was computed from what was opened and public facts. "
        f"Candidates: {result.space.fingerprint}."
    )
    heading = "The winner is known"
    return document(title, heading, "".join(body), footer, private=result.privacy.private)

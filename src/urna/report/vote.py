"""The page about a vote: who won, how surely, and what it cost."""

import datetime
from html import escape

from urna.report.charts import bars
from urna.report.sections import electorate, privacy
from urna.report.shell import document, facts, notes, section
from urna.space import Candidate
from urna.vote import Result, describe_ballot

__all__ = ["vote_page"]

_SHOWN = 12
_NEAR = 6


def vote_page(result: Result, *, title: str) -> str:
    """Return the page about a vote. It shows nothing but the noisy tally and public facts."""
    body = [
        section(
            "Winner",
            facts("best", {name: f"{value}" for name, value in result.best.items()}),
            notes(
                f"{result.votes[result.winner]:.1f} noisy votes, each count ± "
                f"{result.standard_error:.1f}: {result.certainty}."
            ),
            _near_ties(result),
        ),
        section("Noisy votes", _votes(result)),
        privacy(result.privacy, result.terms),
        electorate(
            result.terms,
            result.took_part,
            result.lost,
            result.faults,
            {"candidates": f"{len(result.space)}", "ballots": describe_ballot(result.ballot)},
        ),
    ]
    held = ""
    if result.when is not None:
        held = f"{datetime.datetime.fromtimestamp(result.when, datetime.UTC):%Y-%m-%d %H:%M} UTC. "
    footer = (
        f"{held}Everything on this page was computed from the noisy tally and "
        f"public facts. Candidates: {result.space.fingerprint}."
    )
    return document(title, "The vote is in", "".join(body), footer, private=result.privacy.private)


def _votes(result: Result) -> str:
    order = result.places(_SHOWN)
    chart = bars(
        [(_name(result.space[place]), float(result.votes[place])) for place in order],
        error=result.standard_error,
        marked=order.index(result.winner),
        caption="Noisy votes of the leading candidates",
    )
    hidden = len(result.space) - len(order)
    more = f" {hidden} more candidates are not shown." if hidden else ""
    return chart + notes(
        f"Bars end at the noisy count, whiskers show one standard deviation of the noise.{more}"
    )


def _near_ties(result: Result) -> str:
    if not result.near_ties:
        return ""
    shown = [_name(result.space[place]) for place in result.near_ties[:_NEAR]]
    more = len(result.near_ties) - len(shown)
    listed = "".join(f"<li>{escape(name)}</li>" for name in shown)
    rest = f"<li>and {more} more</li>" if more else ""
    return (
        notes(
            "With the winner, these hold the true leader with a probability of about 90 %. You may "
            "choose among them at no cost if your choice uses no private data:"
        )
        + f"<ul>{listed}{rest}</ul>"
    )


def _name(candidate: Candidate) -> str:
    return ", ".join(f"{name} {value}" for name, value in candidate.items())

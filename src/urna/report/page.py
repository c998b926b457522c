"""One HTML page about a private search: who won, how surely, and what it cost.

The page stands alone: no script, no font, no picture from elsewhere. It shows nothing that is
not computed from the noisy tally and public facts.
"""

from html import escape

import numpy as np

from urna.report.charts import bars
from urna.space import Candidate
from urna.vote import Result, describe_ballot

__all__ = ["page"]

_SHOWN = 12
_NEAR = 6

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6678; --line: #d9dee7;
  --paper: #ffffff; --ground: #f4f6f9; --bar: #9db4d6; --chosen: #1f5fbf; --warn: #a33b20; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --soft: #9aa6b8; --line: #333c4a;
  --paper: #1b212b; --ground: #12161d; --bar: #4a607f; --chosen: #6ea8ff; --warn: #ff9b7d; } }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 820px; margin: 0 auto; padding: 40px 20px 60px; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 12px; }
.under { color: var(--soft); margin: 4px 0 28px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 22px 26px; margin: 0 0 18px; }
.best { display: flex; flex-wrap: wrap; gap: 10px 34px; margin: 0; }
.best dt, .facts dt { color: var(--soft); font-size: .85rem; }
.best dd { margin: 0; font-size: 1.6rem; font-weight: 650; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr));
  gap: 12px 24px; margin: 0; }
.facts dd { margin: 0; } .note { color: var(--soft); font-size: .92rem; margin: 14px 0 0; }
.warn { color: var(--warn); font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12.5px system-ui, sans-serif; fill: var(--ink); }
svg .label { text-anchor: end; } svg .value { text-anchor: end; fill: var(--soft); }
svg .bar { fill: var(--bar); } svg .bar.chosen { fill: var(--chosen); }
svg .label.chosen { font-weight: 650; } svg .zero { stroke: var(--line); }
svg .error { stroke: var(--ink); stroke-width: 1.1; fill: none; opacity: .7; }
footer { color: var(--soft); font-size: .82rem; overflow-wrap: anywhere; }
"""


def page(result: Result, *, title: str) -> str:
    """Return the page as HTML text."""
    privacy = result.privacy
    warning = "" if privacy.private else '<p class="warn">This run was not private.</p>'
    body = [
        f"<h1>The vote is in</h1><p class='under'>{escape(title)}</p>",
        _section(
            "Winner",
            _list("best", {name: f"{value}" for name, value in result.best.items()}),
            f"<p class='note'>{result.votes[result.winner]:.1f} noisy votes, each count "
            f"± {result.standard_error:.1f}. Given this tally, the winner truly leads with "
            f"probability {np.floor(1000 * result.confidence) / 10:.1f} %.</p>",
            _near_ties(result),
        ),
        _section("Noisy votes", _votes(result)),
        _section("What it cost", warning, _cost(result)),
        _section("Who took part", _electorate(result)),
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        + "".join(body)
        + "<footer>Everything on this page was computed from the noisy tally and public facts. "
        f"Candidates: {result.space.fingerprint}.</footer></main></body></html>\n"
    )


def _section(heading: str, *parts: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def _list(kind: str, facts: dict[str, str]) -> str:
    entries = (f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="{kind}">{"".join(entries)}</dl>'


def _votes(result: Result) -> str:
    order = np.argsort(-result.votes, kind="stable")[:_SHOWN].tolist()
    if result.winner not in order:
        order[-1] = result.winner
    rows = [(_name(result.space[place]), float(result.votes[place])) for place in order]
    chart = bars(
        rows,
        error=result.standard_error,
        marked=order.index(result.winner),
        caption="Noisy votes of the leading candidates",
    )
    hidden = len(result.space) - len(order)
    more = f" {hidden} more candidates are not shown." if hidden else ""
    return (
        f"{chart}<p class='note'>Bars end at the noisy count, whiskers show one standard "
        f"deviation of the noise.{more}</p>"
    )


def _near_ties(result: Result) -> str:
    if not result.near_ties:
        return ""
    shown = [_name(result.space[place]) for place in result.near_ties[:_NEAR]]
    more = len(result.near_ties) - len(shown)
    listed = "".join(f"<li>{escape(name)}</li>" for name in shown)
    rest = f"<li>and {more} more</li>" if more else ""
    return (
        "<p class='note'>With the winner, these hold the true leader with a probability of about "
        f"90 %; you may choose among them at no cost:</p><ul>{listed}{rest}</ul>"
    )


def _name(candidate: Candidate) -> str:
    return ", ".join(f"{name} {value}" for name, value in candidate.items())


def _cost(result: Result) -> str:
    privacy = result.privacy
    facts = {
        "epsilon": f"{privacy.epsilon:.4g}" if privacy.private else "infinite",
        "delta": f"{privacy.delta:g}",
        "neighbouring relation": str(privacy.adjacency),
        "protected": f"a {privacy.adjacency.unit}: {privacy.adjacency.described}",
        "accountant": privacy.accountant,
        "noise": f"{result.plan.tally.noise.name}, made by the clients",
    }
    said = "".join(f"<p class='note'>{escape(caveat)}.</p>" for caveat in privacy.caveats)
    return _list("facts", facts) + said


def _electorate(result: Result) -> str:
    tally = result.plan.tally
    facts = {
        "invited": f"{tally.clients} clients",
        "in the sum": f"{result.took_part}",
        "candidates": f"{tally.dimension}",
        "ballots": describe_ballot(tally.shape),
        **({"ballots of each client": f"{tally.shards}"} if tally.shards > 1 else {}),
        "may drop out": f"{100 * float(tally.dropout):g} %",
        "may collude": f"{100 * float(tally.colluding):g} %",
    }
    lost = "".join(
        f"<p class='note'>Client {client}: {escape(reason)}.</p>"
        for client, reason in list(result.lost.items())[:_SHOWN]
    )
    return _list("facts", facts) + lost

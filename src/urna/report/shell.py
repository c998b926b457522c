"""The shell every page shares: one HTML file, no script, no font, no picture from elsewhere."""

from collections.abc import Mapping
from html import escape

__all__ = ["document", "facts", "notes", "section"]

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


def document(title: str, heading: str, body: str, footer: str, *, private: bool) -> str:
    """Return a whole page as HTML text."""
    warning = (
        "" if private else "<p class='warn'>NOT PRIVATE: nothing on this page is protected.</p>"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"{warning}<h1>{escape(heading)}</h1><p class='under'>{escape(title)}</p>"
        f"{body}<footer>{footer}</footer></main></body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """Return one section of a page."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def facts(kind: str, said: Mapping[str, str]) -> str:
    """Return a list of names and values."""
    entries = (f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in said.items())
    return f'<dl class="{kind}">{"".join(entries)}</dl>'


def notes(*said: str) -> str:
    """Return sentences in small print."""
    return "".join(f"<p class='note'>{escape(sentence)}</p>" for sentence in said)

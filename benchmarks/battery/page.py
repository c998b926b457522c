"""Write the battery's figures as a page of the documentation.

python benchmarks/battery/run.py --format json > FILE
python benchmarks/battery/page.py FILE > docs/results/battery.md
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["page"]

RATIOS = {0.1: 0.55, 0.25: 0.35}
"""Largest regret of the default over the paper's, by epsilon."""
HELD = 0.87, 0.97
"""How often sets of 90 % are to hold the leader, by kind of space."""
_INTRO = """\
# The default vote where nobody tuned it

24 spaces of other models and data than the evaluation's, each with clients' rows dealt evenly
(`iid`) and with skewed labels (Dirichlet 0.5), recorded by `benchmarks/battery/record.py` and
voted on by `benchmarks/battery/run.py`: 100 clients (25 recorded ones count four times) or 20, δ =
10⁻⁵, neighbours differ in one client's ballot. Regret is in points of accuracy or R², of the
winner against the best candidate. "Paper" is DP-Hype's mechanism with its own noise: five equal
votes, argmax. "Renamed" is the default on axes whose names say nothing; "top-5" five equal votes
read by our decoder; "public" takes the best candidate of other, public data of the same kind and
holds no vote at all.

Rules of the default were chosen on landscapes, and what it knows of names on drawn tables
(`benchmarks/battery/drawn.py`). Probabilities were calibrated on landscapes, drawn tables and the
evaluation's recordings, sets on landscapes and recordings, these among them.
"""


def page(found: dict[str, Any]) -> Iterator[str]:
    """Yield the page's lines."""
    cells, summary, methods = found["cells"], found["summary"], list(found["methods"])
    rows = summary["by_epsilon"]
    yield _INTRO
    yield "## On average\n"
    yield f"| clients, ε | {' | '.join(methods)} | default over paper | won, lost of cells |"
    yield "|---|" + "---|" * (len(methods) + 2)
    for row in rows:
        figures = " | ".join(f"{row['regret'][m]:.1f}" for m in methods)
        yield (
            f"| {_vote(row)} | {figures} | {row['ratio']:.2f} ± {row['ratio_error']:.2f} | "
            f"{row['won']}, {row['lost']} of {row['cells']} |"
        )
    yield "\nWinners within one point of the best, in per cent:\n"
    yield f"| clients, ε | {' | '.join(methods)} |"
    yield "|---|" + "---|" * len(methods)
    for row in rows:
        near = " | ".join(f"{row['near'][m]:.0%}" for m in methods)
        yield f"| {_vote(row)} | {near} |"
    yield from _wanted(rows, summary)
    yield "\n## What is said, and what is true\n"
    yield "Stated probability that the winner has the most true votes, in ten bins:\n"
    yield "| clients | from | votes | said | true |\n|---|---|---|---|---|"
    for row in summary["reliability"]:
        if row["votes"]:
            said = f"{row['said']:.2f} | {row['true']:.2f}"
            yield f"| {row['clients']} | {row['from']:.1f} | {row['votes']} | {said} |"
    yield "\nSets of 90 %: how often one was given and held the leader, and what part it named:\n"
    yield "| clients | kind | given | held | worst cell | named |\n|---|---|---|---|---|---|"
    for row in summary["sets"]:
        shown = (row["told"], row["covered"], row["least_covered"], row["named"])
        shares = " | ".join("–" if share is None else f"{share:.0%}" for share in shown)
        yield f"| {row['clients']} | {row['kind']} | {shares} |"
    yield "\n## Cell by cell\n"
    yield "Regret, and what the default gains on the paper (± one standard error over votes).\n"
    yield f"| space | clients, ε | {' | '.join(methods)} | gain |"
    yield "|---|---|" + "---|" * (len(methods) + 1)
    for cell in cells:
        figures = " | ".join(f"{cell['regret'][m]:.1f}" for m in methods)
        gain = cell["regret"]["paper"] - cell["regret"]["default"]
        error = (cell["error"]["paper"] ** 2 + cell["error"]["default"] ** 2) ** 0.5
        yield f"| {cell['table']} | {_vote(cell)} | {figures} | {gain:+.1f} ± {error:.1f} |"


def _wanted(rows: list[dict[str, Any]], summary: dict[str, Any]) -> Iterator[str]:
    """Yield what the default was to reach here, and whether it did."""
    yield "\n## What was wanted\n"
    yield "| | wanted | found | met |\n|---|---|---|---|"
    for row in (row for row in rows if row["clients"] == 100 and row["epsilon"] in RATIOS):
        most = RATIOS[row["epsilon"]]
        yield (
            f"| default over paper, ε = {row['epsilon']:g} | at most {most:.2f} | "
            f"{row['ratio']:.2f} ± {row['ratio_error']:.2f} | {_met(row['ratio'] <= most)} |"
        )
    low, high = HELD
    for clients in sorted({row["clients"] for row in rows}, reverse=True):
        some = [row for row in summary["sets"] if row["clients"] == clients]
        sets = [row for row in some if row["covered"] is not None]
        kinds = [row["kind"] for row in sets if not low <= row["covered"] <= high]
        span = f"{min(r['covered'] for r in sets):.0%} to {max(r['covered'] for r in sets):.0%}"
        but = f", beyond it {', '.join(kinds)}" if kinds else ""
        wanted = f"sets of 90 %, {clients} clients, by kind | {low:.0%} to {high:.0%}"
        yield f"| {wanted} | {span}{but} | {_met(not kinds)} |"
    worse = [f"{cell['table']} at {_vote(cell)}" for cell in summary["worse_by_error_and_a_point"]]
    yield (
        f"| cells worse than the paper by their error and a point | none | "
        f"{'; '.join(worse) or 'none'} | {_met(not worse)} |"
    )


def _vote(row: dict[str, Any]) -> str:
    return f"{row['clients']}, {row['epsilon']:g}"


def _met(met: bool) -> str:
    return "yes" if met else "**no**"


if __name__ == "__main__":
    print("\n".join(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))

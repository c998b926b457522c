"""Hold the default vote on spaces it was not tuned on, beside the paper's mechanism.

    python benchmarks/battery/run.py --jobs 2
    python benchmarks/battery/run.py --only network --format json

Reads the tables of `record.py` and holds votes of 100 clients (each recorded one counts four
times) and of 20 on each. A cell is one table at one ε: δ = 10⁻⁵, neighbours differ in one
client's ballot. Regret is in points of what winners are judged by, accuracy or R². Nothing
here is private, and nothing is tuned on it.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.battery.tables import FOLDER, Table, read_tables
from benchmarks.battery.votes import BINS, METHODS, Cell, hold

__all__ = ["run", "summary"]

ELECTORATES = {100: (0.05, 0.1, 0.25, 0.5, 1.0), 20: (0.5, 1.0, 3.0)}
"""By number of clients: the budgets."""
DRAWS = {100: 200, 20: 100}
ERRORS = 2.0
"""Standard errors beyond which a difference counts as won or lost."""


def run(
    tables: Sequence[Table],
    *,
    clients: Sequence[int] = tuple(ELECTORATES),
    epsilons: Sequence[float] = (),
    part: float = 1.0,
    jobs: int = 1,
) -> list[Cell]:
    """Hold all votes, or those of some budgets; `part` of the usual number of draws."""
    tasks = [
        (
            table,
            count,
            [e for e in ELECTORATES[count] if not epsilons or e in epsilons],
            max(int(DRAWS[count] * part), 4),
        )
        for table in sorted(tables, key=lambda t: -len(t.space))
        for count in clients
    ]
    if jobs == 1:
        cells = [cell for task in tasks for cell in _hold(task)]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            cells = [cell for some in pool.map(_hold, tasks) for cell in some]
    return sorted(cells, key=lambda c: (-c.clients, c.kind, c.table, c.epsilon))


def _hold(task: tuple[Table, int, list[float], int]) -> list[Cell]:
    table, clients, epsilons, draws = task
    return hold(table, clients, epsilons, draws=draws, deep=max(draws // 5, 2))


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return means by electorate and ε, by kind, and how often the default wins and loses."""
    by_epsilon = [_means(some) for some in _groups(cells, lambda c: (-c.clients, c.epsilon))]
    by_kind = [
        {"kind": some[0].kind, **_means(some)}
        for some in _groups(cells, lambda c: (-c.clients, c.kind, c.epsilon))
    ]
    sets = [
        {"clients": some[0].clients, "kind": some[0].kind, **_sets(some)}
        for some in _groups(cells, lambda c: (-c.clients, c.kind))
    ]
    reliability = [
        {"clients": some[0].clients, **bin_}
        for some in _groups(cells, lambda c: (-c.clients,))
        for bin_ in _reliability(some)
    ]
    return {
        "by_epsilon": by_epsilon,
        "by_kind": by_kind,
        "sets": sets,
        "reliability": reliability,
        "lost": [_named(cell) for cell in cells if cell.gain < -ERRORS * cell.gain_error],
        "worse_by_error_and_a_point": [
            _named(cell) for cell in cells if cell.gain < -cell.gain_error - 1
        ],
        "worst": _named(min(cells, key=lambda c: c.gain)),
    }


def _groups(cells: Sequence[Cell], key: Callable[[Cell], Any]) -> Iterator[list[Cell]]:
    for value in sorted({key(cell) for cell in cells}):
        yield [cell for cell in cells if key(cell) == value]


def _means(cells: Sequence[Cell]) -> dict[str, Any]:
    """Average cells of one ε, each counting the same."""
    won = sum(cell.gain > ERRORS * cell.gain_error for cell in cells)
    lost = sum(cell.gain < -ERRORS * cell.gain_error for cell in cells)
    ratio, error = _ratio(cells)
    return {
        "clients": cells[0].clients,
        "epsilon": cells[0].epsilon,
        "cells": len(cells),
        "regret": {m: float(np.mean([c.regret[m] for c in cells])) for m in METHODS},
        "near": {m: float(np.mean([c.near[m] for c in cells])) for m in METHODS},
        "ratio": ratio,
        "ratio_error": error,
        "won": won,
        "lost": lost,
        "worst": _named(min(cells, key=lambda c: c.gain)),
        **_sets(cells),
    }


def _ratio(cells: Sequence[Cell]) -> tuple[float, float]:
    """Return the default's mean regret over the paper's, with a jackknife over spaces."""
    pairs = np.array(
        [
            [sum(c.regret[m] for c in some) for m in ("default", "paper")]
            for some in _groups(cells, lambda c: c.name)
        ]
    )
    default, paper = pairs.sum(axis=0)
    without = (default - pairs[:, 0]) / np.maximum(paper - pairs[:, 1], 1e-9)
    count = len(pairs)
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return float(default / max(paper, 1e-9)), error


def _sets(cells: Sequence[Cell]) -> dict[str, float | None]:
    """Average over votes in which a set was given; the worst cell of at least ten of them."""
    counts = [cell.told * cell.decoded for cell in cells]
    given = [(c, count) for c, count in zip(cells, counts, strict=True) if count]
    total = sum(count for _, count in given)
    firm = [c.covered for c, count in given if count >= 10 and c.covered is not None]
    return {
        "told": float(np.mean([c.told for c in cells])),
        "covered": sum((c.covered or 0) * n for c, n in given) / total if total else None,
        "least_covered": min(firm) if firm else None,
        "named": sum((c.named or 0) * n for c, n in given) / total if total else None,
    }


def _share(value: float | None) -> str:
    return "   –" if value is None else f"{value:4.0%}"


def _reliability(cells: Sequence[Cell]) -> list[dict[str, float | None]]:
    total = np.sum([c.bins for c in cells], axis=0)
    return [
        {
            "from": place / BINS,
            "votes": int(votes),
            "said": float(said / votes) if votes else None,
            "true": float(true / votes) if votes else None,
        }
        for place, (votes, said, true) in enumerate(total)
    ]


def _named(cell: Cell) -> dict[str, Any]:
    return {
        "table": cell.table,
        "clients": cell.clients,
        "epsilon": cell.epsilon,
        "default": cell.regret["default"],
        "paper": cell.regret["paper"],
        "error": cell.gain_error,
    }


def report(cells: Sequence[Cell], found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the tables."""
    columns = "".join(f"{method:>9}" for method in METHODS)
    yield f"{'regret in points':24} {'n':>3} {'ε':>4}{columns}   gain ± error   told covered  named"
    for c in cells:
        regrets = "".join(f"{c.regret[method]:9.1f}" for method in METHODS)
        mark = "+" if c.gain > ERRORS * c.gain_error else " "
        mark = "-" if c.gain < -ERRORS * c.gain_error else mark
        yield (
            f"{c.table:24} {c.clients:3} {c.epsilon:4g}{regrets} {mark}{c.gain:6.1f} ± "
            f"{c.gain_error:4.1f}    {_share(c.told)} {_share(c.covered)} {_share(c.named)}"
        )
    yield ""
    yield f"{'means by kind':16} {'n':>3} {'ε':>4}{columns}  ratio  told covered (least)  named"
    for row in found["by_kind"]:
        yield f"{row['kind']:16} {_line(row)}"
    yield ""
    yield f"{'all':16} {'n':>3} {'ε':>4}{columns}  ratio  told covered (least)  named   won lost"
    for row in found["by_epsilon"]:
        yield f"{'regret':16} {_line(row)}   {row['won']:3} {row['lost']:3} of {row['cells']}"
        near = "".join(f"{row['near'][method]:9.0%}" for method in METHODS)
        yield f"{'within a point':16} {row['clients']:3} {row['epsilon']:4g}{near}"
    yield ""
    yield "ratio of mean regrets, default over paper (± jackknife over spaces)"
    for row in found["by_epsilon"]:
        worst = row["worst"]
        yield (
            f"  n={row['clients']} ε={row['epsilon']:g}: {row['ratio']:.2f} ± "
            f"{row['ratio_error']:.2f}; worst cell {worst['table']}: {worst['default']:.1f} "
            f"against {worst['paper']:.1f} ± {worst['error']:.1f}"
        )
    yield ""
    yield "90 % sets by kind: held the leader (in the worst cell), share of candidates named"
    for row in found["sets"]:
        yield (
            f"  n={row['clients']:3} {row['kind']:14} given in {_share(row['told'])}: "
            f"{_share(row['covered'])} ({_share(row['least_covered'])}), {_share(row['named'])}"
        )
    yield ""
    yield "stated probability that the winner leads: votes, said, true"
    for row in found["reliability"]:
        if row["votes"]:
            yield (
                f"  n={row['clients']:3} {row['from']:.1f}: {row['votes']:6}  {row['said']:.2f}  "
                f"{row['true']:.2f}"
            )
    worse = found["worse_by_error_and_a_point"]
    yield ""
    yield f"worse than the paper by more than its error and a point: {len(worse)} of {len(cells)}"
    for row in worse:
        yield (
            f"  {row['table']:24} n={row['clients']} ε={row['epsilon']:g}: {row['default']:.1f} "
            f"against {row['paper']:.1f} ± {row['error']:.1f}"
        )


def _line(row: dict[str, Any]) -> str:
    regrets = "".join(f"{row['regret'][method]:9.1f}" for method in METHODS)
    return (
        f"{row['clients']:3} {row['epsilon']:4g}{regrets}  {row['ratio']:5.2f}  "
        f"{_share(row['told'])} {_share(row['covered'])} ({_share(row['least_covered'])})   "
        f"{_share(row['named'])}"
    )


def main() -> None:
    """Print the tables, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", help="tables whose names hold this text")
    parser.add_argument("--clients", type=int, nargs="+", default=[*ELECTORATES])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[], help="some only")
    parser.add_argument("--part", type=float, default=1.0, help="of the usual number of votes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    tables, start = read_tables(given.tables, given.only), time.monotonic()
    if not tables:
        raise SystemExit(f"no table in {given.tables} is called {given.only!r}; run record.py")
    if not set(given.clients) <= set(ELECTORATES):
        raise SystemExit(f"votes are of {[*ELECTORATES]} clients, got {given.clients}")
    cells = run(
        tables,
        clients=given.clients,
        epsilons=given.epsilon,
        part=given.part,
        jobs=given.jobs,
    )
    if not cells:
        raise SystemExit(f"budgets are {ELECTORATES}, got {given.epsilon}")
    found = summary(cells)
    print(f"{len(cells)} cells in {time.monotonic() - start:.0f} s", file=sys.stderr)
    if given.format == "json":
        rows = [dataclasses.asdict(cell) for cell in cells]
        print(json.dumps({"methods": METHODS, "cells": rows, "summary": found}))
        return
    for line in report(cells, found):
        print(line)


if __name__ == "__main__":
    main()

"""Replay DP-Hype's evaluation on recorded losses: every method, every epsilon, many draws.

    python benchmarks/dp_hype/evaluate.py                        all settings that are there
    python benchmarks/dp_hype/evaluate.py --settings mnist/100/iid --methods paper,ours
    python benchmarks/dp_hype/evaluate.py --page                 then: figures and the page

Reads the files of `losses.py` from `results/` and writes `results/evaluation.json`: one row for
each setting, method and epsilon. Rows that are there are replaced, all others kept, so that it
may run piece by piece. `--page` writes docs/evaluation.md and its figures from that file.

A row's `runs` are the first 20 draws, as many as the authors have; `mean` is over all draws,
because 20 are few. Draws differ in noise, ties and lots; the recorded losses are the same.
"""

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from methods import METHODS, Method
from published import EPSILONS, RUNS
from recorded import Recorded, read_all
from resources import resources
from scipy import stats

from urna.privacy import Budget
from urna.vote import simulate
from urna.vote.baselines import opt, rand_guess
from urna.vote.simulate import FIGURE_2_GOOD, FIGURE_2_SPREADS

HERE = Path(__file__).parent
HALVES = (0.05, 0.125)
"""Half of the two smallest epsilons, for the question at which epsilon ours is as good."""


def row_of(
    recorded: Recorded, method: Method, epsilon: float, draws: int, seed: int
) -> dict[str, Any]:
    """Hold many votes and summarise what the winners lead to."""
    label = f"{recorded.setting.name}/{recorded.setting.seed}/{method.name}/{epsilon}"
    rng = np.random.default_rng([seed, *label.encode()])
    winners = method.choose(recorded, epsilon, rng, draws)
    final = recorded.federated[winners]
    best = opt(recorded.federated)
    mean, error = float(final.mean()), float(final.std(ddof=1) / math.sqrt(draws))
    runs = final[:RUNS]
    return {
        "setting": recorded.setting.name,
        "seed": recorded.setting.seed,
        "method": method.name,
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "draws": draws,
        "mean": round(mean, 5),
        "standard_error": round(error, 5),
        "regret": round(best - mean, 5),
        "top1_rate": round(float((final >= best).mean()), 4),
        "near_rate": round(float((final >= best - 0.01).mean()), 4),
        "runs": {"count": len(runs), **interval(runs)},
    }


def interval(values: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return mean and 95 % confidence interval by Student's t, as the authors report them."""
    mean = float(values.mean())
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    half = float(stats.t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return {
        "mean": round(mean, 4),
        "low": round(max(mean - half, 0.0), 4),
        "high": round(min(mean + half, 1.0), 4),
    }


def ends_of(recorded: Recorded) -> dict[str, Any]:
    """Return Opt and RandGuess, and which candidate is the best."""
    return {
        "setting": recorded.setting.name,
        "seed": recorded.setting.seed,
        "opt": round(opt(recorded.federated), 5),
        "rand_guess": round(rand_guess(recorded.federated), 5),
        "best": int(np.nanargmax(recorded.federated)),
        "clients_naming_it": round(
            float(
                np.mean(
                    np.argsort(recorded.losses, axis=1)[:, :5] == np.nanargmax(recorded.federated)
                )
                * 5
            ),
            3,
        ),
    }


def simulation(seed: int, repetitions: int) -> list[dict[str, Any]]:
    """Return the success rates of the paper's Figure 2."""
    rng = np.random.default_rng(seed)
    budgets = [Budget(0.25, 1e-5), Budget(1.0, 1e-5)]
    rows = []
    cases = [("spread", 5, s) for s in FIGURE_2_SPREADS] + [("good", g, 1.0) for g in FIGURE_2_GOOD]
    for varied, good, spread in cases:
        votes = simulate(
            budgets=budgets, rng=rng, good=good, spread=spread, repetitions=repetitions
        )
        rows += [
            {
                "varied": varied,
                "good": good,
                "spread": spread,
                "epsilon": vote.epsilon,
                "votes": vote.votes,
                "rate": round(vote.rate, 4),
                "low": round(vote.interval[0], 4),
                "high": round(vote.interval[1], 4),
                "repetitions": vote.repetitions,
            }
            for vote in votes
        ]
    return rows


def merge(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], keys: Sequence[str]
) -> list[dict[str, Any]]:
    """Return old rows with new ones in their place."""
    rows = {tuple(row[k] for k in keys): row for row in old}
    rows.update({tuple(row[k] for k in keys): row for row in new})
    return list(rows.values())


def save(path: Path, content: dict[str, Any]) -> None:
    """Write the results, one row per line, whole or not at all."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            inner = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f'  "{key}": [\n{inner}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    waiting = path.with_suffix(".part")
    waiting.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    waiting.replace(path)


def epsilons_for(method: Method) -> tuple[float, ...]:
    """Return where a method is measured: ours at halves of the smallest epsilons as well."""
    return (*HALVES, *EPSILONS) if method.name == "ours" else EPSILONS


def main() -> None:
    """Replay, save, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--docs", type=Path, default=HERE.parents[1] / "docs")
    parser.add_argument("--settings", help="for example mnist/100/iid,adult/50/0.5")
    parser.add_argument("--methods", help=f"some of {','.join(METHODS)}")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulation", action="store_true", help="also the paper's Figure 2")
    parser.add_argument("--resources", action="store_true", help="also seconds, memory, bytes")
    parser.add_argument("--page", action="store_true", help="write the page and its figures")
    parser.add_argument("--only-page", action="store_true", help="nothing but the page")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    path = given.results / "evaluation.json"
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows: list[dict[str, Any]] = []
    if not given.only_page:
        every = list(read_all(given.results))
        some = [
            r
            for r in every
            if given.settings is None or r.setting.name in given.settings.split(",")
        ]
        names = given.methods.split(",") if given.methods else list(METHODS)
        for recorded in some:
            start = time.perf_counter()
            for name in names:
                method = METHODS[name]
                rows += [
                    row_of(recorded, method, e, given.draws, given.seed)
                    for e in epsilons_for(method)
                ]
            took = time.perf_counter() - start
            print(f"{recorded.setting.name}: {took:.1f} s", file=sys.stderr, flush=True)
        held = {
            **held,
            "date": datetime.date.today().isoformat(),
            "command": " ".join(["python", "benchmarks/dp_hype/evaluate.py", *sys.argv[1:]]),
            "ends": merge(held.get("ends", []), [ends_of(r) for r in every], ("setting", "seed")),
            "rows": merge(held.get("rows", []), rows, ("setting", "seed", "method", "epsilon")),
        }
        if given.simulation:
            held["simulation"] = simulation(given.seed, repetitions=100)
        if given.resources:
            held["resources"] = resources(every)
        save(path, held)
    if given.page or given.only_page:
        from page import write_page  # noqa: PLC0415 - not needed to compute

        write_page(held, given.docs)
    if given.format == "json":
        print(json.dumps(rows))


if __name__ == "__main__":
    main()

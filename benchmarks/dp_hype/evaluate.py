"""Replay DP-Hype's evaluation on recorded scores: every method, every epsilon, many draws.

    python benchmarks/dp_hype/evaluate.py --losses benchmarks/dp_hype/results/losses \
        --output benchmarks/dp_hype/results

Reads the files of `losses.py` (or of `compact.py`), and writes evaluation.json, rows.csv and
the figures into the output folder, and the tables of docs/evaluation.md between its markers.
Settings of which a part is missing are left out and listed with an estimate.

A row's `runs` are its first 20 draws, as many as the authors have; `mean` is over all draws,
because 20 are few. Draws differ in noise, ties and lots; the recorded scores are the same.
Where a setting was trained more than once each training gets as many, and rows are averages.
Settings of 100 clients get all `--draws`; other settings and ablations a quarter.
"""

import argparse
import csv
import datetime
import itertools
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from urna.privacy import Budget

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dp_hype.claims import CLIENTS, FINER, NEAR, claimed, compare
from benchmarks.dp_hype.figures import figures
from benchmarks.dp_hype.methods import METHODS, SPACE, Method
from benchmarks.dp_hype.page import fill_page
from benchmarks.dp_hype.published import EPSILONS, OPT, RUNS, VOTES
from benchmarks.dp_hype.recorded import Recorded, read_all, read_notes
from benchmarks.dp_hype.resources import estimates, training, votes
from benchmarks.dp_hype.settings import DATASETS
from benchmarks.papers.baselines import opt, rand_guess
from benchmarks.papers.figure_2 import FIGURE_2_GOOD, FIGURE_2_SPREADS, simulate

HERE = Path(__file__).parent
MOST = 0.75
"""Share of the clients from which on a diverged candidate is reported."""
PAGE = HERE.parents[1] / "docs" / "evaluation.md"


def row_of(
    recorded: Recorded, method: Method, epsilon: float, draws: int, seed: int
) -> dict[str, Any]:
    """Hold many votes on one training and summarise what the winners lead to."""
    label = f"{recorded.setting.name}/{recorded.setting.seed}/{method.name}/{epsilon}"
    rng = np.random.default_rng([seed, *label.encode()])
    final = recorded.final[method.choose(recorded, epsilon, rng, draws)]
    regret = opt(recorded.federated) - final
    runs = interval(final[:RUNS])
    return {
        "setting": recorded.setting.name,
        "trainings": 1,
        "method": method.name,
        "epsilon": epsilon if math.isfinite(epsilon) else "inf",
        "draws": draws,
        "mean": round(float(final.mean()), 5),
        "standard_error": round(float(final.std(ddof=1) / math.sqrt(draws)), 5),
        "regret": round(float(regret.mean()), 5),
        "top1_rate": round(float((regret <= 0).mean()), 4),
        "near_rate": round(float((regret <= NEAR).mean()), 4),
        "runs": min(RUNS, draws),
        "runs_mean": runs[0],
        "runs_low": runs[1],
        "runs_high": runs[2],
    }


def averaged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the average of rows of several trainings of one setting.

    Errors are those of the draws, given these trainings: two or three of them say little about
    how much trainings differ.
    """
    count = len(rows)

    def together(errors: Iterable[float]) -> float:
        return math.sqrt(sum(error**2 for error in errors)) / count

    means = ("mean", "regret", "top1_rate", "near_rate", "runs_mean")
    row = rows[0] | {key: round(float(np.mean([r[key] for r in rows])), 5) for key in means}
    row["trainings"] = count
    row["draws"], row["runs"] = sum(r["draws"] for r in rows), sum(r["runs"] for r in rows)
    row["standard_error"] = round(together(r["standard_error"] for r in rows), 5)
    half = together((r["runs_high"] - r["runs_low"]) / 2 for r in rows)
    row["runs_low"] = round(max(row["runs_mean"] - half, 0.0), 4)
    row["runs_high"] = round(min(row["runs_mean"] + half, 1.0), 4)
    return row


def interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Return mean and 95 % confidence interval by Student's t, as the authors report them."""
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1)) / math.sqrt(len(values))
    return round(mean, 4), round(max(mean - half, 0.0), 4), round(min(mean + half, 1.0), 4)


def ends_of(trained: Sequence[Recorded]) -> dict[str, Any]:
    """Return Opt and RandGuess, and how many clients name the best candidate, on average."""
    ends = [_ends(recorded) for recorded in trained]
    name = trained[0].setting.name
    means = ("opt", "rand_guess", "near_candidates", "clients_that_may_name_it")
    return {
        "setting": name,
        "trainings": len(trained),
        "published_opt": OPT.get(name),
        "opt_one_epoch": ends[0]["opt_one_epoch"],
        **{key: round(float(np.mean([end[key] for end in ends])), 5) for key in means},
        "diverged": [found for end in ends for found in end["diverged"]],
    }


def _ends(recorded: Recorded) -> dict[str, Any]:
    best = int(np.nanargmax(recorded.federated))
    worse = np.nan_to_num(-recorded.accuracies, nan=np.inf)
    # A client may name a candidate if it finds fewer than five others better.
    named = ((worse[:, :, None] > worse[:, None, :]).sum(axis=2) < VOTES).mean(axis=0)
    once = recorded.federated_once
    diverged = np.flatnonzero(
        (named >= MOST) & (recorded.federated < rand_guess(recorded.federated))
    )
    return {
        "opt": opt(recorded.federated),
        "opt_one_epoch": None if once is None else round(opt(once), 5),
        "rand_guess": rand_guess(recorded.federated),
        "near_candidates": int((opt(recorded.federated) - recorded.final <= NEAR).sum()),
        "clients_that_may_name_it": float(named[best]),
        "diverged": [
            {
                "training": recorded.setting.seed + 1,
                "candidate": dict(SPACE[int(place)]),
                "named_by": round(float(named[place]), 3),
                "accuracy": round(float(recorded.federated[place]), 4),
            }
            for place in diverged
        ],
    }


def rows_of(
    trained: Sequence[Recorded], names: Sequence[str], draws: int, seed: int
) -> list[list[dict[str, Any]]]:
    """Return all rows of a setting, those of its trainings together."""
    claim = claimed(trained[0].setting)
    rows = []
    for method in (METHODS[name] for name in names):
        if not (method.main or claim):
            continue
        full = method.main and trained[0].setting.clients == CLIENTS
        count = draws if full else max(draws // 4, RUNS)
        finer = FINER if method.name == "ours" and claim else ()
        rows += [
            [row_of(recorded, method, e, count, seed) for recorded in trained]
            for e in (*finer, *EPSILONS)
        ]
    return rows


def public_controls(every: Iterable[Sequence[Recorded]]) -> list[dict[str, Any]]:
    """Return what the best candidate of each other data set leads to: no vote, no privacy spent.

    The best is that of 100 iid clients by federated training, as if that data were public.
    """
    trained = list(every)
    names = {f"{dataset}/{CLIENTS}/iid": dataset for dataset in DATASETS}
    best = {
        names[same[0].setting.name]: int(np.nanargmax(same[0].federated))
        for same in trained
        if same[0].setting.name in names
    }
    return [
        {
            "setting": same[0].setting.name,
            "opt": round(float(np.mean([opt(r.federated) for r in same])), 4),
            "best_on": {
                dataset: round(float(np.mean([r.final[place] for r in same])), 4)
                for dataset, place in best.items()
                if dataset != same[0].setting.dataset
            },
        }
        for same in trained
        if same[0].setting.clients == CLIENTS
    ]


def simulation(seed: int, repetitions: int) -> list[dict[str, Any]]:
    """Return the success rates of the paper's Figure 2."""
    rng = np.random.default_rng(seed)
    budgets = [Budget(0.25, 1e-5), Budget(1.0, 1e-5)]
    rows = []
    cases = [("spread", 5, s) for s in FIGURE_2_SPREADS] + [("good", g, 1.0) for g in FIGURE_2_GOOD]
    for varied, good, spread in cases:
        found = simulate(
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
            for vote in found
        ]
    return rows


def save(folder: Path, content: dict[str, Any]) -> None:
    """Write the results as JSON, one row per line, and the rows as CSV as well."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            inner = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f'  "{key}": [\n{inner}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    folder.mkdir(parents=True, exist_ok=True)
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (folder / "evaluation.json").write_text(text, encoding="utf-8")
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(content["rows"][0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(content["rows"])


def evaluate(
    losses: Path, names: Sequence[str], draws: int, repetitions: int, seed: int
) -> dict[str, Any]:
    """Return everything the page shows."""
    start = time.perf_counter()
    every = [list(same) for _, same in itertools.groupby(read_all(losses), _name)]
    if not every:
        raise SystemExit(f"no complete setting is in {losses}: run losses.py first")
    rows: list[list[dict[str, Any]]] = []
    for trained in every:
        rows += rows_of(trained, names, draws, seed)
        took = time.perf_counter() - start
        print(f"{_name(trained[0])}: done after {took:.0f} s", file=sys.stderr, flush=True)
    notes, settings = read_notes(losses), [averaged(same) for same in rows]
    content = {
        "date": datetime.date.today().isoformat(),
        "draws": draws,
        "ends": [ends_of(trained) for trained in every],
        "public": public_controls(every),
        "rows": settings,
        **compare(settings),
        "first_claims": compare([same[0] for same in rows])["claims"],
        "simulation": simulation(seed, repetitions),
        "training": training(notes),
        "votes": votes(),
        "missing": estimates(notes),
    }
    content["seconds"] = round(time.perf_counter() - start)
    return content


def _name(recorded: Recorded) -> str:
    return recorded.setting.name


def main() -> None:
    """Replay, and write results, figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", type=Path, default=HERE / "results" / "losses")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--page", type=Path, default=PAGE, help="page whose tables are filled in")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=100, help="of the simulation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", default=",".join(METHODS), help="paper and ours must be there")
    parser.add_argument("--render", action="store_true", help="figures and page only, from JSON")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if given.render:
        content = json.loads((given.output / "evaluation.json").read_text(encoding="utf-8"))
    else:
        names = given.methods.split(",")
        content = evaluate(given.losses, names, given.draws, given.repetitions, given.seed)
        save(given.output, content)
    for name, picture in figures(content).items():
        (given.output / name).write_text(picture, encoding="utf-8")
    fill_page(given.page, content)
    if given.format == "json":
        print(json.dumps({key: content[key] for key in ("date", "claims", "equal_epsilon")}))
    else:
        for claim in content["claims"]:
            print(f"{claim['text']}: {claim['value']} ± {claim['error']}, met: {claim['met']}")


if __name__ == "__main__":
    main()

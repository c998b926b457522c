"""PrivTuna's comparison redone on its authors' own measurements, and the cost of hiding it.

Claims:
    Federated DBSCAN and the mean under threshold encryption equal the same in the clear
    (error 0). All parties' CPU in one run, keys included, every party a process of its own that
    shares nothing with others: the pooled mean costs 10 / 20 parties at most 0.5 / 1.0 s, density
    clusters at most 4 / 8 s, the test for dense cells at most 0.4 s; a party sends and receives
    less than 7.86 MB beyond keys. Published, on a faster machine: 1.6 / 1.8 s, 5.8 / 18.3 s,
    3.5 s, mean squared errors of 2.4e-4 to 1e-3. `anchored` is closest to the federated optimum
    more often than the authors' DBSCAN.

    python benchmarks/privtuna.py                        # the comparison, as tables
    python benchmarks/privtuna.py --cost --parties 10 --format json
    python benchmarks/privtuna.py --cost --parties 20
    python benchmarks/privtuna.py --cost --memory        # parties share tables: less than the truth

The data are the authors' (sinemsav/hyperparams, Apache-2.0): every client's local grid search
and the federated grid search for MNIST and CIFAR-10, in all skews, levels and client numbers.
"""

import argparse
import functools
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.papers.anchored import Anchored
from benchmarks.papers.federations import federated_search
from benchmarks.papers.judged import judge
from benchmarks.papers.noisy_clusters import private_dbscan
from benchmarks.papers.processes import ProcessParties
from benchmarks.papers.surfaces import Surface, SurfaceKind
from benchmarks.papers.vote_strategy import VoteStrategy

from urna.errors import ParameterError
from urna.privacy import Budget
from urna.protocols import he
from urna.randomness import SEED_BYTES, OsSecrets, ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import (
    Averaging,
    Clustering,
    Dbscan,
    FederatedDbscan,
    Frame,
    Guarantee,
    LocalSearch,
    MeanSetting,
    Median,
    RunName,
    Searches,
    Strategy,
    Task,
    TrimmedMean,
    combine,
    conduct,
    noisy_mean,
    play,
    read_searches,
)
from urna.systems.combine.server import EncryptedOutcome
from urna.tally import ClearSummation, EncryptedSummation, Run, SecureAggregation

DATA = Path(__file__).parents[2] / "shared" / "data" / "privtuna_results.csv.gz"
SKEWS = {"feature": (0.02, 0.1), "label": (0.1, 1.0, 5.0), "qty": (0.1, 0.4, 1.0, 2.0)}
AXES = ("lr", "momentum")
SCORES = {"validation": "accuracy", "training": "train_accuracy"}
SIX = ("mean", "median", "trimmed mean", "mean of top 5 %", "median of top 5 %", "DBSCAN")
PLAIN = 7  # the first strategies: rates as they are
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DRAWS = 20
SAME = 1e-5  # distances this close are equal: settings are held to a millionth of an axis


@dataclass(frozen=True)
class Case:
    """One split of one data set."""

    dataset: str
    skew: str
    level: float
    clients: int
    searches: Searches
    losses: Searches
    """The same by losses: what FLoRA's surfaces are fitted to."""
    federated: LocalSearch
    server: Frame

    @property
    def name(self) -> str:
        """What scripts of noise are made from."""
        return f"{self.dataset} {self.skew} {self.level:g} {self.clients}"

    @property
    def plain(self) -> Searches:
        """The searches with rates as they are, the default of `urna combine`."""
        rulers = (replace(ruler, log=False) for ruler in self.searches.frame.rulers)
        return Searches(Frame(tuple(rulers)), self.searches.clients)

    @property
    def min_points(self) -> int:
        """The authors': 4, and 2 under quantity skew."""
        return 2 if self.skew == "qty" else 4


def cases(data: Path, score: str, clients: Sequence[int] = (10, 20)) -> Iterator[Case]:
    """Read all cases."""
    for dataset, (skew, levels), count in itertools.product(
        ("mnist", "cifar10"), SKEWS.items(), clients
    ):
        for level in levels:
            where = {
                "dataset": dataset, "skew": skew, "level": str(level), "clients": str(count),
            }  # fmt: skip
            found, losses = (
                read_searches(data, where=where, axes=AXES, score=by, log=True)
                for by in (score, "loss")
            )
            federated = federated_search(data, where, AXES)
            tried = federated.settings
            server = Frame.of(
                Space(
                    lr=Axis.log(np.unique(tried[:, 0]).tolist()),
                    momentum=Axis.linear(np.unique(tried[:, 1]).tolist()),
                ),
                log=True,
            )
            # All clients searched the same grid, which is public here.
            searches = Searches(found.searches.frame, found.searches.clients)
            yield Case(dataset, skew, level, count, searches, losses.searches, federated, server)


def strategies(case: Case) -> dict[str, Strategy]:
    """Return all strategies: the paper's six as its authors ran them, and the others.

    The first seven average rates as they are, all others on their log scale.
    """
    few = case.min_points
    return {
        "mean": MeanSetting(),
        "median": Median(),
        "trimmed mean": TrimmedMean(),
        "mean of top 5 %": MeanSetting(0.05),
        "median of top 5 %": Median(0.05),
        "DBSCAN": Dbscan(stretched=True, least=0.4, min_points=few),
        "federated DBSCAN": FederatedDbscan(least=0.4, min_points=few),
        "mean, log": MeanSetting(),
        "median, log": Median(),
        "trimmed mean, log": TrimmedMean(),
        "mean of top 5 %, log": MeanSetting(0.05),
        "DBSCAN, log": Dbscan(least=0.4, min_points=few),
        "federated DBSCAN, log": FederatedDbscan(least=0.4, min_points=few),
        **{f"FLoRA {kind.upper()}": Surface(kind) for kind in SurfaceKind},
        "vote": VoteStrategy(),
        "anchored": Anchored(within=case.server),
    }


def compare(data: Path) -> dict[str, Any]:
    """Judge every strategy on every case, by both scores."""
    rows = []
    for by, score in SCORES.items():
        for case in cases(data, score):
            for number, (name, strategy) in enumerate(strategies(case).items()):
                searches = case.plain if number < PLAIN else case.searches
                searches = case.losses if isinstance(strategy, Surface) else searches
                try:
                    setting = strategy.combine(searches).setting
                except ParameterError:
                    setting = None
                judged = judge(name, setting, case.federated, case.searches.frame)
                rows.append(
                    {
                        "by": by, "dataset": case.dataset, "skew": case.skew, "level": case.level,
                        "clients": case.clients, "strategy": name, **judged.as_mapping(),
                    }
                )  # fmt: skip
    return {"rows": rows, "closest": closest(rows), "means": means(rows)}


def closest(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count per strategy in how many of (case, axis) it is closest to the federated optimum.

    The paper's six are held against each other; every other strategy against all six. Whoever is
    as close as the closest counts, so counts of the six add up to more than all.
    """
    table: dict[str, Any] = {}
    for by in SCORES:
        some = [row for row in rows if row["by"] == by]
        names = list(dict.fromkeys(row["strategy"] for row in some))
        places = {name: [row for row in some if row["strategy"] == name] for name in names}

        def away(name: str, places: dict[str, list[Any]] = places) -> npt.NDArray[np.float64]:
            return np.array(
                [
                    [math.inf if row["distance"][a] is None else row["distance"][a] for a in AXES]
                    for row in places[name]
                ]
            )

        six = {name: away(name) for name in SIX}
        for name in names:
            others = np.min([d for other, d in six.items() if other != name], axis=0)
            won = away(name) <= others + SAME
            alone = away(name) < others - SAME
            both = away(name).sum(axis=1)
            nearer = np.sign(both - six["DBSCAN"].sum(axis=1))
            nearer[np.abs(both - six["DBSCAN"].sum(axis=1)) < SAME] = 0
            skews = np.array([row["skew"] for row in places[name]])
            table.setdefault(by, {})[name] = {
                "of": int(won.size),
                "closest": int(won.sum()),
                "alone": int(alone.sum()),
                **{axis: int(won[:, i].sum()) for i, axis in enumerate(AXES)},
                **{skew: int(won[skews == skew].sum()) for skew in SKEWS},
                "nearer_than_dbscan": int((nearer < 0).sum()),
                "farther_than_dbscan": int((nearer > 0).sum()),
            }
    return table


def means(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean distance, accuracy and regret, in all and by skew and data set."""
    table: dict[str, Any] = {}
    for by in SCORES:
        for name in dict.fromkeys(row["strategy"] for row in rows):
            some = [row for row in rows if row["by"] == by and row["strategy"] == name]
            known = [row for row in some if row["setting"] is not None]
            entry: dict[str, Any] = {"cases": len(some), "failed": len(some) - len(known)}
            for axis in AXES:
                entry[axis] = float(np.mean([row["distance"][axis] for row in known]))
            entry["regret"] = float(np.mean([row["regret"] for row in known]))
            for part, values in (("skew", tuple(SKEWS)), ("dataset", ("mnist", "cifar10"))):
                for value in values:
                    these = [row["regret"] for row in known if row[part] == value]
                    entry[f"regret_{value}"] = float(np.mean(these)) if these else None
            table.setdefault(by, {})[name] = entry
    return table


def price(data: Path, draws: int) -> dict[str, Any]:
    """Return what differential privacy costs the mean, density clusters and the vote.

    On the authors' 10 and 20 clients, and on electorates of all clients of a data set
    together (255 and 270), judged by the mean of the federated searches.
    """
    found: dict[str, Any] = {}
    every = list(cases(data, "accuracy"))
    groups = {"10 clients": [c for c in every if c.clients == 10],
              "20 clients": [c for c in every if c.clients == 20],
              "all of a data set": _pooled(every)}  # fmt: skip
    for group, some in groups.items():
        for name in ("mean", "federated DBSCAN", "vote"):
            for epsilon in (*EPSILONS, math.inf):
                count = 1 if math.isinf(epsilon) else max(2, draws if len(some) < 5 else draws // 5)
                regrets = [
                    judge(
                        name, _noisy(case, name, epsilon, draw), case.federated, case.searches.frame
                    ).regret
                    for case in some
                    for draw in range(count)
                ]
                key = "none" if math.isinf(epsilon) else f"{epsilon:g}"
                error = float(np.std(regrets) / math.sqrt(len(regrets)))
                found.setdefault(group, {}).setdefault(name, {})[key] = {
                    "regret": float(np.mean(regrets)), "standard_error": error,
                }  # fmt: skip
        guess = [
            judge("middle", _middle(case), case.federated, case.searches.frame).regret
            for case in some
        ]
        drawn = [
            float(np.max(case.federated.scores) - np.mean(case.federated.scores)) for case in some
        ]
        found[group]["middle of the axes"] = float(np.mean(guess))
        found[group]["a setting drawn blindly"] = float(np.mean(drawn))
    return found


def guarantees(data: Path, epsilon: float, draws: int) -> dict[str, Any]:
    """Return regret and CPU time of every guarantee, as it is really computed, on 10 clients.

    All parties are played in this process; secrets are the operating system's.
    """
    found: dict[str, Any] = {}
    every = list(cases(data, "accuracy", (10,)))
    for name, guarantee in itertools.product(("mean", "federated DBSCAN"), Guarantee):
        regrets, seconds = [], []
        for case in every:
            clusters = FederatedDbscan(min_points=case.min_points)
            strategy = MeanSetting() if name == "mean" else clusters
            budget = Budget(epsilon, 1e-5) if guarantee.private else None
            for _ in range(draws if guarantee.private else 1):
                start = time.process_time()
                if budget is not None and name != "mean":
                    setting = _clusters_with_noise(case, budget, guarantee)
                else:
                    done = combine(case.searches, strategy, guarantee=guarantee, budget=budget)
                    setting = dict(done.setting)
                seconds.append(time.process_time() - start)
                regrets.append(judge(name, setting, case.federated, case.searches.frame).regret)
        found.setdefault(name, {})[str(guarantee)] = {
            "regret": float(np.mean(regrets)),
            "standard_error": float(np.std(regrets) / math.sqrt(len(regrets))),
            "cpu_s": float(np.median(seconds)),
        }
    return found


def _clusters_with_noise(case: Case, budget: Budget, guarantee: Guarantee) -> dict[str, float]:
    hidden = guarantee is Guarantee.BOTH
    agreed = Clustering(case.searches.frame, min_points=case.min_points)
    return private_dbscan(
        case.searches.clients,
        agreed,
        budget=budget,
        summation=EncryptedSummation() if hidden else SecureAggregation(),
    ).setting


def _noisy(case: Case, name: str, epsilon: float, draw: int) -> dict[str, float]:
    """Combine with the noise of a budget; scripted, so that the figures can be made again."""
    few = case.min_points
    if name == "vote":
        return VoteStrategy(epsilon, seed=draw).combine(case.searches).setting
    if math.isinf(epsilon):
        strategy = MeanSetting() if name == "mean" else FederatedDbscan(min_points=few)
        return strategy.combine(case.searches).setting
    secrets = ScriptedSecrets(f"{case.name} {name} {epsilon} {draw}".encode())
    budget, clear = Budget(epsilon, 1e-5), ClearSummation()
    if name == "mean":
        agreed, run = Averaging(case.searches.frame), Run(secrets=secrets)
        return dict(
            noisy_mean(
                case.searches.clients, agreed, budget=budget, summation=clear, run=run
            ).setting
        )
    cells = Clustering(case.searches.frame, min_points=few)
    clients = case.searches.clients
    return private_dbscan(clients, cells, budget=budget, summation=clear, secrets=secrets).setting


def _middle(case: Case) -> dict[str, float]:
    return case.searches.frame.setting([0.5] * len(AXES))


def _pooled(every: Sequence[Case]) -> list[Case]:
    """Put all clients of a data set into one electorate, and average the federated searches."""
    found = []
    for dataset in ("mnist", "cifar10"):
        some = [case for case in every if case.dataset == dataset]
        tried = np.concatenate([s.settings for c in some for s in c.searches.clients])
        space = Space(
            lr=Axis.log(np.unique(tried[:, 0]).tolist()),
            momentum=Axis.linear(np.unique(tried[:, 1]).tolist()),
        )
        clients = tuple(client for case in some for client in case.searches.clients)
        settings = np.unique(some[0].federated.settings, axis=0)
        scores = np.mean([_best_of(case.federated, settings) for case in some], axis=0)
        found.append(
            Case(
                dataset,
                "all",
                0.0,
                len(clients),
                Searches(Frame.of(space, log=True), clients),
                some[0].losses,
                LocalSearch(settings, scores),
                some[0].server,
            )
        )
    return found


def _best_of(search: LocalSearch, settings: npt.NDArray[np.float64]) -> list[float]:
    """Return the best accuracy at each setting, over batch sizes."""
    return [float(search.scores[(search.settings == row).all(axis=1)].max()) for row in settings]


def cost(data: Path, parties: int, memory: bool) -> dict[str, Any]:
    """Measure the encrypted combinations on real searches; errors against the same in the clear."""
    some = [c for c in cases(data, "accuracy", (parties,)) if len(c.searches) == parties]
    some = [next(c for c in some if c.skew == skew) for skew in ("label", "feature")]
    found: dict[str, Any] = {"parties": parties, "processes": not memory}
    errors: list[float] = []
    times: dict[str, list[float]] = {"mean": [], "dbscan": [], "dense": []}
    online: list[int] = []
    for case in some:
        frame, clients = case.searches.frame, case.searches.clients
        mean: Task = Task(parties, parties, Averaging(frame, 0.05))
        cells: Task = Task(parties, parties, Clustering(frame, min_points=case.min_points))
        for task, plain, key in (
            (mean, MeanSetting(0.05), "mean"),
            (cells, FederatedDbscan(min_points=case.min_points), "dbscan"),
        ):
            for _ in range(2):  # the better one: the machine is shared
                outcome, seconds = _played(task, clients, memory)
                times[key].append(seconds)
            clear, opened = plain.combine(case.searches), outcome.combined
            errors += [abs(clear.setting[a] - opened.setting[a]) for a in AXES]
            if [(c.setting, c.score, c.points) for c in clear.clusters] != [
                (c.setting, c.score, c.points) for c in opened.clusters
            ]:
                raise SystemExit("the encrypted clusters are not those in the clear")
            online += [outcome.traffic[p] - outcome.key_traffic[p] for p in outcome.traffic]
            found[f"pf_{key}_key_bytes_per_party"] = max(outcome.key_traffic.values())
        times["dense"].append(dense_test(cells))
    return found | {
        "dense_test_cpu_s": min(times["dense"]),
        "pf_mean_cpu_s": min(times["mean"]),
        "pf_dbscan_cpu_s": min(times["dbscan"]),
        "max_error": max(errors),
        "bytes_per_party": max(online),
    }


def _played(
    task: Task, clients: Sequence[LocalSearch], memory: bool
) -> tuple[EncryptedOutcome, float]:
    """Run a task; return what came of it, and the CPU time of all parties and the server."""
    if memory:
        start = time.process_time()
        outcome = play(task, clients, OsSecrets())
        return outcome, time.process_time() - start
    run = RunName(task, OsSecrets().take(SEED_BYTES))
    with ProcessParties(run, clients) as parties:
        start = time.process_time()
        outcome = conduct(run, parties)
        return outcome, parties.seconds + time.process_time() - start


@functools.cache
def _dense_keys(parameters: he.Parameters) -> he.Parties:
    return he.Parties(parameters, OsSecrets())


def dense_test(task: Task) -> float:
    """Time the test for dense cells alone: what the server computes from the two totals."""
    step = task.steps[0]
    keys, secrets = _dense_keys(step.parameters), OsSecrets()
    inputs = [[he.encrypt(keys.public_key, [1, 2, 3], secrets)] for _ in range(2)]
    evaluator = keys.evaluator()
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        step.evaluate(evaluator, inputs)
        best = min(best, time.process_time() - start)
    return best


def as_tables(found: dict[str, Any]) -> str:
    """Write the comparison as Markdown."""
    lines = []
    for by in SCORES if "closest" in found else ():
        lines += [
            f"\nLocal searches ranked by {by} accuracy\n",
            "| strategy | closest | alone | lr | momentum | feature | label | qty | regret | "
            "mnist | cifar10 | lr off | momentum off | nearer / farther than DBSCAN |",
            "|---|" + "---|" * 13,
        ]
        for name, counted in found["closest"][by].items():
            mean = found["means"][by][name]
            lines.append(
                f"| {name} | {counted['closest']} of {counted['of']} | {counted['alone']} | "
                + " | ".join(str(counted[k]) for k in (*AXES, *SKEWS))
                + f" | {100 * mean['regret']:.2f} | {100 * mean['regret_mnist']:.2f} | "
                f"{100 * mean['regret_cifar10']:.2f} | {mean['lr']:.3f} | {mean['momentum']:.3f} | "
                f"{counted['nearer_than_dbscan']} / {counted['farther_than_dbscan']} |"
            )
    if "guarantees" in found:
        lines += [
            "\nRegret in points and CPU seconds of all parties, 10 clients, ε = 5\n",
            "| | " + " | ".join(str(g) for g in Guarantee) + " |",
            "|---|" + "---|" * len(Guarantee),
        ]
        for name, row in found["guarantees"].items():
            shown = [
                f"{100 * each['regret']:.2f} ± {100 * each['standard_error']:.2f}, "
                f"{each['cpu_s']:.2f} s"
                for each in row.values()
            ]
            lines.append(f"| {name} | {' | '.join(shown)} |")
    for group, methods in found.get("price", {}).items():
        lines += [
            f"\nRegret in points at each ε, {group}\n",
            "| | " + " | ".join(f"{e:g}" for e in EPSILONS) + " | no noise |",
            "|---|" + "---|" * (len(EPSILONS) + 1),
        ]
        for name, row in methods.items():
            if isinstance(row, float):
                lines.append(f"| {name} |" + f" {100 * row:.2f} |" * (len(EPSILONS) + 1))
                continue
            keys = [*(f"{e:g}" for e in EPSILONS), "none"]
            cells = " | ".join(
                f"{100 * row[k]['regret']:.2f}"
                + (f" ± {100 * row[k]['standard_error']:.2f}" if k != "none" else "")
                for k in keys
            )
            lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Compare, or measure costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--parties", type=int, choices=(10, 20), default=10)
    parser.add_argument("--memory", action="store_true", help="all parties in one process")
    parser.add_argument(
        "--part", choices=("all", "strategies", "guarantees", "price"), default="all"
    )
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--output", type=Path, help="keep the comparison here, as JSON")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if given.cost:
        found = cost(given.data, given.parties, given.memory)
        if given.format == "json":
            print(json.dumps(found))
        else:
            for name, value in found.items():
                print(
                    f"{name:36} {value:.4g}" if isinstance(value, float) else f"{name:36} {value}"
                )
        return
    found = compare(given.data) if given.part in ("all", "strategies") else {}
    if given.part in ("all", "guarantees"):
        found["guarantees"] = guarantees(given.data, 5.0, 3)
    if given.part in ("all", "price"):
        found["price"] = price(given.data, given.draws)
    if given.output is not None:
        given.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(json.dumps(found) if given.format == "json" else as_tables(found))


if __name__ == "__main__":
    main()

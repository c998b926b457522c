"""Fill the tables of docs/evaluation.md, so that no figure on it is typed in.

The page holds pairs of markers, `<!-- claims -->` and `<!-- /claims -->`; what stands between
them is replaced by the table of that name. All other text is left alone.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.dp_hype.claims import RATIOS, Averages, shown
from benchmarks.dp_hype.figures import NAMES, title_of
from benchmarks.dp_hype.methods import METHODS, noise_of
from benchmarks.dp_hype.published import (
    EPSILONS,
    LOCAL_SECONDS,
    OPT,
    SIGMA,
    VOTE_KILOBYTES,
    VOTE_SECONDS,
)

__all__ = ["fill_page"]

Content = dict[str, Any]
CLAIMED = ["claim", "wanted", "found", "met", "found, first trainings alone"]
PUBLIC_BESIDE = (0.1, 1.0)
"""Votes that stand beside public data."""
LATER = ("cifar10/100/iid", "cifar10/100/0.5")
COLUMNS = [f"ε = {shown(e)}".replace("inf", "∞") for e in EPSILONS]


def fill_page(path: Path, content: Content) -> None:
    """Replace what stands between each pair of markers.

    Raises:
        SystemExit: A pair names no table, or a table has no place on the page.
    """
    text = path.read_text(encoding="utf-8")
    wanted = set(re.findall(r"<!-- ([a-z-]+) -->", text))
    if wanted != set(TABLES):
        raise SystemExit(f"{path} should have the markers {sorted(TABLES)}, got {sorted(wanted)}")
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- {name} -->")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{opening}\n{table(content)}\n{closing}{after}"
    path.write_text(text, encoding="utf-8")


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def provenance(content: Content) -> str:
    """Say when, where and how the figures were made."""
    done = [r for r in content["training"] if "local_seconds" in r and "federated_seconds" in r]
    made = sorted({f"{r['machine']}, torch {r['torch']}, {r['date']}" for r in done})
    seconds = sum(r["local_seconds"] + r["federated_seconds"] for r in done)
    # Recorded once for a run of a data set; every setting of the run notes the same seconds.
    preparing = {
        (r["setting"].split("/")[0], part, r[f"{part}_preparing_seconds"])
        for r in done
        for part in ("local", "federated")
    }
    settings = len({r["setting"] for r in done})
    return (
        f"Scores: {len(done)} trainings of {settings} settings on {'; '.join(made)}; "
        f"{seconds:.0f} s of training and "
        f"{math.fsum(seconds for _, _, seconds in preparing):.0f} s to record and compile it. "
        f"Votes: {content['date']}, {content['seconds']} s on one core, {content['draws']} draws "
        "with 100 clients and a quarter of that elsewhere."
    )


def claims(content: Content) -> str:
    """Return what was promised and what came of it."""
    if not content["claims"]:
        return "None of the settings that claims are about has been computed."
    pairs = zip(content["claims"], content["first_claims"], strict=True)
    rows = [
        [
            every["text"].replace("inf", "∞"),
            every["wanted"],
            _found(every),
            "yes" if every["met"] else "**no**",
            _found(first),
        ]
        for every, first in pairs
    ]
    where = "; ".join(title_of(name) for name in content["claim_settings"])
    settings = f"Averaged over {len(content['claim_settings'])} settings ({where})."
    return f"{settings}\n\n{grid(CLAIMED, rows)}\n\n{_with_later(content)}"


def _with_later(content: Content) -> str:
    """Return the ratios of regrets with settings that were trained after claims were made."""
    averages = Averages(content["rows"], LATER)
    ratios = []
    for epsilon in RATIOS:
        (ours, _), (paper, _) = (
            averages.over_settings(method, epsilon, "regret") for method in ("ours", "paper")
        )
        ratios.append(f"{ours / paper:.3f} at ε = {epsilon:g}")
    names = " and ".join(map(title_of, LATER))
    return f"Ratios with {names}, trained after these claims: {', '.join(ratios)}."


def _found(claim: dict[str, Any]) -> str:
    return f"{_signed(claim)} ± {1.96 * claim['error']:.3f}"


def _signed(claim: dict[str, Any]) -> str:
    value = claim["value"]
    return f"{value:+.3f}".replace("-", "−") if "difference" in claim["text"] else f"{value:.3f}"


def equal(content: Content) -> str:
    """Return the epsilon at which ours is as good."""
    names = {"regret": "mean regret", "near_rate": "winners within one point of Opt"}
    rows = [
        [
            names[e["measure"]],
            f"{e['paper_epsilon']:g}",
            f"{e['paper_value']:.3f}",
            *(
                "none" if e[part] == "inf" else ("below " if e["bound"] else "") + str(e[part])
                for part in ("ours_epsilon", "ratio")
            ),
        ]
        for e in content["equal_epsilon"]
    ]
    return grid(["by", "the paper's ε", "it reaches", "ours reaches that at ε", "ratio"], rows)


def optimum(content: Content) -> str:
    """Return Opt beside the published values."""
    rows = []
    for end in content["ends"]:
        published = end["published_opt"]
        rows.append(
            [
                title_of(end["setting"]),
                str(end["trainings"]),
                _three(published),
                _three(end["opt"]),
                "–" if published is None else _points(end["opt"] - published),
                _three(end["opt_one_epoch"]),
                _three(end["rand_guess"]),
                f"{end['near_candidates']:g}",
                f"{end['clients_that_may_name_it']:.0%}",
            ]
        )
    computed = {end["setting"] for end in content["ends"]}
    rows += [
        [title_of(name), "0", _three(value), "not computed", *["–"] * 5]
        for name, value in OPT.items()
        if name not in computed
    ]
    header = ["setting", "trained", "Opt, published", "Opt, ours", "points",
              "Opt, one epoch in each round", "RandGuess, ours", "candidates within a point of Opt",
              "clients with the best one among their five"]  # fmt: skip
    return grid(header, rows)


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def diverged(content: Content) -> str:
    """Return favourites of most clients that diverged when all clients trained together."""
    rows = [
        [
            _repeated(end["setting"], found["training"]),
            ", ".join(f"{name} {value:g}" for name, value in found["candidate"].items()),
            f"{found['named_by']:.0%}",
            f"{found['accuracy']:.3f}",
        ]
        for end in content["ends"]
        for found in end["diverged"]
    ]
    if not rows:
        return "None of the favourites diverged."
    return grid(["setting", "candidate", "clients that name it", "final accuracy"], rows)


def _repeated(setting: str, training: int) -> str:
    return title_of(setting) + (f", training {training}" if training > 1 else "")


def results(content: Content) -> str:
    """Return final accuracies of the vote, one table for each data set."""
    parts = []
    for dataset, name in NAMES.items():
        rows = [
            [title_of(end["setting"]).partition(", ")[2] if first else "", METHODS[m].title]
            + [_mean(content["rows"], end["setting"], m, e) for e in EPSILONS]
            + [f"{end['opt']:.3f}" if first else ""]
            for end in content["ends"]
            if end["setting"].startswith(dataset)
            for first, m in ((True, "paper"), (False, "paper-exact"), (False, "ours"))
        ]
        if rows:
            parts.append(f"### {name}\n\n" + grid(["", "", *COLUMNS, "Opt"], rows))
    return "\n\n".join(parts)


def _mean(rows: Iterable[dict[str, Any]], setting: str, method: str, epsilon: float) -> str:
    for r in rows:
        if (r["setting"], r["method"], r["epsilon"]) == (setting, method, shown(epsilon)):
            return f"{r['mean']:.3f} ± {1.96 * r['standard_error']:.3f}"
    return "–"


def public(content: Content) -> str:
    """Return what public data of another kind would have chosen, without any vote."""
    datasets = list(dict.fromkeys(d for row in content["public"] for d in row["best_on"]))
    rows = [
        [
            title_of(row["setting"]),
            *(_three(row["best_on"].get(dataset)) for dataset in datasets),
            *(
                _mean(content["rows"], row["setting"], "ours", epsilon).split(" ")[0]
                for epsilon in PUBLIC_BESIDE
            ),
            _three(row["opt"]),
        ]
        for row in content["public"]
    ]
    votes = [f"ours, ε = {epsilon:g}" for epsilon in PUBLIC_BESIDE]
    header = ["", *(f"best on {NAMES[dataset]}" for dataset in datasets), *votes, "Opt"]
    return grid(header, rows)


def worse(content: Content) -> str:
    """Return where ours loses to the paper's mechanism, by more than chance explains."""
    found = {(r["setting"], r["method"], r["epsilon"]): r for r in content["rows"]}
    rows, better = [], 0
    for (setting, method, epsilon), paper in found.items():
        ours = found.get((setting, "ours", epsilon))
        if method != "paper" or ours is None:
            continue
        lost = paper["mean"] - ours["mean"]
        error = (paper["standard_error"] ** 2 + ours["standard_error"] ** 2) ** 0.5
        better += -lost > max(0.001, 1.96 * error)
        if lost > max(0.001, 1.96 * error):
            rows.append(
                [
                    title_of(setting),
                    str(epsilon).replace("inf", "∞"),
                    f"{paper['mean']:.3f}",
                    f"{ours['mean']:.3f}",
                    f"{100 * lost:.1f} ± {196 * error:.1f}",
                ]
            )
    compared = sum(key[1] == "paper" for key in found)
    won = f"Of {compared} comparisons ours is better in {better}"
    if not rows:
        return f"{won}, and worse in none."
    table = grid(["setting", "ε", "the paper's", "ours", "points lost"], rows)
    return f"{won}, and worse in {len(rows)}:\n\n{table}"


def ablations(content: Content) -> str:
    """Return regrets of every method, averaged over the settings of the claims."""
    averages = Averages(content["rows"])
    rows = []
    for method in METHODS.values():
        found = [averages.over_settings(method.name, e, "regret") for e in EPSILONS]
        if not all(math.isnan(mean) for mean, _ in found):
            rows.append([method.title, *(f"{m:.3f} ± {1.96 * e:.3f}" for m, e in found)])
    return grid(["", *COLUMNS], rows)


def nearness(content: Content) -> str:
    """Return how often winners are within a point of Opt, averaged as the claims are."""
    averages = Averages(content["rows"])
    rows = []
    for name in ("paper", "paper-exact", "ours", "ours-argmax", "paper-decoded"):
        found = [averages.over_settings(name, e, "near_rate") for e in EPSILONS]
        if not all(math.isnan(mean) for mean, _ in found):
            rows.append([METHODS[name].title, *(f"{m:.2f} ± {1.96 * e:.2f}" for m, e in found)])
    return grid(["", *COLUMNS], rows)


def noise(_: Content) -> str:
    """Return the noise of the authors and ours for the same ballots."""
    finite = EPSILONS[:-1]
    rows = [
        ["the authors' (Rényi accounting)", *(f"{SIGMA[e]:g}" for e in finite)],
        ["ours (exact, 100 clients, all noise in)", *(f"{noise_of(e, 100):.1f}" for e in finite)],
    ]
    return grid(["standard deviation, in votes", *COLUMNS[:-1]], rows)


def simulated(content: Content) -> str:
    """Return the simulation's success rates for a spread of one."""
    rows = []
    mine = [r for r in content["simulation"] if r["varied"] == "spread"]
    for epsilon in dict.fromkeys(r["epsilon"] for r in mine):
        for votes in dict.fromkeys(r["votes"] for r in mine):
            line = [r for r in mine if (r["epsilon"], r["votes"]) == (epsilon, votes)]
            rows.append([f"{epsilon:g}", str(votes), *(f"{r['rate']:.2f}" for r in line)])
    spreads = [f"spread {s:g}" for s in dict.fromkeys(r["spread"] for r in mine)]
    return grid(["ε", "votes", *spreads], rows)


def training_costs(content: Content) -> str:
    """Return seconds and memory of training, beside the authors'."""
    rows = []
    for r in content["training"]:
        dataset, clients, _ = r["setting"].split("/")
        authors = LOCAL_SECONDS[dataset, int(clients)] * int(clients)
        rows.append(
            [
                _repeated(r["setting"], r["seed"] + 1),
                r.get("precision", "–"),
                f"{authors:,.0f} s",
                *(
                    f"{r[f'{part}_seconds']:.1f} s, {r[f'{part}_gigabytes']:.1f} GB"
                    if f"{part}_seconds" in r
                    else "not computed"
                    for part in ("local", "federated")
                ),
            ]
        )
    header = ["", "precision", "the authors' local search, all clients",
              "our local search, all clients",
              "our federated training of all candidates"]  # fmt: skip
    return grid(header, rows)


def vote_costs(content: Content) -> str:
    """Return what one vote costs, beside the authors'."""
    rows = [
        [
            str(v["clients"]),
            f"{VOTE_SECONDS[v['clients']]:.1f} s, {VOTE_KILOBYTES[v['clients']]:.0f} KB",
            f"{v['wall_seconds']:.2f} s, {v['kilobytes']:.1f} KB",
            f"{v['client_milliseconds']:.1f} ms",
            f"{v['server_seconds']:.3f} s",
        ]
        for v in content["votes"]
    ]
    header = ["clients", "the authors: one vote, both ways per client", "ours: all parties in one "
              "process, both ways per client", "of it one client", "of it the server"]  # fmt: skip
    return grid(header, rows)


def missing(content: Content) -> str:
    """Return what was not computed, and how long it would take."""
    if not content["missing"]:
        return "Nothing: all of the authors' settings are there."
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for m in content["missing"]:
        dataset, clients, _ = m["setting"].split("/")
        alike.setdefault((dataset, clients, " and ".join(m["parts"])), []).append(m)
    rows = [
        [
            f"{NAMES[dataset]}, {clients} clients",
            ", ".join(m["setting"].split("/")[2] for m in group),
            parts,
            "unknown"
            if any(m["seconds"] is None for m in group)
            else f"{sum(m['seconds'] for m in group):,} s",
        ]
        for (dataset, clients, parts), group in alike.items()
    ]
    total = sum(m["seconds"] or 0 for m in content["missing"])
    table = grid(["", "splits (iid or β)", "missing", "would take"], rows)
    return f"{table}\n\nTogether about {total / 3600:.1f} hours on one H200."


TABLES: dict[str, Callable[[Content], str]] = {
    "provenance": provenance,
    "claims": claims,
    "equal-epsilon": equal,
    "opt": optimum,
    "diverged": diverged,
    "results": results,
    "public": public,
    "worse": worse,
    "noise": noise,
    "ablations": ablations,
    "nearness": nearness,
    "simulation": simulated,
    "training": training_costs,
    "votes": vote_costs,
    "missing": missing,
}

"""The evaluation's figures, drawn from its rows."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.dp_hype.charts import Line, Panel, chart
from benchmarks.dp_hype.claims import Averages, shown
from benchmarks.dp_hype.methods import METHODS
from benchmarks.dp_hype.published import EPSILONS
from benchmarks.dp_hype.settings import DATASETS

__all__ = ["NAMES", "figures", "title_of"]

TICKS = [str(shown(e)).replace("inf", "∞") for e in EPSILONS]
NAMES = {"adult": "Adult", "mnist": "MNIST", "cifar10": "CIFAR-10"}
VOTES = ("ours", "paper-exact", "paper")
PARTS = (
    "ours",
    "ours-unnamed",
    "paper-decoded",
    "ours-argmax",
    "ours-by-loss",
    "paper",
    "paper-by-loss",
)
OTHERS = (
    "ours", "central", "raw-losses", "subsets", "mean-setting", "feathers", "feathers-honest",
)  # fmt: skip


def figures(content: dict[str, Any]) -> dict[str, str]:
    """Return every figure's file name and SVG text."""
    drawn = {
        f"accuracy-{dataset}.svg": _accuracies(dataset, content)
        for dataset in DATASETS
        if any(end["setting"].startswith(dataset) for end in content["ends"])
    }
    if content["claim_settings"]:
        drawn["regret.svg"] = _regrets(content)
    for varied, axis in (("spread", "spread of losses"), ("good", "good candidates")):
        drawn[f"simulation-{varied}.svg"] = _simulation(varied, axis, content["simulation"])
    return drawn


def title_of(setting: str) -> str:
    """Return a setting as figures and tables name it.

    >>> title_of("mnist/100/0.5")
    'MNIST, 100 clients, β = 0.5'
    """
    dataset, clients, split = setting.split("/")
    how = "iid" if split == "iid" else f"β = {split}"
    return f"{NAMES[dataset]}, {clients} clients, {how}"


def _accuracies(dataset: str, content: dict[str, Any]) -> str:
    panels = []
    for end in content["ends"]:
        name = end["setting"]
        if not name.startswith(dataset):
            continue
        lines = [_runs(content["rows"], name, method) for method in VOTES]
        lines += [
            Line(title, [end[key]] * len(TICKS), dashed=True)
            for title, key in (("Opt", "opt"), ("RandGuess", "rand_guess"))
        ]
        panels.append(Panel(title_of(name), [line for line in lines if any(line.values)]))
    return chart(
        panels,
        TICKS,
        caption=f"Final accuracy on {NAMES[dataset]} over epsilon: mean of 20 votes with its "
        "95 % confidence interval",
        axis="ε",
        columns=4,
    )


def _runs(rows: Iterable[dict[str, Any]], setting: str, method: str) -> Line:
    found = {r["epsilon"]: r for r in rows if r["setting"] == setting and r["method"] == method}

    def values(key: str) -> list[float | None]:
        return [found[shown(e)][key] if shown(e) in found else None for e in EPSILONS]

    title = METHODS[method].title
    return Line(title, values("runs_mean"), values("runs_low"), values("runs_high"))


def _regrets(content: dict[str, Any]) -> str:
    averages = Averages(content["rows"])
    panels = [
        Panel(title, [line for m in methods if any((line := _regret(averages, m)).values)])
        for title, methods in (
            ("The vote", VOTES),
            ("Its parts", PARTS),
            ("Other ways to choose", OTHERS),
        )
    ]
    return chart(
        panels,
        TICKS,
        caption="Regret (Opt less final accuracy) over epsilon, averaged over "
        + ", ".join(title_of(name) for name in content["claim_settings"]),
        axis="ε",
        span=(0.0, 0.6),
    )


def _regret(averages: Averages, method: str) -> Line:
    found = [averages.over_settings(method, epsilon, "regret") for epsilon in EPSILONS]
    known: Sequence[tuple[float, float] | None] = [None if math.isnan(f[0]) else f for f in found]
    return Line(
        METHODS[method].title,
        [f[0] if f else None for f in known],
        [f[0] - 1.96 * f[1] if f else None for f in known],
        [f[0] + 1.96 * f[1] if f else None for f in known],
    )


def _simulation(varied: str, axis: str, rows: Sequence[dict[str, Any]]) -> str:
    mine = [r for r in rows if r["varied"] == varied]
    ticks = list(dict.fromkeys(r[varied] for r in mine))
    panels = []
    for epsilon in dict.fromkeys(r["epsilon"] for r in mine):
        lines = []
        for votes in dict.fromkeys(r["votes"] for r in mine):
            line = [r for r in mine if r["epsilon"] == epsilon and r["votes"] == votes]
            lines.append(
                Line(
                    f"{votes} vote{'s' * (votes > 1)}",
                    [r["rate"] for r in line],
                    [r["low"] for r in line],
                    [r["high"] for r in line],
                )
            )
        panels.append(Panel(f"ε = {epsilon:g}", lines))
    return chart(
        panels,
        [f"{tick:g}" for tick in ticks],
        caption=f"How often a good candidate wins in the paper's simulation, over {axis}",
        axis=axis,
    )

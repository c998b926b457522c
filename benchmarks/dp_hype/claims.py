"""Hold ours against the paper's mechanism: the ratios and differences that were promised."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.dp_hype.published import EPSILONS
from benchmarks.dp_hype.settings import Setting

__all__ = ["CLIENTS", "FINER", "NEAR", "Averages", "claimed", "compare"]

FINER = (0.025, 0.05, 0.15)
"""More epsilons for ours: where it is as good as the paper's mechanism is at a larger one."""
NEAR = 0.01
"""A vote succeeds if its winner reaches Opt but for one point."""
RATIOS = {0.25: 0.30, 0.1: 0.50}
"""Largest regret of ours over that of the paper, by epsilon."""
LOST = 0.003
"""Most that ours may lose to the paper at larger epsilons."""
DATASETS, CLIENTS, SPLITS = ("mnist", "adult"), 100, ("iid", "5", "0.5")


def claimed(setting: Setting) -> bool:
    """Return whether claims are about this setting."""
    return setting.dataset in DATASETS and setting.clients == CLIENTS and setting.split in SPLITS


def shown(epsilon: float) -> float | str:
    """Return an epsilon as it is written in JSON."""
    return epsilon if math.isfinite(epsilon) else "inf"


@dataclass(frozen=True, slots=True)
class Averages:
    """Rows of the settings that claims are about, averaged over these settings."""

    rows: Sequence[dict[str, Any]]
    also: tuple[str, ...] = ()
    """Settings that are averaged over as well."""

    def over_settings(self, method: str, epsilon: float, what: str) -> tuple[float, float]:
        """Return the mean of a figure over settings, and its standard error; NaN without rows."""
        found = [
            r
            for r in self.rows
            if r["method"] == method
            and r["epsilon"] == shown(epsilon)
            and (_counts(r["setting"]) or r["setting"] in self.also)
        ]
        if not found:
            return math.nan, math.nan
        if what == "near_rate":
            errors = [r[what] * (1 - r[what]) / r["draws"] for r in found]
        else:
            errors = [r["standard_error"] ** 2 for r in found]
        mean = sum(r[what] for r in found) / len(found)
        return mean, math.sqrt(sum(errors)) / len(found)

    @property
    def settings(self) -> list[str]:
        """The settings averaged over."""
        return list(dict.fromkeys(r["setting"] for r in self.rows if _counts(r["setting"])))


def _counts(name: str) -> bool:
    dataset, clients, split = name.split("/")
    return claimed(Setting(dataset, int(clients), split))


def compare(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the claims, and at which epsilon ours is as good as the paper's mechanism."""
    averages = Averages(rows)
    if not averages.settings:
        return {"claim_settings": [], "claims": [], "equal_epsilon": []}
    return {
        "claim_settings": averages.settings,
        "claims": _claims(averages),
        "equal_epsilon": [
            equal_epsilon(averages, epsilon, what)
            for what in ("regret", "near_rate")
            for epsilon in EPSILONS[:3]
        ],
    }


def _claims(averages: Averages) -> list[dict[str, Any]]:
    claims = []
    for epsilon, most in RATIOS.items():
        (ours, ours_error), (paper, paper_error) = (
            averages.over_settings(method, epsilon, "regret") for method in ("ours", "paper")
        )
        ratio = ours / paper
        error = ratio * math.hypot(ours_error / max(ours, 1e-9), paper_error / paper)
        claims.append(
            _claim("ratio of regrets", epsilon, ratio, error, f"at most {most:.2f}", ratio <= most)
        )
    for epsilon in (e for e in EPSILONS if e >= 1):
        (ours, ours_error), (paper, paper_error) = (
            averages.over_settings(method, epsilon, "mean") for method in ("ours", "paper")
        )
        claims.append(
            _claim(
                "difference of accuracies",
                epsilon,
                ours - paper,
                math.hypot(ours_error, paper_error),
                f"at least −{LOST}",
                ours - paper >= -LOST,
            )
        )
    return claims


def _claim(
    what: str, epsilon: float, value: float, error: float, wanted: str, met: bool
) -> dict[str, Any]:
    return {
        "text": f"{what}, ours to the paper's, ε = {epsilon:g}",
        "epsilon": shown(epsilon),
        "value": round(value, 4),
        "error": round(error, 4),
        "wanted": wanted,
        "met": bool(met),
    }


def equal_epsilon(averages: Averages, epsilon: float, what: str) -> dict[str, Any]:
    """Return the least epsilon at which ours does what the paper's mechanism does at this one.

    Between two measured epsilons it is interpolated on a logarithmic scale. Where ours is better
    at the least measured epsilon, that one is given, as a bound.
    """
    wanted, _ = averages.over_settings("paper", epsilon, what)
    grid = sorted(e for e in (*FINER, *EPSILONS) if math.isfinite(e))
    sign = -1.0 if what == "regret" else 1.0
    found = sign * np.array([averages.over_settings("ours", e, what)[0] for e in grid])
    # Success grows with epsilon; small steps back are chance.
    found = np.maximum.accumulate(found)
    target = sign * wanted
    first = int(np.argmax(found >= target)) if (found >= target).any() else None
    if first is None:
        value = math.inf
    elif first == 0:
        value = grid[0]
    else:
        low, high = found[first - 1], found[first]
        share = (target - low) / (high - low)
        value = math.exp((1 - share) * math.log(grid[first - 1]) + share * math.log(grid[first]))
    return {
        "measure": what,
        "paper_epsilon": epsilon,
        "paper_value": round(wanted, 4),
        "ours_epsilon": shown(round(value, 4)),
        "bound": first == 0,
        "ratio": shown(round(value / epsilon, 3)),
    }

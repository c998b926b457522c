"""The page about a training: how the model learned, what it cost, who took part."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

from urna.privacy.budget import rounded_up
from urna.report.charts import Line, lines
from urna.report.sections import electorate, privacy
from urna.report.shell import document, facts, notes, section
from urna.train import TrainResult
from urna.train.result import REASONS
from urna.train.settings import ACCURACY, LOSS

__all__ = ["training_page"]


def training_page(result: TrainResult, *, title: str) -> str:
    """Return the page about a training. It shows noisy sums and public facts, nothing else."""
    said = {
        "rounds": f"{result.rounds}",
        "parameters": f"{len(result.weights):,}",
    }
    if result.accuracy is not None:
        said["right answers"] = f"{100 * result.accuracy:.1f} %"
    said["epsilon"] = rounded_up(result.privacy.epsilon) if result.privacy.private else "infinite"
    settings: Mapping[str, Any] = result.plan["settings"]
    trained = {
        "model": result.description,
        "ended because": REASONS[result.stopped],
        "server optimiser": ", ".join(
            str(v) if k == "name" else f"{k} {v}" for k, v in settings["optimiser"].items()
        ),
        "clip norm": ", ".join(f"{k} {v}" for k, v in settings["clip"].items()),
        "who takes part": ", ".join(f"{v}" for v in settings["sampling"].values()),
        "noise in one sum": f"{result.plan['noise_multiplier']:.3g} times the clip norm",
    }
    body = [
        section("Trained", facts("best", said), notes(_ended(result))),
        section("How it learned", *_curves(result)),
        section("How it was trained", facts("facts", trained)),
        section("Noise and dropouts", *_rounds(result)),
        *([_pipeline(result.pipeline)] if result.pipeline else []),
        privacy(result.privacy, result.terms),
        electorate(
            result.terms,
            result.history[-1].took_part if result.history else 0,
            result.lost,
            result.faults,
            {"clients in all": f"{result.plan['all_clients']}"},
        ),
    ]
    held = ""
    if result.when is not None:
        held = f"{datetime.datetime.fromtimestamp(result.when, datetime.UTC):%Y-%m-%d %H:%M} UTC. "
    footer = f"{held}Everything on this page was computed from noisy sums and public facts."
    return document(title, "The model", "".join(body), footer, private=result.privacy.private)


def _ended(result: TrainResult) -> str:
    achieved = result.achieved_epsilon
    if not math.isfinite(achieved):
        return f"Training ended because {REASONS[result.stopped]}."
    return (
        f"Training ended because {REASONS[result.stopped]}. By the noise that was really left in "
        f"each round, epsilon of the rounds is {rounded_up(achieved)}."
    )


def _curves(result: TrainResult) -> list[str]:
    history = result.history
    shown: list[str] = []
    public = [(r.number, 100 * r.test[1]) for r in history if r.test and not math.isnan(r.test[1])]
    judged = [
        (r.number, 100 * r.measured[ACCURACY], 100 * r.errors[ACCURACY])
        for r in history
        if ACCURACY in r.measured
    ]
    right = []
    if public:
        right.append(Line("public test rows", [(x, y, 0.0) for x, y in public]))
    if judged:
        right.append(Line("clients' own rows, private", judged, dots=True))
    if right:
        shown.append(lines(right, caption="Right answers, in per cent, by round"))
    losses = [(r.number, r.measured[LOSS], r.errors[LOSS]) for r in history if LOSS in r.measured]
    if losses:
        shown.append(
            lines(
                [Line("clients' own rows, private", losses, dots=True)],
                caption="Validation loss, as a share of the largest, by round",
            )
        )
    if not shown:
        return [notes("Nobody judged the model while it learned.")]
    about = "Points of private tallies have one standard deviation of their noise as whiskers."
    return [*shown, notes(about)] if judged or losses else shown


def _rounds(result: TrainResult) -> list[str]:
    history = result.history
    if not history:
        return [notes("No round was held.")]
    parts = []
    spent = [(r.number, r.epsilon, 0.0) for r in history if r.epsilon is not None]
    if spent:
        parts.append(lines([Line("epsilon so far", spent)], caption="Epsilon after each round"))
    lost = [r.lost for r in history]
    again = sum(r.attempts - 1 for r in history)
    failed = [r for r in history if r.failed]
    least, most = min(r.noise_ratio for r in history), max(r.noise_ratio for r in history)
    said = {
        "lost in a round": f"{min(lost)} to {max(lost)} clients",
        "rounds held again": f"{again}",
        "rounds that gave nothing": f"{len(failed)}",
        "noise left over the planned": f"{least:.4f} to {most:.4f} times its variance",
    }
    why = [f"Round {r.number}: {r.failed}." for r in failed[:5]]
    return [*parts, facts("facts", said), notes(*why)]


def _pipeline(said: Mapping[str, Any]) -> str:
    rounds = [r for r in said["rounds"] if r["predicted"] is not None]
    if not rounds:
        return ""
    off = [abs(r["predicted"] / r["measured"] - 1) for r in rounds]
    shown = {
        "chunks": f"{rounds[-1]['chunks']}",
        "measured, last round": f"{rounds[-1]['measured']:.2f} s",
        "predicted": f"{rounds[-1]['predicted']:.2f} s",
        "predictions were off by": f"{100 * sum(off) / len(off):.0f} % on average",
    }
    return section("Pipeline", facts("facts", shown))

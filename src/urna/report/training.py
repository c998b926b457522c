"""The stage of a training: how the model learned, what its noise was, who vanished."""

import math
from collections.abc import Mapping
from typing import Any

from urna.privacy.budget import rounded_up
from urna.report.figures import Curve, Picture, curves
from urna.report.parties import not_covered, parties
from urna.report.stages import StageAnswer, StageView, participation_of, warnings_of
from urna.report.words import slug
from urna.systems.train import RoundReport, TrainResult
from urna.systems.train.result import REASONS
from urna.systems.train.settings import ACCURACY, LOSS

__all__ = ["training_stage"]

_FAILED = 5
_WIDE = 1.959964


def training_stage(result: TrainResult, *, name: str = "Training") -> StageView:
    """Return what a page shows of a training: noisy sums and public facts, nothing else."""
    statement, plan = result.privacy, result.plan
    facts = {"rounds": f"{result.rounds}", "parameters": f"{len(result.weights):,}"}
    if result.accuracy is not None and not math.isnan(result.accuracy):
        facts = {"right answers": f"{100 * result.accuracy:.1f} %", **facts}
    told = []
    if "right answers" in facts:
        told.append("Measured on public test data, which nobody trained on.")
    told.append(f"Training ended because {REASONS[result.stopped]}.")
    if math.isfinite(result.achieved_epsilon) and result.rounds:
        told.append(
            "By the noise that was really left in each round, epsilon of the rounds is "
            f"{rounded_up(result.achieved_epsilon)}."
        )
    key = slug(name)
    pictures = (*_learned(result.history, key), _spent(result.history, key))
    failed = [r for r in result.history if r.failed]
    last = result.history[-1].took_part if result.history else 0
    data = plan.get("bytes_per_client_and_round")
    follows = (
        "Predictions, and what else is trained on the same data. Using the model reveals no "
        "more than the model itself."
    )
    invited = int(plan.get("all_clients", result.terms.clients))
    return StageView(
        kind="training",
        name=name,
        answer=StageAnswer(
            "One model for all", tuple(facts.items()), "", result.description, tuple(told)
        ),
        privacy=statement,
        took_part=last,
        invited=invited,
        participation=(
            *((("clients in all", f"{invited}"),) if invited != result.terms.clients else ()),
            *participation_of(result.terms, last),
        ),
        parties=tuple(
            parties(statement, result.terms, "update", "every round's noisy sum, so the model")
        ),
        uncovered=tuple(not_covered(statement, follows=follows)),
        facts=tuple((_settings(result) | _noise(result)).items()),
        lost=result.lost,
        faults=result.faults,
        when=result.when,
        bytes_per_client=None if data is None else int(data),
        rounds=max(result.rounds, 1),
        warnings=warnings_of(statement),
        view={
            "pictures": [shown for shown in pictures if shown is not None],
            "failed": [f"Round {r.number}: {r.failed}." for r in failed[:_FAILED]],
        },
        entry=result.entry,
    )  # fmt: skip


def _settings(result: TrainResult) -> dict[str, str]:
    settings: Mapping[str, Any] = result.plan["settings"]
    return {
        "model": result.description,
        "server optimiser": ", ".join(
            str(v) if k == "name" else f"{k} {v}" for k, v in settings["optimiser"].items()
        ),
        "clip norm": ", ".join(f"{k} {v}" for k, v in settings["clip"].items()),
        "who takes part": ", ".join(f"{v}" for v in settings["sampling"].values()),
        "noise in one sum": f"{result.plan['noise_multiplier']:.3g} times the clip norm",
        "noise's family": f"{result.terms.family}, made by the clients",
    }


def _noise(result: TrainResult) -> dict[str, str]:
    history = result.history
    if not history:
        return {}
    lost = [r.lost for r in history]
    ratios = [r.noise_ratio for r in history]
    return {
        "lost in a round": f"{min(lost)} to {max(lost)} clients",
        "rounds held again": f"{sum(r.attempts - 1 for r in history)}",
        "rounds that gave nothing": f"{sum(bool(r.failed) for r in history)}",
        "noise left over the planned": f"{min(ratios):.4f} to {max(ratios):.4f} times its variance",
    }


def _learned(history: tuple[RoundReport, ...], key: str) -> list[Picture]:
    """Draw how well the model did round by round, by whom it was judged."""
    found = []
    public = [(r.number, 100 * r.test[1]) for r in history if r.test and not math.isnan(r.test[1])]
    judged = [
        (r.number, 100 * r.measured[ACCURACY], _WIDE * 100 * r.errors[ACCURACY])
        for r in history
        if ACCURACY in r.measured
    ]
    drawn = []
    if public:
        drawn.append(
            Curve("public test rows", [n for n, _ in public], [right for _, right in public])
        )
    if judged:
        x, y, errors = zip(*judged, strict=True)
        drawn.append(Curve("clients' own rows, private", x, y, errors, "dots"))
    if drawn:
        names = {c.name: dict(zip(c.x, c.y, strict=True)) for c in drawn}
        whose = " and ".join(names)
        found.append(
            Picture(
                curves(f"{key}-learned", drawn, across="round", up="right answers, %"),
                f"Right answers by round, on {whose}."
                + (
                    " Dots are private tallies; whiskers hold 95 % of their noise."
                    if judged
                    else ""
                ),
                f"Right answers over {len(history)} rounds, from {drawn[0].y[0]:.0f} % to "
                f"{drawn[0].y[-1]:.0f} %",
                ("round", *names),
                _rows(history, list(names.values()), "{:.1f} %"),
            )
        )
    losses = [
        (r.number, r.measured[LOSS], _WIDE * r.errors[LOSS]) for r in history if LOSS in r.measured
    ]
    if losses:
        x, y, errors = zip(*losses, strict=True)
        found.append(
            Picture(
                curves(
                    f"{key}-losses",
                    [Curve("loss", x, y, errors, "dots")],
                    across="round",
                    up="loss",
                ),
                "Validation loss on clients' own rows, as a share of the largest, from private "
                "tallies; whiskers hold 95 % of their noise.",
                f"Private validation loss over {len(history)} rounds",
                ("round", "loss"),
                _rows(history, [dict(zip(x, y, strict=True))], "{:.4f}"),
            )
        )
    return found


def _spent(history: tuple[RoundReport, ...], key: str) -> Picture | None:
    spent = {r.number: r.epsilon for r in history if r.epsilon is not None}
    if len(spent) < 2:
        return None
    drawn = [Curve("epsilon so far", [0, *spent], [0.0, *spent.values()])]
    return Picture(
        curves(f"{key}-spent", drawn, across="round", up="epsilon"),
        "Epsilon after each round, by the noise that was really left in each.",
        f"Epsilon grows to {rounded_up(list(spent.values())[-1])} over {len(spent)} rounds",
        ("round", "epsilon so far"),
        tuple((f"{n}", rounded_up(e)) for n, e in spent.items()),
    )


def _rows(
    history: tuple[RoundReport, ...], columns: list[dict[Any, Any]], form: str
) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            f"{r.number}",
            *(form.format(column[r.number]) if r.number in column else "–" for column in columns),
        )
        for r in history
    )

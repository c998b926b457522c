"""The stage of a model of one message: what it is, how good, how large its noise is."""

import numpy as np

from urna.report.figures import Curve, Picture, curves
from urna.report.parties import not_covered, parties
from urna.report.stages import StageAnswer, StageView, participation_of, warnings_of
from urna.report.words import said, settings, slug
from urna.systems.average import ModelResult, Moments

__all__ = ["model_stage"]


def model_stage(result: ModelResult, *, name: str = "Model of one message") -> StageView:
    """Return what a page shows of a model: the noisy sum and public facts, nothing else."""
    schema, learner, statement = result.schema, result.learner, result.privacy
    figures = tuple((what, _figure(what, value)) for what, value in result.measured.items())
    told = [f"{result.described[0].upper()}{result.described[1:]}."]
    if result.why:
        told.append(f"Chosen because {result.why}.")
    choices: tuple[tuple[tuple[str, str], ...], ...] = ()
    if result.tuned is not None:
        told.append(
            f"Its settings were chosen by a private vote on {result.tuned['candidates']} "
            "candidates, whose epsilon is part of the one below:"
        )
        choices = (tuple(settings(result.tuned["best"])),)
    if result.measured:
        told.insert(0, "Measured on public test data, which nobody trained on.")
    facts = {
        "features": f"{schema.features:,}",
        "weights": f"{result.weights.size:,}",
        **(
            {"classes": f"{len(schema.classes)}"}
            if schema.classes is not None
            else {"targets": f"{schema.span[0]:g} to {schema.span[1]:g}"}
            if schema.span is not None
            else {}
        ),
        "messages of each client": "1",
        "numbers in it": f"{learner.dimension:,}",
        "noise in an entry of the sum": f"± {result.noise_std:.4g} (one standard deviation)",
        "noise's family": f"{result.terms.family}, made by the clients",
        **_read_off(result),
    }
    data = result.plan.get("bytes_per_client")
    follows = (
        "Predictions. Using the model reveals no more than the model itself; what others do "
        "with its predictions about a person is not covered."
    )
    return StageView(
        kind="model",
        name=name,
        answer=StageAnswer(
            "One model for all", figures or (("model", "trained"),), "", "Computed from one "
            "noisy sum",
            tuple(told), choices,
        ),
        privacy=statement,
        took_part=result.took_part,
        invited=result.terms.clients,
        participation=participation_of(result.terms, result.took_part),
        parties=tuple(parties(statement, result.terms, "message", "the noisy sum, so the model")),
        uncovered=tuple(not_covered(statement, follows=follows)),
        facts=tuple(facts.items()),
        lost=result.lost,
        faults=result.faults,
        when=result.when,
        bytes_per_client=None if data is None else int(data),
        warnings=warnings_of(statement),
        view={"pictures": [_weights(result, slug(name))]},
        entry=result.entry,
    )  # fmt: skip


def _figure(what: str, value: float) -> str:
    return f"{100 * value:.1f} %" if what == "accuracy" else f"{value:.4g}"


def _read_off(result: ModelResult) -> dict[str, str]:
    if isinstance(result.learner, Moments):
        return {
            "ridge, from the noise": f"{result.facts['ridge']:.4g}",
            "directions that stand out of the noise": f"{result.facts['spikes']}",
        }
    return {"noise in a weight": f"± {result.facts['weight_std']:.4g} (one standard deviation)"}


def _weights(result: ModelResult, key: str) -> Picture:
    """Draw the weights by size, beside the noise in each where that is known."""
    sizes = np.sort(np.abs(result.weights).ravel())[::-1]
    rank = np.arange(1, len(sizes) + 1, dtype=np.float64)
    shown = np.unique(np.geomspace(1, len(sizes), 80).round().astype(int)) - 1
    drawn = [Curve("weights", rank[shown], sizes[shown])]
    noise = result.facts.get("weight_std")
    if noise is not None:
        drawn.append(Curve("noise", rank[shown], np.full(len(shown), float(noise)), kind="dashes"))
    beside = (
        "" if noise is None else " The dashed line is the noise in each, one standard deviation."
    )
    svg = curves(
        f"{key}-weights", drawn, across="weights, largest first", up="size", log=len(sizes) > 100
    )
    picked = shown[:: max(1, len(shown) // 12)]
    return Picture(
        svg,
        f"The model's weights by size, as they were read from the noisy sum.{beside}",
        f"Sizes of {len(sizes)} weights, from {sizes[0]:.3g} down to {sizes[-1]:.3g}",
        ("rank", "size"),
        tuple((f"{rank[i]:.0f}", said(float(f"{sizes[i]:.3g}"))) for i in picked),
    )

"""The page about a model of one message: what it is, what it cost, how large its noise is."""

import datetime

from urna.average import ModelResult, Moments
from urna.report.sections import electorate, privacy
from urna.report.shell import document, facts, notes, section

__all__ = ["model_page"]


def model_page(result: ModelResult, *, title: str) -> str:
    """Return the page about a model. It shows nothing but the noisy sum and public facts."""
    schema, learner = result.schema, result.learner
    what = (
        {"classes": f"{len(schema.classes)}"}
        if schema.classes is not None
        else {"targets": f"{schema.span[0]:g} to {schema.span[1]:g}"}
        if schema.span is not None
        else {}
    )
    figures = {name: f"{value:.4g}" for name, value in result.measured.items()}
    told = [f"{learner.describe()}."]
    if result.why:
        told.append(f"Chosen because {result.why}.")
    if result.tuned is not None:
        chosen = ", ".join(f"{name} {value}" for name, value in result.tuned["best"].items())
        told.append(
            f"Settings by a private vote on {result.tuned['candidates']} candidates: {chosen}. "
            "Epsilon below is that of the vote and the model together."
        )
    if result.measured:
        told.append("Figures are of public test data, which nobody trained on.")
    body = [
        section("Model", facts("best", figures) if figures else "", notes(*told)),
        section("Numbers", facts("facts", {**_numbers(result), **what})),
        privacy(result.privacy, result.terms),
        electorate(
            result.terms,
            result.took_part,
            result.lost,
            result.faults,
            {"messages of each client": "1", "numbers in it": f"{learner.dimension:,}"},
        ),
    ]
    held = ""
    if result.when is not None:
        held = f"{datetime.datetime.fromtimestamp(result.when, datetime.UTC):%Y-%m-%d %H:%M} UTC. "
    footer = f"{held}Everything on this page was computed from the noisy sum and public facts."
    return document(
        title, "One message, one model", "".join(body), footer, private=result.privacy.private
    )


def _numbers(result: ModelResult) -> dict[str, str]:
    found = {
        "features": f"{result.schema.features:,}",
        "weights": f"{result.weights.size:,}",
        "noise in an entry of the sum": f"± {result.noise_std:.4g}",
    }
    if isinstance(result.learner, Moments):
        return found | {
            "ridge, from the noise": f"{result.facts['ridge']:.4g}",
            "directions that stand out of the noise": f"{result.facts['spikes']}",
        }
    return found | {"noise in a weight": f"± {result.facts['weight_std']:.4g}"}

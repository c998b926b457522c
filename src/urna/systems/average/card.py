"""A model card in Hugging Face's format: what the model is, cost, and does not promise."""

import datetime
import json
from typing import Any

from urna.privacy import Unit
from urna.privacy.budget import rounded_up
from urna.systems.average.model import ModelResult
from urna.tally.card import card_head, privacy_block

__all__ = ["model_card"]


def model_card(result: ModelResult, *, name: str, licence: str | None = None) -> str:
    """Return the card as Markdown with a YAML head, for a README.md beside the model's file.

    The head has a `privacy:` block with the numbers and the relation they hold for; the text
    says them in words. Nothing in it was computed from data but by way of the noisy sum, and
    figures on public test data where somebody gave them.

    Args:
        result: The model.
        name: What it is called.
        licence: An identifier such as `apache-2.0`, where the model has one.
    """
    return f"{card_head(_head(result, name, licence))}\n{_text(result, name)}"


def _head(result: ModelResult, name: str, licence: str | None) -> dict[str, Any]:
    schema, privacy = result.schema, result.privacy
    classes = schema.classes is not None
    task = "tabular-classification" if classes else "tabular-regression"
    head: dict[str, Any] = {"library_name": "urna", "pipeline_tag": task}
    if licence is not None:
        head["license"] = licence
    head["tags"] = ["differential-privacy", "federated-learning", "secure-aggregation", "linear"]
    head["privacy"] = privacy_block(privacy, result.terms, _unit(result), result.entry)
    if result.measured:
        metrics = [
            {"type": key, "value": round(float(value), 4)} for key, value in result.measured.items()
        ]
        head["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {"name": "public test data", "type": "test"},
                        "metrics": metrics,
                    }
                ],
            }
        ]
    return head


def _unit(result: ModelResult) -> str:
    if result.terms.adjacency.unit is Unit.CLIENT:
        return "all data of one client"
    if result.learner.group > 1:
        return f"{result.learner.group} records of one client together"
    return "one record of one client"


def _text(result: ModelResult, name: str) -> str:
    schema = result.schema
    targets = (
        f"classes: {', '.join(map(str, schema.classes[:20]))}{' …' * (len(schema.classes) > 20)}"
        if schema.classes is not None
        else f"a value, trained on targets in {schema.span}"
    )
    made = ""
    if result.when is not None:
        day = datetime.datetime.fromtimestamp(result.when, datetime.UTC)
        made = f" on {day:%Y-%m-%d}"
    columns = f"columns {', '.join(result.columns)[:200]}" if result.columns else "raw features"
    rule = json.dumps(schema.rows.as_mapping())
    why = f"\nIt was chosen because {result.why}.\n" if result.why else ""
    tuned = ""
    if result.tuned is not None:
        tuned = (
            f"\nIts settings were chosen by a private vote of the same clients "
            f"({json.dumps(result.tuned['best'])}); the epsilon above is that of both.\n"
        )
    measured = "".join(f"- {key}: {float(value):.4f}\n" for key, value in result.measured.items())
    figures = ""
    if measured:
        figures = f"\n## Figures\n\nOn public test data, which nobody trained on:\n\n{measured}"
    promise = "\n".join(
        f"- {caveat.rstrip('.')}." for caveat in (_promise(result), *result.privacy.caveats)
    )
    return (
        f"# {name}\n\n"
        f"A linear model of {schema.features} features ({targets}), computed{made} from one "
        f"message of each of {result.took_part} clients: {result.learner.describe()}.\n"
        f"{why}{tuned}\n"
        f"## Privacy\n\n{promise}\n{figures}\n"
        f"## How to use it\n\n"
        f"```python\nfrom urna.systems.average import load_model\n\n"
        f'model = load_model("model.npz")      # no pickle: nothing in the file is run\n'
        f"model.predict(features)               # {columns}; rows are made by {rule}\n```\n\n"
        f"## What it does not promise\n\n"
        f"Differential privacy bounds what the model tells about one protected unit, the one named "
        f"above, and nothing else: what is true of many records shows, as it must. Other releases "
        f"about the same data add up; the clients' ledgers count them. Nothing bounds what a "
        f"malicious client puts into the sum.\n"
    )


def _promise(result: ModelResult) -> str:
    privacy = result.privacy
    if not privacy.private:
        return "**NOT PRIVATE**: nothing is promised"
    return (
        f"({rounded_up(privacy.epsilon)}, {rounded_up(privacy.delta)})-differential privacy for "
        f"{_unit(result)} ({privacy.adjacency}), accountant: {privacy.accountant}"
    )

"""A model card in Hugging Face's format: how a model was trained, and what it promises."""

import math
from typing import Any

from urna.privacy.budget import rounded_up
from urna.systems.train.result import REASONS, TrainResult, digest_weights
from urna.tally.card import card_head, privacy_block

__all__ = ["model_card"]


def model_card(result: TrainResult, *, title: str, data: str = "") -> str:
    """Return the card as Markdown with a YAML head, whose `privacy:` block has the numbers.

    All of it comes from noisy sums and public facts.

    Args:
        result: What was trained.
        title: What the model is called.
        data: What it was trained on, in words.
    """
    privacy, terms, plan = result.privacy, result.terms, result.plan
    epsilon = rounded_up(privacy.epsilon) if privacy.private else "infinite: NOT PRIVATE"
    block: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": f"{privacy.delta:g}",
        "neighbouring relation": str(privacy.adjacency),
        "protected": f"a {privacy.adjacency.unit}: {privacy.adjacency.described}",
        "accountant": privacy.accountant,
        "epsilon of the rounds by the noise left in each": _achieved(result),
        "noise": f"{terms.family}, made by the clients, "
        f"{plan['noise_multiplier']:.3g} times the clip norm in each sum",
        "amplification by sampling": "yes: see below"
        if plan["settings"]["sampling"]["kind"] in ("lots", "poisson", "records")
        else "none",
        "ledger entry": result.entry or "none",
    }
    trained = {
        "model": result.description,
        "parameters": f"{len(result.weights):,}",
        "data": data or "not said",
        "clients": f"{plan['all_clients']}, {terms.clients} in each round",
        "rounds": f"{result.rounds} of {plan['rounds']}: {REASONS[result.stopped]}",
        "server optimiser": ", ".join(
            str(v) if k == "name" else f"{k} {v}" for k, v in plan["settings"]["optimiser"].items()
        ),
        "clip norm of the last round": f"{result.history[-1].clip_norm:.4g}"
        if result.history
        else "-",
        "accuracy on public test rows": "-"
        if result.accuracy is None
        else f"{100 * result.accuracy:.1f} %",
        "SHA-256 of the weights": digest_weights(result.weights),
    }
    caveats = "".join(f"- {caveat.rstrip('.')}.\n" for caveat in privacy.caveats)
    return (
        f"{card_head(_head(result, title))}\n"
        f"# {title}\n\n{_table(trained)}\n## Privacy\n\n{_table(block)}\n{caveats}"
        "\nUsing, publishing or training further on public data costs no more privacy. Training "
        "further on the same clients' data does: enter it in the same ledger.\n"
    )


def _head(result: TrainResult, title: str) -> dict[str, Any]:
    head: dict[str, Any] = {
        "library_name": "urna",
        "tags": ["differential-privacy", "federated-learning", "secure-aggregation", "pytorch"],
        "privacy": privacy_block(
            result.privacy, result.terms, result.privacy.adjacency.described, result.entry
        ),
    }
    if result.accuracy is not None:
        metrics = [{"type": "accuracy", "value": round(result.accuracy, 4)}]
        dataset = {"name": "public test data", "type": "test"}
        results = [{"dataset": dataset, "metrics": metrics}]
        head["model-index"] = [{"name": title, "results": results}]
    return head


def _achieved(result: TrainResult) -> str:
    epsilon = result.achieved_epsilon
    return rounded_up(epsilon) if math.isfinite(epsilon) else "infinite"


def _table(said: dict[str, Any]) -> str:
    rows = "".join(f"| {name} | {value} |\n" for name, value in said.items())
    return f"| | |\n|---|---|\n{rows}"

"""The head of a model card: YAML that model hubs read, with a `privacy:` block."""

import json
from collections.abc import Mapping
from typing import Any

from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_up
from urna.tally.terms import Terms


def privacy_block(
    privacy: PrivacyStatement, terms: Terms, unit: str, entry: str | None
) -> dict[str, Any]:
    """Return what a card's head says of privacy: the numbers, and the relation they hold for.

    Args:
        privacy: What is promised.
        terms: Of each sum.
        unit: What is protected, in words.
        entry: Its id in the ledger, where there is one.
    """
    return {
        "private": privacy.private,
        "epsilon": float(rounded_up(privacy.epsilon)) if privacy.private else None,
        "delta": privacy.delta,
        "relation": str(privacy.adjacency),
        "unit": unit,
        "accountant": privacy.accountant,
        "mechanism": f"{terms.family} noise made by the clients, secure aggregation",
        "clients": terms.clients,
        "may_collude": terms.colluders,
        "may_drop_out": terms.dropouts,
        "server": str(terms.server),
        "ledger_entry": entry,
    }


def card_head(values: Mapping[str, Any]) -> str:
    """Return plain values as the YAML head of a card, between its marks."""
    return f"---\n{_yaml(values)}---\n"


def _yaml(values: Mapping[str, Any], depth: int = 0) -> str:
    """Write plain values as YAML: texts as JSON strings, which YAML reads alike."""
    pad, lines = "  " * depth, []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines.append(f"{pad}{key}:\n{_yaml(value, depth + 1)}")
        elif isinstance(value, list):
            lines.append(f"{pad}{key}:\n" + "".join(_item(item, depth) for item in value))
        else:
            lines.append(f"{pad}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _item(item: Any, depth: int) -> str:  # noqa: ANN401 - plain values
    pad = "  " * depth
    if not isinstance(item, Mapping):
        return f"{pad}- {_scalar(item)}\n"
    inner = _yaml(item, depth + 1)
    return f"{pad}- {inner[len(pad) + 2 :]}"


def _scalar(value: Any) -> str:  # noqa: ANN401 - plain values
    if isinstance(value, float) and not isinstance(value, bool):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)

"""What stands at the head of a report, a terminal's output and a model card, and a card's YAML."""

import json
from collections.abc import Mapping
from typing import Any

from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_up
from urna.tally.terms import Terms


def simulated(privacy: PrivacyStatement) -> bool:
    """Return whether a statement says that one process played all parties."""
    said = " ".join(privacy.caveats)
    return "in one process" in said or "made in the clear" in said


def header(privacy: PrivacyStatement, *, played: bool, ledger: str | None) -> str:
    """Return the line at the head of every report, card and terminal output.

    Args:
        privacy: What is promised.
        played: Whether all parties were on one machine.
        ledger: What the ledger is called; None where there is none.

    Example:
        >>> from urna.privacy import Adjacency
        >>> promise = PrivacyStatement(0.001, 1e-5, Adjacency.REPLACE_ONE_RECORD, "GDP")
        >>> header(promise, played=True, ledger=None)
        'SIMULATED · ε = 0.001 · δ = 1e-05 · unit: one record · ledger: none'
    """
    promise = f"ε = {rounded_up(privacy.epsilon)} · δ = {rounded_up(privacy.delta)}"
    return " · ".join(
        [
            "SIMULATED" if played else "FEDERATION",
            promise if privacy.private else "NOT PRIVATE: ε is infinite",
            f"unit: one {privacy.adjacency.unit}",
            f"ledger: {ledger or 'none'}",
        ]
    )


def privacy_block(
    privacy: PrivacyStatement,
    terms: Terms,
    unit: str,
    entry: str | None,
    *,
    played: bool | None = None,
) -> dict[str, Any]:
    """Return what a card's head says of privacy: the numbers, and the relation they hold for.

    Args:
        privacy: What is promised.
        terms: Of each sum.
        unit: What is protected, in words.
        entry: Its id in the ledger, where there is one.
        played: Whether all parties were on one machine, which hid nothing from its owner; as the
            statement says by default.
    """
    played = simulated(privacy) if played is None else played
    counted = None if entry is None else f"entry {entry}"
    return {
        "header": header(privacy, played=played, ledger=counted),
        "private": privacy.private and not played,
        "simulated": played,
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
    """Return plain values as the YAML head of a card, and its `privacy.header` as text below."""
    return f"---\n{_yaml(values)}---\n\n**{values['privacy']['header']}**\n"


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

"""What every page says, whatever was summed: privacy, who took part, what went wrong."""

from collections.abc import Mapping

from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_up
from urna.report.shell import facts, notes, section
from urna.tally import Terms

__all__ = ["electorate", "privacy"]

_SHOWN = 12


def privacy(statement: PrivacyStatement, terms: Terms, noise: str | None = None) -> str:
    """Return what was promised, and on what it rests; `noise` is the clients' by default."""
    said = {
        "epsilon": rounded_up(statement.epsilon) if statement.private else "infinite",
        "delta": f"{statement.delta:g}",
        "neighbouring relation": str(statement.adjacency),
        "protected": f"a {statement.adjacency.unit}: {statement.adjacency.described}",
        "accountant": statement.accountant,
        "noise": noise or f"{terms.family}, made by the clients",
    }
    return section(
        "What it cost",
        facts("facts", said),
        notes(*(f"{caveat.rstrip('.')}." for caveat in statement.caveats)),
    )


def electorate(
    terms: Terms,
    took_part: int,
    lost: Mapping[int, str],
    faults: Mapping[int, str],
    more: Mapping[str, str],
) -> str:
    """Return who took part, who did not, and who broke the protocol."""
    said = {
        "invited": f"{terms.clients} clients",
        "in the sum": f"{took_part}",
        **more,
        **({"contributions of each client": f"{terms.shards}"} if terms.shards > 1 else {}),
        "may drop out": f"{terms.dropouts}",
        "may collude": f"{terms.colluders}",
        "server": str(terms.server),
    }
    named = [
        f"Client {client} {what}: {why}."
        for what, some in (("is not in the sum", lost), ("broke the protocol", faults))
        for client, why in list(some.items())[:_SHOWN]
    ]
    return section("Who took part", facts("facts", said), notes(*named))

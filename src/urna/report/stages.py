"""One result as a page shows it: the answer, pictures and figures, who took part."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from urna.privacy import PrivacyStatement
from urna.report.parties import PartyRow
from urna.tally import Terms

__all__ = ["StageAnswer", "StageView"]


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """What a result says, in the order in which people ask."""

    heading: str
    facts: tuple[tuple[str, str], ...]
    """Names and values, in large letters."""
    sure: str
    """`yes`, `partly`, `no`, or nothing where the question is not put."""
    verdict: str
    """How sure it is, in a few words."""
    told: tuple[str, ...] = ()
    """Sentences."""
    choices: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Others that may be as good."""
    more: int = 0
    """Choices that are not listed."""


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage of a study, or all of a page."""

    kind: str
    name: str
    answer: StageAnswer
    privacy: PrivacyStatement
    took_part: int
    invited: int
    participation: tuple[tuple[str, str], ...]
    parties: tuple[PartyRow, ...]
    uncovered: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    """Technical ones."""
    lost: Mapping[int, str] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)
    when: float | None = None
    bytes_per_client: int | None = None
    rounds: int = 1
    """How many sums were held, each of so many bytes."""
    warnings: tuple[tuple[str, str], ...] = ()
    """What stands at the top in red: in capitals, and in a sentence."""
    view: Mapping[str, Any] = field(default_factory=dict)
    """What the kind's own template shows."""
    entry: str | None = None


def participation_of(
    terms: Terms, took_part: int, *, summed: bool = True
) -> tuple[tuple[str, str], ...]:
    """Return who was invited, and what was planned for.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        took_part: How many did.
        summed: Whether their sum was revealed, under noise of their own; not so of a winner.
    """
    counted, what = ("in the sum", "contributions") if summed else ("counted", "ballots")
    noise = "that of the leader's and the helper's coins together"
    said = {
        "invited": f"{terms.clients}",
        counted: f"{took_part}",
        f"not {counted}": f"{terms.clients - took_part}",
        **({f"{what} of each client": f"{terms.shards}"} if terms.shards > 1 else {}),
        "may drop out, by the plan": f"{terms.dropouts}",
        **({"may collude, by the plan": f"{terms.colluders}"} if summed else {}),
        "noise counted on": f"that of {terms.honest} clients" if summed else noise,
        "server": str(terms.server),
    }
    return tuple(said.items())


def warnings_of(statement: PrivacyStatement) -> tuple[tuple[str, str], ...]:
    """Return what stands at the top in red."""
    if not statement.private:
        why = statement.caveats[0] if statement.caveats else "No finite epsilon is claimed"
        return (
            ("NOT PRIVATE", f"{why.rstrip('.')}. Do not publish this page if the data are secret."),
        )
    if "made in the clear" in " ".join(statement.caveats):
        return (
            (
                "NOT PRIVATE towards whoever added up",
                "The sum was made in the clear: each client's contribution was seen under "
                "that client's "
                "own small share of the noise alone. The promise below holds only towards "
                "those who see nothing but the result.",
            ),
        )
    return ()

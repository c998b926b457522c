"""How a result came about: by which version, command and study file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from urna.privacy import Ledger

__all__ = ["LedgerSummary", "Provenance", "account_of"]


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What a ledger said when the result was kept."""

    name: str
    subject: str
    epsilon: float
    """Of its cap."""
    delta: float
    adjacency: str
    spent: float | None
    """None where it is infinite."""
    left: float
    releases: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a result comes from; none of it is needed to read the result.

    Guarantee:
        Nothing in it depends on how long anything took. Times depend on clients' data, and
        epsilon does not cover them.
    """

    version: str
    """Of Urna."""
    title: str = ""
    """What its page is called."""
    command: str = ""
    study: str | None = None
    """The study file's text."""
    study_name: str | None = None
    simulated: bool | None = None
    """Whether all clients were on one machine; None where it is not known."""
    account: LedgerSummary | None = None

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON, from which `read` makes it again."""
        return asdict(self)

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "Provenance":
        """Read what `as_mapping` wrote; what another version wrote beside it is left out.

        Files of version 0.2 hold times of stages.

        Raises:
            TypeError: It is none.
        """
        known = {name: mapping[name] for name in cls.__dataclass_fields__ if name in mapping}
        if known.get("account") is not None:
            known["account"] = LedgerSummary(**known["account"])
        return cls(**known)


def account_of(ledger: Ledger) -> LedgerSummary:
    """Return what a ledger says now."""
    said = ledger.as_mapping()
    return LedgerSummary(
        name=ledger.path.name,
        subject=ledger.subject,
        epsilon=ledger.cap.epsilon,
        delta=ledger.cap.delta,
        adjacency=str(ledger.adjacency),
        spent=said["spent"],
        left=said["left"],
        releases=sum(not entry["withdrawn"] for entry in said["entries"]),
    )

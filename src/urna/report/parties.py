"""Who learnt what, who was trusted with what, and what no promise on the page covers."""

from dataclasses import dataclass, replace
from enum import StrEnum

from urna.privacy import PrivacyStatement, Unit
from urna.protocols.secagg import ServerModel
from urna.systems.combine import Combination, Guarantee
from urna.tally import Terms

__all__ = ["Added", "PartyRow", "added", "not_covered", "parties", "with_reader"]


class Added(StrEnum):
    """How contributions were added up."""

    MASKS = "masks"
    ENCRYPTION = "encryption"
    CLEAR = "clear"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartyRow:
    """A row of the table: who, and what of it."""

    who: str
    learns: str
    never: str
    trusted: str


def added(statement: PrivacyStatement) -> Added:
    """Return how contributions were added up, as the statement says in words.

    Every statement holds its summation's own sentence; tests hold these words to it.
    """
    said = " ".join(statement.caveats)
    if "made in the clear" in said:
        return Added.CLEAR
    if "under threshold encryption" in said:
        return Added.ENCRYPTION
    return Added.MASKS if "by secure aggregation" in said else Added.UNKNOWN


def simulated(statement: PrivacyStatement) -> bool:
    """Return whether the statement says that one process played all parties."""
    said = " ".join(statement.caveats)
    return "in one process" in said or "made in the clear" in said


def parties(statement: PrivacyStatement, terms: Terms, what: str, result: str) -> list[PartyRow]:
    """Return who learnt what in a private sum.

    Args:
        statement: What was promised.
        terms: Of the sum.
        what: What a client hands in.
        result: What everybody learns.
    """
    said = " ".join(statement.caveats)
    how, flower = added(statement), "over Flower" in said
    directory = "against their own directories" in said
    apart = {
        Added.MASKS: f"masked vectors, {result}, who took part",
        Added.ENCRYPTION: f"ciphertexts, {result}, who took part",
        Added.CLEAR: f"every client's {what} under that client's own small share of the noise",
        Added.UNKNOWN: f"{result}, who took part",
    }[how]
    if terms.server is ServerModel.DISHONEST:
        trusted = "with nothing but to be there: clients check its every message"
    elif how is Added.CLEAR:
        trusted = f"with every client's {what}: it saw them"
    elif flower and not directory:
        trusted = "to follow the protocol, and to pass on the clients' keys unchanged"
    else:
        trusted = "to follow the protocol; it may be curious"
    if how is Added.ENCRYPTION:
        together = f"not to open single {what}s together"
    else:
        together = (
            f"not to tell the server its noise, but for {terms.colluders} that may"
            if terms.colluders
            else "not to tell the server its noise: no colluders were planned for"
        )
    held = "" if how is Added.CLEAR else f"any single {what}; "
    rows = [
        PartyRow(
            "Each client",
            f"its own data; {result}",
            f"other clients' data, {what}s, noise",
            together,
        ),
        PartyRow(
            "The server",
            apart,
            f"{held}any data" + ("" if how is Added.CLEAR else "; any noise"),
            trusted,
        ),
    ]
    return with_reader(rows, statement, result)


def with_reader(rows: list[PartyRow], statement: PrivacyStatement, result: str) -> list[PartyRow]:
    """Return who learnt what, with who ran a simulation and who reads the page."""
    if simulated(statement):
        whoever = "all clients' data, which were in one process on one machine"
        rows = [
            *rows,
            PartyRow("Whoever ran this simulation", whoever, "nothing was hidden", "with all data"),
        ]
    rows = [
        *rows,
        PartyRow("Everybody who reads this page", result, "anything more", "with nothing"),
    ]
    if not statement.private:  # who knows the script, or an exact sum, can work out the rest
        rows = [replace(row, never="nothing is promised") for row in rows]
    return rows


def not_covered(statement: PrivacyStatement, *, follows: str, noisy: bool = True) -> list[str]:
    """Return what the promise does not cover, in whole sentences.

    Args:
        statement: What was promised.
        follows: What people do with such a result, and what of that is not covered.
        noisy: Whether there was a private sum at all.
    """
    record = statement.adjacency.unit is Unit.RECORD
    unit = (
        "A whole client. The promise is about one record of one client; that an organisation took "
        "part, and how many records it has, is not hidden."
        if record
        else "That a client took part: who did is visible, and how long it took to answer."
    )
    return [
        "Malicious clients. Contributions are hidden, the bad ones too: one client that breaks the "
        "rules can push the outcome. It cannot read what others handed in.",
        follows,
        *([unit] if noisy else []),
        "Anything else released about the same data, before or after, that is not counted in the "
        "same ledger.",
        "Errors, logs and files on the clients' own machines. Training and evaluation on a "
        "client's own data are not private towards that client.",
        "Mistakes in this software. Its protocol and samplers are tested, and nobody outside has "
        "audited them.",
    ]


def combined_parties(result: Combination) -> list[PartyRow]:
    """Return who learnt what in a combination without noise."""
    everybody = "the setting, and what was opened to find it, exactly"
    if result.guarantee is Guarantee.NONE:
        return [
            PartyRow(
                "Whoever combined",
                "every client's settings and scores",
                "nothing was hidden",
                "with all searches",
            ),
            PartyRow(
                "Everybody who reads this page",
                "the setting and all kept settings",
                "",
                "with nothing",
            ),
        ]
    return [
        PartyRow(
            "Each client",
            f"its own search; {everybody}",
            "other clients' searches",
            "not to open single searches together",
        ),
        PartyRow(
            "The server",
            f"ciphertexts; {everybody}",
            "any single search",
            "to follow the protocol; it may be curious",
        ),
        PartyRow("Everybody who reads this page", everybody, "what was not opened", "with nothing"),
    ]

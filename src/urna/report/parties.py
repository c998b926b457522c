"""Who learned what, who was trusted and took part, and what no promise of a report covers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from urna.privacy import PrivacyStatement, Unit
from urna.protocols.secagg import ServerModel
from urna.systems.combine import Combination, Guarantee
from urna.systems.vote import VoteResult
from urna.tally import Terms
from urna.tally.card import simulated

NOT_CHECKED = "Robustness. Individual contributions are not validated: a malicious client can "
HIDDEN = f"{NOT_CHECKED}change the result. It cannot read other clients' contributions."
SEEN = f"{NOT_CHECKED}change the result. The party that combined saw every contribution."
VALID = (
    "Robustness. Every counted ballot is valid, so a malicious client can do no more than an "
    "honest one with other data. What it votes for is not checked."
)
"""What contributions leave open: hidden, in the clear, and verified."""

_SOUND = "The cryptography is sound, and its implementation, which is not audited, is correct."

_CHEATING = (
    "Either of the two can make another candidate win.",
    "A helper that garbles another function can put as many bits of the exact sum into the result "
    "as are revealed.",
    "A leader that alters its share or its coins learns no more than epsilon allows.",
)
_HONEST = (
    "The promise is for a helper that follows the protocol, and for a leader that does so but for "
    "its share and its coins, however curious they are."
)
_REFUSING = "Either of the two can refuse clients without cause, and have them named for it."
_LISTS = (
    "A leader that tells clients different lists of who is left can unmask single ballots, which "
    "carry no noise: this vote trusted it not to. A vote planned against a malicious server "
    "catches that, and verified ballots are never summed under masks."
)


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

    Every statement holds its summation's own sentence; tests compare these words with it.
    """
    said = " ".join(statement.caveats)
    if "made in the clear" in said:
        return Added.CLEAR
    if "under threshold encryption" in said:
        return Added.ENCRYPTION
    return Added.MASKS if "by secure aggregation" in said else Added.UNKNOWN


def parties(statement: PrivacyStatement, terms: Terms, what: str, result: str) -> list[PartyRow]:
    """Return who learned what in a private sum.

    Args:
        statement: What was promised.
        terms: Of the sum.
        what: What a client hands in.
        result: What everybody learns.
    """
    said = " ".join(statement.caveats)
    how, flower = added(statement), "over Flower" in said
    directory = "against their own directories" in said
    seen = {
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
        together = f"not to decrypt single {what}s together"
    elif terms.colluders:
        together = f"not to tell the server its noise, but for {terms.colluders} that may"
    else:
        together = "not to tell the server its noise: no colluders were planned for"
    clear = how is Added.CLEAR
    never = "any data" if clear else f"any single {what}; any data; any noise"
    others = f"other clients' data, {what}s, noise"
    return with_reader(
        [
            PartyRow("Each client", f"its own data; {result}", others, together),
            PartyRow("The server", seen, never, trusted),
        ],
        statement,
        result,
    )


def with_reader(rows: list[PartyRow], statement: PrivacyStatement, result: str) -> list[PartyRow]:
    """Return who learned what, with who ran a simulation and who reads the report."""
    if simulated(statement):
        all_data = "all clients' data, which were in one process on one machine"
        who = "The person who ran this simulation"
        rows = [*rows, PartyRow(who, all_data, "nothing was hidden", "with all data")]
    rows = [
        *rows,
        PartyRow("Everybody who reads this page", result, "anything more", "with nothing"),
    ]
    if not statement.private:  # who knows the script, or an exact sum, can work out the rest
        rows = [replace(row, never="nothing is promised") for row in rows]
    return rows


def winner_parties(result: VoteResult) -> list[PartyRow]:
    """Return who learned what where only the winner is revealed: alone, and together."""
    by = result.revealed.by
    known = "the winner" if result.revealed.gap is None else "the winner and its gap"
    shares = "random shares" + (", whose ballot was refused" if by.verified else "")
    learns, never = f"{known}, {shares}, who took part", "any single ballot; any tally; any noise"
    one = "not to collude with {}, and to follow the protocol; it may be curious"
    rows = [
        PartyRow(
            "Each client", f"its own data; {known}", "other clients' data, ballots", "with nothing"
        ),
        PartyRow("The leader (the server), alone", learns, never, one.format(by.helper)),
        PartyRow(f"The helper ({by.helper}), alone", learns, never, one.format("the leader")),
        PartyRow(
            f"The leader and {by.helper} together",
            readable(verified=by.verified),
            "any data" if by.verified else "any single ballot; any data",
            "not to be together",
        ),
    ]
    return with_reader(rows, result.privacy, known)


def combined_parties(result: Combination) -> list[PartyRow]:
    """Return who learned what in a combination without noise."""
    reader, all_seen = "Everybody who reads this page", "every client's settings and scores"
    if result.guarantee is Guarantee.NONE:
        return [
            PartyRow("The combining party", all_seen, "nothing was hidden", "with all searches"),
            PartyRow(reader, "the setting and all kept settings", "", "with nothing"),
        ]
    exact, curious = (
        "the setting, and what was revealed to find it, exactly",
        "to follow the protocol; it may be curious",
    )
    others = "other clients' searches"
    return [
        PartyRow("Each client", f"its own search; {exact}", others, "not to decrypt together"),
        PartyRow("The server", f"ciphertexts; {exact}", "any single search", curious),
        PartyRow(reader, exact, "what was not revealed", "with nothing"),
    ]


def readable(*, verified: bool) -> str:
    """Return what leader and helper can read together."""
    return "every single ballot" if verified else "the exact sum of all ballots, without noise"


def cheating_of(result: VoteResult) -> tuple[str, ...]:
    """Return what leader and helper could do if they did not follow the protocol."""
    if result.revealed.by.verified:
        return (*_CHEATING, _REFUSING, _HONEST)
    if result.terms.server is ServerModel.DISHONEST:
        return (*_CHEATING, _HONEST)
    return (*_CHEATING, _LISTS, _HONEST)


def assumptions(statement: PrivacyStatement, terms: Terms, helper: str | None) -> list[str]:
    """Return what a bound rests on, in sentences; a helper is named where it is of a winner."""
    if helper is not None:
        return [f"The leader and {helper} followed the protocol and did not collude.", _SOUND]
    if added(statement) is Added.CLEAR:
        return ["The bound holds only for those who see nothing but the result."]
    server = "The server followed the protocol."
    if terms.server is ServerModel.DISHONEST:
        server = "Clients checked every message of the server, which may deviate from the protocol."
    clients = f"{terms.colluders} client{'' if terms.colluders == 1 else 's'}"
    return [server, f"At most {clients} colluded with it.", _SOUND]


def not_covered(
    statement: PrivacyStatement, *, robust: str = HIDDEN, noisy: bool = True
) -> list[str]:
    """Return what the promise does not cover, in whole sentences.

    Args:
        statement: What was promised.
        robust: What is said of malicious clients.
        noisy: Whether there was a private sum at all.
    """
    unit = (
        "This is record-level privacy. No client-level guarantee is claimed at "
        f"δ = {statement.delta:g}: the result may reveal facts about an organisation's data as a "
        "whole, that it took part, and how many records it has. A person with several rows is "
        "protected only if those rows share one record id."
        if statement.adjacency.unit is Unit.RECORD
        else "That a client took part: who did is visible, and how long it took to answer."
    )
    if "made in the clear" in " ".join(statement.caveats):
        robust = SEEN.replace("combined", "added up")
    return [
        robust,
        *([unit] if noisy else []),
        "Anything else released about the same data, before or after, that is not counted in the "
        "same ledger.",
        "Errors, logs and files on the clients' own machines. Training and evaluation on a "
        "client's own data are not private towards that client.",
        "Mistakes in this software. Its protocol and samplers are tested, and nobody outside has "
        "audited them.",
    ]


def participation_of(terms: Terms, took_part: int, *, summed: bool = True) -> Mapping[str, str]:
    """Return who was invited, and what was planned for.

    Args:
        terms: Who takes part, what it may cost, and what may go wrong.
        took_part: How many did.
        summed: Whether their sum was revealed, under noise of their own; not so of a winner.
    """
    counted, what = ("in the sum", "contributions") if summed else ("counted", "ballots")
    noise = "the coins of the leader and the helper together"
    return {
        "invited": f"{terms.clients}",
        counted: f"{took_part}",
        f"not {counted}": f"{terms.clients - took_part}",
        **({f"{what} of each client": f"{terms.shards}"} if terms.shards > 1 else {}),
        "may drop out, by the plan": f"{terms.dropouts}",
        **({"may collude, by the plan": f"{terms.colluders}"} if summed else {}),
        "noise calibrated for": f"at least {terms.honest} honest, surviving clients"
        if summed
        else noise,
        "server": str(terms.server),
    }


def warnings_of(statement: PrivacyStatement) -> tuple[tuple[str, str], ...]:
    """Return what stands at the top in red: in capitals, and in a sentence."""
    if not statement.private:
        why = statement.caveats[0] if statement.caveats else "No finite epsilon is claimed"
        say = f"{why.rstrip('.')}. Do not publish this page if the data are secret."
        return (("NOT PRIVATE", say),)
    if added(statement) is Added.CLEAR:
        why = (
            "The sum was made in the clear: each client's contribution was seen under that "
            "client's own small share of the noise alone. The promise below holds only towards "
            "those who see nothing but the result."
        )
        return (("NOT PRIVATE towards the party that added up", why),)
    return ()

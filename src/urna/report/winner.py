"""What is said of a vote of which only the winner was revealed: who won, and who was trusted."""

from urna.protocols.secagg import ServerModel
from urna.report.parties import PartyRow, with_reader
from urna.report.stages import StageAnswer
from urna.report.words import said
from urna.systems.vote import VoteResult

__all__ = ["VALID", "answer_of", "cheating_of", "parties_of"]

VALID = (
    "Malicious clients that vote for what is bad. Every ballot counted was valid, so one "
    "client can do no more than an honest one with other data; what it votes for nobody "
    "checks."
)
"""What verified ballots leave open."""

_CHEATING = (
    "Either of the two can make another candidate win.",
    "A helper that garbles another function can put as many bits of the exact sum into the result "
    "as are opened.",
    "A leader that alters its share or its coins learns no more than epsilon allows.",
)
_HONEST = (
    "The promise is for a helper that follows the protocol, and for a leader that does so but for "
    "its share and its coins, however curious they are."
)
_REFUSING = "Either of the two can refuse clients without cause, and have them named for it."
_LISTS = (
    "A leader that tells clients different lists of who is left can unmask single ballots, which "
    "carry no noise: this vote trusted it not to. A vote planned against a dishonest server "
    "catches that, and verified ballots are never summed under masks."
)


def cheating_of(result: VoteResult) -> tuple[str, ...]:
    """Return what leader and helper could do if they did not follow the protocol."""
    if result.revealed.by.verified:
        return (*_CHEATING, _REFUSING, _HONEST)
    if result.terms.server is ServerModel.DISHONEST:
        return (*_CHEATING, _HONEST)
    return (*_CHEATING, _LISTS, _HONEST)


def _readable(verified: bool) -> str:
    return "every single ballot" if verified else "the exact sum of all ballots, without noise"


def answer_of(result: VoteResult) -> StageAnswer:
    """Return who won, and on whom that rests."""
    by, gap = result.revealed.by, result.revealed.gap
    best = tuple((axis, said(value)) for axis, value in result.best.items())
    trust = (
        f"This rests on the leader and {by.helper} not colluding: together they could read "
        f"{_readable(by.verified)}. Each of them alone, curious and following the protocol, "
        "learnt the winner and random numbers; nobody has seen a tally."
    )
    if gap is None:
        return StageAnswer("The winner", best, "", "Only the winner was opened", (trust,))
    votes = "1 vote" if gap == 1 else f"{gap:g} votes"
    told = (
        f"It would have to lose {votes} to be overtaken, noise included. Each candidate's "
        f"noise has a standard deviation of {result.standard_error:.1f} votes; a ballot gives 0 to "
        f"{result.ballot.most}."
    )
    verdict = "The winner and its gap were opened, and nothing else"
    return StageAnswer("The winner", best, "", verdict, (trust, told))


def parties_of(result: VoteResult) -> list[PartyRow]:
    """Return who learnt what: alone, and together."""
    by = result.revealed.by
    told = "the winner" if result.revealed.gap is None else "the winner and its gap"
    shares = "random shares" + (", whose ballot was refused" if by.verified else "")
    one = "not to collude with {}, and to follow the protocol; it may be curious"
    rows = [
        PartyRow(
            "Each client", f"its own data; {told}", "other clients' data, ballots", "with nothing"
        ),
        PartyRow(
            "The leader (the server), alone",
            f"{told}, {shares}, who took part",
            "any single ballot; any tally; any noise",
            one.format(by.helper),
        ),
        PartyRow(
            f"The helper ({by.helper}), alone",
            f"{told}, {shares}, who took part",
            "any single ballot; any tally; any noise",
            one.format("the leader"),
        ),
        PartyRow(
            f"The leader and {by.helper} together",
            _readable(by.verified),
            "any data" if by.verified else "any single ballot; any data",
            "not to be together",
        ),
    ]
    return with_reader(rows, result.privacy, told)

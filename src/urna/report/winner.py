"""The stage of a vote of which only the winner was opened: who won, and who was trusted."""

from dataclasses import replace

from urna.protocols.secagg import ServerModel
from urna.report.parties import Party, not_covered, simulated
from urna.report.stages import Answer, StageView, warnings_of
from urna.report.words import said
from urna.systems.vote import WinnerResult
from urna.tally import Terms

__all__ = ["winner_stage"]

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


def winner_stage(result: WinnerResult, *, name: str = "Winner") -> StageView:
    """Return what a page shows of a winner: what was opened and public facts, nothing else."""
    statement, verified = result.privacy, result.verified
    axes = "; ".join(f"{axis}: {len(values.values)}" for axis, values in result.space.axes.items())
    facts = {
        "candidates": f"{len(result.space):,}",
        "values of each axis": axes,
        "ballots": str(result.ballot),
        "helper": result.helper,
        "noise of each candidate": f"± {result.noise_std:.2f} votes (one standard deviation)",
        "noise's family": "geometric, from the coins of leader and helper",
        "digest of the candidates": result.space.fingerprint,
    }
    follows = (
        "What is trained with the winner. A model trained afterwards is private only if that "
        "training is, and is counted in the same ledger."
    )
    uncovered = not_covered(statement, follows=follows)
    if verified:
        uncovered[0] = (
            "Malicious clients that vote for what is bad. Every ballot counted was valid, so one "
            "client can do no more than an honest one with other data; what it votes for nobody "
            "checks."
        )
    return StageView(
        kind="winner",
        name=name,
        answer=_answer(result),
        privacy=statement,
        took_part=result.took_part,
        invited=result.terms.clients,
        electorate=_electorate(result.terms, result.took_part),
        parties=tuple(_parties(result)),
        uncovered=tuple(uncovered),
        facts=tuple(facts.items()),
        lost=result.lost,
        faults=result.faults,
        when=result.when,
        warnings=warnings_of(statement),
        view={"cheating": _cheating(result)},
        entry=result.entry,
    )


def _cheating(result: WinnerResult) -> tuple[str, ...]:
    """Return what leader and helper could do if they did not follow the protocol."""
    if result.verified:
        return (*_CHEATING, _REFUSING, _HONEST)
    if result.terms.server is ServerModel.DISHONEST:
        return (*_CHEATING, _HONEST)
    return (*_CHEATING, _LISTS, _HONEST)


def _readable(verified: bool) -> str:
    return "every single ballot" if verified else "the exact sum of all ballots, without noise"


def _answer(result: WinnerResult) -> Answer:
    best = tuple((axis, said(value)) for axis, value in result.best.items())
    trust = (
        f"This rests on the leader and {result.helper} not colluding: together they could read "
        f"{_readable(result.verified)}. Each of them alone, curious and following the protocol, "
        "learnt the winner and random numbers; nobody has seen a tally."
    )
    if result.gap is None:
        return Answer("The winner", best, "", "Only the winner was opened", (trust,))
    votes = "1 vote" if result.gap == 1 else f"{result.gap:g} votes"
    gap = (
        f"It would have to lose {votes} to be overtaken, noise included. Each candidate's "
        f"noise has a standard deviation of {result.noise_std:.1f} votes; a ballot gives 0 to "
        f"{result.ballot.levels}."
    )
    verdict = "The winner and its gap were opened, and nothing else"
    return Answer("The winner", best, "", verdict, (trust, gap))


def _electorate(terms: Terms, took_part: int) -> tuple[tuple[str, str], ...]:
    """Return who was invited, and what was planned for; the noise is not the clients'."""
    shards = {"ballots of each client": f"{terms.shards}"} if terms.shards > 1 else {}
    rows = {
        "invited": f"{terms.clients}",
        "counted": f"{took_part}",
        "not counted": f"{terms.clients - took_part}",
        **shards,
        "may drop out, by the plan": f"{terms.dropouts}",
        "noise counted on": "that of the leader's and the helper's coins together",
        "server": str(terms.server),
    }
    return tuple(rows.items())


def _parties(result: WinnerResult) -> list[Party]:
    """Return who learnt what: alone, and together."""
    opened = "the winner" if result.gap is None else "the winner and its gap"
    shares = "random shares" + (", whose ballot was refused" if result.verified else "")
    one = "not to collude with {}, and to follow the protocol; it may be curious"
    rows = [
        Party(
            "Each client", f"its own data; {opened}", "other clients' data, ballots", "with nothing"
        ),
        Party(
            "The leader (the server), alone",
            f"{opened}, {shares}, who took part",
            "any single ballot; any tally; any noise",
            one.format(result.helper),
        ),
        Party(
            f"The helper ({result.helper}), alone",
            f"{opened}, {shares}, who took part",
            "any single ballot; any tally; any noise",
            one.format("the leader"),
        ),
        Party(
            f"The leader and {result.helper} together",
            _readable(result.verified),
            "any data" if result.verified else "any single ballot; any data",
            "not to be together",
        ),
        Party("Everybody who reads this page", opened, "anything more", "with nothing"),
    ]
    if simulated(result.privacy):
        whoever = "all clients' data, which were in one process on one machine"
        rows.insert(
            4, Party("Whoever ran this simulation", whoever, "nothing was hidden", "with all data")
        )
    if not result.privacy.private:
        rows = [replace(row, never="nothing is promised") for row in rows]
    return rows

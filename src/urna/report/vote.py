"""The stage of a vote: who won, how surely, and the tally over the space."""

import numpy as np

from urna.report.parties import not_covered, parties
from urna.report.stages import Answer, StageView, electorate_of, warnings_of
from urna.report.tally import STEPS, TallyView
from urna.report.words import at_least, count, said, settings, slug
from urna.systems.vote import Result, describe_ballot
from urna.systems.vote.result import BY_REHEARSAL

__all__ = ["vote_stage"]

_CHOICES = 6


def vote_stage(result: Result, *, name: str = "Vote") -> StageView:
    """Return what a page shows of a vote: the noisy tally and public facts, nothing else."""
    tally, statement = TallyView(result, slug(name)), result.privacy
    follows = (
        "What is trained with the winner. A model trained afterwards is private only if that "
        "training is, and is counted in the same ledger."
    )
    axes = "; ".join(
        f"{axis}: {count(len(values.values), 'value')} ({values.kind})"
        for axis, values in result.space.axes.items()
    )
    facts = {
        "candidates": f"{len(result.space):,}",
        "axes": axes,
        "ballots": describe_ballot(result.ballot),
        "noise in each count": f"± {result.standard_error:.2f} votes (one standard deviation)",
        "noise's family": f"{result.terms.family}, made by the clients",
        "read by": f"{result.decoder} decoder",
        "digest of the candidates": result.space.fingerprint,
    }
    data = result.plan.get("bytes_per_client")
    return StageView(
        kind="vote",
        name=name,
        answer=_answer(result),
        privacy=statement,
        took_part=result.took_part,
        invited=result.terms.clients,
        electorate=electorate_of(result.terms, result.took_part),
        parties=tuple(parties(statement, result.terms, "ballot", "the noisy votes")),
        uncovered=tuple(not_covered(statement, follows=follows)),
        facts=tuple(facts.items()),
        lost=result.lost,
        faults=result.faults,
        when=result.when,
        bytes_per_client=None if data is None else int(data),
        warnings=warnings_of(statement),
        view={"tally": tally, "names": list(result.space.axes), "steps": STEPS},
        entry=result.entry,
    )


def _answer(result: Result) -> Answer:
    best = tuple((axis, said(value)) for axis, value in result.best.items())
    many, near = len(result.space), len(result.near_ties)
    left = result.considered - many
    votes = (
        f"It has {result.votes[result.winner]:.1f} noisy votes; the noise in each count has a "
        f"standard deviation of {result.standard_error:.1f}."
    )
    if left:
        by = "A rehearsal on public data" if result.first_round is None else "The first round"
        votes += f" {by} left {many} of {result.considered} to vote on: the other {left} could "
        votes += "not win."
    if np.argmax(result.votes) != result.winner and result.decoder != "none yet":
        votes += (
            " It has not the most: the tally is read as a surface, in which neighbours speak for "
            "each other."
        )
    if many == 1:
        return Answer("The only candidate", best, "", "There was nothing to choose", (votes,))
    if result.decoder == "none yet":
        verdict = "Not weighed yet: the command ended before how sure this is was computed"
        return Answer("Most noisy votes", best, "", verdict, (votes,))
    sure: float | None = result.confidence
    more = "More clients, a larger epsilon or fewer candidates would help; urna plan says how many."
    if result.by_rehearsal:
        why = f"The rehearsal decided this: {BY_REHEARSAL}."
        return Answer("The rehearsal's choice", best, "no", "The tally says nothing", (why, votes))
    if sure is None:
        why = "Under this noise the tally cannot tell who leads: this is a guess."
        return Answer("Cannot tell", best, "no", "Cannot tell: a guess", (why, more, votes))
    chance = f"Given this tally, it truly leads{result.among} with probability {at_least(sure)}."
    choices = tuple(tuple(settings(result.space[p])) for p in result.near_ties[:_CHOICES])
    if near == 0:
        verdict = f"It leads: {at_least(sure)} sure"
        return Answer("The winner", best, "yes", verdict, (chance, votes))
    told = (
        f"{chance} {votes}",
        "With the winner, these hold the true leader with a probability of about 90 %. Choosing "
        "another of them costs nothing if the choice uses no private data:",
    )
    verdict = f"One of {near + 1} that may lead, out of {many}"
    return Answer("The winner", best, "partly", verdict, told, choices, near - len(choices))

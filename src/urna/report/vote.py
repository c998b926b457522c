"""The stage of a vote: who won, how surely, and what was revealed beside that."""

import numpy as np

from urna.report.parties import not_covered, parties
from urna.report.stages import StageAnswer, StageView, participation_of, warnings_of
from urna.report.tally import STEPS, TallyView
from urna.report.winner import VALID, answer_of, cheating_of, parties_of
from urna.report.words import at_least, count, said, settings, slug
from urna.systems.vote import VoteResult
from urna.systems.vote.result import BY_REHEARSAL, UNREAD

__all__ = ["vote_stage"]

_CHOICES = 6


def vote_stage(result: VoteResult, *, name: str | None = None) -> StageView:
    """Return what a page shows of a vote: what was revealed and public facts, nothing else."""
    statement, counted = result.privacy, result.revealed.counts is not None
    name = name or ("Vote" if counted else "Winner")
    follows = (
        "What is trained with the winner. A model trained afterwards is private only if that "
        "training is, and is counted in the same ledger."
    )
    uncovered = not_covered(statement, follows=follows)
    if result.revealed.by.verified:
        uncovered[0] = VALID
    data = result.plan.get("bytes_per_client")
    return StageView(
        kind="vote" if counted else "winner",
        name=name,
        answer=_answer(result) if counted else answer_of(result),
        privacy=statement,
        took_part=result.took_part,
        invited=result.terms.clients,
        participation=participation_of(result.terms, result.took_part, summed=counted),
        parties=tuple(
            parties(statement, result.terms, "ballot", "the noisy votes")
            if counted
            else parties_of(result)
        ),
        uncovered=tuple(uncovered),
        facts=tuple(_facts(result).items()),
        lost=result.lost,
        faults=result.faults,
        when=result.when,
        bytes_per_client=None if data is None else int(data),
        warnings=warnings_of(statement),
        view={
            "tally": TallyView(result, slug(name)),
            "names": list(result.space.axes),
            "steps": STEPS,
        }
        if counted
        else {"cheating": cheating_of(result)},
        entry=result.entry,
    )


def _facts(result: VoteResult) -> dict[str, str]:
    """Return the technical facts."""
    noise = f"± {result.standard_error:.2f} votes (one standard deviation)"
    if result.revealed.counts is not None:
        how = {
            "noise in each count": noise,
            "noise's family": f"{result.terms.family}, made by the clients",
            "read by": f"{result.decoder} decoder",
        }
    else:
        how = {
            "helper": str(result.revealed.by.helper),
            "noise of each candidate": noise,
            "noise's family": "geometric, from the coins of leader and helper",
        }
    axes = (
        f"{axis}: {count(len(values.values), 'value')} ({values.kind})"
        for axis, values in result.space.axes.items()
    )
    return {
        "candidates": f"{len(result.space):,}",
        "axes": "; ".join(axes),
        "ballots": str(result.ballot),
        **how,
        "digest of the candidates": result.space.fingerprint,
    }


def _answer(result: VoteResult) -> StageAnswer:
    best = tuple((axis, said(value)) for axis, value in result.best.items())
    many, near = len(result.space), len(result.credible_set) - 1
    left = result.considered - many
    votes = (
        f"It has {result.votes[result.winner]:.1f} noisy votes; the noise in each count has a "
        f"standard deviation of {result.standard_error:.1f}."
    )
    if left:
        votes += (
            f" A rehearsal on public data left {many} of {result.considered} to vote on: the other "
            f"{left} could not win."
        )
    if np.argmax(result.votes) != result.winner and result.decoder != UNREAD:
        votes += (
            " It has not the most: the tally is read as a surface, in which neighbours speak for "
            "each other."
        )
    if many == 1:
        return StageAnswer("The only candidate", best, "", "There was nothing to choose", (votes,))
    if result.decoder == UNREAD:
        verdict = "Not weighed yet: the command ended before how sure this is was computed"
        return StageAnswer("Most noisy votes", best, "", verdict, (votes,))
    sure: float | None = result.confidence
    more = "More clients, a larger epsilon or fewer candidates would help; urna plan says how many."
    if result.by_rehearsal:
        why = f"The rehearsal decided this: {BY_REHEARSAL}."
        return StageAnswer(
            "The rehearsal's choice", best, "no", "The tally says nothing", (why, votes)
        )
    if sure is None:
        why = "Under this noise the tally cannot tell who leads: this is a guess."
        return StageAnswer("Cannot tell", best, "no", "Cannot tell: a guess", (why, more, votes))
    chance = f"Given this tally, it truly leads{result.among} with probability {at_least(sure)}."
    choices = tuple(tuple(settings(result.space[p])) for p in result.credible_set[1 : 1 + _CHOICES])
    if near == 0:
        verdict = f"It leads: {at_least(sure)} sure"
        return StageAnswer("The winner", best, "yes", verdict, (chance, votes))
    told = (
        f"{chance} {votes}",
        "With the winner, these hold the true leader with a probability of about 90 %. Choosing "
        "another of them costs nothing if the choice uses no private data:",
    )
    verdict = f"One of {near + 1} that may lead, out of {many}"
    return StageAnswer("The winner", best, "partly", verdict, told, choices, near - len(choices))

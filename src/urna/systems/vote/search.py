"""A private search, end to end: settings, plan, ballots, release, decoding, result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

import numpy as np

from urna.files import today
from urna.local import Objective
from urna.noise import IntVector
from urna.privacy import Budget, NonPrivateRelease, PrivacyStatement, Unit
from urna.progress import live_line
from urna.space import Space
from urna.systems.vote.decode import NoisyVotes, PosteriorDecoder
from urna.systems.vote.fill import as_budget, as_clients, as_objective, as_space, ballots_of
from urna.systems.vote.plan import VotePlan, plan_vote, relative_noise
from urna.systems.vote.result import UNREAD, Revealed, VoteResult
from urna.systems.vote.settings import Rehearsal, VoteSettings
from urna.tally import (
    Options,
    Releases,
    Run,
    SecureAggregation,
    Selected,
    Selection,
    Summation,
    Tallied,
    Terms,
    open_selection,
)

DataT = TypeVar("DataT")


def search(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    budget: Budget,
    settings: VoteSettings | None = None,
    summation: Summation | None = None,
    selection: Selection | None = None,
    seed: int = 0,
    run: Run | None = None,
    **options: Unpack[Options],
) -> VoteResult:
    """Let clients agree on hyperparameters by secret ballot.

    All clients are simulated in this process: each evaluates the candidates on its own data,
    votes for its best, adds its share of integer noise, and the sum of all ballots names the
    winner. A client whose data make its evaluation fail abstains, with its full share of noise.

    Guarantee:
        The tally, and so the result, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the summation reveals; `result.privacy` says so in
        words. With scripted secrets nothing is guaranteed and epsilon is infinite.

    Args:
        space: The candidates, in order; a dict of names and values will do.
        objective: How a client evaluates them on its data; a function of (candidate, data) or
            a scikit-learn estimator will do.
        clients: Each client's data.
        budget: What the search may cost.
        settings: What is revealed, how ballots are filled and how the winner is read.
        summation: How ballots are added up; securely by default.
        selection: How a winner alone is found; by SecAgg+ with the helper as one more client, or
            from verified ballots.
        seed: Public seed of the clients' local training.
        run: Where it is counted, kept and shown. `keep` is called before the winner is weighed:
            the one in its result is the most voted. With `force` the objective is not tried first.
        options: The rest of the terms: `dropout`, `colluding`, `adjacency`, `shards`, `family`,
            `server`; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, the vote cannot succeed and no rehearsal
            informs its decoder, or the objective fails on all of the first clients. Nothing
            was released.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        LedgerError: The ledger knows of a result of this entry. Nothing was released now.
        RoundAborted: Too many clients dropped out. Nothing was released.
        RoundUnfinished: They did so while the sum was opened, or the circuit that finds a winner
            started and revealed none. It stays counted.
        InvalidSum: What was opened is no tally. It stays counted.
    """
    space, objective, clients = as_space(space), as_objective(objective), as_clients(clients)
    run, how = run or Run(), settings or VoteSettings()
    reveal, rehearsal = how.reveal, how.rehearsal
    reveal.refuse(summation=summation)
    if selection is not None:
        selection = reveal.selection(selection)
    terms = Terms.of(len(clients), as_budget(budget), **options)
    removes_excess = summation is None or summation.removes_excess
    if rehearsal is not None:
        rehearsal.check(space)
        space = rehearsal.shortlist(relative_noise(terms.budget, terms.clients * terms.shards))
    vote = plan_vote(terms, space, how, removes_excess=removes_excess)
    check_ready(vote, space, how, force=run.force)
    if run.ledger is not None:
        event = vote.event if run.secrets.private else NonPrivateRelease("scripted secrets")
        run.ledger.check_relation(terms.adjacency)
        run.ledger.check(event, ids=[run.entry])
    with live_line(run.progress) as report:
        ballots = ballots_of(objective, clients, space, vote, how, run, seed=seed, report=report)
        what = "finding the winner" if reveal.winner else "summing ballots"
        report(what, 0, 1)
        unread = hold_vote(
            vote,
            space,
            ballots,
            run,
            summation=summation,
            selection=selection,
            rehearsal=rehearsal,
        )
        report(what, 1, 1)
    return read_again(unread, how)


def check_ready(vote: VotePlan, space: Space, how: VoteSettings, *, force: bool) -> None:
    """Refuse a vote that cannot succeed, or that its decoder cannot read, before it is paid for.

    With `force` it may go on where the noise will probably drown the result.
    """
    decoder = how.reader(vote.shape, space)
    if not force:
        heeded = isinstance(decoder, PosteriorDecoder) and decoder.expected is not None
        vote.check_hopeful(rehearsed=heeded)
    if not vote.reveal.winner:  # what is revealed would be read from this
        votes, norm = np.arange(len(space), dtype=np.float64), vote.shape.norm / vote.shape.vote
        decoder.winner(NoisyVotes(space, votes, vote.most_noise_std, vote.fewest_ballots, norm))


def hold_vote(
    vote: VotePlan,
    space: Space,
    ballots: Mapping[int, IntVector],
    run: Run,
    *,
    summation: Summation | None = None,
    selection: Selection | None = None,
    rehearsal: Rehearsal | None = None,
) -> VoteResult:
    """Reveal what a vote is to reveal, and return it; counts are not weighed yet.

    `ballots` are every client's, in grid steps. They are added up securely by default, and a
    winner alone is found as the plan says.
    """
    results: list[VoteResult] = []

    def take(found: Tallied | Selected, privacy: PrivacyStatement, entry: str | None) -> None:
        results.append(result_of(vote, space, found, privacy, entry, rehearsal))
        run.kept(results[0])

    terms, secrets = vote.terms, run.secrets
    shards = f", {terms.shards} shards" if terms.adjacency.unit is Unit.RECORD else ""
    label = f"vote on {len(space)} candidates{shards}"
    counted: dict[str, Any] = {"ledger": run.ledger, "private": secrets.private, "id": run.entry}
    if vote.reveal.winner:
        finds = selection or vote.reveal.selection()
        open_selection(
            vote.selection,
            lambda started: finds.select(ballots, vote.selection, secrets, started),
            label=f"winner of a {label}",
            described=finds.describe(terms),
            keep=take,
            **counted,
        )
    else:
        adds = summation or SecureAggregation()
        releases = Releases(vote.tally, label, adds.describe(terms), **counted)
        releases.release(
            lambda: adds.tally(ballots, vote.tally, secrets),
            lambda released: take(released.tallied, released.privacy, released.entry),
        )
    return results[0]


def result_of(
    vote: VotePlan,
    space: Space,
    found: Tallied | Selected,
    privacy: PrivacyStatement,
    entry: str | None,
    rehearsal: Rehearsal | None = None,
) -> VoteResult:
    """Return what was revealed as a result; of counts the winner, so far, is the most voted."""
    decoder, said = None, None
    if isinstance(found, Selected):
        revealed = Revealed(gap=found.gap, by=replace(vote.reveal, verified=found.verified))
        winner, error = found.winner, vote.noise_std
    else:
        counts, decoder = np.asarray(found.total / vote.vote), UNREAD
        revealed, winner = Revealed(counts), int(np.argmax(counts))
        error = math.sqrt(found.noise_variance) / vote.vote
        if rehearsal is not None:
            said = rehearsal.as_mapping(space, None)
            privacy = replace(privacy, caveats=(*privacy.caveats, rehearsal.caveat))
    return VoteResult(
        space=space,
        winner=winner,
        revealed=revealed,
        standard_error=error,
        credible_set=(winner,),
        privacy=privacy,
        terms=vote.terms,
        ballot=vote.shape,
        took_part=len(found.accepted),
        lost=found.lost,
        decoder=decoder,
        faults=found.faults,
        plan=vote.as_mapping(),
        entry=entry,
        when=today() if privacy.private else None,
        rehearsal=said,
    )


def read_again(result: VoteResult, how: VoteSettings | None = None) -> VoteResult:
    """Read the winner out of counts that were kept: free, and the same every time.

    Where only the winner was revealed a result stays as it is.
    """
    if result.revealed.counts is None:
        return result
    how, said = how or VoteSettings(), result.rehearsal
    decoder = how.reader(result.ballot, result.space)
    if how.rehearsal is not None:
        trust = decoder.trust(result.tally) if isinstance(decoder, PosteriorDecoder) else None
        said = how.rehearsal.as_mapping(result.space, trust)
    decoded = decoder.decode(result.tally)
    read = replace(
        result,
        winner=decoded.winner,
        confidence=decoded.confidence,
        credible_set=(decoded.winner, *decoded.near_ties),
        decoder=decoder.name,
        rehearsal=said,
    )
    if read.by_rehearsal:  # whose word is no odds
        return replace(read, confidence=None, credible_set=(read.winner,))
    return read

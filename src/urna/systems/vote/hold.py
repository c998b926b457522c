"""Reveal what ballots say, and read it: counted before it happens, kept before it is shown."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from urna.files import today
from urna.noise import IntVector
from urna.privacy import PrivacyStatement, Unit
from urna.space import Space
from urna.systems.vote.decode import Decoder, NoisyVotes
from urna.systems.vote.plan import VotePlan
from urna.systems.vote.posterior import PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal, RehearsedDecoder
from urna.systems.vote.result import UNREAD, VoteResult
from urna.systems.vote.reveal import Revealed
from urna.tally import (
    Released,
    Releases,
    Run,
    SecureAggregation,
    Selected,
    Selection,
    Summation,
    Tallied,
    open_selection,
)

__all__ = ["check_readable", "hold_vote", "read_again", "selected_result", "unread_result"]


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

    Args:
        vote: The plan.
        space: The candidates.
        ballots: Every client's, in grid steps.
        run: Where it is counted and kept.
        summation: How ballots are added up; securely by default.
        selection: How a winner alone is found; as the plan says by default.
        rehearsal: The same search on public data, if there was one.
    """
    results: list[VoteResult] = []

    def take(result: VoteResult) -> None:
        results.append(result)
        run.kept(result)

    terms = vote.terms
    shards = f", {terms.shards} shards" if terms.adjacency.unit is Unit.RECORD else ""
    label = f"vote on {len(space)} candidates{shards}"
    secrets = run.secrets
    counted: dict[str, Any] = {"ledger": run.ledger, "private": secrets.private, "id": run.entry}
    if vote.reveal.winner:
        finds = vote.reveal.selection(selection)
        open_selection(
            vote.selection,
            lambda started: finds.select(ballots, vote.selection, secrets, started),
            label=f"winner of a {label}",
            described=finds.describe(terms),
            keep=lambda *found: take(selected_result(space, vote, *found)),
            **counted,
        )
    else:
        adds = summation or SecureAggregation()
        releases = Releases(vote.tally, label, adds.describe(terms), **counted)
        releases.release(
            lambda: adds.tally(ballots, vote.tally, secrets),
            lambda released: take(unread_result(space, vote, released, rehearsal)),
        )
    return results[0]


def selected_result(
    space: Space, vote: VotePlan, found: Selected, privacy: PrivacyStatement, entry: str | None
) -> VoteResult:
    """Return what a selection says about the candidates."""
    revealed = Revealed(gap=found.gap, by=replace(vote.reveal, verified=found.verified))
    return _result(space, vote, found, found.winner, revealed, vote.noise_std, privacy, entry)


def unread_result(
    space: Space, vote: VotePlan, released: Released, rehearsal: Rehearsal | None = None
) -> VoteResult:
    """Return released counts as a result whose winner, so far, is the most voted candidate.

    Args:
        space: The candidates.
        vote: The plan.
        released: The sum, and what it cost.
        rehearsal: The same search on public data, if there was one.
    """
    tallied, privacy = released.tallied, released.privacy
    votes = vote.in_votes(tallied.total)
    error = math.sqrt(tallied.noise_variance) / vote.vote
    winner, said = int(np.argmax(votes)), None
    if rehearsal is not None:
        said = rehearsal.as_mapping(space, None)
        privacy = replace(privacy, caveats=(*privacy.caveats, rehearsal.caveat))
    made = _result(space, vote, tallied, winner, Revealed(votes), error, privacy, released.entry)
    return replace(made, decoder=UNREAD, rehearsal=said)


def _result(
    space: Space,
    vote: VotePlan,
    found: Tallied | Selected,
    winner: int,
    revealed: Revealed,
    standard_error: float,
    privacy: PrivacyStatement,
    entry: str | None,
) -> VoteResult:
    return VoteResult(
        space=space,
        winner=winner,
        revealed=revealed,
        standard_error=standard_error,
        credible_set=(winner,),
        privacy=privacy,
        terms=vote.terms,
        ballot=vote.shape,
        took_part=len(found.accepted),
        lost=found.lost,
        faults=found.faults,
        plan=vote.as_mapping(),
        entry=entry,
        when=today() if privacy.private else None,
    )


def check_readable(
    space: Space,
    vote: VotePlan,
    decoder: Decoder | None = None,
    rehearsal: Rehearsal | None = None,
) -> None:
    """Read a made-up tally: a space that a decoder cannot read is found before it is paid for."""
    if vote.reveal.winner:
        return  # nothing is read
    decoder = decoder or PosteriorDecoder()
    if rehearsal is not None:
        decoder = rehearsal.decoder(vote.shape, space, decoder)
    votes = np.arange(len(space), dtype=np.float64)
    norm = vote.ballot_norm
    decoder.winner(NoisyVotes(space, votes, vote.most_noise_std, vote.fewest_ballots, norm))


def read_again(
    result: VoteResult, decoder: Decoder | None = None, rehearsal: Rehearsal | None = None
) -> VoteResult:
    """Read the winner out of counts that were kept: free, and the same every time.

    Args:
        result: Of which the counts are read; where only the winner was revealed it stays as it is.
        decoder: How the winner is read; `PosteriorDecoder` by default.
        rehearsal: The same search on public data, if there was one.
    """
    if result.revealed.counts is None:
        return result
    decoder = decoder or PosteriorDecoder()
    said = result.rehearsal
    if rehearsal is not None:
        decoder = rehearsal.decoder(result.ballot, result.space, decoder)
        trust = decoder.trust(result.tally) if isinstance(decoder, RehearsedDecoder) else None
        said = rehearsal.as_mapping(result.space, trust)
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

"""The server's side of a vote: one call inside an app's own `@app.main()`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower.federation import Federation
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.post import Deadlines, Progress
from urna.flower.sums import ATTEMPTS, Sums
from urna.flower.verified import VerifiedLeader
from urna.flower.vote_subject import VoteSubject, vote_of
from urna.flower.winner import Leader
from urna.privacy import Budget, Ledger
from urna.space import Space
from urna.systems.vote import (
    COUNTS,
    Ballot,
    BallotKind,
    Decoder,
    PosteriorDecoder,
    Rehearsal,
    Reveal,
    VotePlan,
    VoteResult,
    choose_ballot,
    read_again,
    relative_noise,
    unread_result,
)
from urna.systems.vote.hold import check_readable, selected_result
from urna.systems.vote.inputs import as_budget, as_space
from urna.tally import Options, Released, Run, Selected
from urna.tally.selection import rests_on, statement_of

__all__ = ["poll"]


def poll(
    grid: Grid,
    space: Space | Mapping[str, Any],
    *,
    budget: Budget,
    reveal: Reveal = COUNTS,
    ballot: Ballot | BallotKind | str | None = None,
    votes: int | None = None,
    directory: DirectoryFile | Path | None = None,
    server_key: NodeKey | Path | None = None,
    least_clients: int = 2,
    wait_for: int | None = None,
    deadlines: Deadlines | None = None,
    decoder: Decoder | None = None,
    rehearsal: Rehearsal | None = None,
    ledger: Ledger | None = None,
    transcripts: Path | None = None,
    seed: int = 0,
    anyway: bool = False,
    entry: str | None = None,
    progress: Progress | None = None,
    keep: Callable[[VoteResult], None] | None = None,
    **options: Unpack[Options],
) -> VoteResult:
    """Let the connected nodes agree on hyperparameters by secret ballot.

    Announces the space and the plan, gathers the nodes whose own policies allow it, runs the
    secure summation over the grid and reads the winner. A node that refuses, is killed, hangs
    or is late is left out and named in `result.lost`, by its Flower id; one that breaks the
    protocol is named in `result.faults`, and the vote is held again without it where it must.
    A node whose data make its evaluation fail abstains, and looks like any other.

    Guarantee:
        See `urna.flower.Sums`.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        space: The candidates, in order.
        budget: What the vote may cost each node.
        reveal: Counts; or the winner alone, which needs far less noise, and a helper. Such a vote
            is held once: a node that breaks the protocol is named, and nothing is held again.
            The helper is the name of the node that helps (`urna helper`), of an organisation that
            does not collude with the server's. Where ballots are verified nodes hand them in with
            proofs, and an invalid one is named and not counted; server and helper together could
            read every ballot. It takes a directory.
        ballot: How a node spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each node names in a top-k ballot.
        directory: Identity keys of those invited; see `Sums`.
        server_key: Signs the announcement, for nodes whose policy names the server's key.
        least_clients: With fewer nodes ready, the vote is not begun.
        wait_for: Wait until this many nodes are connected; `least_clients` by default.
        deadlines: How long to wait for what.
        decoder: How the winner is read from the tally; `PosteriorDecoder` by default.
        rehearsal: The same search on public data, held by the server. Where noise is strong nodes
            are asked about its shortlist; they need to know nothing of it.
        ledger: A ledger of the server's own, counted before the release happens.
        transcripts: Folder in which a transcript of the vote is kept.
        seed: Public seed of the nodes' local training.
        anyway: Whether to hold a vote that cannot succeed.
        entry: The vote's id in the server's own ledger; see `Sums`.
        progress: Called with the stage, how many have answered and the time left.
        keep: Called with the result before the winner is weighed; see `urna.search`.
        options: The rest of the terms: `dropout`, `colluding` (a tenth by default),
            `adjacency`, `shards`, `family`, `server`; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, or the vote cannot succeed (see `urna.search`).
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed; it says who was missing and why.
            Nothing was revealed.
        RoundUnfinished: Too few nodes stayed to open the sum after others had begun to reveal, or
            the circuit that finds a winner started and revealed none. It counts as released.
        RoundSpoiled: What was opened is no tally. It counts as released.
    """
    space, budget = as_space(space), as_budget(budget)
    reveal.check(ballot=ballot, votes=votes, decoder=decoder, rehearsal=rehearsal)
    if reveal.verified and directory is None:
        raise ParameterError(
            "verified ballots are signed: name a directory of identity keys (`directory=`), which "
            "`urna keys collect` makes"
        )
    if rehearsal is not None:
        rehearsal.check(space)
    shards = options.get("shards", 1)

    def subject(clients: int) -> VoteSubject:
        if reveal.winner:
            return VoteSubject(space, None, seed, reveal)
        noise = relative_noise(budget, clients * shards)
        asked = space if rehearsal is None else rehearsal.shortlist(noise)
        shape = choose_ballot(ballot, candidates=len(asked), noise=noise, votes=votes)
        return VoteSubject(asked, shape, seed)

    sums = Sums(
        grid,
        subject,
        budget=budget,
        # A helper has no ballot, and a circuit that has started is not held again.
        attempts=1 if reveal.winner else ATTEMPTS,
        federation=Federation(
            directory=directory,
            server_key=server_key,
            least_clients=max(3, least_clients + 1) if reveal.winner else least_clients,
            wait_for=wait_for,
            deadlines=deadlines or Deadlines(),
            transcripts=transcripts,
        ),
        run=Run(ledger=ledger, entry=entry, progress=progress),
        **options,
    )
    announced, reader = sums.gather(), decoder or PosteriorDecoder()
    if reveal.helper is not None and reveal.helper not in announced.names:
        reason = f"the helper {reveal.helper} takes no part. Nothing was begun."
        raise RoundAborted(reason, sums.lost)
    planned = vote_of(announced).vote(announced.terms)
    if not anyway:
        planned.check_hopeful(rehearsed=rehearsal is not None and rehearsal.informs(reader))
    check_readable(vote_of(announced).space, planned, reader, rehearsal)
    leader: Leader | VerifiedLeader | None = None
    if reveal.winner:
        leader = (VerifiedLeader if reveal.verified else Leader)(announced)
        sums.conduct = leader.conduct

    def unread(released: Released) -> VoteResult:
        voted = vote_of(sums.announcement)
        vote = voted.vote(sums.announcement.terms)
        if leader is not None:
            return _selected(voted, vote, sums, leader, released)
        found = unread_result(voted.space, vote, released, rehearsal)
        return replace(found, lost=dict(sums.lost), faults=dict(sums.faults))

    # Kept before nodes are told: a transcript's digest names the winner to who tries all.
    released = sums.round(
        b"" if leader is None else leader.inputs,
        keep=None if keep is None else lambda found: keep(unread(found)),
    )
    return read_again(unread(released), reader, rehearsal)


def _selected(
    subject: VoteSubject,
    vote: VotePlan,
    sums: Sums,
    leader: Leader | VerifiedLeader,
    released: Released,
) -> VoteResult:
    """Return what leader and helper revealed, as a result."""
    announced, opened, selection = sums.announcement, leader.opened, vote.selection
    if opened is None:
        raise ProtocolError("the round ended without a winner")
    found = Selected(
        winner=selection.order[opened.place],
        gap=None if opened.gap is None else opened.gap / 2**selection.release.fineness,
        accepted=released.tallied.accepted - {announced.names.index(subject.helper)},
        lost=dict(sums.lost),
        release=selection.release,
        faults=dict(sums.faults),
        traffic=leader.traffic,
        verified=vote.reveal.verified,
    )
    described = rests_on(
        "the server, which leads,",
        subject.helper,
        announced.terms,
        verified=vote.reveal.verified,
    )
    if not announced.signed:
        described += (
            ". No directory of identity keys was used: who the helper is was the server's word"
        )
    privacy = statement_of(selection, described, released.privacy.private)
    return selected_result(subject.space, vote, found, privacy, released.entry)

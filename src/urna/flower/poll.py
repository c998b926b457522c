"""The server's side of a vote: one call inside an app's own `@app.main()`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower.gathering import Federation
from urna.flower.leader import Leader, VerifiedLeader
from urna.flower.sums import ATTEMPTS, Sums
from urna.flower.vote_subject import VoteSubject, vote_of
from urna.privacy import Budget
from urna.space import Space
from urna.systems.vote import VotePlan, VoteResult, VoteSettings, read_again
from urna.systems.vote.fill import as_budget, as_space
from urna.systems.vote.plan import relative_noise
from urna.systems.vote.search import check_ready, result_of
from urna.systems.vote.settings import choose_ballot
from urna.tally import Options, Released, Run, Selected
from urna.tally.release import statement_of
from urna.tally.selection import rests_on


def poll(
    grid: Grid,
    space: Space | Mapping[str, Any],
    *,
    budget: Budget,
    settings: VoteSettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
    federation: Federation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> VoteResult:
    """Let the connected nodes agree on hyperparameters by secret ballot.

    Announces the space and the plan, gathers the nodes whose own policies allow it, runs the
    secure aggregation over the grid and reads the winner. A node that refuses, is killed, hangs
    or is late is left out and named in `result.lost`, by its Flower id; one that breaks the
    protocol is named in `result.faults`, and the vote is held again without it where it must.
    A node whose data make its evaluation fail abstains, and looks like any other.

    Guarantee:
        See `urna.flower.Sums`.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        space: The candidates, in order.
        budget: What the vote may cost each node.
        settings: What is revealed, how ballots are filled and how the winner is read. A vote that
            reveals the winner alone is held once: a node that breaks the protocol is named, and
            nothing is held again. Its helper is the name of the node that helps (`urna helper`),
            of an organisation that does not collude with the server's. Where ballots are verified
            nodes hand them in with proofs, and an invalid one is named and not counted; server and
            helper together could read every ballot. It takes a directory. A rehearsal is held by
            the server: where noise is strong nodes are asked about its shortlist. Sizes and times
            of shards are the nodes' own policies'.
        seed: Public seed of the nodes' local training.
        folder: Where the vote is kept, so that a server that was killed goes on with it when it
            asks again with the same settings and folder: nothing is charged twice, and a vote
            that was over gives the same result. The folder holds what nodes sent, under masks.
            A vote that reveals the winner alone takes none.
        federation: Who is invited, who signs, how long to wait.
        run: Where it is counted and kept: see `urna.search` and `Sums`.
        options: The rest of the terms: `dropout`, `colluding` (a tenth by default),
            `adjacency`, `shards`, `family`, `server`; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, or the vote cannot succeed (see `urna.search`).
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed; it says who was missing and why.
            Nothing was revealed.
        RoundUnfinished: Too few nodes stayed to open the sum after others had begun to reveal, or
            the circuit that finds a winner started and revealed none. It counts as released.
        InvalidSum: What was opened is no tally. It counts as released.
    """
    space, budget = as_space(space), as_budget(budget)
    how = settings or VoteSettings()
    reveal, rehearsal = how.reveal, how.rehearsal
    reached = federation or Federation()
    run = (run or Run()).only("a vote over Flower", "ledger", "entry", "keep", "progress", "force")
    if reveal.verified and reached.directory is None:
        raise ParameterError(
            "verified ballots are signed: name a directory of identity keys (`Federation`), which "
            "`urna keys collect` makes"
        )
    if reveal.winner and folder is not None:
        raise ParameterError(
            "a vote that reveals the winner alone takes no folder: a circuit that was started is "
            "not started again. Leave the folder out, or reveal counts"
        )
    if rehearsal is not None:
        rehearsal.check(space)
    shards = options.get("shards", 1)

    def subject(clients: int) -> VoteSubject:
        if reveal.winner:
            return VoteSubject(space, None, seed, reveal)
        noise = relative_noise(budget, clients * shards)
        asked = space if rehearsal is None else rehearsal.shortlist(noise)
        shape = choose_ballot(how.ballot, candidates=len(asked), noise=noise, votes=how.votes)
        return VoteSubject(asked, shape, seed)

    sums = Sums(
        grid,
        subject,
        budget=budget,
        folder=folder,
        # A helper has no ballot, and a circuit that has started is not held again.
        attempts=1 if reveal.winner else ATTEMPTS,
        federation=replace(reached, least_clients=max(3, reached.least_clients + 1))
        if reveal.winner
        else reached,
        run=replace(run, keep=None, force=False),
        **options,
    )
    announced = sums.gather()
    if reveal.helper is not None and reveal.helper not in announced.names:
        reason = f"the helper {reveal.helper} takes no part. Nothing was begun."
        raise RoundAborted(reason, sums.lost)
    planned = vote_of(announced).vote(announced.terms)
    check_ready(planned, vote_of(announced).space, how, force=run.force)
    leader: Leader | VerifiedLeader | None = None
    if reveal.winner:
        leader = (VerifiedLeader if reveal.verified else Leader)(announced)
        sums.conduct = leader.conduct

    def unread(released: Released) -> VoteResult:
        voted = vote_of(sums.announcement)
        vote = voted.vote(sums.announcement.terms)
        if leader is not None:
            return _selected(voted, vote, sums, leader, released)
        tallied, privacy = released.tallied, released.privacy
        found = result_of(vote, voted.space, tallied, privacy, released.entry, rehearsal)
        return replace(found, lost=dict(sums.lost), faults=dict(sums.faults))

    # Kept before nodes are told: a transcript's digest names the winner to who tries all.
    inputs = b"" if leader is None else leader.inputs
    return read_again(sums.result(unread, run.kept, inputs), how)


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
    return result_of(vote, subject.space, found, privacy, released.entry)

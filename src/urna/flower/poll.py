"""The server's side of a vote: one call inside an app's own `@app.main()`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from flwr.serverapp import Grid

from urna.errors import ProtocolError
from urna.flower.announcement import Announcement
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.post import Deadlines, Progress
from urna.flower.subjects import VoteSubject
from urna.flower.sums import Sums
from urna.privacy import Budget, Ledger
from urna.space import Space
from urna.tally import Options
from urna.vote import (
    Ballot,
    BallotKind,
    Decoder,
    PosteriorDecoder,
    Rehearsal,
    Result,
    choose_ballot,
    read_result,
    relative_noise,
)
from urna.vote.inputs import as_budget, as_space

__all__ = ["poll"]


def poll(
    grid: Grid,
    space: Space | Mapping[str, Any],
    *,
    budget: Budget,
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
    keep: Callable[[Result], None] | None = None,
    **options: Unpack[Options],
) -> Result:
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
        ParameterError: The parameters cannot be, or the vote cannot succeed.
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed; it says who was missing and why.
            Nothing was revealed.
        RoundUnfinished: Too few nodes stayed to open the sum after others had begun to reveal.
            It counts as released.
        RoundSpoiled: What was opened is no tally. It counts as released.
    """
    space, budget = as_space(space), as_budget(budget)
    shards = options.get("shards", 1)
    if rehearsal is not None:
        rehearsal.check(space)

    def subject(clients: int) -> VoteSubject:
        noise = relative_noise(budget, clients * shards)
        asked = space if rehearsal is None else rehearsal.shortlist(noise)
        shape = choose_ballot(ballot, candidates=len(asked), noise=noise, votes=votes)
        return VoteSubject(asked, shape, seed)

    sums = Sums(
        grid,
        subject,
        budget=budget,
        directory=directory,
        server_key=server_key,
        least_clients=least_clients,
        wait_for=wait_for,
        deadlines=deadlines,
        ledger=ledger,
        transcripts=transcripts,
        entry=entry,
        progress=progress,
        **options,
    )
    announced = sums.gather()
    if not anyway:
        _subject(announced).vote(announced.terms).check_hopeful()
    released = sums.round()
    voted = _subject(sums.announcement)
    vote = voted.vote(sums.announcement.terms)
    named = None if keep is None else lambda r: keep(_named(r, sums))
    read = read_result(voted.space, vote, released, decoder or PosteriorDecoder(), named, rehearsal)
    return _named(read, sums)


def _subject(announcement: Announcement) -> VoteSubject:
    if not isinstance(announcement.subject, VoteSubject):
        raise ProtocolError("what was announced is no vote")
    return announcement.subject


def _named(result: Result, sums: Sums) -> Result:
    """Return a result that names nodes by Flower's ids."""
    return replace(result, lost=dict(sums.lost), faults=dict(sums.faults))

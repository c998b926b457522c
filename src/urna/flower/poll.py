"""The server's side of a vote: one call inside an app's own `@app.main()`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from flwr.serverapp import Grid

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower.announcement import Announcement
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.post import Deadlines, Progress
from urna.flower.subjects import VoteSubject
from urna.flower.sums import Sums
from urna.flower.verified import VerifiedLeader
from urna.flower.winner import Leader
from urna.flower.winner_subject import VerifiedSubject, WinnerSubject, is_verified
from urna.privacy import Budget, Ledger
from urna.space import Space
from urna.systems.vote import (
    Ballot,
    BallotKind,
    Decoder,
    PosteriorDecoder,
    Rehearsal,
    Result,
    WinnerPlan,
    WinnerResult,
    choose_ballot,
    read_again,
    relative_noise,
    unread_result,
)
from urna.systems.vote.inputs import as_budget, as_space
from urna.systems.vote.search import check_readable
from urna.systems.vote.selecting import check_opening, winner_result
from urna.tally import Options, Released, Selected
from urna.tally.selection import rests_on, statement_of

__all__ = ["poll"]


@overload
def poll(
    grid: Grid,
    space: Space | Mapping[str, Any],
    *,
    budget: Budget,
    opens: Literal["winner"],
    helper: str,
    verified: bool = False,
    directory: DirectoryFile | Path | None = None,
    server_key: NodeKey | Path | None = None,
    least_clients: int = 2,
    wait_for: int | None = None,
    deadlines: Deadlines | None = None,
    ledger: Ledger | None = None,
    transcripts: Path | None = None,
    seed: int = 0,
    anyway: bool = False,
    entry: str | None = None,
    progress: Progress | None = None,
    keep: Callable[[WinnerResult], None] | None = None,
    **options: Unpack[Options],
) -> WinnerResult: ...
@overload
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
) -> Result: ...
def poll(
    grid: Grid,
    space: Space | Mapping[str, Any],
    *,
    budget: Budget,
    opens: Literal["tally", "winner"] = "tally",
    helper: str | None = None,
    verified: bool = False,
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
    keep: Callable[[Any], None] | None = None,
    **options: Unpack[Options],
) -> Result | WinnerResult:
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
        opens: `tally`; or `winner`, which needs far less noise, and a helper. Such a vote is held
            once: a node that breaks the protocol is named, and nothing is held again.
        helper: Where only the winner is opened: the name of the node that helps (`urna helper`),
            of an organisation that does not collude with the server's.
        verified: Where only the winner is opened: whether every ballot is verified. Nodes hand
            them in with proofs, and an invalid one is named and not counted; server and helper
            together could read every ballot. It takes a directory.
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
            the circuit that opens a winner started and opened none. It counts as released.
        RoundSpoiled: What was opened is no tally. It counts as released.
    """
    space, budget = as_space(space), as_budget(budget)
    common: dict[str, Any] = {
        "budget": budget,
        "directory": directory,
        "server_key": server_key,
        "least_clients": least_clients,
        "wait_for": wait_for,
        "deadlines": deadlines,
        "ledger": ledger,
        "transcripts": transcripts,
        "entry": entry,
        "progress": progress,
        **options,
    }
    check_opening(opens, helper, None, ballot, votes, decoder, rehearsal)
    if helper is not None:
        if verified and directory is None:
            raise ParameterError(
                "verified ballots are signed: name a directory of identity keys (`directory=`), "
                "which `urna keys collect` makes"
            )
        voted = VerifiedSubject if verified else WinnerSubject
        return _winner(grid, voted(space, helper, seed), common, anyway, keep)
    if verified:
        raise ParameterError(
            "ballots are verified where only the winner is opened: ask for opens='winner'"
        )
    shards = options.get("shards", 1)
    if rehearsal is not None:
        rehearsal.check(space)

    def subject(clients: int) -> VoteSubject:
        noise = relative_noise(budget, clients * shards)
        asked = space if rehearsal is None else rehearsal.shortlist(noise)
        shape = choose_ballot(ballot, candidates=len(asked), noise=noise, votes=votes)
        return VoteSubject(asked, shape, seed)

    reader = decoder or PosteriorDecoder()
    sums = Sums(grid, subject, **common)
    announced = sums.gather()
    asked, planned = _subject(announced), _subject(announced).vote(announced.terms)
    if not anyway:
        planned.check_hopeful(rehearsed=rehearsal is not None and rehearsal.informs(reader))
    check_readable(asked.space, planned, reader, rehearsal)

    def read(released: Released, decoder: Decoder | None) -> Result:
        voted = _subject(sums.announcement)
        vote = voted.vote(sums.announcement.terms)
        result = unread_result(voted.space, vote, released, rehearsal)
        named = replace(result, lost=dict(sums.lost), faults=dict(sums.faults))
        return named if decoder is None else read_again(named, decoder, rehearsal)

    released = sums.round(keep=None if keep is None else lambda r: keep(read(r, None)))
    return read(released, reader)


def _subject(announcement: Announcement) -> VoteSubject:
    if not isinstance(announcement.subject, VoteSubject):
        raise ProtocolError("what was announced is no vote")
    return announcement.subject


def _winner(
    grid: Grid,
    subject: WinnerSubject,
    common: Mapping[str, Any],
    anyway: bool,
    keep: Callable[[Any], None] | None,
) -> WinnerResult:
    """Hold a vote of which only the winner is opened."""
    least = max(3, common["least_clients"] + 1)  # the helper has no ballot
    sums = Sums(grid, subject, **(dict(common) | {"least_clients": least, "attempts": 1}))
    announced = sums.gather()
    helper = subject.helper
    if helper not in announced.names:
        raise RoundAborted(f"the helper {helper} takes no part. Nothing was begun.", sums.lost)
    vote = subject.vote(announced.terms)
    if not anyway:
        vote.check_hopeful()
    leader: Leader | VerifiedLeader
    leader = (VerifiedLeader if isinstance(subject, VerifiedSubject) else Leader)(announced)
    sums.conduct = leader.conduct

    def read(released: Released) -> WinnerResult:
        return _read_winner(subject, sums, leader, vote, released)

    # Kept before nodes are told: a transcript's digest names the winner to who tries all.
    return read(sums.round(leader.inputs, keep=None if keep is None else lambda r: keep(read(r))))


def _read_winner(
    subject: WinnerSubject | VerifiedSubject,
    sums: Sums,
    leader: Leader | VerifiedLeader,
    vote: WinnerPlan,
    released: Released,
) -> WinnerResult:
    """Return what leader and helper opened, as a result."""
    announced, helper = sums.announcement, subject.helper
    verified = is_verified(announced)
    opened, selection = leader.opened, vote.selection
    if opened is None:
        raise ProtocolError("the round ended without a winner")
    place = announced.names.index(helper)
    gap = None if opened.gap is None else opened.gap / 2**selection.release.fineness
    found = Selected(
        winner=selection.order[opened.place],
        gap=gap,
        accepted=released.tallied.accepted - {place},
        lost=dict(sums.lost),
        release=selection.release,
        faults=dict(sums.faults),
        traffic=leader.traffic,
        verified=verified,
    )
    described = rests_on("the server, which leads,", helper, announced.terms, verified=verified)
    if not announced.signed:
        described += (
            ". No directory of identity keys was used: who the helper is was the server's word"
        )
    privacy = statement_of(selection, described, released.privacy.private)
    return winner_result(subject.space, vote, helper, found, privacy, released.entry)

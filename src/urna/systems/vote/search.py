"""A private search, end to end: losses, ballots, noise, sum, winner, account."""

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack, overload

import numpy as np

from urna.data import MIN_SAMPLES
from urna.errors import ParameterError
from urna.files import today
from urna.local import Losses, Objective, losses_apart, losses_of_each
from urna.local import check_objective as check_space
from urna.noise import IntVector
from urna.privacy import Budget, Ledger, Unit
from urna.progress import Steps, live_line
from urna.protocols.secagg import ServerModel
from urna.randomness import SEED_BYTES, OsSecrets, SecretSource
from urna.space import Space
from urna.systems.vote.ballot import BallotKind
from urna.systems.vote.decode import Decoder, NoisyVotes
from urna.systems.vote.inputs import as_budget, as_clients, as_objective, as_space
from urna.systems.vote.plan import VotePlan, plan_vote, relative_noise
from urna.systems.vote.posterior import PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal, RehearsedDecoder
from urna.systems.vote.result import Result
from urna.systems.vote.selecting import check_opening, hold_winner, label_of
from urna.systems.vote.shapes import Ballot
from urna.systems.vote.shards import SHARD_SECONDS, check_clients, shard_ballots
from urna.systems.vote.winner import WinnerPlan, WinnerResult, plan_winner
from urna.tally import (
    HelperSelection,
    Options,
    Released,
    Releases,
    SecureSummation,
    Selection,
    Summation,
    Tallied,
    Terms,
    VerifiedSelection,
)

__all__ = [
    "UNREAD",
    "SearchProgress",
    "check_objective",
    "check_readable",
    "fill_all",
    "hold_tally",
    "read_again",
    "search",
    "unread_result",
    "usable",
]

SearchProgress = Steps

_log = logging.getLogger(__name__)

UNREAD = "none yet"
"""The decoder of a result whose winner is not weighed yet."""

_TRIED = 3  # clients on which a broken objective is looked for

DataT = TypeVar("DataT")


@overload
def search(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    budget: Budget,
    opens: Literal["winner"],
    helper: str,
    verified: bool = False,
    selection: Selection | None = None,
    smallest_shard: int = MIN_SAMPLES,
    shard_seconds: float = SHARD_SECONDS,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    seed: int = 0,
    anyway: bool = False,
    entry: str | None = None,
    progress: SearchProgress | bool | None = None,
    keep: Callable[[WinnerResult], None] | None = None,
    **options: Unpack[Options],
) -> WinnerResult: ...
@overload
def search(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[DataT],
    *,
    budget: Budget,
    ballot: Ballot | BallotKind | str | None = None,
    votes: int | None = None,
    smallest_shard: int = MIN_SAMPLES,
    shard_seconds: float = SHARD_SECONDS,
    summation: Summation | None = None,
    decoder: Decoder | None = None,
    rehearsal: Rehearsal | None = None,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    seed: int = 0,
    anyway: bool = False,
    entry: str | None = None,
    progress: SearchProgress | bool | None = None,
    keep: Callable[[Result], None] | None = None,
    **options: Unpack[Options],
) -> Result: ...
def search(
    space: Space | Mapping[str, Any],
    objective: Objective[DataT] | Any,
    clients: Sequence[DataT],
    *,
    budget: Budget,
    opens: Literal["tally", "winner"] = "tally",
    helper: str | None = None,
    verified: bool = False,
    selection: Selection | None = None,
    ballot: Ballot | BallotKind | str | None = None,
    votes: int | None = None,
    smallest_shard: int = MIN_SAMPLES,
    shard_seconds: float = SHARD_SECONDS,
    summation: Summation | None = None,
    decoder: Decoder | None = None,
    rehearsal: Rehearsal | None = None,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    seed: int = 0,
    anyway: bool = False,
    entry: str | None = None,
    progress: SearchProgress | bool | None = None,
    keep: Callable[[Any], None] | None = None,
    **options: Unpack[Options],
) -> Result | WinnerResult:
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
        opens: `tally`, of which the winner and its rivals are read; or `winner`, which needs far
            less noise, and a helper. Then ballots are levels, and nobody sees a tally.
        helper: Where only the winner is opened: who holds the other share of the sum, and is
            trusted not to collude with whoever leads.
        verified: Whether leader and helper check every ballot; an invalid one is refused, and its
            client named.
        selection: How the winner is found; by SecAgg+ with the helper as one more client, or from
            verified ballots.
        ballot: How a client spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        smallest_shard: A shard with fewer records abstains; a client with too few is refused.
        shard_seconds: A shard whose evaluation takes longer abstains.
        summation: How ballots are added up; securely by default.
        decoder: How the winner is read from the tally; `PosteriorDecoder` by default.
        rehearsal: The same search on public data: it says what the decoder may expect and, where
            noise is strong, which candidates are voted on.
        ledger: Where the release is counted before it happens.
        secrets: Where keys and noise come from; the operating system by default.
        seed: Public seed of the clients' local training.
        anyway: Whether to hold a vote that cannot succeed, and without trying the objective first.
        entry: The release's id in the ledger, for who may be killed and hold the same vote again:
            the same id counts once, and is refused once a tally of it was handed out.
        progress: Called while the search runs; a line in a terminal or a notebook by default,
            False for none.
        keep: Called with the result as soon as there is one, before the winner is weighed and
            before the ledger notes it: writes down what was paid for, and shows it to nobody.
            The winner in it is the most voted one.
        options: The rest of the terms: `dropout`, `colluding`, `adjacency`, `shards`, `family`,
            `server`; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, the vote cannot succeed and no rehearsal
            informs its decoder, or the objective fails on all of the first clients. Nothing
            was released.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        LedgerError: The ledger knows of a result of this entry. Nothing was released now.
        RoundAborted: Too many clients dropped out. Nothing was released.
        RoundUnfinished: They did so while the sum was opened, or the circuit that opens a winner
            started and opened none. It stays counted.
        RoundSpoiled: What was opened is no tally. It stays counted.
    """
    space, objective, clients = as_space(space), as_objective(objective), as_clients(clients)
    secrets = secrets or OsSecrets()
    terms = Terms.of(len(clients), as_budget(budget), **options)
    check_opening(opens, helper, selection, ballot, votes, summation, decoder, rehearsal)
    if verified:
        if helper is None or selection is not None:
            raise ParameterError(
                "ballots are verified where only the winner is opened: ask for opens='winner'"
            )
        if terms.server is ServerModel.DISHONEST:
            raise ParameterError(
                "verified ballots are not summed under masks, so nothing is planned against a "
                "dishonest server: leave `server` (--server) out"
            )
        selection = VerifiedSelection(helper)
    if rehearsal is not None:
        rehearsal.check(space)
        space = rehearsal.shortlist(relative_noise(terms.budget, terms.clients * terms.shards))
    evaluate = functools.partial(
        _evaluated,
        space,
        objective,
        clients,
        terms=terms,
        smallest=smallest_shard,
        seconds=shard_seconds,
        secrets=secrets,
        seed=seed,
        anyway=anyway,
    )
    if helper is not None:
        chosen = selection or HelperSelection(helper)
        with live_line(progress) as report:
            return _open_winner(
                space,
                terms,
                chosen,
                ledger,
                entry,
                functools.partial(evaluate, report=report),
                report,
                keep,
            )
    summation, decoder = summation or SecureSummation(), decoder or PosteriorDecoder()
    vote = plan_vote(
        terms,
        len(space),
        ballot=ballot,
        votes=votes,
        removes_excess=summation.removes_excess,
    )
    if not anyway:
        vote.check_hopeful(rehearsed=rehearsal is not None and rehearsal.informs(decoder))
    check_readable(space, vote, decoder, rehearsal)
    releases = Releases(
        vote.tally,
        label_of(space, terms),
        summation.describe(terms),
        ledger=ledger,
        private=secrets.private,
        id=entry,
    )
    adding = summation
    with live_line(progress) as report:
        ballots = evaluate(vote, report=report)
        report("summing ballots", 0, 1)
        unread = hold_tally(
            releases,
            lambda: adding.tally(ballots, vote.tally, secrets),
            space,
            vote,
            keep=keep,
            rehearsal=rehearsal,
        )
        report("summing ballots", 1, 1)
    return read_again(unread, decoder, rehearsal)


def _evaluated(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan | WinnerPlan,
    *,
    terms: Terms,
    smallest: int,
    seconds: float,
    secrets: SecretSource,
    seed: int,
    anyway: bool,
    report: SearchProgress,
) -> dict[int, IntVector]:
    """Try the objective, then let every client evaluate the candidates and fill its ballot."""
    by_record = terms.adjacency.unit is Unit.RECORD
    if by_record:
        check_clients(clients, terms.shards, smallest)
    if anyway:
        check_space(objective, space)
    else:
        allowed = seconds * terms.shards if by_record else None
        check_objective(objective, space, clients, seed, allowed)
    fill = _ballots
    if by_record:
        fill = functools.partial(_record_ballots, smallest=smallest, seconds=seconds)
    return fill(space, objective, clients, vote, secrets, seed, report)


def _open_winner(
    space: Space,
    terms: Terms,
    selection: Selection,
    ledger: Ledger | None,
    entry: str | None,
    evaluate: "functools.partial[dict[int, IntVector]]",
    report: SearchProgress,
    keep: Callable[[Any], None] | None,
) -> WinnerResult:
    """Hold a vote of which only the winner is opened."""
    vote = plan_winner(terms, space)
    secrets, anyway = evaluate.keywords["secrets"], evaluate.keywords["anyway"]
    if not anyway:
        vote.check_hopeful()
    if ledger is not None:
        ledger.check_relation(terms.adjacency)
        ledger.check(*([vote.release] if secrets.private else ()), ids=[entry])
    ballots = evaluate(vote)
    report("finding the winner", 0, 1)
    result = hold_winner(space, vote, selection, ballots, ledger, secrets, entry, keep)
    report("finding the winner", 1, 1)
    return result


def check_objective(
    objective: Objective[DataT],
    space: Space,
    clients: Sequence[DataT],
    seed: int,
    seconds: float | None = None,
) -> None:
    """Find out that an objective is broken before anything is spent on it.

    What no data cause is told at once. For the rest a few candidates are evaluated on one
    client; only if none of them has a finite loss on any of the first clients is the objective
    to blame, and is that told, to whoever holds all clients' data in this process.

    Assumes:
        Nobody else learns that a search was refused: data decide it.

    Args:
        objective: What is tried.
        space: The candidates.
        clients: Everybody's data.
        seed: Public seed of local training.
        seconds: How long it may take, in a process of its own; in this one by default.

    Raises:
        ParameterError: The objective cannot judge this space, or fails on the first clients.
    """
    check_space(objective, space)
    some = space.only(sorted({0, len(space) // 2, len(space) - 1}))
    errors: list[Exception] = []
    for data in clients[:_TRIED]:
        try:
            for candidates in (some, space):  # all of them only if some were not enough
                if _works(objective, data, candidates, seed, seconds):
                    return
            raise ValueError("no candidate has a finite loss (the log names the first error)")
        except Exception as error:
            # Whatever a stranger's function raises: what it means is decided below.
            errors.append(error)
    raise ParameterError(
        f"the objective fails on each of the first {len(errors)} clients: "
        f"{type(errors[0]).__name__}: {errors[0]}. Nothing was spent"
    ) from errors[0]


def _works(
    objective: Objective[DataT], data: DataT, space: Space, seed: int, seconds: float | None
) -> bool:
    """Say whether some candidate has a finite loss on a client's data."""
    if seconds is None:
        found: Losses | None = objective.losses(data, space, seed=seed)
    else:
        (found,) = losses_apart(objective, [data], space, seeds=[seed], seconds=seconds)
    if found is None:
        raise RuntimeError(f"it raised, ended its process, or took longer than {seconds:g} s")
    if np.shape(found) != (len(space),):
        raise ValueError("an objective returns one loss per candidate")
    return bool(np.isfinite(found).any())


def _ballots(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan | WinnerPlan,
    secrets: SecretSource,
    seed: int,
    report: SearchProgress,
) -> dict[int, IntVector]:
    """Let every client evaluate the candidates and fill its ballot."""
    evaluated = losses_of_each(
        objective,
        clients,
        space,
        seeds=[seed] * len(clients),
        progress=lambda done, total: report("evaluating candidates", done, total),
    )
    return fill_all(evaluated, vote, secrets)


def fill_all(
    evaluated: Iterable[Losses], vote: VotePlan | WinnerPlan, secrets: SecretSource
) -> dict[int, IntVector]:
    """Return every client's ballot, in grid steps, from its losses."""
    return {
        client: vote.contribution(_filled(losses, vote, secrets.take(SEED_BYTES)))
        for client, losses in enumerate(evaluated)
    }


def _filled(losses: Losses, vote: VotePlan | WinnerPlan, key: bytes) -> IntVector:
    """Return one client's ballot, an empty one if its losses allow for none."""
    known = usable(losses, vote.candidates)
    try:
        ballot = vote.fill(known, key)
        vote.shape.check(ballot)
    except Exception as error:
        # Whatever its data caused: nobody else's business.
        _log.warning("a client abstains: no ballot was filled (%s)", type(error).__name__)
        return np.zeros(vote.candidates, dtype=np.int64)
    return ballot


def usable(losses: object, candidates: int) -> Losses:
    """Return a client's losses; where they are not one number per candidate, it abstains.

    Its data may have caused that, so it is nobody else's business.
    """
    try:
        found = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.shape == (candidates,):
        return found
    _log.warning("a client abstains: its losses are not one number per candidate")
    return np.full(candidates, np.nan)


def _record_ballots(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan | WinnerPlan,
    secrets: SecretSource,
    seed: int,
    report: SearchProgress,
    *,
    smallest: int,
    seconds: float,
) -> dict[int, IntVector]:
    """Let every shard of every client's records fill a ballot; each client adds up its own."""
    ballots, each = {}, vote.terms.shards * len(space)
    steps = len(clients) * each
    for client, data in enumerate(clients):

        def advance(done: int, _: int, before: int = client * each) -> None:
            report("evaluating candidates", before + done, steps)

        filled = shard_ballots(
            objective,
            data,
            space,
            vote,
            key=secrets.take(SEED_BYTES),
            seed=seed,
            smallest=smallest,
            seconds=seconds,
            progress=advance,
        )
        ballots[client] = vote.contribution(np.sum(filled, axis=0))
        # Shards that are too small are done as well.
        report("evaluating candidates", (client + 1) * each, steps)
    return ballots


def check_readable(
    space: Space, vote: VotePlan, decoder: Decoder, rehearsal: Rehearsal | None = None
) -> None:
    """Read a made-up tally: a space that a decoder cannot read is found before it is paid for."""
    if rehearsal is not None:
        decoder = rehearsal.decoder(vote.shape, space, decoder)
    votes = np.arange(len(space), dtype=np.float64)
    norm = vote.ballot_norm
    decoder.winner(NoisyVotes(space, votes, vote.most_noise_std, vote.fewest_ballots, norm))


def read_again(result: Result, decoder: Decoder, rehearsal: Rehearsal | None = None) -> Result:
    """Read the winner out of a tally that was kept: free, and the same every time.

    Args:
        result: Of which the tally is read.
        decoder: How the winner is read.
        rehearsal: The same search on public data, if there was one.
    """
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
        near_ties=decoded.near_ties,
        decoder=decoder.name,
        rehearsal=said,
    )
    if read.by_rehearsal:  # whose word is no odds
        return replace(read, confidence=None, near_ties=())
    return read


def unread_result(
    space: Space, vote: VotePlan, released: Released, rehearsal: Rehearsal | None = None
) -> Result:
    """Return a released tally as a result whose winner, so far, is the most voted candidate.

    Args:
        space: The candidates.
        vote: The plan.
        released: The tally, and what it cost.
        rehearsal: The same search on public data, if there was one.
    """
    tallied, privacy = released.tallied, released.privacy
    votes = vote.in_votes(tallied.total)
    if rehearsal is not None:
        privacy = replace(privacy, caveats=(*privacy.caveats, rehearsal.caveat))
    return Result(
        space=space,
        winner=int(np.argmax(votes)),
        votes=votes,
        standard_error=math.sqrt(tallied.noise_variance) / vote.vote,
        confidence=None,
        near_ties=(),
        privacy=privacy,
        terms=vote.terms,
        ballot=vote.shape,
        decoder=UNREAD,
        took_part=len(tallied.accepted),
        lost=tallied.lost,
        faults=tallied.faults,
        plan=vote.as_mapping(),
        entry=released.entry,
        when=today() if released.privacy.private else None,
        rehearsal=None if rehearsal is None else rehearsal.as_mapping(space, None),
    )


def hold_tally(
    releases: Releases,
    add_up: Callable[[], Tallied],
    space: Space,
    vote: VotePlan,
    *,
    keep: Callable[[Result], None] | None = None,
    rehearsal: Rehearsal | None = None,
) -> Result:
    """Release a tally, and return it as a result whose winner is not weighed yet.

    Args:
        releases: Where it is counted.
        add_up: Adds up the ballots.
        space: The candidates.
        vote: The plan.
        keep: Called with the result before the ledger notes it; see `Releases.release`.
        rehearsal: The same search on public data, if there was one.
    """
    results: list[Result] = []

    def take(released: Released) -> None:
        results.append(unread_result(space, vote, released, rehearsal))
        if keep is not None:
            keep(results[0])

    releases.release(add_up, take)
    return results[0]

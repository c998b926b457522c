"""A private search, end to end: losses, ballots, noise, sum, winner, account."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

import numpy as np

from urna.errors import ParameterError
from urna.local import Losses, Objective, losses_apart, losses_of_each
from urna.local import check_objective as check_space
from urna.local.generators import own_generators
from urna.noise import IntVector
from urna.privacy import Budget, NonPrivateRelease, Unit
from urna.progress import Steps, live_line
from urna.randomness import SEED_BYTES, SecretSource
from urna.space import Space
from urna.systems.vote.hold import check_readable, hold_vote, read_again
from urna.systems.vote.inputs import as_budget, as_clients, as_objective, as_space
from urna.systems.vote.plan import VotePlan, plan_vote, relative_noise
from urna.systems.vote.result import VoteResult
from urna.systems.vote.settings import VoteSettings
from urna.systems.vote.shards import check_clients, shard_ballots
from urna.tally import Options, Run, Selection, Summation, Terms

__all__ = ["SearchProgress", "check_objective", "fill_all", "search"]

SearchProgress = Steps

_TRIED = 3  # clients on which a broken objective is looked for

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
    secrets, reveal, rehearsal = run.secrets, how.reveal, how.rehearsal
    terms = Terms.of(len(clients), as_budget(budget), **options)
    by_record = terms.adjacency.unit is Unit.RECORD
    how.check(terms, summation=summation)
    if selection is not None:
        selection = reveal.selection(selection)
    if rehearsal is not None:
        rehearsal.check(space)
        space = rehearsal.shortlist(relative_noise(terms.budget, terms.clients * terms.shards))
    vote = plan_vote(
        terms,
        space,
        reveal=reveal,
        ballot=how.ballot,
        votes=how.votes,
        removes_excess=summation is None or summation.removes_excess,
    )
    if not run.force:
        vote.check_hopeful(rehearsed=how.informed)
    check_readable(space, vote, how.reader, rehearsal)
    if run.ledger is not None:
        run.ledger.check_relation(terms.adjacency)
        event = vote.event if secrets.private else NonPrivateRelease("scripted secrets")
        run.ledger.check(event, ids=[run.entry])
    with live_line(run.progress) as report:
        if by_record:
            check_clients(clients, terms.shards, how.smallest_shard)
        if run.force:
            check_space(objective, space)
        else:
            allowed = how.shard_seconds * terms.shards if by_record else None
            check_objective(objective, space, clients, seed, allowed)
        if by_record:
            each = (how.smallest_shard, how.shard_seconds)
            ballots = _record_ballots(space, objective, clients, vote, secrets, seed, report, *each)
        else:
            evaluated = losses_of_each(
                objective,
                clients,
                space,
                seeds=[seed] * len(clients),
                progress=lambda done, total: report("evaluating candidates", done, total),
            )
            ballots = fill_all(evaluated, vote, secrets)
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
    return read_again(unread, how.reader, rehearsal)


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
        with own_generators(seed):
            found: Losses | None = objective.losses(data, space, seed=seed)
    else:
        (found,) = losses_apart(objective, [data], space, seeds=[seed], seconds=seconds)
    if found is None:
        raise RuntimeError(f"it raised, ended its process, or took longer than {seconds:g} s")
    if np.shape(found) != (len(space),):
        raise ValueError("an objective returns one loss per candidate")
    return bool(np.isfinite(found).any())


def fill_all(
    evaluated: Iterable[Losses], vote: VotePlan, secrets: SecretSource
) -> dict[int, IntVector]:
    """Return every client's ballot, in grid steps, from its losses."""
    return {
        client: vote.contribution(vote.fill(losses, secrets.take(SEED_BYTES)))
        for client, losses in enumerate(evaluated)
    }


def _record_ballots(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan,
    secrets: SecretSource,
    seed: int,
    report: SearchProgress,
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

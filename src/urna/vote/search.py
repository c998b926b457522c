"""A private search, end to end: losses, ballots, noise, sum, winner, account."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from urna.data import MIN_SAMPLES
from urna.errors import ProtocolError, RoundAborted
from urna.local import Objective, losses_of_each
from urna.noise import IntVector
from urna.privacy import (
    Adjacency,
    Budget,
    Ledger,
    NonPrivateRelease,
    PrivacyStatement,
    Release,
    Unit,
)
from urna.privacy.distributions import SKELLAM
from urna.randomness import SEED_BYTES, OsSecrets, SecretSource
from urna.space import Space
from urna.tally import SecureSummation, Summation, Tallied, decode, encode, encode_ballots
from urna.vote.ballot import BallotKind, fill_ballot
from urna.vote.decode import Decoder, NoisyVotes
from urna.vote.plan import VotePlan, plan
from urna.vote.posterior import PosteriorDecoder
from urna.vote.result import Result
from urna.vote.shards import check_clients, shard_ballots

__all__ = ["SearchProgress", "read_result", "search"]

SearchProgress = Callable[[str, int, int], None]
"""Called with (what is being done, steps finished, steps in all)."""

DataT = TypeVar("DataT")


def search(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    *,
    budget: Budget,
    ballot: BallotKind | str | None = None,
    votes: int | None = None,
    dropout: float = 0.0,
    colluding: float = 0.0,
    adjacency: Adjacency = Adjacency.REPLACE_ONE_CLIENT,
    shards: int = 1,
    smallest_shard: int = MIN_SAMPLES,
    family: str = SKELLAM.name,
    summation: Summation | None = None,
    decoder: Decoder | None = None,
    ledger: Ledger | None = None,
    secrets: SecretSource | None = None,
    seed: int = 0,
    progress: SearchProgress | None = None,
) -> Result:
    """Let clients agree on hyperparameters by secret ballot.

    All clients are simulated in this process: each evaluates the candidates on its own data,
    votes for its best, adds its share of integer noise, and the sum of all ballots names the
    winner.

    Guarantee:
        The tally, and so the result, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the summation reveals; `result.privacy` says so in
        words. With scripted secrets nothing is guaranteed and epsilon is infinite.

    Args:
        space: The candidates, in order.
        objective: How a client evaluates them on its data.
        clients: Each client's data.
        budget: What the search may cost.
        ballot: How a client spreads its vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        dropout: Largest fraction of clients that may drop out.
        colluding: Largest fraction of clients that may tell the server their noise.
        adjacency: Between which electorates the guarantee holds.
        shards: With `Adjacency.REPLACE_ONE_RECORD`, into how many shards each client splits
            its records; each votes, and one record is protected, not a whole client.
        smallest_shard: A shard with fewer records abstains; a client with too few is refused.
        family: Name of the noise's family.
        summation: How ballots are added up; securely by default.
        decoder: How the winner is read from the tally; `PosteriorDecoder` by default.
        ledger: Where the release is counted before it happens.
        secrets: Where keys and noise come from; the operating system by default.
        seed: Public seed of the clients' local training.
        progress: Called while the search runs.

    Raises:
        ParameterError: The parameters cannot be.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        RoundAborted: Too many clients dropped out. Nothing was released.
        RoundUnfinished: They did so while the sum was opened. It stays counted.
    """
    secrets = secrets or OsSecrets()
    summation = summation or SecureSummation()
    decoder = decoder or PosteriorDecoder()
    report = progress or (lambda what, done, total: None)
    vote = plan(
        clients=len(clients),
        candidates=len(space),
        budget=budget,
        ballot=ballot,
        votes=votes,
        dropout=dropout,
        colluding=colluding,
        adjacency=adjacency,
        family=family,
        removes_excess=summation.removes_excess,
        shards=shards,
    )
    by_record = adjacency.unit is Unit.RECORD
    if by_record:
        check_clients(clients, shards, smallest_shard)
    release: Release = vote.tally.calibration.release
    if not secrets.private:
        release = NonPrivateRelease("scripted secrets")
    if ledger is not None:
        ledger.check_relation(adjacency)
        ledger.check(release)
    if by_record:
        ballots = _record_ballots(
            space, objective, clients, vote, secrets, seed, smallest_shard, report
        )
    else:
        ballots = _ballots(space, objective, clients, vote, secrets, seed, report)
    report("summing ballots", 0, 1)
    label = f"vote on {len(space)} candidates" + (f", {shards} shards" if by_record else "")
    entered = ledger and ledger.enter(release, label=label)
    try:
        tallied = summation.tally(ballots, vote.tally, secrets)
    except RoundAborted as aborted:
        if ledger is not None and entered:
            ledger.withdraw(entered, reason=str(aborted))
        raise
    report("summing ballots", 1, 1)
    statement = _statement(vote, summation, secrets)
    return read_result(space, vote, tallied, decoder, statement)


def _ballots(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan,
    secrets: SecretSource,
    seed: int,
    report: SearchProgress,
) -> dict[int, IntVector]:
    """Let every client evaluate the candidates and fill its ballot."""
    shape, ballots = vote.tally.shape, {}
    evaluated = losses_of_each(
        objective,
        clients,
        space,
        seeds=[seed] * len(clients),
        progress=lambda done, total: report("evaluating candidates", done, total),
    )
    for client, losses in enumerate(evaluated):
        ballot = fill_ballot(losses, shape, secrets.take(SEED_BYTES))
        ballots[client] = encode(ballot, vote.tally)
    return ballots


def _record_ballots(
    space: Space,
    objective: Objective[DataT],
    clients: Sequence[DataT],
    vote: VotePlan,
    secrets: SecretSource,
    seed: int,
    smallest: int,
    report: SearchProgress,
) -> dict[int, IntVector]:
    """Let every shard of every client's records fill a ballot; each client adds up its own.

    Shards are evaluated one by one, never in one stack: rounding in a stack may depend on
    what else is in it, and a shard's ballot must depend on its own records alone.
    """
    ballots, shards = {}, vote.tally.shards
    steps = len(clients) * len(space)
    for client, data in enumerate(clients):

        def advance(done: int, _: int, before: int = client * len(space)) -> None:
            report("evaluating candidates", before + done // shards, steps)

        filled = shard_ballots(
            objective,
            data,
            space,
            vote.tally,
            key=secrets.take(SEED_BYTES),
            seed=seed,
            smallest=smallest,
            progress=advance,
        )
        ballots[client] = encode_ballots(filled, vote.tally)
    return ballots


def _statement(vote: VotePlan, summation: Summation, secrets: SecretSource) -> PrivacyStatement:
    scripted = () if secrets.private else ("The randomness was scripted, so nothing is private",)
    return PrivacyStatement(
        epsilon=vote.tally.calibration.epsilon if secrets.private else math.inf,
        delta=vote.tally.budget.delta,
        adjacency=vote.tally.adjacency,
        accountant=vote.tally.calibration.accountant,
        caveats=(*scripted, *vote.tally.unit_caveats, summation.described),
    )


def read_result(
    space: Space,
    vote: VotePlan,
    tallied: Tallied,
    decoder: Decoder,
    statement: PrivacyStatement,
) -> Result:
    """Read the winner out of a finished tally.

    Raises:
        ProtocolError: The summation left less noise than planned: its result is not used.
    """
    left, planned = tallied.release, vote.tally.calibration.release
    if left.variance < planned.variance or left.shifts != planned.shifts:
        raise ProtocolError(
            f"the summation left a noise variance of {float(left.variance):g} where "
            f"{float(planned.variance):g} is needed: its result is not used. The ledger keeps "
            "counting it, but its guarantee does not hold."
        )
    votes = decode(tallied.total, vote.tally)
    std = math.sqrt(tallied.noise_variance) / vote.tally.vote
    ballots = len(tallied.accepted) * vote.tally.shards
    decoded = decoder.decode(NoisyVotes(space, votes, std, ballots, vote.ballot_norm))
    return Result(
        space=space,
        winner=decoded.winner,
        votes=votes,
        standard_error=std,
        confidence=decoded.confidence,
        near_ties=decoded.near_ties,
        privacy=statement,
        plan=vote,
        decoder=decoder.name,
        took_part=len(tallied.accepted),
        lost=tallied.lost,
    )

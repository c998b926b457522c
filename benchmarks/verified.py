"""What verified ballots cost, and what they keep one malicious client from doing.

    python benchmarks/verified.py [--format json]

A count with all parties in one process, 10,000 clients with 200 candidates, CPU time of every
party. Then votes of 100 clients one of whom wants another winner: by a plain sum, which takes
whatever it is given; by verified ballots; and, to compare, an honest client whose data speak for
the same candidate.
"""

import argparse
import json
import platform
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.protocols.ballots import (
    BallotClient,
    BallotLayout,
    CountPlan,
    PlayedCount,
    Report,
    VouchedStatement,
    play,
)
from urna.protocols.ballots.report import seal_report
from urna.randomness import OsSecrets, SecretSource

Ballot = npt.NDArray[np.int64]


def count(plan: CountPlan, rng: np.random.Generator) -> tuple[PlayedCount, float]:
    """Play a count of random ballots; return it and the CPU time of the whole process."""
    layout = plan.layout
    ballots = {
        client: rng.integers(0, layout.levels + 1, layout.candidates)
        for client in range(plan.clients)
    }
    start = time.process_time()
    played = play(ballots, plan, OsSecrets())
    seconds = time.process_time() - start
    ours, theirs, modulus = played.shares()
    whole = [(a + b) % modulus for a, b in zip(ours, theirs, strict=True)]
    exact = sum(ballots.values())
    assert whole == np.asarray(exact).tolist(), "the count is wrong"
    assert not played.refused, "an honest client was refused"
    return played, seconds


def costs(plan: CountPlan, rng: np.random.Generator) -> dict[str, Any]:
    """Return what a count costs each party."""
    played, seconds = count(plan, rng)
    reports = plan.clients
    return {
        "reports": reports,
        "candidates": plan.layout.candidates,
        "bits": plan.layout.bits,
        "cpu_s": seconds,
        "client_ms": 1e3 * played.seconds["clients"] / reports,
        "leader_ms_per_report": 1e3 * played.seconds["leader"] / reports,
        "helper_ms_per_report": 1e3 * played.seconds["helper"] / reports,
        "report_bytes": played.traffic["report"] / reports,
        "between_the_two_mb": sum(size for kind, size in played.traffic.items() if kind != "report")
        / 1e6,
        "soundness_log2": float(np.log2(reports * plan.codec.soundness)),
    }


def client_data(clients: int, candidates: int, rng: np.random.Generator) -> dict[int, Ballot]:
    """Ballots of clients whose data agree by and large: levels 0..3 of noisy accuracies."""
    quality = rng.normal(size=candidates)
    found = {}
    for client in range(clients):
        scores = quality + rng.normal(size=candidates)
        span = np.sort(scores)[-1] - np.median(scores)
        found[client] = np.rint(3 * np.clip((scores - np.median(scores)) / span, 0, 1) ** 4)
    return {client: ballot.astype(np.int64) for client, ballot in found.items()}


def stuffed(
    voter: BallotClient,
    announcement: VouchedStatement,
    secrets: SecretSource,
    target: int,
    amount: int,
) -> Report:
    """Cast so many votes for one candidate, with a proof as good as can be made."""
    plan = announcement.statement.plan
    bits = np.zeros(plan.layout.bits, dtype=np.int64)
    bits[len(plan.layout.weights) * target] = amount
    shards = plan.codec.share(bits, secrets)
    return seal_report(voter.identity, announcement.statement, shards, secrets)


def winner(played: PlayedCount) -> int:
    """Return the candidate with the largest exact sum."""
    ours, theirs, modulus = played.shares()
    return int(np.argmax([(a + b) % modulus for a, b in zip(ours, theirs, strict=True)]))


def malice(votes: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return how often one client of 100 changes the winner, and how often it is named."""
    clients, candidates, bad = 100, 100, 17
    plan = CountPlan(BallotLayout(candidates), clients, clients - 1)
    moved = dict.fromkeys(("plain", "verified", "worst valid", "other data"), 0)
    named = 0
    for _ in range(votes):
        ballots = client_data(clients, candidates, rng)
        whole = np.sum(list(ballots.values()), axis=0)
        before = int(np.argmax(whole))
        target = int(np.argsort(whole)[-2])  # the runner-up: the easiest to help
        rest = whole - ballots[bad]
        unbounded = rest.copy()
        unbounded[target] += 100
        moved["plain"] += int(np.argmax(unbounded)) != before

        def casting(
            voter: BallotClient,
            announcement: VouchedStatement,
            secrets: SecretSource,
            who: int = target,
        ) -> Report:
            return stuffed(voter, announcement, secrets, who, 100)

        played = play(ballots, plan, OsSecrets(), casting={bad: casting})
        named += set(played.refused) == {bad}
        moved["verified"] += winner(played) != before
        valid = np.zeros(candidates, dtype=np.int64)
        valid[target] = 3
        played = play({**ballots, bad: valid}, plan, OsSecrets())
        moved["worst valid"] += winner(played) != before
        # An honest client whose data happen to say the same as the worst valid ballot, and one
        # whose data are just any others.
        other = client_data(1, candidates, rng)[0]
        moved["other data"] += int(np.argmax(rest + other)) != before
    rates = {f"moved_{name.replace(' ', '_')}": n / votes for name, n in moved.items()}
    return {"votes": votes, "named": named / votes, **rates}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--reports", type=int, default=10_000)
    parser.add_argument("--votes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    n = given.reports
    found = {
        "machine": platform.machine(),
        "levels": costs(CountPlan(BallotLayout(200), n, n), rng),
        "malice": malice(given.votes, rng),
    }
    if given.format == "json":
        print(json.dumps(found, indent=1))
        return
    for name, part in found.items():
        print(f"\n{name}" if isinstance(part, dict) else f"{name}: {part}")
        for key, value in part.items() if isinstance(part, dict) else ():
            print(f"  {key:24} {value:.4g}" if isinstance(value, float) else f"  {key:24} {value}")


if __name__ == "__main__":
    main()

"""Counts in memory, one client of which does something else."""

from collections.abc import Callable
from dataclasses import replace

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
from urna.protocols.ballots.codec import Shards
from urna.protocols.ballots.report import seal_report
from urna.randomness import ScriptedSecrets, SecretSource

CLIENTS, VICTIM = 8, 3
LEVELS = CountPlan(BallotLayout(5), CLIENTS, 5)


def ballots_for(plan: CountPlan) -> dict[int, npt.NDArray[np.int64]]:
    rng = np.random.default_rng(7)
    most, size = plan.layout.levels + 1, plan.layout.candidates
    return {client: rng.integers(0, most, size) for client in range(plan.clients)}


def opened(played: PlayedCount) -> list[int]:
    """The exact sum, from both shares."""
    ours, theirs, modulus = played.shares()
    return [(a + b) % modulus for a, b in zip(ours, theirs, strict=True)]


def exact_sum(plan: CountPlan, accepted: frozenset[int]) -> list[int]:
    return [int(v) for v in sum(b for c, b in ballots_for(plan).items() if c in accepted)]  # type: ignore[union-attr]


def run(
    plan: CountPlan,
    casting: Callable[[BallotClient, VouchedStatement, SecretSource], Report] | None = None,
    tamper: Callable[[str, int, bytes], list[bytes]] | None = None,
    label: bytes = b"verified",
) -> PlayedCount:
    """Play a count in which the victim does something else, or letters are altered."""
    return play(
        ballots_for(plan),
        plan,
        ScriptedSecrets(label),
        casting=None if casting is None else {VICTIM: casting},
        tamper=tamper,
    )


def with_shards(
    plan: CountPlan, change: Callable[[Shards], Shards]
) -> Callable[[BallotClient, VouchedStatement, SecretSource], Report]:
    """A client that seals and signs other shares than it should."""

    def casting(
        voter: BallotClient, announcement: VouchedStatement, secrets: SecretSource
    ) -> Report:
        wrong = change(plan.codec.shard(ballots_for(plan)[VICTIM], secrets))
        return seal_report(voter.identity, announcement.statement, wrong, secrets)

    return casting


def with_bits(
    plan: CountPlan, bits: npt.NDArray[np.int64]
) -> Callable[[BallotClient, VouchedStatement, SecretSource], Report]:
    """A client that proves, as well as it can, a vector that may be no ballot."""

    def casting(
        voter: BallotClient, announcement: VouchedStatement, secrets: SecretSource
    ) -> Report:
        made = plan.codec.share(bits, secrets)
        return seal_report(voter.identity, announcement.statement, made, secrets)

    return casting


def added(shards: Shards, place: int, amount: int) -> Shards:
    """Add to one element of the leader's share."""
    data = bytearray(shards.leader)
    at = slice(4 * place, 4 * (place + 1))
    value = (int.from_bytes(data[at], "little") + amount) % LEVELS.codec.modulus
    data[at] = value.to_bytes(4, "little")
    return replace(shards, leader=bytes(data))


def flipped(kind: str, place: int, sender: int | None = None) -> Callable[..., list[bytes]]:
    """Turn one bit of one letter."""

    def tamper(found: str, who: int, data: bytes) -> list[bytes]:
        if found != kind or (sender is not None and who != sender):
            return [data]
        wrong = bytearray(data)
        wrong[place] ^= 1
        return [bytes(wrong)]

    return tamper

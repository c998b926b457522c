"""A verified count among nodes in this process: four voters, a helper, and what may go wrong."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flower_grid import LocalGrid, Node
from flower_nodes import OPEN, QUICK, SPACE, app_of, federation, make_keys, node
from flower_tricks import Answer, Trick
from flwr.app import Context, Message
from grouped import grouped

from urna.flower import Grant, Helper, NodeKey, poll
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.policy import Policy
from urna.privacy import Budget, Ledger
from urna.protocols.ballots.messages import decode_announcement, encode
from urna.protocols.ballots.report import seal_report
from urna.randomness import OsSecrets
from urna.systems.vote import Reveal, VoteResult

__all__ = [
    "BUDGET",
    "CAST",
    "EXAMINE",
    "HELP",
    "HELPER",
    "HELPING",
    "SHORT",
    "VOTERS",
    "VOUCH",
    "Change",
    "again",
    "answering",
    "changing",
    "held",
    "policy_of",
    "rewriting",
    "signed",
    "spent",
    "stuffing",
]

VOTERS = 4
HELPER = f"site-{VOTERS}"
HELPING = 1000 - VOTERS
BUDGET = Budget(8.0, 1e-5)
PATIENT = replace(QUICK, evaluate=20.0, stage=20.0)
SHORT = replace(QUICK, evaluate=1.0)  # where somebody is silent
# Letters: a voter gets the announcement and the statement, a helper four.
CAST = 1
VOUCH, EXAMINE, HELP = 1, 2, 3

Change = Callable[[Letter], Letter]


def policy_of(folder: Path, number: int, **limits: Any) -> Policy:
    return replace(
        OPEN,
        **{
            "epsilon": 20.0,
            "key": folder / f"{number}.key",
            "directory": folder / "directory.toml",
            "ledger": folder / f"{number}.ledger",
            "grants": {"verified": Grant(names=(HELPER,))},
        }
        | limits,
    )


def signed(
    folder: Path,
    *,
    lost: Mapping[int, Mapping[int, str]] | None = None,
    tricks: Mapping[int, Trick] | None = None,
    limits: Mapping[int, Mapping[str, Any]] | None = None,
) -> LocalGrid:
    """Four voters who agree, and a helper, with keys and ledgers; what goes wrong, by number."""
    make_keys(folder, VOTERS + 1)
    lost, tricks, limits = lost or {}, tricks or {}, limits or {}
    voters = [
        node(
            number,
            policy=policy_of(folder, number, **limits.get(number, {})),
            data=lambda _: 0.4,
            faults=lost.get(number),
            trick=tricks.get(number),
        )
        for number in range(VOTERS)
    ]
    helper = Helper(policy=policy_of(folder, VOTERS, **limits.get(VOTERS, {})))
    return federation(*voters, Node(app_of(helper, tricks.get(VOTERS)), {}, lost.get(VOTERS) or {}))


def held(grid: LocalGrid, folder: Path, **more: object) -> VoteResult:
    settings: dict[str, object] = {"budget": BUDGET, "directory": folder / "directory.toml"}
    settings |= {"deadlines": PATIENT, "reveal": Reveal("winner", HELPER, verified=True)}
    return poll(grid, SPACE, **grouped(settings | more))  # type: ignore[arg-type]


def spent(folder: Path, number: int) -> float:
    file = folder / f"{number}.ledger"
    return Ledger(file).spent().epsilon if file.exists() else 0.0


def changing(grid: LocalGrid, chosen: Callable[[Letter], bool], change: Change) -> list[Letter]:
    """Alter the server's letters of some kind on their way; return those that were."""
    altered: list[Letter] = []

    def tamper(message: Message) -> Message:
        letter = Letter.read(message.content)
        if chosen(letter):
            altered.append(letter)
            message.content = change(letter).as_records()
        return message

    grid.tamper = tamper
    return altered


def stuffing(folder: Path, number: int) -> Trick:
    """Hand in a ballot with 100 votes for the first candidate, and the best proof there is."""

    def trick(answer: Answer, letter: Letter, context: Context) -> Reply:
        reply = answer(letter, context)
        if letter.kind is not Kind.BEGIN:
            return reply
        statement = decode_announcement(letter.body).statement
        bits = np.zeros(statement.plan.layout.bits, dtype=np.int64)
        bits[0] = 100
        identity = NodeKey.read(folder / f"{number}.key").identity(letter.client)
        shards = statement.plan.codec.share(bits, OsSecrets())
        stuffed = seal_report(identity, statement, shards, OsSecrets())
        return replace(reply, body=encode(stuffed))

    return trick


def rewriting(change: Callable[[bytes], bytes]) -> Trick:
    """Change the report after it was made."""

    def trick(answer: Answer, letter: Letter, context: Context) -> Reply:
        reply = answer(letter, context)
        return replace(reply, body=change(reply.body)) if letter.kind is Kind.BEGIN else reply

    return trick


def again(grid: LocalGrid, number: int, letter: Letter) -> Reply:
    """Return what a node answers to a letter of the server, if it comes once more."""
    (name,) = grid.push_messages([Message(letter.as_records(), number, "query.urna")])
    (reply,) = grid.pull_messages([name])
    return Reply.read(reply.content)


def answering(kind: Kind, change: Callable[[Reply], Reply]) -> Trick:
    def trick(answer: Answer, letter: Letter, context: Context) -> Reply:
        reply = answer(letter, context)
        return change(reply) if letter.kind is kind else reply

    return trick

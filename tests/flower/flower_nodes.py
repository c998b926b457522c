"""Nodes, policies and spaces that several tests of the vote over Flower share."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flower_grid import LocalGrid, Node
from flower_tricks import Trick
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from urna.flower import Deadlines, NodeKey, Policy, Subject, Voter, VoteSubject
from urna.flower.announcement import Announcement
from urna.flower.messages import ACTION, Kind, Letter, Reply
from urna.flower.site import Mounted
from urna.local import Losses, Progress
from urna.privacy import Budget
from urna.protocols.secagg.messages import Invitation
from urna.protocols.secagg.wire import encode
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.space import Space
from urna.systems.vote import BallotShape
from urna.tally import Terms

__all__ = [
    "BUDGET",
    "DATA",
    "OPEN",
    "QUICK",
    "SPACE",
    "Near",
    "announced",
    "app_of",
    "ask",
    "begin",
    "federation",
    "make_keys",
    "node",
]

SPACE = Space(lr=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
BUDGET = Budget(8.0, 1e-5)
OPEN = Policy(
    epsilon=10.0, delta=1e-4, forgets=True, fewest_clients=2, least_colluding=0, most_missing=99
)
"""What a node agrees to in most tests: nearly everything, so that one limit shows at a time."""
QUICK = Deadlines(gather=0.3, evaluate=0.3, stage=0.3)
DATA = [0.3, 0.4, 0.5]


class Near:
    """An objective: candidates near the node's one number are good. Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def losses(
        self, data: float, space: Space, *, seed: int, progress: Progress | None = None
    ) -> Losses:
        self.calls += 1
        return np.array([abs(candidate["lr"] - data) for candidate in space])


def node(
    number: int,
    *,
    faults: Mapping[int, str] | None = None,
    trick: Trick | None = None,
    **settings: Any,
) -> Node:
    """Return a node of the federation with an open policy unless told otherwise."""
    settings = {"objective": Near(), "policy": OPEN} | settings

    def data(context: Context) -> float:
        return DATA[int(context.node_config["partition-id"]) % len(DATA)]

    voter: Voter[Any] = Voter(settings.pop("objective"), settings.pop("data", data), **settings)
    return Node(app_of(voter, trick), {"partition-id": number}, faults or {})


def app_of(participant: Mounted, trick: Trick | None = None) -> ClientApp:
    """Return the app of a node that is honest, or plays a trick."""
    app = ClientApp()
    if trick is None:
        participant.mount(app)
        return app

    @app.query(ACTION)
    def play(message: Message, context: Context) -> Message:
        def answer(letter: Letter, context: Context) -> Reply:
            message.content = letter.as_records()
            return Reply.read(participant.handle(message, context).content)

        reply = trick(answer, Letter.read(message.content), context)
        return Message(reply.as_records(), reply_to=message)

    return app


def announced(
    subject: Subject | None = None, *, names: Sequence[str] = (), **changes: Any
) -> Announcement:
    """Return an announcement that a default policy accepts, but for the changes."""
    own = {"nonce": OsSecrets().take(32), "issued": int(time.time()), "rounds": 1,
           "seconds": 10.0, "signed": False}  # fmt: skip
    terms = {"clients": len(names) or 20, "budget": BUDGET, "colluding": 0.1}
    terms |= {name: value for name, value in changes.items() if name not in own}
    own |= {name: value for name, value in changes.items() if name in own}
    subject = subject or VoteSubject(SPACE, BallotShape.top_k(2, len(SPACE)))
    offer = Announcement.of(subject, Terms.of(**terms), **own)  # type: ignore[arg-type]
    return offer.with_names(tuple(names)) if names else offer


def begin(final: Announcement, client: int = 0, number: int = 1, inputs: bytes = b"") -> Letter:
    """Return the letter that begins a round."""
    coin = final.coin(number, inputs)
    invitation = Invitation(number, coin, final.round_plan.digest)
    return Letter(
        Kind.BEGIN,
        encode(invitation, final.round_plan),
        final.as_bytes(),
        client=client,
        number=number,
        inputs=inputs,
    )


def ask(member: Node, letter: Letter) -> Reply:
    """Return a node's answer to one letter."""
    grid = federation(member)
    (name,) = grid.push_messages([Message(letter.as_records(), 1000, f"query.{ACTION}")])
    (reply,) = grid.pull_messages([name])
    return Reply.read(reply.content)


def federation(*nodes: Node) -> LocalGrid:
    """Return a grid of these nodes, whose Flower ids are not their partitions."""
    return LocalGrid({1000 - place: member for place, member in enumerate(nodes)})


def make_keys(folder: Path, count: int) -> list[NodeKey]:
    """Make identity keys and one directory of them all."""
    keys = []
    for number in range(count):
        key = NodeKey.draw(f"site-{number}", ScriptedSecrets(b"%d" % number))
        key.write(folder / f"{number}.key")
        keys.append(key)
    lines = "".join(f"{key.public_line}\n" for key in keys)
    (folder / "directory.toml").write_text(f"[keys]\n{lines}", encoding="utf-8")
    return keys

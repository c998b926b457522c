"""Everything that leaves nodes and server, to be held against another run's."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from flower_grid import LocalGrid
from flwr.app import Message

from urna.errors import RoundFailed
from urna.flower.announcement import Announcement
from urna.flower.messages import Letter, Reply
from urna.flower.transcript import Transcript
from urna.protocols.secagg.messages import MaskedVector
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets
from urna.systems.vote import VoteResult

__all__ = ["Heard", "listen"]

NOW = 1_800_000_000.0


@dataclass
class Heard:
    """What one run gave away."""

    letters: list[tuple[int, Letter]] = field(default_factory=list)
    replies: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    """By node, in order; masked vectors of the node that is compared are left out."""
    vectors: list[bytes] = field(default_factory=list)
    """Those masked vectors."""
    lines: list[str] = field(default_factory=list)
    """What the server logged."""
    outcome: Any = None

    def all_but_the_sum(self) -> dict[str, Any]:
        """Return all that must not depend on the compared node's data."""
        return {
            "letters": [(node, _public(letter)) for node, letter in self.letters],
            "replies": self.replies,
            "lines": self.lines,
            "outcome": _without_the_sum(self.outcome),
        }

    def shape(self) -> list[tuple[int, list[tuple[str, int]]]]:
        """Return kinds and lengths of all replies: what is left where draws are secret."""
        return [
            (
                node,
                sorted((n, len(v) if isinstance(v, bytes | str) else v) for n, v in values.items()),
            )
            for node, values in self.replies
        ]


def listen(grid: LocalGrid, act: Callable[[], Any], *, node: int, scripted: bool = True) -> Heard:
    """Act on a grid and write down everything that passes.

    Args:
        grid: The federation.
        act: Holds a vote or a sum.
        node: The Flower id of the node whose data are compared.
        scripted: Whether the server's nonce and clock are the same in every run.
    """
    heard = Heard()
    answered = grid.replies

    class Listening(dict[str, Message]):
        def __setitem__(self, name: str, message: Message) -> None:
            heard.replies.append(_reply(message, node, heard))
            super().__setitem__(name, message)

    def sent(message: Message) -> Message:
        heard.letters.append((message.metadata.dst_node_id, Letter.read(message.content)))
        return message

    grid.replies, grid.tamper = Listening(answered), sent
    with _logged(heard.lines), _same_server() if scripted else contextlib.nullcontext():
        try:
            heard.outcome = act()
        except RoundFailed as failed:
            heard.outcome = failed
    return heard


def _reply(message: Message, node: int, heard: Heard) -> tuple[int, Mapping[str, Any]]:
    """Return a reply as plain values, without the compared node's masked vector."""
    sender = message.metadata.src_node_id
    if message.has_error():
        return sender, {"error": message.error.reason}
    values = dict(message.content["urna"].items())
    plans = [Announcement.read(le.announcement) for to, le in heard.letters if le.number > 0]
    body = Reply.read(message.content).body
    if sender == node and body and plans:
        plan = plans[-1].round_plan
        opened = decode(without_signature(body), plan)
        if isinstance(opened, MaskedVector):
            heard.vectors.append(opened.words)
            values["body"] = encode(replace(opened, words=bytes(len(opened.words))), plan)
    return sender, values


def _public(letter: Letter) -> Letter:
    """Return a letter without the digest of the sum that a transcript holds."""
    if letter.kind != "end" or not letter.body:
        return letter
    transcript = Transcript.read(letter.body)
    return replace(letter, body=replace(transcript, sum_digest="", sealed=b"").as_bytes())


def _without_the_sum(outcome: Any) -> Any:
    if isinstance(outcome, RoundFailed):
        return (type(outcome), str(outcome), outcome.lost, outcome.faults, outcome.receipts)
    if isinstance(outcome, VoteResult):
        computed = {"best", "winner", "confidence", "credible_set", "revealed", "when", "entry"}
        return {k: v for k, v in outcome.as_mapping().items() if k not in computed}
    return outcome


@contextlib.contextmanager
def _logged(lines: list[str]) -> Iterator[None]:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # Patience is measured by the clock: the one thing that may differ.
            lines.append(re.sub(r"\d+ s left", "s left", record.getMessage()))

    handler, logger = Lines(), logging.getLogger("flwr")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def _same_server() -> Iterator[None]:
    """Let the server draw the same nonces at the same time in every run."""
    secrets = ScriptedSecrets(b"server")
    with patch("urna.flower.sums.OsSecrets", lambda: secrets), patch("time.time", lambda: NOW):
        yield

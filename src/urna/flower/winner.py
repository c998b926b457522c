"""Votes of which only the winner is revealed, over Flower: the server, which leads.

The helper is a node of another organisation (`urna.flower.helper`). In a secure sum it is one more
client whose vector is a uniform mask, and then garbles one circuit for the server. The server's
offer travels with the round's inputs, the helper's answer beside its keys, so that the circuit is
one stage more. How verified ballots are counted is in `urna.flower.verified`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from urna.errors import Altered, Exposing, ProtocolError
from urna.flower.announcement import Announcement
from urna.flower.conducting import Desk
from urna.flower.messages import Kind, Letter
from urna.flower.vote_subject import selection_of, vote_of
from urna.noise import IntVector
from urna.protocols.secagg import ClientId
from urna.protocols.winner import Opened, offer, open_winner, transfer
from urna.protocols.winner.leader import Offered
from urna.randomness import OsSecrets
from urna.tally import Tallied, tallied
from urna.tally.selection import circuit_started, leader_shares

__all__ = ["Leader", "helped_by", "opening_of", "told"]


@dataclass(slots=True)
class Leader:
    """The server's part in a secure sum: it offers before it, and finds the winner after it."""

    announcement: Announcement
    state: Offered = field(init=False, repr=False)
    inputs: bytes = field(init=False, repr=False)
    """What the round starts from: the offer."""
    opened: Opened | None = None
    traffic: int = 0
    """Bytes between server and helper for finding the winner."""

    def __post_init__(self) -> None:
        circuit = vote_of(self.announcement).circuit(self.announcement.terms)
        context = self.announcement.place(1)
        self.state, self.inputs = offer(circuit, context, OsSecrets())

    def conduct(self, desk: Desk) -> tuple[Tallied, IntVector]:
        """Find the winner of a sum whose masked total is the leader's share.

        Raises:
            RoundAborted: The secure sum was aborted: the circuit has not started, and nothing
                counts.
            RoundUnfinished: The circuit started, and the helper is lost, refuses, or sends what
                opens nothing. It counts, whoever ended it.
        """
        announcement, outcome = self.announcement, desk.secure_sum()
        place = announcement.names.index(vote_of(announcement).helper)
        selection = selection_of(announcement)
        said = desk.grid.beside.get(place, b"")
        shares = leader_shares(outcome.total, selection)
        desk.started()
        with helped_by(place):
            state, asked = transfer(self.state, said, shares, OsSecrets())
            letter = Letter(Kind.HELP, asked)
            reply = desk.ask(place, letter, stage="finding the winner", last=True)
        with opening_of(place):
            self.opened, _ = open_winner(state, reply.body)
        self.traffic = len(self.inputs) + len(said) + len(asked) + len(reply.body)
        return tallied(outcome, announcement.plan), told(self.opened, announcement)


@contextmanager
def helped_by(
    helper: ClientId,
    lost: Mapping[ClientId, str] | None = None,
    faults: Mapping[ClientId, str] | None = None,
) -> Iterator[None]:
    """Name a helper that leaves a circuit that has started, or whose points show bits. It counts.

    Points are looked at after the message's tag: they are what the helper wrote.
    """
    try:
        yield
    except Exposing as error:
        named = {**(faults or {}), helper: f"sent what could show the leader's bits: {error}"}
        with circuit_started(lost or {}, named):
            raise
    except ProtocolError as error:
        missing = {**(lost or {}), helper: f"did not help: {error}"}
        with circuit_started(missing, faults):
            raise


@contextmanager
def opening_of(helper: ClientId) -> Iterator[None]:
    """Name a helper whose last answer reveals nothing. It counts.

    The helper is to blame for what it wrote, and not for what was altered on the way.
    """
    try:
        yield
    except Altered as error:
        with circuit_started({helper: f"its last answer arrived altered: {error}"}):
            raise
    except ProtocolError as error:
        with circuit_started({}, {helper: f"sent what opens nothing: {error}"}):
            raise


def told(opened: Opened, announcement: Announcement) -> IntVector:
    """Return what was opened as integers: the winner's place, and the gap or -1."""
    gap = -1 if opened.gap is None else opened.gap
    return np.array([selection_of(announcement).order[opened.place], gap], dtype=np.int64)

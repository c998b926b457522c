"""Votes of which only the winner is revealed, over Flower: the server, which leads.

The helper is a node of another organisation (`urna.flower.helper`). In a secure sum it is one more
client whose vector is a uniform mask, and then garbles one circuit for the server. The server's
offer travels with the round's inputs, the helper's answer beside its keys, so that the circuit is
one stage more. A verified count has four stages: the helper vouches for the statement; all voters
cast; the helper examines the batch, and answers the offer beside it; it confirms the verdict, and
garbles the circuit beside it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from urna.errors import Altered, Exposing, ParameterError, ProtocolError, RoundAborted
from urna.flower.announcement import Announcement
from urna.flower.helper import voters_of
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.rounds import Desk
from urna.flower.vote_subject import VoteSubject, selection_of, vote_of
from urna.noise import IntVector
from urna.protocols.ballots import leader
from urna.protocols.ballots.messages import (
    Answers,
    Batch,
    Confirmation,
    Verdict,
    decode_announcement,
    encode_announcement,
    open_letter,
    seal_letter,
)
from urna.protocols.secagg import ClientId
from urna.protocols.winner import Opened, offer, open_winner, transfer
from urna.protocols.winner.session import Offered
from urna.randomness import OsSecrets
from urna.tally import Tallied, tallied
from urna.tally.selection import circuit_started
from urna.tally.selection_plan import leader_shares, residues


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

        Before the circuit starts nothing counts; from then on it counts, whoever ended it.
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


@dataclass(slots=True)
class VerifiedLeader:
    """The server's part in one verified count."""

    announcement: Announcement
    opened: Opened | None = None
    traffic: int = 0
    """Bytes between server and helper."""
    inputs: bytes = b""
    """What the round starts from: nothing but the announcement."""
    _lost: dict[ClientId, str] = field(default_factory=dict, repr=False)
    _refused: dict[ClientId, str] = field(default_factory=dict, repr=False)

    def conduct(self, desk: Desk) -> tuple[Tallied, IntVector]:
        """Count verified ballots, and find the winner. Who is refused is named.

        Before the circuit starts nothing was opened; from then on it counts, and nobody is asked
        to give it up.
        """
        final, secrets = self.announcement, OsSecrets()
        if desk.keys is None:
            raise ParameterError("verified ballots are signed: name a directory of identity keys")
        voters, circuit = voters_of(final, desk.keys), self._subject.circuit(final.terms)
        with self._aborting(desk):
            opened = self._open(desk, desk.keys.keys[self._subject.helper])
            letters = self._cast(desk, opened)
            collected, batch = leader.collect(opened, letters, voters)
            self._refused |= collected.refused
            self._lost |= collected.lost
            statement, pair = opened.statement, opened.pair
            offered, sent = offer(circuit, statement.digest, secrets)
            reply = self._ask(desk, opened, Kind.STAGE, batch, sent)
            answers = open_letter(reply.body, Answers, statement, pair, statement.helper_key)
            decided, verdict = leader.decide(collected, answers)
            self._refused |= decided.refused
            shares = residues(decided.share, selection_of(final), statement.plan.codec.modulus)
        desk.started()
        with helped_by(self._helper, self._lost | self._refused, self._refused):
            state, sent = transfer(offered, reply.beside, shares, secrets)
            reply = self._ask(desk, opened, Kind.HELP, verdict, sent)
        with opening_of(self._helper):
            confirmed = open_letter(reply.body, Confirmation, statement, pair, statement.helper_key)
            leader.check_confirmation(decided, confirmed)
            self.opened, _ = open_winner(state, reply.beside)
        return self._tallied(frozenset(decided.accepted)), told(self.opened, final)

    @property
    def _subject(self) -> VoteSubject:
        return vote_of(self.announcement)

    @property
    def _helper(self) -> ClientId:
        return self.announcement.names.index(self._subject.helper)

    def _open(self, desk: Desk, helper_key: bytes) -> leader.OpenCount:
        """Let the helper vouch for the statement that follows from the announcement."""
        final = self.announcement
        prepared = leader.prepare(
            self._subject.count(final.terms),
            number=desk.number,
            session=final.place(desk.number),
            secrets=OsSecrets(),
        )
        letter = desk.grid.beginning(self._helper, prepared.statement.encode())
        reply = desk.ask(self._helper, letter, stage="opening the count")
        return leader.open_count(prepared, decode_announcement(reply.body), helper_key)

    def _cast(self, desk: Desk, opened: leader.OpenCount) -> list[tuple[ClientId, bytes]]:
        """Return the reports that come in time; note who sends none."""
        vouched = encode_announcement(opened.announcement)
        voters = [place for place in range(len(self.announcement.names)) if place != self._helper]
        letters = {client: desk.grid.beginning(client, vouched) for client in voters}
        self._lost |= dict.fromkeys(voters, "did not answer in time (cast)")
        reports = []
        seconds = desk.grid.deadlines.evaluate
        for client, reply in desk.grid.deliver(
            letters, stage="computing and casting ballots", seconds=seconds, last=True
        ):
            if reply.body:
                reports.append((client, reply.body))
                del self._lost[client]
            else:
                self._lost[client] = f"refused: {reply.refused}"
        return reports

    def _ask(
        self,
        desk: Desk,
        opened: leader.OpenCount,
        kind: Kind,
        message: Batch | Verdict,
        sent: bytes,
    ) -> Reply:
        """Send the helper a sealed letter, with the circuit's next message beside it."""
        statement = opened.statement
        sealed = seal_letter(message, statement, opened.pair, statement.helper_key)
        stage = _STAGES[kind]
        letter = Letter(kind, sealed, beside=sent)
        reply = desk.ask(self._helper, letter, stage=stage, last=kind is Kind.HELP)
        self.traffic += len(sealed) + len(sent) + len(reply.body) + len(reply.beside)
        return reply

    @contextmanager
    def _aborting(self, desk: Desk) -> Iterator[None]:
        """Say of a count that ends before the circuit who was lost, and who is to blame.

        Only such a count may be given up: the leader sent nothing that depends on the sum.
        """
        try:
            yield
        except RoundAborted as aborted:
            refused = self._refused | aborted.faults
            lost, receipts = self._lost | aborted.lost | refused, self._receipts(desk)
            raise RoundAborted(aborted.reason, lost, refused, receipts) from aborted
        except ProtocolError as error:
            faults, lost = self._refused, self._lost | self._refused
            if isinstance(error, Exposing):  # it signed that
                faults = faults | {self._helper: str(error)}
            else:
                lost |= {self._helper: f"did not help: {error}"}
            reason = f"no winner was opened: {error}"
            raise RoundAborted(reason, lost, faults, self._receipts(desk)) from error

    def _receipts(self, desk: Desk) -> dict[ClientId, bytes]:
        """Let a helper that is there give the count up, so that nodes need not count it."""
        helper, final = self._helper, self.announcement
        if desk.keys is None or not desk.grid.answers(helper):
            return {}
        try:
            letter = replace(desk.grid.beginning(helper, b""), kind=Kind.HELP)
            stage = "closing a count that came to nothing"
            receipt = desk.ask(helper, letter, stage=stage, last=True).body
            signed_by = desk.keys.for_round(final.names)
            signed_by.verify_receipt(helper, receipt, final.round_id(desk.number, desk.coin))
        except ProtocolError:  # it has confirmed, or has its reasons: it counts for nodes
            return {}
        return {helper: receipt}

    def _tallied(self, accepted: frozenset[ClientId]) -> Tallied:
        final = self.announcement
        return Tallied(
            total=np.zeros(final.plan.dimension, dtype=np.int64),  # no sum was opened
            accepted=accepted | {self._helper},
            lost=dict(sorted((self._lost | self._refused).items())),
            noise_variance=Fraction(0),
            release=selection_of(final).release,
            faults=dict(sorted(self._refused.items())),
        )


_STAGES = {Kind.STAGE: "examining ballots", Kind.HELP: "finding the winner"}

"""Votes of which only the winner is opened, over Flower: the subject, the voters, the helper.

The helper is a node of another organisation. It takes part in the secure sum as one more client
whose vector is a uniform mask, and then garbles one circuit for the server, which leads. The
server's offer travels with the round's inputs, the helper's answer beside its keys, so that the
circuit is one stage more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context

from urna.errors import ProtocolError, Refused, RoundAborted, RoundUnfinished
from urna.flower.announcement import Announcement
from urna.flower.contributor import Call, Contributor, simulated
from urna.flower.mail import Kind, Letter, Reply
from urna.flower.participant import Participant
from urna.flower.policy import Policy
from urna.flower.post import Deadlines, Post
from urna.flower.subjects import VoteSubject, register
from urna.flower.voter import Votes
from urna.hidden import Opened, answer, garble, offer, open_winner, transfer
from urna.hidden.leader import Offered
from urna.noise import IntVector
from urna.randomness import OsSecrets, StreamSecrets, derive_seed
from urna.secagg import Outcome
from urna.space import Space
from urna.tally import SelectionPlan, SharedPlan, Terms
from urna.tally.selection import helper_shares, leader_shares, mask_of
from urna.vote import WinnerPlan, plan_winner

__all__ = ["Helper", "Leader", "WinnerSubject", "WinnerVotes"]

_PLACE = "urna helper"


@dataclass(frozen=True, slots=True)
class WinnerSubject:
    """A vote of which only the winner is opened; `helper` is one of those who take part."""

    space: Space
    helper: str
    seed: int = 0
    """Public seed of the nodes' local training."""

    @property
    def kind(self) -> str:
        """Its name in announcements and policies."""
        return "winner"

    @property
    def name(self) -> str:
        """What a policy grants by name: the helper it trusts not to collude with the server."""
        return self.helper

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return f"winner of a vote on {len(self.space)} candidates"

    def vote(self, terms: Terms) -> WinnerPlan:
        """Return the vote's plan: one of those who take part is the helper and has no ballot."""
        return plan_winner(terms.among(terms.clients - 1), self.space)

    def plan(self, terms: Terms, rounds: int) -> SharedPlan:
        """Return the plan of the sum. A vote has one round."""
        if rounds != 1:
            raise ProtocolError("a vote has one round; announce another for a second")
        return SharedPlan.of(terms, self.vote(terms).selection)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {
            "space": self.space.as_mapping(),
            "fingerprint": self.space.fingerprint,
            "helper": self.helper,
            "seed": self.seed,
        }

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "WinnerSubject":
        """Read what `as_mapping` wrote."""
        space = Space.from_mapping(mapping["space"])
        if space.fingerprint != mapping["fingerprint"]:
            raise ProtocolError("the space announced is not the one its fingerprint names")
        return cls(space, str(mapping["helper"]), int(mapping["seed"]))


register("winner", WinnerSubject.read, VoteSubject.size)


class WinnerVotes(Votes[Any]):
    """Fills ballots of levels: the contributor to votes of which only the winner is opened."""

    kind = "winner"

    def check(self, call: Call) -> None:
        """Refuse a vote whose helper this node has no reason to trust.

        Raises:
            Refused: Nobody proves who the helper is, the policy names no helpers, or the sum
                could be opened with too few ballots in it.
        """
        super().check(call)
        announcement, policy = call.announcement, call.policy
        if announcement.terms.fewest - 1 < policy.fewest_clients:
            raise Refused(
                f"the sum may be opened with {announcement.terms.fewest - 1} ballots in it; this "
                f"node asks for {policy.fewest_clients} or more"
            )
        if simulated():
            return
        grant = policy.grants.get(self.kind)
        if grant is None or grant.names is None:
            raise Refused("this node's policy does not name the helpers it trusts")
        if not announcement.signed:
            raise Refused("the sum is not signed, so nothing proves who the helper is")


class _Masks:
    """The helper's part as a contributor: it is asked, and puts in a mask of its own."""

    kind = "winner"

    def __init__(self, named: Callable[[Call], str]) -> None:
        self._named = named

    def check(self, call: Call) -> None:
        """Refuse a vote that names another helper."""
        if _subject(call.announcement).helper != self._named(call):
            raise Refused("another helper is announced; this node only helps")

    def contribute(self, call: Call) -> IntVector:
        """Never: a mask is no contribution that may fail in silence."""
        raise ProtocolError("a helper contributes nothing but its mask")


class Helper(Participant):
    """A helper's part in votes of which only the winner is opened. It needs no data.

    Guarantee:
        Of each vote it garbles one circuit, once, for the sum it took part in, and counts it
        in its own ledger before its mask leaves. What it computes is the circuit of the plan
        that was announced, so the noise is the one that voters were promised.

    Args:
        policy: The helper's limits, or the file that holds them; see `Participant`.
        name: The helper's name where it has no identity key.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.
    """

    def __init__(
        self,
        *,
        policy: Policy | Path | str | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
    ) -> None:
        role = _Masks(lambda c: self._name_in(c.announcement, c.policy, c.context))
        super().__init__([role], policy=policy, name=name, script=script)

    def _answer(self, letter: Letter, context: Context) -> Reply:
        if letter.kind is Kind.HELP:
            return self._garble(letter, context)
        return super()._answer(letter, context)

    def _begin(self, letter: Letter, context: Context) -> Reply:
        """Take part in the sum, and answer the server's offer beside it."""
        reply = super()._begin(letter, context)
        held = _recall(context)
        announcement = Announcement.read(held["announcement"])
        _, sent = answer(
            _selection(announcement).circuit,
            announcement.place(letter.number),
            letter.inputs,
            StreamSecrets(derive_seed(held["key"], b"answer")),
        )
        _keep(context, held | {"offer": letter.inputs, "number": letter.number})
        return replace(reply, beside=sent)

    def _contribution(self, contributor: Contributor, call: Call) -> IntVector:
        """Return a uniform mask. Nothing may stand in for it: without it the sum is exact."""
        del contributor
        _keep(call.context, {"announcement": call.announcement.as_bytes(), "key": call.key})
        return _mask(call.announcement, call.key)

    def _garble(self, letter: Letter, context: Context) -> Reply:
        """Garble the circuit, once: the state is gone before the answer is made."""
        held = _recall(context)
        del context.state[_PLACE]
        announcement = Announcement.read(held["announcement"])
        policy, number = self._policy_of(context), int(held["number"])
        policy.account.claim(announcement.coin(number, held["offer"]), "Helped")
        selection = _selection(announcement)
        state, _ = answer(
            selection.circuit,
            announcement.place(number),
            held["offer"],
            StreamSecrets(derive_seed(held["key"], b"answer")),
        )
        shares = helper_shares(_mask(announcement, held["key"]), selection)
        source = StreamSecrets(derive_seed(held["key"], b"garble"))
        _, sent = garble(state, letter.body, shares, source)
        return Reply.letter(sent)

    def _end(self, letter: Letter, context: Context) -> Reply:
        if _PLACE in context.state:
            del context.state[_PLACE]
        return super()._end(letter, context)


@dataclass(slots=True)
class Leader:
    """The server's part: it offers before the round, and finds the winner after the sum."""

    announcement: Announcement
    deadlines: Deadlines
    state: Offered = field(init=False, repr=False)
    inputs: bytes = field(init=False, repr=False)
    """What the round starts from: the offer."""
    opened: Opened | None = None
    traffic: int = 0
    """Bytes between server and helper for finding the winner."""

    def __post_init__(self) -> None:
        circuit = _selection(self.announcement).circuit
        context = self.announcement.place(1)
        self.state, self.inputs = offer(circuit, context, OsSecrets())

    def finish(
        self, outcome: Outcome, nodes: Mapping[str, int], beside: Mapping[int, bytes], post: Post
    ) -> IntVector:
        """Find the winner of a sum whose masked total is the leader's share.

        Raises:
            RoundAborted: The helper is lost, or refuses. Nothing was opened.
            RoundUnfinished: The helper answered, and its answer opens nothing. It counts: whether
                an answer opens may itself say something about the sum.
        """
        helper = _subject(self.announcement).helper
        place, selection = self.announcement.names.index(helper), _selection(self.announcement)
        try:
            shares = leader_shares(outcome.total, selection)
            said = beside.get(place, b"")
            state, asked = transfer(self.state, said, shares, OsSecrets())
            letters = {nodes[helper]: Letter(Kind.HELP, asked)}
            seconds = self.deadlines.stage
            replies = dict(post.ask(letters, stage="finding the winner", seconds=seconds))
            reply = replies.get(nodes[helper])
            if reply is None or not reply.body:
                why = "did not answer in time" if reply is None else f"refused: {reply.refused}"
                raise ProtocolError(f"the helper {why}")
        except ProtocolError as error:
            lost = {place: f"did not help: {error}"}
            raise RoundAborted(f"no winner was opened: {error}", lost) from error
        try:
            self.opened, _ = open_winner(state, reply.body)
        except ProtocolError as error:
            fault = {place: f"sent what opens nothing: {error}"}
            raise RoundUnfinished(f"no winner was opened: {error}", faults=fault) from error
        self.traffic = len(self.inputs) + len(said) + len(asked) + len(reply.body)
        gap = -1 if self.opened.gap is None else self.opened.gap
        return np.array([selection.order[self.opened.place], gap], dtype=np.int64)


def _subject(announcement: Announcement) -> WinnerSubject:
    subject = announcement.subject
    if not isinstance(subject, WinnerSubject):
        raise Refused("this is no vote of which only the winner is opened")
    return subject


def _selection(announcement: Announcement) -> SelectionPlan:
    return _subject(announcement).vote(announcement.terms).selection


def _mask(announcement: Announcement, key: bytes) -> IntVector:
    return mask_of(derive_seed(key, b"mask"), _selection(announcement))


def _recall(context: Context) -> dict[str, Any]:
    if _PLACE not in context.state:
        raise ProtocolError("this helper holds no state of a round: it was restarted, or is done")
    record: Any = context.state[_PLACE]
    return dict(record)


def _keep(context: Context, held: Mapping[str, Any]) -> None:
    context.state[_PLACE] = ConfigRecord(dict(held))

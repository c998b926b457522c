"""Nodes that break the protocol, each in one way, and are otherwise like any other."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from flwr.app import Context

from urna.flower.announcement import Announcement
from urna.flower.identities import NodeKey
from urna.flower.messages import Letter, Reply
from urna.noise import IntVector
from urna.protocols.secagg import Member, Plan, ServerModel, thaw
from urna.protocols.secagg.client import Shared, complaint_context
from urna.protocols.secagg.evidence import PROOF_BYTES, prove
from urna.protocols.secagg.keys import sign_reply
from urna.protocols.secagg.messages import (
    Advertisement,
    Complaint,
    MaskedVector,
    Message,
    Parts,
    SealedShares,
    ShareBox,
    UnmaskReply,
)
from urna.protocols.secagg.shares import share
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets

__all__ = ["CAUGHT", "TRICKS", "Answer", "Trick", "bare", "signing"]

Answer = Callable[[Letter, Context], Reply]
"""How an honest node answers."""
Trick = Callable[[Answer, Letter, Context], Reply]
"""How one that is not honest answers instead."""

Held = Mapping[str, Any]
"""What the node held when the letter came."""
Change = Callable[[Message, Message, Plan, Held], Message]


def _changing(kind: type, change: Change) -> Trick:
    """Answer honestly, and change replies of one kind."""

    def trick(answer: Answer, letter: Letter, context: Context) -> Reply:
        held: Held = {}
        if "urna" in context.state:
            held = dict(cast(Held, context.state["urna"]))
        reply = answer(letter, context)
        known = letter.announcement or held.get("announcement", b"")
        if not known or not reply.body:
            return reply
        plan = Announcement.read(known).round_plan
        message = decode(without_signature(reply.body), plan)
        if not isinstance(message, kind):
            return reply
        changed = change(message, decode(letter.body, plan), plan, held)
        return replace(reply, body=encode(changed, plan))

    return trick


def signing(trick: Trick, key: NodeKey) -> Trick:
    """Play a trick and sign what comes of it, as one's own key can."""

    def signs(answer: Answer, letter: Letter, context: Context) -> Reply:
        honest: list[bytes] = []

        def noted(letter: Letter, context: Context) -> Reply:
            reply = answer(letter, context)
            honest.append(reply.body)
            return reply

        client = letter.client
        if "urna" in context.state and client < 0:
            client = cast(Held, context.state["urna"])["client"]
        reply = trick(noted, letter, context)
        if not reply.body or reply.body in honest:
            return reply
        signature = sign_reply(key.identity(client), letter.body, reply.body)
        return replace(reply, body=reply.body + signature)

    return signs


def _garbage(answer: Answer, letter: Letter, context: Context) -> Reply:
    reply = answer(letter, context)
    return replace(reply, body=reply.body[:-1] + b"??") if reply.body else reply


def _one_key(sent: Message, _: Message, plan: Plan, held: Held) -> Message:
    assert isinstance(sent, Advertisement)
    return replace(sent, mask_key=sent.channel_key)


def _bad_bundles(sent: Message, _: Message, plan: Plan, held: Held) -> Message:
    assert isinstance(sent, SealedShares)
    rows = sent.bundles.rows.copy()
    rows[:, : plan.sealed_bytes] ^= 1
    return replace(sent, bundles=Parts(sent.bundles.clients, rows))


def _wrong_shares(sent: Message, _: Message, plan: Plan, held: Held) -> Message:
    assert isinstance(sent, UnmaskReply)
    rows = sent.survivors.rows.copy()
    rows[:, 0] ^= 1
    return replace(sent, survivors=Parts(sent.survivors.clients, rows))


def _empty_complaint(sent: Message, box: Message, plan: Plan, held: Held) -> Message:
    assert isinstance(sent, MaskedVector)
    assert isinstance(box, ShareBox)
    against = int(box.bundles.clients[0])
    return Complaint(sent.round_id, sent.client, against, bytes(PROOF_BYTES))


def _groundless_complaint(sent: Message, box: Message, plan: Plan, held: Held) -> Message:
    """Show what one has in common with a neighbour that has done nothing wrong."""
    assert isinstance(sent, MaskedVector)
    assert isinstance(box, ShareBox)
    against = int(box.bundles.clients[0])
    trusting = replace(plan, server=ServerModel.HONEST_BUT_CURIOUS)  # needs no directory
    state = thaw(held["state"], Member(sent.client, trusting))
    assert isinstance(state, Shared)
    bound = complaint_context(sent.round_id, sent.client, against)
    secrets = ScriptedSecrets(b"groundless")
    proof = prove(state.channel_pair.private, state.channel_keys[against], bound, secrets)
    return Complaint(sent.round_id, sent.client, against, proof)


def _unfit_shares(answer: Answer, letter: Letter, context: Context) -> Reply:
    """Share secrets in parts that are on no polynomial, and commit to these very parts."""

    def bent(*arguments: Any) -> Any:
        parts = list(share(*arguments))
        first = np.frombuffer(parts[0], dtype="<u2").copy()
        first[16] ^= 1  # of the self-mask's seed, which is opened
        return [first.tobytes(), *parts[1:]]

    with patch("urna.protocols.secagg.client.share", bent):
        return answer(letter, context)


def bare(vector: Callable[[Plan], IntVector]) -> Trick:
    """Send a vector without masks."""

    def change(sent: Message, _: Message, plan: Plan, held: Held) -> Message:
        assert isinstance(sent, MaskedVector)
        return replace(sent, words=vector(plan).astype(f"<u{plan.ring_bits // 8}").tobytes())

    return _changing(MaskedVector, change)


TRICKS: Mapping[str, Trick] = {
    "malformed bytes": _garbage,
    "repeated key": _changing(Advertisement, _one_key),
    "garbage bundles": _changing(SealedShares, _bad_bundles),
    "wrong shares": _changing(UnmaskReply, _wrong_shares),
    "empty complaint": _changing(MaskedVector, _empty_complaint),
    "groundless complaint": _changing(MaskedVector, _groundless_complaint),
    "unfit shares": _unfit_shares,
}
"""Every trick that is caught, by name."""

CAUGHT: Mapping[str, str] = {
    "malformed bytes": "",
    "repeated key": "advertised before|not signed|signature",
    "garbage bundles": "shares that cannot be decrypted|did not sign its shares",
    "wrong shares": "handed out a wrong share",
    "empty complaint": "without a proof",
    "groundless complaint": "without reason",
    "unfit shares": "parts that do not fit together",
}
"""What is said of whoever plays it."""

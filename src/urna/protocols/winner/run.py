"""A whole session in memory: leader, helper, and the bytes between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from urna.protocols.winner import helper, leader
from urna.protocols.winner.circuit import Circuit, Opened
from urna.protocols.winner.leader import Shares
from urna.protocols.winner.wire import CircuitStage
from urna.randomness import SecretSource

Passing = Callable[[CircuitStage, bytes], bytes]
"""What happens to a message on its way."""


@dataclass(frozen=True, slots=True)
class CircuitOutcome:
    """What a session gave."""

    opened: Opened
    """What leader and helper both learnt."""
    traffic: Mapping[CircuitStage, int]
    """Bytes of each message."""


def run(
    circuit: Circuit,
    leader_shares: Shares,
    helper_shares: Shares,
    *,
    context: bytes,
    leader_source: SecretSource,
    helper_source: SecretSource,
    passing: Passing | None = None,
) -> CircuitOutcome:
    """Play a session: every message passes through bytes.

    Args:
        circuit: What is computed.
        leader_shares: One residue for each candidate, in the public order.
        helper_shares: The rest of each total.
        context: What both know this session by, and no other has.
        leader_source: The leader's randomness.
        helper_source: The helper's.
        passing: What happens to messages on their way; nothing by default.

    Raises:
        ProtocolError: A message was refused. Nothing was opened unless it was the last.
    """
    pass_on = passing or (lambda stage, message: message)
    traffic: dict[CircuitStage, int] = {}

    def sent(stage: CircuitStage, message: bytes) -> bytes:
        traffic[stage] = len(message)
        return pass_on(stage, message)

    offered, message = leader.offer(circuit, context, leader_source)
    message = sent(CircuitStage.OFFER, message)
    answered, message = helper.answer(circuit, context, message, helper_source)
    message = sent(CircuitStage.ANSWER, message)
    transferred, message = leader.transfer(offered, message, leader_shares, leader_source)
    message = sent(CircuitStage.TRANSFER, message)
    garbled, message = helper.garble(answered, message, helper_shares, helper_source)
    message = sent(CircuitStage.GARBLED, message)
    opened, message = leader.open_winner(transferred, message)
    helper.conclude(garbled, sent(CircuitStage.OPENING, message))
    return CircuitOutcome(opened, traffic)

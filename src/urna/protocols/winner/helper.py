"""The helper's stages: answer, garble, conclude. It garbles the circuit.

The helper's coins never become labels of their own: XOR with a bit that the garbler knows is a
choice of which label means 0.
"""

from dataclasses import dataclass, field

import numpy as np

from urna.protocols.winner.circuit import Circuit, Opened
from urna.protocols.winner.garble import LABEL_BYTES, Garbler, Labels, fresh_offset, read_labels
from urna.protocols.winner.leader import Shares, check_shares, coins_of
from urna.protocols.winner.transfer import BaseReceiver, receive_extension
from urna.protocols.winner.wire import (
    CircuitStage,
    Turn,
    authenticate,
    decode,
    digest_of,
    encode,
    session_of,
)
from urna.randomness import SEED_BYTES, SecretSource


@dataclass(frozen=True, slots=True)
class Answered(Turn):
    """What the helper knows after it answered the offer."""

    offset: Labels = field(repr=False)
    base: BaseReceiver = field(repr=False)


@dataclass(frozen=True, slots=True)
class Garbled(Turn):
    """What the helper knows after it sent the garbled circuit."""

    key: bytes = field(repr=False)
    garbler: Garbler = field(repr=False)
    outputs: Labels = field(repr=False)


def answer(
    circuit: Circuit, context: bytes, offer: bytes, source: SecretSource
) -> tuple[Answered, bytes]:
    """Stage 2: choose the secret offset, and answer the base transfers with its bits.

    Raises:
        ProtocolError: The offer is none of this circuit in this context.
    """
    session = session_of(circuit, context)
    (point,) = decode(offer, CircuitStage.OFFER, circuit, session, b"")
    authenticate(offer, b"")
    offset = fresh_offset(source.take(LABEL_BYTES))
    base = BaseReceiver.of(session, point, offset, source)
    sent = encode(
        CircuitStage.ANSWER, circuit, session, offer, base.shared_key, base.point, base.answers
    )
    return Answered(circuit, session, sent, offset, base), sent


def garble(
    state: Answered, transfer: bytes, shares: Shares, source: SecretSource
) -> tuple[Garbled, bytes]:
    """Stage 4: check the transfers, and garble the circuit on the helper's shares and coins.

    Guarantee:
        The leader learns nothing of shares and coins but what the circuit opens. A leader
        that cheats in the transfers is refused before anything is garbled.

    Raises:
        ProtocolError: The transfers are none of this session, or do not pass their check.
    """
    circuit, base = state.circuit, state.base
    columns, check = state.read(CircuitStage.TRANSFER, transfer, base.shared_key)
    count = circuit.share_bits + circuit.coin_bits
    hash_key = digest_of(state.sent)
    zeros = receive_extension(
        state.session + hash_key, base.seeds, state.offset, columns, check, count
    )
    seed = source.take(SEED_BYTES)
    garbler = Garbler(hash_key, state.offset, seed)
    helper = garbler.constant(circuit.planes(check_shares(circuit, shares)))
    leader = zeros[: circuit.share_bits].reshape(helper.shape)
    coins = garbler.flip(zeros[circuit.share_bits :], coins_of(circuit, source))
    outputs = circuit.evaluate(garbler, leader, helper, coins).astype(np.uint64, copy=False)
    parts = (seed, garbler.tables, garbler.commitments(outputs))
    sent = state.write(CircuitStage.GARBLED, transfer, base.shared_key, *parts)
    return Garbled(circuit, state.session, sent, base.shared_key, garbler, outputs), sent


def conclude(state: Garbled, opening: bytes) -> Opened:
    """Stage 6: learn what was opened, from labels that only the circuit can have given.

    Raises:
        ProtocolError: The labels are none of this circuit's outputs.
    """
    (told,) = state.read(CircuitStage.OPENING, opening, state.key)
    return state.circuit.read(state.garbler.decode(state.outputs, read_labels(told)))

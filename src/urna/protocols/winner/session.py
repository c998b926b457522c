"""The stages of leader and helper, and a whole session in memory.

The leader evaluates the circuit, the helper garbles it. Each stage is a function from the state
before it and the other's message to the next state and a message. What a stage needs of randomness
it takes from its party's own source.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.winner.circuit import Bits, Circuit, Opened
from urna.protocols.winner.garble import (
    LABEL_BYTES,
    Garbler,
    GateReader,
    Labels,
    fresh_offset,
    read_labels,
)
from urna.protocols.winner.garble import decode as decode_labels
from urna.protocols.winner.transfer import BaseReceiver, BaseSender, extend, receive_extension
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

Shares = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Offered(Turn):
    """What the leader knows after it sent its offer."""

    base: BaseSender = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answered(Turn):
    """What the helper knows after it answered the offer."""

    offset: Labels = field(repr=False)
    base: BaseReceiver = field(repr=False)


@dataclass(frozen=True, slots=True)
class Transferred(Turn):
    """What the leader knows after it sent its transfers."""

    key: bytes = field(repr=False)
    hash_key: bytes
    labels: Labels = field(repr=False)
    """Of its shares and coins."""


@dataclass(frozen=True, slots=True)
class Garbled(Turn):
    """What the helper knows after it sent the garbled circuit."""

    key: bytes = field(repr=False)
    garbler: Garbler = field(repr=False)
    outputs: Labels = field(repr=False)


def offer(circuit: Circuit, context: bytes, source: SecretSource) -> tuple[Offered, bytes]:
    """Stage 1: begin a session.

    Args:
        circuit: What will be computed; the helper must hold the same.
        context: What both know this session by, and no other has.
        source: The leader's randomness.
    """
    session, base = session_of(circuit, context), BaseSender.of(source)
    sent = encode(CircuitStage.OFFER, circuit, session, b"", b"", base.offer)
    return Offered(circuit, session, sent, base), sent


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


def transfer(
    state: Offered, answer: bytes, shares: Shares, source: SecretSource
) -> tuple[Transferred, bytes]:
    """Stage 3: ask, without showing them, for the labels of the leader's shares and coins.

    Guarantee:
        The helper learns nothing about shares or coins, whatever it answered: it sees each bit
        under masks from two different seeds, and it knows at most one of the two.

    Raises:
        ProtocolError: The answer is not one to this offer, or its points could show bits.
    """
    circuit = state.circuit
    point, answers = decode(answer, CircuitStage.ANSWER, circuit, state.session, state.sent)
    key = state.base.shared_key(point)
    authenticate(answer, key)
    bits = np.concatenate(
        [circuit.planes(check_shares(circuit, shares)).ravel(), coins_of(circuit, source)]
    )
    hash_key = digest_of(answer)
    seeds = state.base.seeds(state.session, answers)
    made = extend(state.session + hash_key, seeds, bits, source)
    sent = state.write(CircuitStage.TRANSFER, answer, key, made.columns, made.check)
    return Transferred(circuit, state.session, sent, key, hash_key, made.labels), sent


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


def open_winner(state: Transferred, garbled: bytes) -> tuple[Opened, bytes]:
    """Stage 5: evaluate the circuit; return what it opens, and its labels for the helper.

    Guarantee:
        Of a circuit that was garbled honestly the leader learns the opened bits and nothing
        else: all other labels look random to it (half gates are private under a hash that is
        circular correlation robust).

    Raises:
        Altered: It is not what the helper wrote.
        ProtocolError: It is not the circuit asked for, or it does not open.
    """
    circuit = state.circuit
    seed, tables, commitments = state.read(CircuitStage.GARBLED, garbled, state.key)
    gates = GateReader(state.hash_key, tables, seed)
    helper = gates.constant(np.zeros((circuit.share_width, circuit.candidates), dtype=np.uint8))
    shares = state.labels[: circuit.share_bits].reshape(helper.shape)
    outputs = circuit.evaluate(gates, shares, helper, state.labels[circuit.share_bits :])
    labels = outputs.astype(np.uint64, copy=False)
    opened = circuit.read(decode_labels(labels, commitments))
    told = labels.astype("<u8").tobytes()
    return opened, state.write(CircuitStage.OPENING, garbled, state.key, told)


def conclude(state: Garbled, opening: bytes) -> Opened:
    """Stage 6: learn what was opened, from labels that only the circuit can have given.

    Raises:
        ProtocolError: The labels are none of this circuit's outputs.
    """
    (told,) = state.read(CircuitStage.OPENING, opening, state.key)
    return state.circuit.read(state.garbler.decode(state.outputs, read_labels(told)))


def check_shares(circuit: Circuit, shares: Shares) -> Shares:
    """Return a party's shares, if they are residues of the circuit, one for each candidate."""
    if shares.shape != (circuit.candidates,) or shares.dtype.kind != "u":
        raise ParameterError(f"there are {circuit.candidates} shares, residues of totals")
    modulus = 1 << circuit.share_width if circuit.modulus is None else circuit.modulus
    if not 0 <= int(shares.min()) <= int(shares.max()) < modulus:
        raise ParameterError(f"shares are residues modulo {modulus}")
    return shares


def coins_of(circuit: Circuit, source: SecretSource) -> Bits:
    """Toss a party's coins."""
    tossed = np.frombuffer(source.take((circuit.coin_bits + 7) // 8), dtype=np.uint8)
    return np.unpackbits(tossed, count=circuit.coin_bits)


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
    """Play a session: every message passes through bytes, and `passing` may alter it on its way.

    Shares are residues, one for each candidate in the public order; both parties' add up to totals.

    Raises:
        ProtocolError: A message was refused. Nothing was opened unless it was the last.
    """
    pass_on = passing or (lambda stage, message: message)
    traffic: dict[CircuitStage, int] = {}

    def sent(stage: CircuitStage, message: bytes) -> bytes:
        traffic[stage] = len(message)
        return pass_on(stage, message)

    offered, message = offer(circuit, context, leader_source)
    message = sent(CircuitStage.OFFER, message)
    answered, message = answer(circuit, context, message, helper_source)
    message = sent(CircuitStage.ANSWER, message)
    transferred, message = transfer(offered, message, leader_shares, leader_source)
    message = sent(CircuitStage.TRANSFER, message)
    garbled, message = garble(answered, message, helper_shares, helper_source)
    message = sent(CircuitStage.GARBLED, message)
    opened, message = open_winner(transferred, message)
    conclude(garbled, sent(CircuitStage.OPENING, message))
    return CircuitOutcome(opened, traffic)

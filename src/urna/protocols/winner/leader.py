"""The leader's stages: offer, transfer, open. It evaluates the circuit.

Each stage is a function from the state before it and the helper's message to the next state and
the leader's message. What a stage needs of randomness it takes from the leader's own source.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.protocols.winner.circuit import Bits, Circuit, Opened
from urna.protocols.winner.garble import GateReader, Labels
from urna.protocols.winner.garble import decode as decode_labels
from urna.protocols.winner.transfer import BaseSender, extend
from urna.protocols.winner.wire import (
    CircuitStage,
    Turn,
    authenticate,
    decode,
    digest_of,
    encode,
    session_of,
)
from urna.randomness import SecretSource

Shares = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Offered(Turn):
    """What the leader knows after it sent its offer."""

    base: BaseSender = field(repr=False)


@dataclass(frozen=True, slots=True)
class Transferred(Turn):
    """What the leader knows after it sent its transfers."""

    key: bytes = field(repr=False)
    hash_key: bytes
    labels: Labels = field(repr=False)
    """Of its shares and coins."""


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

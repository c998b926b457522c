"""Leader and helper find a winner together: a garbled circuit, stage by stage, without a network.

Each holds a share of every candidate's exact total. `Circuit` adds the shares and noise from both
parties' coins and opens the largest; `run` plays a session in memory; `offer`, `transfer` and
`open_winner` are the leader's stages, `answer`, `garble` and `conclude` the helper's.
"""

from urna.protocols.winner.circuit import Circuit, ClearGates, Opened
from urna.protocols.winner.session import (
    CircuitOutcome,
    answer,
    conclude,
    garble,
    offer,
    open_winner,
    run,
    transfer,
)
from urna.protocols.winner.wire import CircuitStage, message_bytes

__all__ = [
    "Circuit",
    "CircuitOutcome",
    "CircuitStage",
    "ClearGates",
    "Opened",
    "answer",
    "conclude",
    "garble",
    "message_bytes",
    "offer",
    "open_winner",
    "run",
    "transfer",
]

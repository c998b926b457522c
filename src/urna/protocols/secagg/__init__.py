"""Secure aggregation: SecAgg+ with removable noise. Pure protocol code, without a network.

The server learns the sum of the survivors' vectors, with the noise that is left in it, and who
survived. `plan` fixes the public parameters, `run` plays a round in memory, `conduct` is the
server over any `Transport`, `ClientSession` a client that speaks bytes.
"""

from urna.protocols.secagg.client import Member
from urna.protocols.secagg.graph import ServerModel
from urna.protocols.secagg.keys import Directory, Identity
from urna.protocols.secagg.messages import ClientId, Stage
from urna.protocols.secagg.plan import Plan, closed, plan
from urna.protocols.secagg.run import LostClient, Outcome, conduct, run
from urna.protocols.secagg.session import ClientSession, ClientState, Vector, freeze, thaw
from urna.protocols.secagg.transport import Faults, MemoryTransport, Transport
from urna.protocols.secagg.xnoise import NoisePlan, Removal

__all__ = [
    "ClientId",
    "ClientSession",
    "ClientState",
    "Directory",
    "Faults",
    "Identity",
    "LostClient",
    "Member",
    "MemoryTransport",
    "NoisePlan",
    "Outcome",
    "Plan",
    "Removal",
    "ServerModel",
    "Stage",
    "Transport",
    "Vector",
    "closed",
    "conduct",
    "freeze",
    "plan",
    "run",
    "thaw",
]

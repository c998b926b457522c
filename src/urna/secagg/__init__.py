"""Secure summation: SecAgg+ with removable noise. Pure protocol code, without a network.

The server learns the sum of the survivors' vectors, with the noise that is left in it, and who
survived. `plan` fixes the public parameters, `run` plays a round in memory, `conduct` is the
server over any `Transport`, `ClientSession` a client that speaks bytes.
"""

from urna.secagg.client import Member
from urna.secagg.frozen import freeze, thaw
from urna.secagg.graph import ServerModel
from urna.secagg.keys import Directory, Identity
from urna.secagg.messages import ClientId, Stage
from urna.secagg.plan import Plan, plan
from urna.secagg.run import Loss, Outcome, conduct, run
from urna.secagg.session import ClientSession, ClientState, Vector
from urna.secagg.transport import Faults, MemoryTransport, Transport
from urna.secagg.void import closed
from urna.secagg.xnoise import NoisePlan, Removal

__all__ = [
    "ClientId",
    "ClientSession",
    "ClientState",
    "Directory",
    "Faults",
    "Identity",
    "Loss",
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

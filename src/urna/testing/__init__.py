"""Contract suites and scripted randomness, for our tests and for those who extend Urna.

Needs pytest, which Urna itself does not.
"""

from urna.randomness import ScriptedSecrets
from urna.testing.mechanism import MechanismContract
from urna.testing.release import ReleaseContract
from urna.testing.summation import SummationContract, ballots_for, unpriced_plan
from urna.testing.transport import Echo, TransportContract

__all__ = [
    "Echo",
    "MechanismContract",
    "ReleaseContract",
    "ScriptedSecrets",
    "SummationContract",
    "TransportContract",
    "ballots_for",
    "unpriced_plan",
]

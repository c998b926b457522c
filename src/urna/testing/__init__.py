"""Contract suites and scripted randomness, for our tests and for those who extend Urna.

Needs pytest, which Urna itself does not.
"""

from urna.randomness import ScriptedSecrets
from urna.testing.summation import SummationContract, ballots_for, unpriced_plan

__all__ = ["ScriptedSecrets", "SummationContract", "ballots_for", "unpriced_plan"]

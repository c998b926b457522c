"""The vote inside a Flower app: `poll` on the server, a `Voter` on each node.

The only room that imports flwr. It translates between Flower's messages and the protocol's;
everything that bears on privacy is decided in the rooms below, and by each node's own policy.
`urna.flower.simulation` runs a whole search in Flower's simulation engine; it is not imported
here, because a deployed node starts a process per message and should start quickly.
"""

from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.policy import Policy
from urna.flower.poll import poll
from urna.flower.post import Deadlines, PollProgress
from urna.flower.voter import Voter

__all__ = ["Deadlines", "DirectoryFile", "NodeKey", "Policy", "PollProgress", "Voter", "poll"]

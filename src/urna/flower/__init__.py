"""Private sums inside a Flower app.

`poll`, `PrivateTraining` or `Sums` on the server, a `Voter` or a `Trainer` on each node.
The only room that imports flwr. It translates between Flower's messages and the protocol's;
everything that bears on privacy is decided in the rooms below, and by each node's own policy.
`urna.flower.simulation` runs a whole search in Flower's simulation engine, `urna.flower.settings`
and `urna.flower.encrypted` combine nodes' own searches; they are not imported here, because a
deployed node starts a process per message and should start quickly.
"""

from urna.flower.averaging import Averages, AverageSubject, average
from urna.flower.gathering import Federation
from urna.flower.helper import Helper
from urna.flower.identities import DirectoryFile, NodeKey
from urna.flower.participant import Call, Contributor, Participant
from urna.flower.policy import Grant, Policy
from urna.flower.poll import poll
from urna.flower.strategy import PrivateTraining
from urna.flower.subjects import Statistic, Subject, register
from urna.flower.sums import Sums
from urna.flower.transcript import Transcript
from urna.flower.transport import Deadlines, SumProgress
from urna.flower.updates import Trainer, Updates, UpdateSubject
from urna.flower.vote_subject import VoteSubject
from urna.flower.votes import Statistics, Voter, Votes

__all__ = [
    "AverageSubject",
    "Averages",
    "Call",
    "Contributor",
    "Deadlines",
    "DirectoryFile",
    "Federation",
    "Grant",
    "Helper",
    "NodeKey",
    "Participant",
    "Policy",
    "PrivateTraining",
    "Statistic",
    "Statistics",
    "Subject",
    "SumProgress",
    "Sums",
    "Trainer",
    "Transcript",
    "UpdateSubject",
    "Updates",
    "VoteSubject",
    "Voter",
    "Votes",
    "average",
    "poll",
    "register",
]

"""Verified ballots, counted by two organisations that do not collude. Pure code, no network.

Every ballot comes with a proof that it is valid; leader and helper check it on shares, of which
neither learns anything alone. An invalid ballot is refused and its sender named. Nothing is opened:
both keep shares of the exact sum, for `urna.protocols.winner`. `play` has all parties in memory;
`leader` and `helper` are the stages, `cast` a client.
"""

from urna.protocols.ballots.codec import CODEC, BallotLayout, Codec, CountPlan
from urna.protocols.ballots.helper import HelperMember, HelperSession
from urna.protocols.ballots.report import (
    BallotClient,
    PublicParameters,
    Report,
    VouchedStatement,
    cast,
)
from urna.protocols.ballots.run import PlayedCount, play

__all__ = [
    "CODEC",
    "BallotClient",
    "BallotLayout",
    "Codec",
    "CountPlan",
    "HelperMember",
    "HelperSession",
    "PlayedCount",
    "PublicParameters",
    "Report",
    "VouchedStatement",
    "cast",
    "play",
]

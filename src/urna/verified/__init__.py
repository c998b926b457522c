"""Verified ballots, counted by two organisations that do not collude. Pure code, no network.

Every ballot comes with a proof that it is valid; leader and helper check it on shares, of which
neither learns anything alone. An invalid ballot is refused and its sender named. What is opened is
the sum under the noise of clients' coins, or nothing: then both keep shares of the exact sum, for
a computation that opens less. `play` has all parties in memory; `leader` and `helper` are the
stages, `cast` a client.
"""

from urna.verified.codec import CODECS, FAST_CODEC, STANDARD_CODEC, Codec, codec_for
from urna.verified.helper import HelperMember
from urna.verified.layout import Layout
from urna.verified.leader import Counted
from urna.verified.plan import CountPlan
from urna.verified.report import Announcement, Report, Statement, Voter, cast
from urna.verified.run import Played, play
from urna.verified.session import HelperSession

__all__ = [
    "CODECS",
    "FAST_CODEC",
    "STANDARD_CODEC",
    "Announcement",
    "Codec",
    "CountPlan",
    "Counted",
    "HelperMember",
    "HelperSession",
    "Layout",
    "Played",
    "Report",
    "Statement",
    "Voter",
    "cast",
    "codec_for",
    "play",
]

"""Voting on hyperparameters (DP-Hype): plan, ballots, what is revealed, winner."""

from urna.systems.vote.ballot import BallotKind, choose_ballot, describe_ballot, fill_ballot
from urna.systems.vote.decode import (
    ArgmaxDecoder,
    Decoded,
    Decoder,
    NoisyVotes,
    leading_probability,
)
from urna.systems.vote.hold import read_again, unread_result
from urna.systems.vote.leads import Leads, compare_leads
from urna.systems.vote.levels import choose_levels, head_start
from urna.systems.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.systems.vote.posterior import DecoderKind, PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal, RehearsedDecoder, rehearse
from urna.systems.vote.result import VoteResult
from urna.systems.vote.reveal import COUNTS, Reveal, Revealed
from urna.systems.vote.search import SearchProgress, search
from urna.systems.vote.settings import VoteSettings
from urna.systems.vote.shapes import (
    VOTES,
    Ballot,
    Ballots,
    BallotShape,
    LevelShape,
    ScoreShape,
    read_ballot,
)
from urna.systems.vote.shards import check_records, shard_ballots

__all__ = [
    "COUNTS",
    "VOTES",
    "ArgmaxDecoder",
    "Ballot",
    "BallotKind",
    "BallotShape",
    "Ballots",
    "Decoded",
    "Decoder",
    "DecoderKind",
    "Leads",
    "LevelShape",
    "NoisyVotes",
    "PosteriorDecoder",
    "Rehearsal",
    "RehearsedDecoder",
    "Reveal",
    "Revealed",
    "ScoreShape",
    "SearchProgress",
    "VotePlan",
    "VoteResult",
    "VoteSettings",
    "check_records",
    "choose_ballot",
    "choose_levels",
    "compare_leads",
    "describe_ballot",
    "fill_ballot",
    "head_start",
    "leading_probability",
    "plan",
    "plan_vote",
    "read_again",
    "read_ballot",
    "rehearse",
    "relative_noise",
    "search",
    "shard_ballots",
    "unread_result",
]

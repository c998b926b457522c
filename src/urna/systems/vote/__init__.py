"""Voting on hyperparameters (DP-Hype): plan, ballots, what is revealed, winner."""

from urna.systems.vote.ballot import (
    VOTES,
    Ballot,
    BallotKind,
    Ballots,
    BallotShape,
    LevelShape,
    ScoreShape,
    fill_ballot,
    read_ballot,
)
from urna.systems.vote.decode import (
    ArgmaxDecoder,
    Decoded,
    Decoder,
    DecoderKind,
    NoisyVotes,
    PosteriorDecoder,
)
from urna.systems.vote.fill import check_records, rehearse, shard_ballots
from urna.systems.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.systems.vote.rehearsal import Rehearsal
from urna.systems.vote.result import Revealed, VoteResult
from urna.systems.vote.search import read_again, search
from urna.systems.vote.settings import COUNTS, Reveal, VoteSettings, choose_ballot

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
    "LevelShape",
    "NoisyVotes",
    "PosteriorDecoder",
    "Rehearsal",
    "Reveal",
    "Revealed",
    "ScoreShape",
    "VotePlan",
    "VoteResult",
    "VoteSettings",
    "check_records",
    "choose_ballot",
    "fill_ballot",
    "plan",
    "plan_vote",
    "read_again",
    "read_ballot",
    "rehearse",
    "relative_noise",
    "search",
    "shard_ballots",
]

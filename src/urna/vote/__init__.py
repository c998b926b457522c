"""Voting on hyperparameters (DP-Hype): plan, ballots, tally, winner."""

from urna.vote.ballot import fill_ballot
from urna.vote.decode import ArgmaxDecoder, Decoded, Decoder, NoisyVotes, leading_probability
from urna.vote.plan import VotePlan, plan
from urna.vote.result import Result
from urna.vote.search import SearchProgress, read_result, search
from urna.vote.shards import check_records, shard_ballots
from urna.vote.simulate import SimulatedVote, simulate

__all__ = [
    "ArgmaxDecoder",
    "Decoded",
    "Decoder",
    "NoisyVotes",
    "Result",
    "SearchProgress",
    "SimulatedVote",
    "VotePlan",
    "check_records",
    "fill_ballot",
    "leading_probability",
    "plan",
    "read_result",
    "search",
    "shard_ballots",
    "simulate",
]

"""Voting on hyperparameters (DP-Hype): plan, ballots, tally, winner."""

from urna.vote.ballot import BallotKind, choose_ballot, describe_ballot, fill_ballot
from urna.vote.decode import ArgmaxDecoder, Decoded, Decoder, NoisyVotes, leading_probability
from urna.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.vote.posterior import DecoderKind, PosteriorDecoder
from urna.vote.replay import Recording, Replayed, read_recording, replay, unnamed_space
from urna.vote.result import Result
from urna.vote.rounds import TwoRounds, search_twice
from urna.vote.search import SearchProgress, read_again, read_result, search
from urna.vote.shapes import VOTES, Ballot, Ballots, BallotShape, ScoreShape, read_ballot
from urna.vote.shards import check_records, shard_ballots

__all__ = [
    "VOTES",
    "ArgmaxDecoder",
    "Ballot",
    "BallotKind",
    "BallotShape",
    "Ballots",
    "Decoded",
    "Decoder",
    "DecoderKind",
    "NoisyVotes",
    "PosteriorDecoder",
    "Recording",
    "Replayed",
    "Result",
    "ScoreShape",
    "SearchProgress",
    "TwoRounds",
    "VotePlan",
    "check_records",
    "choose_ballot",
    "describe_ballot",
    "fill_ballot",
    "leading_probability",
    "plan",
    "plan_vote",
    "read_again",
    "read_ballot",
    "read_recording",
    "read_result",
    "relative_noise",
    "replay",
    "search",
    "search_twice",
    "shard_ballots",
    "unnamed_space",
]

"""Voting on hyperparameters (DP-Hype): plan, ballots, tally, winner."""

from urna.vote.ballot import BallotKind, choose_ballot, describe_ballot, fill_ballot
from urna.vote.decode import ArgmaxDecoder, Decoded, Decoder, NoisyVotes, leading_probability
from urna.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.vote.posterior import DecoderKind, PosteriorDecoder
from urna.vote.rehearsal import Rehearsal, RehearsedDecoder, rehearse
from urna.vote.replay import (
    NOT_PRIVATE,
    Recording,
    Replayed,
    read_recording,
    record_losses,
    replay,
    unnamed_space,
)
from urna.vote.result import Result
from urna.vote.rounds import BOTH_ROUNDS, TwoRounds, search_twice
from urna.vote.search import SearchProgress, read_again, read_result, search
from urna.vote.shapes import VOTES, Ballot, Ballots, BallotShape, ScoreShape, read_ballot
from urna.vote.shards import check_records, shard_ballots

__all__ = [
    "BOTH_ROUNDS",
    "NOT_PRIVATE",
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
    "Rehearsal",
    "RehearsedDecoder",
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
    "record_losses",
    "rehearse",
    "relative_noise",
    "replay",
    "search",
    "search_twice",
    "shard_ballots",
    "unnamed_space",
]

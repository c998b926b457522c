"""Voting on hyperparameters (DP-Hype): plan, ballots, tally, winner."""

from urna.systems.vote.ballot import BallotKind, choose_ballot, describe_ballot, fill_ballot
from urna.systems.vote.decode import (
    ArgmaxDecoder,
    Decoded,
    Decoder,
    NoisyVotes,
    leading_probability,
)
from urna.systems.vote.levels import LevelShape, choose_levels, fill_levels, head_start
from urna.systems.vote.openings import Leads, compare_leads
from urna.systems.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.systems.vote.posterior import DecoderKind, PosteriorDecoder
from urna.systems.vote.rehearsal import Rehearsal, RehearsedDecoder, rehearse
from urna.systems.vote.result import Result
from urna.systems.vote.rounds import BOTH_ROUNDS, TwoRounds, after_first, search_twice
from urna.systems.vote.search import SearchProgress, read_again, search, unread_result
from urna.systems.vote.shapes import VOTES, Ballot, Ballots, BallotShape, ScoreShape, read_ballot
from urna.systems.vote.shards import check_records, shard_ballots
from urna.systems.vote.winner import WinnerPlan, WinnerResult, plan_winner

__all__ = [
    "BOTH_ROUNDS",
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
    "Result",
    "ScoreShape",
    "SearchProgress",
    "TwoRounds",
    "VotePlan",
    "WinnerPlan",
    "WinnerResult",
    "after_first",
    "check_records",
    "choose_ballot",
    "choose_levels",
    "compare_leads",
    "describe_ballot",
    "fill_ballot",
    "fill_levels",
    "head_start",
    "leading_probability",
    "plan",
    "plan_vote",
    "plan_winner",
    "read_again",
    "read_ballot",
    "rehearse",
    "relative_noise",
    "search",
    "search_twice",
    "shard_ballots",
    "unread_result",
]

"""Voting on hyperparameters (DP-Hype): plan, ballots, what is revealed, winner."""

from urna.systems.vote.ballot import Ballots, BallotShape, fill_ballot
from urna.systems.vote.decode import ArgmaxDecoder, DecoderKind, NoisyVotes, PosteriorDecoder
from urna.systems.vote.fill import rehearse
from urna.systems.vote.plan import VotePlan, plan, plan_vote
from urna.systems.vote.result import VoteResult
from urna.systems.vote.search import read_again, search
from urna.systems.vote.settings import COUNTS, Rehearsal, Reveal, VoteSettings

__all__ = [
    "COUNTS",
    "ArgmaxDecoder",
    "BallotShape",
    "Ballots",
    "DecoderKind",
    "NoisyVotes",
    "PosteriorDecoder",
    "Rehearsal",
    "Reveal",
    "VotePlan",
    "VoteResult",
    "VoteSettings",
    "fill_ballot",
    "plan",
    "plan_vote",
    "read_again",
    "rehearse",
    "search",
]

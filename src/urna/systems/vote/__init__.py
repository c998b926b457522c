"""Voting on hyperparameters (DP-Hype): plan, ballots, what is revealed, winner."""

from urna.systems.vote.ballot import (
    Ballot,
    BallotKind,
    Ballots,
    BallotShape,
    fill_ballot,
    read_ballot,
)
from urna.systems.vote.decode import (
    ArgmaxDecoder,
    Decoder,
    DecoderKind,
    NoisyVotes,
    PosteriorDecoder,
)
from urna.systems.vote.fill import rehearse
from urna.systems.vote.plan import VotePlan, plan, plan_vote, relative_noise
from urna.systems.vote.result import VoteResult
from urna.systems.vote.search import read_again, search
from urna.systems.vote.settings import COUNTS, Rehearsal, Reveal, VoteSettings, choose_ballot

__all__ = [
    "COUNTS",
    "ArgmaxDecoder",
    "Ballot",
    "BallotKind",
    "BallotShape",
    "Ballots",
    "Decoder",
    "DecoderKind",
    "NoisyVotes",
    "PosteriorDecoder",
    "Rehearsal",
    "Reveal",
    "VotePlan",
    "VoteResult",
    "VoteSettings",
    "choose_ballot",
    "fill_ballot",
    "plan",
    "plan_vote",
    "read_again",
    "read_ballot",
    "rehearse",
    "relative_noise",
    "search",
]

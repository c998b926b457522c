"""What a release costs, what may still be spent, and the file that remembers."""

from urna.privacy.accountant import Spent, compose
from urna.privacy.ballots import (
    VOTES,
    Ballot,
    BallotShape,
    NormBound,
    ScoreShape,
    Shifts,
    read_ballot,
)
from urna.privacy.budget import Adjacency, Budget, PrivacyStatement, Unit
from urna.privacy.calibration import Calibration, calibrate_ballots, honest_survivors
from urna.privacy.distributions import DISCRETE_GAUSSIAN, DISTRIBUTIONS, SKELLAM, Distribution
from urna.privacy.events import (
    DeclaredRelease,
    GaussianRelease,
    NonPrivateRelease,
    Release,
    SkellamVectorRelease,
    TallyRelease,
)
from urna.privacy.gaussian import gaussian_delta, gaussian_std
from urna.privacy.ledger import Entry, Ledger
from urna.privacy.rdp import epsilon_from_rdp, gaussian_rdp, skellam_rdp
from urna.privacy.records import check_shards, whole_client_epsilon

__all__ = [
    "DISCRETE_GAUSSIAN",
    "DISTRIBUTIONS",
    "SKELLAM",
    "VOTES",
    "Adjacency",
    "Ballot",
    "BallotShape",
    "Budget",
    "Calibration",
    "DeclaredRelease",
    "Distribution",
    "Entry",
    "GaussianRelease",
    "Ledger",
    "NonPrivateRelease",
    "NormBound",
    "PrivacyStatement",
    "Release",
    "ScoreShape",
    "Shifts",
    "SkellamVectorRelease",
    "Spent",
    "TallyRelease",
    "Unit",
    "calibrate_ballots",
    "check_shards",
    "compose",
    "epsilon_from_rdp",
    "gaussian_delta",
    "gaussian_rdp",
    "gaussian_std",
    "honest_survivors",
    "read_ballot",
    "skellam_rdp",
    "whole_client_epsilon",
]

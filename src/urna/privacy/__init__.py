"""What a release costs, what may still be spent, and the file that remembers."""

from urna.privacy.budget import Adjacency, Budget, PrivacyStatement, Unit
from urna.privacy.calibration import Calibration, calibrate
from urna.privacy.cost import Cost, Cover, Release, Spent, parts_of, pure_first, together
from urna.privacy.distributions import DISCRETE_GAUSSIAN, SKELLAM, Distribution
from urna.privacy.events import (
    DeclaredRelease,
    GaussianRelease,
    NonPrivateRelease,
    Repeated,
    Sampled,
    SumRelease,
    compose,
)
from urna.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, gaussian_std
from urna.privacy.ledger import Ledger
from urna.privacy.ledger_file import Entry
from urna.privacy.selection import SelectionRelease
from urna.privacy.tradeoff import Sensitivity

__all__ = [
    "DISCRETE_GAUSSIAN",
    "SKELLAM",
    "Adjacency",
    "Budget",
    "Calibration",
    "Cost",
    "Cover",
    "DeclaredRelease",
    "Distribution",
    "Entry",
    "GaussianRelease",
    "Ledger",
    "NonPrivateRelease",
    "PrivacyStatement",
    "Release",
    "Repeated",
    "Sampled",
    "SelectionRelease",
    "Sensitivity",
    "Spent",
    "SumRelease",
    "Unit",
    "calibrate",
    "compose",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_std",
    "parts_of",
    "pure_first",
    "together",
]

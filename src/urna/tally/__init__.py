"""One private sum, or a series: what is put in, under which noise, and how it becomes public."""

from urna.tally.contribution import BoundedVector, Contribution, SumRange
from urna.tally.encoding import Encoding
from urna.tally.encrypted import EncryptedSummation, Vanished
from urna.tally.mechanism import add_noise, check_sum, in_units, to_grid
from urna.tally.plan import TallyPlan, plan_tally
from urna.tally.release import Released, Releases, open_selection
from urna.tally.selection import HelperSelection, Selected, Selection, VerifiedSelection
from urna.tally.selection_plan import SelectionPlan, SharedPlan, public_order
from urna.tally.series import Counts, Histogram, Mean, Measure, Measured, OneOf, Reading, Series
from urna.tally.slot import Run
from urna.tally.summation import (
    ClearSummation,
    ClientId,
    Contributions,
    SecureAggregation,
    Summation,
    Tallied,
    tallied,
)
from urna.tally.terms import Options, Part, Terms, exact_part

__all__ = [
    "BoundedVector",
    "ClearSummation",
    "ClientId",
    "Contribution",
    "Contributions",
    "Counts",
    "Encoding",
    "EncryptedSummation",
    "HelperSelection",
    "Histogram",
    "Mean",
    "Measure",
    "Measured",
    "OneOf",
    "Options",
    "Part",
    "Reading",
    "Released",
    "Releases",
    "Run",
    "SecureAggregation",
    "Selected",
    "Selection",
    "SelectionPlan",
    "Series",
    "SharedPlan",
    "SumRange",
    "Summation",
    "Tallied",
    "TallyPlan",
    "Terms",
    "Vanished",
    "VerifiedSelection",
    "add_noise",
    "check_sum",
    "exact_part",
    "in_units",
    "open_selection",
    "plan_tally",
    "public_order",
    "tallied",
    "to_grid",
]

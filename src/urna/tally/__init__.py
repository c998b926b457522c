"""One private sum: a mechanism (encode, noise, decode) and a way to add up."""

from urna.tally.mechanism import add_noise, decode, encode, encode_ballots
from urna.tally.plan import TallyPlan, plan_tally
from urna.tally.secure import SecureSummation, tallied
from urna.tally.summation import ClearSummation, ClientId, Summation, Tallied

__all__ = [
    "ClearSummation",
    "ClientId",
    "SecureSummation",
    "Summation",
    "Tallied",
    "TallyPlan",
    "add_noise",
    "decode",
    "encode",
    "encode_ballots",
    "plan_tally",
    "tallied",
]

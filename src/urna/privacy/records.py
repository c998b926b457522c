"""Record-level protection by sample-and-aggregate: who is protected by how much.

A client splits its records into B disjoint shards by their ids, lets every shard fill a ballot
of its own, and hands in the sum of the B ballots. One record is in one shard, so replacing it
moves the sum by one ballot: the noise is that of one ballot, the signal that of n·B.
"""

from urna.errors import ParameterError
from urna.privacy.accountant import compose
from urna.privacy.ballots import NormBound
from urna.privacy.budget import Adjacency, Unit
from urna.privacy.events import TallyRelease

__all__ = ["MOST_SHARDS", "check_shards", "whole_client_epsilon"]

MOST_SHARDS = 100_000
"""Ballots one client may add up."""


def check_shards(adjacency: Adjacency, shards: int) -> None:
    """Refuse several ballots per client where the promise is about whole clients.

    One ballot per client under a record-level relation is allowed: it is a true, if needlessly
    weak, statement.

    Raises:
        ParameterError: The number is out of range, or one client would move several ballots
            under noise made for one.
    """
    if type(shards) is not int or not 1 <= shards <= MOST_SHARDS:
        raise ParameterError(f"shards must be a whole number in 1..{MOST_SHARDS:,}, got {shards}")
    if shards > 1 and adjacency.unit is not Unit.RECORD:
        raise ParameterError(
            f"a client that adds up {shards} ballots can move the sum by {shards} ballots, and the "
            f"noise under {adjacency} is made for one. Ask for {Adjacency.REPLACE_ONE_RECORD} "
            "(which protects single records, not whole clients), or for one shard."
        )


def whole_client_epsilon(
    release: TallyRelease, shards: int, delta: float, *, candidates: int
) -> float:
    """Return what is proven for a whole client where the noise was made for one record.

    Guarantee:
        With all records of one client replaced, the sum is (epsilon, delta)-DP for the
        returned epsilon; infinite where nothing is proven.

        Proof. All B ballots of the client may move, each by a vector of the release's norms,
        so by the triangle inequality the sum moves by at most B times its L2 and its L1
        norm, in at most B times as many coordinates, if there are so many. The noise's
        Gaussian trade-off (`gaussian_parameter`) and its RDP hold for every integer vector
        of these norms.
    """
    moved = min(shards * release.moved, candidates)
    together = NormBound(shards**2 * release.l2_squared, shards * release.l1, moved)
    grouped = TallyRelease(together, release.share, release.shares, release.family)
    return compose([grouped], delta).epsilon

"""How far one client can move the sum of ballots: exactly."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.privacy.budget import Adjacency

__all__ = [
    "VOTES",
    "Ballot",
    "BallotShape",
    "NormBound",
    "ScoreShape",
    "Shifts",
    "norms",
    "read_ballot",
    "scaled",
]

Shifts = tuple[tuple[int, int], ...]
"""Pairs (distance, coordinates that move by this distance), largest distance first."""

VOTES = 5
"""How many candidates the paper's ballots name."""

_FIRST_WEIGHT = 16  # fine enough that rounding does not show, coarse enough for a narrow ring


@dataclass(frozen=True, slots=True)
class NormBound:
    """How far one client can move a sum where only norms are known."""

    l2_squared: int
    l1: int
    coordinates: int
    """Most coordinates that move."""

    def __post_init__(self) -> None:
        if any(type(n) is not int or n < 1 for n in (self.l2_squared, self.l1, self.coordinates)):
            raise ParameterError(f"norms and coordinates are positive integers, got {self}")


def norms(moves: Shifts | NormBound) -> NormBound:
    """Return the norms of moves."""
    if isinstance(moves, NormBound):
        return moves
    return NormBound(
        l2_squared=sum(count * shift**2 for shift, count in moves),
        l1=sum(count * shift for shift, count in moves),
        coordinates=sum(count for _, count in moves),
    )


def scaled(moves: Shifts | NormBound, scale: int) -> Shifts | NormBound:
    """Return moves on a grid of `scale` steps to the unit."""
    if isinstance(moves, NormBound):
        return NormBound(moves.l2_squared * scale**2, moves.l1 * scale, moves.coordinates)
    return tuple((shift * scale, count) for shift, count in moves)


class Ballot(Protocol):
    """What a valid ballot is, and so how far one client can move the sum."""

    @property
    def candidates(self) -> int:
        """How many candidates there are."""
        ...

    @property
    def most(self) -> int:
        """The most a ballot gives one candidate."""
        ...

    @property
    def norm(self) -> float:
        """The largest L2 norm of a ballot."""
        ...

    @property
    def vote(self) -> float:
        """The weight that counts as one vote, so that tallies of all ballots compare."""
        ...

    def __hash__(self) -> int: ...

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read_ballot` makes the same ballot."""
        ...

    def check(self, ballot: npt.NDArray[np.integer]) -> None:
        """Raise ParameterError unless this is a valid ballot."""
        ...

    def shifts(self, adjacency: Adjacency) -> Shifts | NormBound:
        """Return a bound on the difference of two neighbouring sums."""
        ...


@dataclass(frozen=True, slots=True)
class BallotShape:
    """A ballot of ranks: these weights on different candidates, or nothing at all.

    Args:
        weights: Positive integers, largest first. k-hot ballots have k ones; ranked ballots
            have falling weights.
        candidates: How many candidates there are.
    """

    weights: tuple[int, ...]
    candidates: int

    def __post_init__(self) -> None:
        if not self.weights or any(type(w) is not int or w < 1 for w in self.weights):
            raise ParameterError(f"ballot weights must be positive integers, got {self.weights}")
        if list(self.weights) != sorted(self.weights, reverse=True):
            raise ParameterError(f"ballot weights must fall, got {self.weights}")
        if len(self.weights) > self.candidates:
            raise ParameterError(
                f"a ballot of {len(self.weights)} votes needs as many candidates, got "
                f"{self.candidates}. Lower the number of votes."
            )

    @classmethod
    def top_k(cls, votes: int, candidates: int) -> "BallotShape":
        """Return the paper's ballot: the `votes` best candidates get one vote each."""
        if votes < 1:
            raise ParameterError(f"the number of votes must be at least 1, got {votes}")
        return cls((1,) * votes, candidates)

    @classmethod
    def ranked(cls, width: float, candidates: int) -> "BallotShape":
        """Return falling weights, one rank in `width` counting 1/e of what the first counts.

        The weights are 16·e^(−rank/width), rounded, down to 1 and at most for the better half
        of the candidates.

        Example:
            >>> BallotShape.ranked(2.0, candidates=20).weights
            (16, 10, 6, 4, 2, 1, 1)
        """
        if not (math.isfinite(width) and width > 0):
            raise ParameterError(f"the width of a ballot must be finite and positive, got {width}")
        ranks = range(max(1, candidates // 2))
        weights = (round(_FIRST_WEIGHT * math.exp(-rank / width)) for rank in ranks)
        return cls(tuple(weight for weight in weights if weight), candidates)

    @property
    def most(self) -> int:
        """What the first choice gets."""
        return self.weights[0]

    @property
    def vote(self) -> float:
        """One vote where votes are equal; else a ballot weighs as much as five, in L2."""
        if len(set(self.weights)) == 1:
            return float(self.weights[0])
        return self.norm / math.sqrt(VOTES)

    @property
    def norm(self) -> float:
        """The L2 norm of every ballot that is no abstention."""
        return math.sqrt(sum(weight**2 for weight in self.weights))

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read_ballot` makes the same ballot."""
        return {"weights": list(self.weights)}

    def check(self, ballot: npt.NDArray[np.integer]) -> None:
        """Raise ParameterError unless these weights stand on different candidates."""
        given = tuple(sorted(ballot[ballot != 0].tolist(), reverse=True))
        if given and given != self.weights:
            raise ParameterError(
                f"a ballot holds the weights {self.weights[0]} … {self.weights[-1]} on "
                f"{len(self.weights)} candidates, or nothing; got {len(given)} marks up to "
                f"{max(given)}"
            )

    def shifts(self, adjacency: Adjacency) -> Shifts:
        """Return the worst difference between two neighbouring sums, coordinate by coordinate.

        Guarantee:
            For independent, symmetric, log-concave noise per coordinate (Skellam, discrete
            Gaussian) the pair of sums that differ by these shifts dominates every pair of
            neighbouring sums, for every epsilon at once.

            Proof. For log-concave noise N the likelihood ratio of N and N + s is monotone, so
            the hockey-stick divergence is a maximum over half-lines,
            max_t F(t) − e^ε·F(t − s), which grows with s: a longer shift dominates a shorter
            one, and by symmetry its sign does not matter. Dominating pairs compose over
            independent coordinates (Zhu, Dong & Wang 2022, Theorem 10). Replacing a ballot
            moves a coordinate by w_a, by −w_b, or, where both ballots name the candidate, by
            w_a − w_b, which is no longer than the longer of the two; so moving one coordinate
            by w_a and another by w_b dominates it. Hence the case of no common candidate, all
            weights twice, dominates all others, an abstention included.

            It is attained, so the accounting is exact, for k-hot ballots of any size and
            for ranked ballots when there are at least twice as many candidates as ranks;
            for ranked ballots over fewer candidates it is a proven upper bound.
        """
        votes = len(self.weights)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            moved = Counter(self.weights)
        elif len(set(self.weights)) == 1:
            # Two k-hot ballots over m candidates share at least 2k − m of them; an abstention
            # differs from a ballot in k places.
            apart = max(2 * min(votes, self.candidates - votes), votes)
            moved = Counter({self.weights[0]: apart})
        else:
            moved = Counter(self.weights * 2)
        return tuple(sorted(moved.items(), reverse=True))


@dataclass(frozen=True, slots=True)
class ScoreShape:
    """A ballot of scores: any non-negative integers whose squares sum to at most norm².

    Args:
        candidates: How many candidates there are.
        power: How sharply scores fall with the loss; see `fill_ballot`.
        norm: The most a ballot gives one candidate.
    """

    candidates: int
    power: float = 4.0
    norm: int = 64

    @classmethod
    def of(cls, candidates: int, power: float) -> "ScoreShape":
        """Return scores fine enough for so many candidates: norm ≥ 4·√candidates."""
        return cls(candidates, power, max(64, 1 << math.ceil(math.log2(4 * math.sqrt(candidates)))))

    def __post_init__(self) -> None:
        if self.candidates < 1 or type(self.norm) is not int or self.norm < 1:
            raise ParameterError(
                f"scores need a candidate and a norm of at least 1, got {self.candidates} and "
                f"{self.norm}"
            )
        if not (math.isfinite(self.power) and self.power > 0):
            raise ParameterError(f"the power of scores must be positive, got {self.power}")

    @property
    def most(self) -> int:
        """What a client gives that has one favourite only."""
        return self.norm

    @property
    def vote(self) -> float:
        """A ballot weighs as much as five votes, in L2."""
        return self.norm / math.sqrt(VOTES)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read_ballot` makes the same ballot."""
        return {"power": self.power, "norm": self.norm}

    def check(self, ballot: npt.NDArray[np.integer]) -> None:
        """Raise ParameterError unless scores are non-negative and within the norm."""
        scores = [int(score) for score in ballot]
        if min(scores) < 0 or sum(score**2 for score in scores) > self.norm**2:
            raise ParameterError(
                f"scores are non-negative and their squares sum to at most {self.norm}²"
            )

    def shifts(self, adjacency: Adjacency) -> NormBound:
        """Return the norms by which one client moves the sum.

        Guarantee:
            For non-negative u and v, ‖u − v‖₂² = ‖u‖₂² + ‖v‖₂² − 2u·v ≤ 2·norm². Over m
            coordinates ‖x‖₁ ≤ √m·‖x‖₂, and for integers ‖x‖₁ ≤ ‖x‖₂². It is attained in L2
            by two clients with one favourite each. The noise's Gaussian trade-off needs no
            more than this (`tradeoff.gaussian_parameter`).
        """
        ballots = 1 if adjacency is Adjacency.ZERO_OUT_CLIENT else 2
        l2_squared = ballots * self.norm**2
        l1 = min(l2_squared, math.isqrt(self.candidates * l2_squared) + 1)
        return NormBound(l2_squared, l1, self.candidates)


def read_ballot(mapping: Mapping[str, Any], candidates: int) -> Ballot:
    """Read what a ballot's `as_mapping` wrote.

    Raises:
        ParameterError: It is no ballot.

    Example:
        >>> read_ballot({"weights": [1, 1]}, candidates=4)
        BallotShape(weights=(1, 1), candidates=4)
    """
    if mapping.keys() == {"weights"} and isinstance(mapping["weights"], list):
        return BallotShape(tuple(mapping["weights"]), candidates)
    if mapping.keys() == {"power", "norm"} and isinstance(mapping["power"], float):
        return ScoreShape(candidates, mapping["power"], mapping["norm"])
    raise ParameterError(f"a ballot has weights, or power and norm; got {sorted(mapping)}")

"""How far one client can move the sum of ballots: exactly."""

from collections import Counter
from dataclasses import dataclass

from urna.errors import ParameterError
from urna.privacy.budget import Adjacency

__all__ = ["BallotShape", "Shifts"]

Shifts = tuple[tuple[int, int], ...]
"""Pairs (distance, coordinates that move by this distance), largest distance first."""


@dataclass(frozen=True, slots=True)
class BallotShape:
    """What a valid ballot is: these weights on different candidates, or nothing at all.

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

"""What a ballot is: ranks, scores or levels, and how far one of them can move the sum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Sensitivity
from urna.tally import SumRange

__all__ = [
    "LEVELS",
    "VOTES",
    "Ballot",
    "BallotShape",
    "Ballots",
    "LevelShape",
    "ScoreShape",
    "read_ballot",
]

VOTES = 5
"""How many candidates the paper's ballots name."""

LEVELS = 3
"""The top level: two bits a candidate. Finer ones find nothing more."""

_FIRST_WEIGHT = 16  # fine enough that rounding does not show, coarse enough for a narrow ring


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
    def most_in_all(self) -> int:
        """The most a ballot gives all candidates together."""
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

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return a bound on the difference of two neighbouring sums: of one ballot and another."""
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
    def most_in_all(self) -> int:
        """All weights together."""
        return sum(self.weights)

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

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far another ballot, or none, moves the sum.

        Guarantee:
            Replacing a ballot moves a coordinate by w_a, by −w_b, or, where both name the
            candidate, by w_a − w_b, whose square is at most w_a² + w_b². So no pair of ballots
            is farther apart than one without a common candidate, and none than all weights
            twice. Two k-hot ballots over m candidates share at least 2k − m of them, and an
            abstention differs from a ballot in k places. It is attained for k-hot ballots of
            any size, and for ranked ballots over at least twice as many candidates as ranks.
        """
        votes, squares = len(self.weights), sum(weight**2 for weight in self.weights)
        if adjacency is Adjacency.ZERO_OUT_CLIENT:
            return Sensitivity(squares, votes)
        if len(set(self.weights)) == 1:
            apart = max(2 * min(votes, self.candidates - votes), votes)
            return Sensitivity(apart * self.weights[0] ** 2, apart)
        return Sensitivity(2 * squares, min(2 * votes, self.candidates))


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
    def most_in_all(self) -> int:
        """The most that scores within the norm add up to: √m times the norm."""
        return math.isqrt(self.candidates * self.norm**2)

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

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far another ballot, or none, moves the sum.

        Guarantee:
            For non-negative u and v, ‖u − v‖₂² = ‖u‖₂² + ‖v‖₂² − 2u·v ≤ 2·norm². It is
            attained by two clients with one favourite each.
        """
        ballots = 1 if adjacency is Adjacency.ZERO_OUT_CLIENT else 2
        return Sensitivity(ballots * self.norm**2, self.candidates)


@dataclass(frozen=True, slots=True)
class LevelShape:
    """A ballot of levels: each candidate gets a whole number from 0 to `levels`.

    Where only the winner is revealed no noise is added to a ballot, and no candidate pays for
    another. So a client may give every good candidate the top level: the privacy of a selection
    depends on the largest level alone (`urna.privacy.SelectionRelease`).

    Args:
        candidates: How many candidates there are.
        part: From which part of the way from the reference to the best loss on a candidate
            gets the top level.
        levels: The top level.
    """

    candidates: int
    part: float = 1.0
    levels: int = LEVELS

    def __post_init__(self) -> None:
        if type(self.candidates) is not int or self.candidates < 1:
            raise ParameterError(f"levels need a candidate, got {self.candidates}")
        if not 0 < self.part <= 1:
            raise ParameterError(f"the top level begins at a part in (0, 1], got {self.part}")
        if type(self.levels) is not int or not 1 <= self.levels <= 255:
            raise ParameterError(f"the top level is a whole number in 1..255, got {self.levels}")

    @property
    def most(self) -> int:
        """The top level."""
        return self.levels

    @property
    def most_in_all(self) -> int:
        """The top level for every candidate."""
        return self.candidates * self.levels

    @property
    def norm(self) -> float:
        """The L2 norm of a ballot that gives every candidate the top level."""
        return self.levels * math.sqrt(self.candidates)

    @property
    def vote(self) -> float:
        """One level is one vote."""
        return 1.0

    @property
    def reach(self) -> int:
        """How far one unit moves the difference of two candidates' totals.

        Guarantee:
            Replaced or left out, a ballot moves each total by at most `levels`, in either
            direction (`winner.Circuit` folds sums that others have pushed beyond theirs, and
            a folded one moves backwards), so a difference of two moves by twice that.
        """
        return 2 * self.levels

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read_ballot` makes the same ballot."""
        return {"levels": self.levels, "part": self.part}

    def check(self, ballot: npt.NDArray[np.integer]) -> None:
        """Raise ParameterError unless every candidate has a level."""
        if (
            ballot.shape != (self.candidates,)
            or int(ballot.min()) < 0
            or int(ballot.max()) > self.levels
        ):
            raise ParameterError(
                f"ballots of levels give {self.candidates} candidates 0 to {self.levels}"
            )

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far another ballot, or none, moves the sum: each total by a level."""
        del adjacency
        return Sensitivity(self.candidates * self.levels**2, self.candidates)


@dataclass(frozen=True, slots=True)
class Ballots:
    """What a client puts into the sum: a ballot for each shard of its records, added up."""

    shape: Ballot
    shards: int = 1

    @property
    def dimension(self) -> int:
        """One entry for each candidate."""
        return self.shape.candidates

    @property
    def reach(self) -> int:
        """Where all shards have one favourite."""
        return self.shards * self.shape.most

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far one unit moves the sum: one ballot, since a record is in one shard.

        Raises:
            ParameterError: A record may be added or removed: that could move others to other
                shards.
        """
        if adjacency is Adjacency.ADD_OR_REMOVE_ONE_RECORD:
            raise ParameterError(
                f"votes of shards protect records under {Adjacency.REPLACE_ONE_RECORD}, not under "
                f"{adjacency}: ask for that one"
            )
        return self.shape.sensitivity(adjacency)

    def whole_client(self) -> Sensitivity:
        """Return how far all ballots of one client move the sum."""
        one = self.shape.sensitivity(Adjacency.REPLACE_ONE_CLIENT)
        return one.times(self.shards, dimension=self.dimension)

    def range_of(self, clients: int) -> SumRange:
        """Return where sums of ballots lie: no candidate gets less than nothing."""
        ballots = clients * self.shards
        return SumRange(0, ballots * self.shape.most, 0, ballots * self.shape.most_in_all)

    def check(self, vector: IntVector) -> None:
        """Raise ParameterError unless this is a ballot, or can be a sum of so many."""
        if self.shards == 1:
            self.shape.check(vector)
            return
        if int(vector.min()) < 0 or int(vector.max()) > self.reach:
            raise ParameterError(f"{self.shards} ballots give a candidate 0 to {self.reach}")
        if int(vector.sum()) > self.shards * self.shape.most_in_all:
            raise ParameterError(f"this is more than {self.shards} ballots can give together")

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values that say the same."""
        return {
            "kind": "ballots",
            "ballot": self.shape.as_mapping(),
            "candidates": self.dimension,
            "shards": self.shards,
        }


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
    if mapping.keys() == {"levels", "part"} and isinstance(mapping["part"], float):
        return LevelShape(candidates, mapping["part"], mapping["levels"])
    raise ParameterError(
        f"a ballot has weights, power and norm, or levels and part; got {sorted(mapping)}"
    )

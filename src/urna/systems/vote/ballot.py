"""What a ballot is, how losses fill it, and how far one of them can move the sum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError
from urna.noise import IntVector
from urna.privacy import Adjacency, Sensitivity
from urna.randomness import expand_words
from urna.tally import SumRange

VOTES = 5
"""How many candidates the paper's ballots name."""

LEVELS = 3
"""The top level: two bits a candidate. Finer ones find nothing more."""

STRONG, WEAK = 0.3, 0.06
"""Noise over what all ballots can weigh: for 100 clients, epsilons of 0.15 and 0.9."""

_FIRST_WEIGHT = 16  # fine enough that rounding does not show, coarse enough for a narrow ring
_FALLING = 2.0  # how sharply levels fall with the loss
_GOOD, _BEYOND = 5, 2.0
"""One candidate in five is good; nobody votes for what is twice as far behind the best."""


class BallotKind(StrEnum):
    """How a client spreads its vote. All of them may move the sum equally far."""

    TOP_K = "top-k"
    """One vote for each of its k best candidates (DP-Hype)."""
    RANKED = "ranked"
    """Weights that fall from rank to rank."""
    SCORED = "scored"
    """Weights by how much better than an ordinary candidate one is."""


@dataclass(frozen=True, slots=True)
class BallotShape:
    """A ballot of ranks: these weights on different candidates, or nothing at all.

    Args:
        weights: Positive integers, largest first: k ones, or weights that fall.
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
        """Return the weights 16·e^(−rank/width), rounded, at most for the better half."""
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

    def fill(self, losses: npt.NDArray[np.float64], key: bytes) -> IntVector:
        """Put the weights on the candidates of lowest loss; see `fill_ballot`."""
        ballot = np.zeros(self.candidates, dtype=np.int64)
        if np.isfinite(losses).any():
            order = np.lexsort((expand_words(key, self.candidates, 64), losses))
            ballot[order[: len(self.weights)]] = self.weights
        return ballot

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

    def __str__(self) -> str:
        ranks = len(self.weights)
        if set(self.weights) == {1}:
            return f"{BallotKind.TOP_K}: {ranks} equal votes"
        return f"{BallotKind.RANKED}: {ranks} ranks, weights {self.most} to {self.weights[-1]}"


@dataclass(frozen=True, slots=True)
class ScoreShape:
    """A ballot of scores: any non-negative integers whose squares sum to at most norm².

    Args:
        candidates: How many candidates there are.
        power: How sharply scores fall with the loss.
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

    def fill(self, losses: npt.NDArray[np.float64], key: bytes) -> IntVector:
        """Return (reference − loss)^power, scaled to the norm, in whole numbers.

        Whole numbers are found as seats are by largest remainders: rounding towards zero alone
        would leave a wide ballot an eighth short of its norm. Of equal remainders the lower loss
        comes first, and equal losses are decided by lot.
        """
        best, reference, scaled = reference_loss(losses)
        if reference <= best:
            return np.zeros(self.candidates, dtype=np.int64)
        scores = (np.maximum(reference - scaled, 0.0) / (reference - best)) ** self.power
        # A hair below the norm: rounding towards zero keeps within it, whatever the sum rounds to.
        exact = scores * (self.norm * (1 - 1e-12) / np.linalg.norm(scores))
        whole = np.floor(exact).astype(np.int64)
        order = np.lexsort((expand_words(key, self.candidates, 64), losses, whole - exact))
        order = order[exact[order] > whole[order]]
        needed = np.cumsum(2 * whole[order] + 1)  # (w + 1)² − w²
        whole[order[needed <= self.norm**2 - int(whole @ whole)]] += 1
        return np.asarray(whole)

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

    def __str__(self) -> str:
        return f"{BallotKind.SCORED}: (reference − loss)^{self.power:g}"


@dataclass(frozen=True, slots=True)
class LevelShape:
    """A ballot of levels: each candidate gets a whole number from 0 to `levels`.

    Where only the winner is revealed no noise is added to a ballot, and no candidate pays for
    another. So a client may give every good candidate the top level: the privacy of a selection
    depends on the largest level alone (`urna.privacy.SelectionRelease`).

    Args:
        candidates: How many candidates there are.
        part: From which part of the way to the best loss on a candidate gets the top level.
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

    def fill(self, losses: npt.NDArray[np.float64], key: bytes) -> IntVector:
        """Return min(1, (reference − loss)/(part·(reference − best)))² in levels."""
        del key
        best, reference, scaled = reference_loss(losses)
        if reference <= best:
            return np.zeros(self.candidates, dtype=np.int64)
        ahead = np.maximum(reference - scaled, 0.0) / (reference - best)  # within [0, 1]
        score = np.minimum(ahead / self.part, 1.0) ** _FALLING
        return np.asarray(np.rint(self.levels * score), dtype=np.int64)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, from which `read_ballot` makes the same ballot."""
        return {"levels": self.levels, "part": self.part}

    def check(self, ballot: npt.NDArray[np.integer]) -> None:
        """Raise ParameterError unless every candidate has a level."""
        fits = ballot.shape == (self.candidates,)
        if not (fits and int(ballot.min()) >= 0 and int(ballot.max()) <= self.levels):
            raise ParameterError(
                f"ballots of levels give {self.candidates} candidates 0 to {self.levels}"
            )

    def sensitivity(self, adjacency: Adjacency) -> Sensitivity:
        """Return how far another ballot, or none, moves the sum: each total by a level."""
        del adjacency
        return Sensitivity(self.candidates * self.levels**2, self.candidates)

    def __str__(self) -> str:
        way = f"from {self.part:.0%} of the way to the best loss on"
        top = "for the best" if self.part == 1 else way
        return f"levels 0 to {self.levels}, the top one {top}"


Ballot = BallotShape | ScoreShape | LevelShape
"""What a valid ballot is. `norm` is its largest L2 norm; `vote` the weight that counts as one vote,
so that sums of all kinds of ballots compare."""


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


def fill_ballot(losses: npt.NDArray[np.float64], shape: Ballot, key: bytes) -> IntVector:
    """Return the ballot that a client's losses make.

    Ties are broken by a random order under the client's own secret key: an order by index
    would favour the first corner of the grid, and a common order the same candidates at
    every client. Equal losses get equal levels, and equal scores but for one step. Losses that are
    not finite (diverged, failed) rank last. A client with no finite loss abstains: its ballot is
    empty. So does one for which all candidates are alike, where ballots are scores or levels.

    Args:
        losses: One loss per candidate; lower is better.
        shape: What the ballot is.
        key: 32 secret bytes.

    Example:
        >>> shape = BallotShape.top_k(2, candidates=4)
        >>> fill_ballot(np.array([0.3, np.nan, 0.1, 0.2]), shape, bytes(32))
        array([0, 0, 1, 1])
    """
    if losses.shape != (shape.candidates,):
        raise ParameterError(
            f"a ballot over {shape.candidates} candidates needs as many losses, got shape "
            f"{losses.shape}"
        )
    return shape.fill(np.where(np.isfinite(losses), losses, np.inf), key)


def reference_loss(
    losses: npt.NDArray[np.float64],
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Return the best loss, the one that counts nothing, and all of them, scaled alike.

    The reference is the median; or, where that is less, a loss twice as far behind the best as a
    fifth of the candidates (of those behind the best, where as many share its place), so that a
    ballot does not go flat where more than half of them diverge to large finite losses. Where it is
    as good as the best, it is the next worse loss; where it did not converge, it lies as far beyond
    the worst that did as that is from the best. Where all are alike, or none is finite, it is no
    larger than the best. What is not finite must be infinite.
    """
    finite = np.isfinite(losses)
    if not finite.any():
        return 0.0, 0.0, losses
    # A power of two below which no difference can overflow.
    scaled = np.ldexp(losses, -int(np.frexp(np.abs(losses[finite]).max())[1]) - 2)
    ordered = np.sort(scaled)
    best, worst, reference = ordered[0], scaled[finite].max(), ordered[len(ordered) // 2]
    good, worse = ordered[(len(ordered) - 1) // _GOOD], ordered[ordered > best]
    if good == best and len(worse):
        good = worse[(len(worse) - 1) // _GOOD]
    if best < good < np.inf:
        reference = min(reference, best + _BEYOND * (good - best))
    if reference == best:
        reference = worse[0] if len(worse) else best
    if np.isinf(reference):
        reference = worst + (worst - best) if worst > best else best + 1.0
    return float(best), float(reference), scaled


def read_ballot(mapping: Mapping[str, Any], candidates: int) -> Ballot:
    """Read what a ballot's `as_mapping` wrote; anything else is a ParameterError."""
    if mapping.keys() == {"weights"} and isinstance(mapping["weights"], list):
        return BallotShape(tuple(mapping["weights"]), candidates)
    if mapping.keys() == {"power", "norm"} and isinstance(mapping["power"], float):
        return ScoreShape(candidates, mapping["power"], mapping["norm"])
    if mapping.keys() == {"levels", "part"} and isinstance(mapping["part"], float):
        return LevelShape(candidates, mapping["part"], mapping["levels"])
    raise ParameterError(
        f"a ballot has weights, power and norm, or levels and part; got {sorted(mapping)}"
    )

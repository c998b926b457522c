"""Turn a client's losses into its ballot."""

import math
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from urna.errors import ParameterError, UnknownName
from urna.noise import IntVector
from urna.randomness import expand_words
from urna.systems.vote.shapes import VOTES, Ballot, BallotShape, LevelShape, ScoreShape

__all__ = ["STRONG", "WEAK", "BallotKind", "choose_ballot", "describe_ballot", "fill_ballot"]


STRONG, WEAK = 0.3, 0.06
"""Noise over what all ballots can weigh: for 100 clients, epsilons of 0.15 and 0.9."""


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


def choose_ballot(
    kind: Ballot | BallotKind | str | None,
    *,
    candidates: int,
    noise: float,
    votes: int | None = None,
) -> Ballot:
    """Return the ballot of a vote. Ranks and scores are as wide as the noise asks for.

    Under strong noise wide ballots win, because neighbours of good candidates are counted as
    well; under weak noise narrow ones are more precise. The noise per client is public, so
    the width may follow it. How it does was fixed on simulated loss surfaces
    (docs/decisions/0008-default-ballot-and-decoder.md).

    Args:
        kind: The kind of ballot; top-k if `votes` are given, else scored. A ballot that is
            chosen already stays as it is.
        candidates: How many candidates there are.
        noise: Standard deviation of the noise over what all ballots together can weigh, in L2.
        votes: How many candidates a top-k ballot names; five by default.

    Example:
        >>> choose_ballot("top-k", candidates=100, noise=0.1).most
        1
    """
    if isinstance(kind, BallotShape | ScoreShape):
        if kind.candidates != candidates or votes is not None:
            raise ParameterError(
                f"this ballot is for {kind.candidates} candidates and has its own number of votes, "
                f"got {candidates} candidates and votes={votes}"
            )
        return kind
    if kind is None:
        kind = BallotKind.SCORED if votes is None else BallotKind.TOP_K
    if kind not in list(BallotKind):
        raise UnknownName("kind of ballot", str(kind), BallotKind)
    if kind == BallotKind.TOP_K:
        return BallotShape.top_k(min(VOTES, candidates) if votes is None else votes, candidates)
    if votes is not None:
        raise ParameterError(
            f"only top-k ballots name a number of candidates; leave votes out, or the kind {kind}"
        )
    if kind == BallotKind.RANKED:
        return BallotShape.ranked(_width(noise) * candidates, candidates)
    return ScoreShape.of(candidates, _power(noise))


def _width(noise: float) -> float:
    """Return after which part of the candidates weights have fallen to 1/e."""
    return 0.1 if noise > STRONG else 0.05 if noise > WEAK else 0.02


def _power(noise: float) -> float:
    return 2.0 if noise > STRONG else 3.0 if noise > WEAK else 4.0


def describe_ballot(shape: Ballot) -> str:
    """Return a ballot in words.

    Example:
        >>> describe_ballot(BallotShape.top_k(5, candidates=100))
        'top-k: 5 equal votes'
    """
    if isinstance(shape, BallotShape):
        ranks = len(shape.weights)
        if set(shape.weights) == {1}:
            return f"{BallotKind.TOP_K}: {ranks} equal votes"
        return f"{BallotKind.RANKED}: {ranks} ranks, weights {shape.most} to {shape.weights[-1]}"
    if isinstance(shape, LevelShape):
        way = f"from {shape.part:.0%} of the way to the best loss on"
        top = "for the best" if shape.part == 1 else way
        return f"levels 0 to {shape.levels}, the top one {top}"
    power = shape.power if isinstance(shape, ScoreShape) else math.nan
    return f"{BallotKind.SCORED}: (reference − loss)^{power:g}"


def fill_ballot(losses: npt.NDArray[np.float64], shape: Ballot, key: bytes) -> IntVector:
    """Put a ballot's weights on the candidates of lowest loss.

    Ties are broken by a random order under the client's own secret key: an order by index
    would favour the first corner of the grid, and a common order the same candidates at
    every client. Equal losses get equal scores but for one step. Losses that are not finite
    (diverged, failed) rank last. A client with no finite loss abstains: its ballot is empty.

    Args:
        losses: One loss per candidate; lower is better.
        shape: The weights, largest first; the norm of the scores; or the top level.
        key: 32 secret bytes. Levels need no lot: equal losses get equal ones.

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
    finite = np.isfinite(losses)
    if isinstance(shape, ScoreShape):
        return _scores(np.where(finite, losses, np.inf), shape, key)
    if isinstance(shape, LevelShape):
        return _levels(np.where(finite, losses, np.inf), shape)
    if not isinstance(shape, BallotShape):
        raise ParameterError(
            f"ballots are of ranks, of scores or of levels, got {type(shape).__name__}"
        )
    ballot = np.zeros(shape.candidates, dtype=np.int64)
    if finite.any():
        order = np.lexsort(
            (expand_words(key, shape.candidates, 64), np.where(finite, losses, np.inf))
        )
        ballot[order[: len(shape.weights)]] = shape.weights
    return ballot


def _scores(losses: npt.NDArray[np.float64], shape: ScoreShape, key: bytes) -> IntVector:
    """Return (reference − loss)^power, scaled to the norm, in whole numbers.

    The reference is the median, so neither the scale of the losses matters nor how bad the
    bad ones are; or, where that is less, a loss twice as far behind the best as the fifth part of
    the candidates (of those behind the best, where as many share its place), so that a ballot does
    not go flat where more than half of them diverge to large finite losses. Where it is as good as
    the best, it is the next worse loss; where it did not converge, it lies as far beyond the worst
    that did as that is from the best. A client for which all candidates are alike abstains.

    Whole numbers are found as seats are by largest remainders: all scores are rounded towards
    zero, and those that lost most get one more while the norm allows. Rounding towards zero
    alone would leave a wide ballot an eighth short of its norm. Of equal remainders the lower
    loss comes first, and equal losses are decided by lot.
    """
    best, reference, scaled = reference_loss(losses)
    if reference <= best:
        return np.zeros(shape.candidates, dtype=np.int64)
    scores = (np.maximum(reference - scaled, 0.0) / (reference - best)) ** shape.power
    # A hair below the norm: rounding towards zero then keeps within it, whatever the sum rounds to.
    exact = scores * (shape.norm * (1 - 1e-12) / np.linalg.norm(scores))
    whole = np.floor(exact).astype(np.int64)
    order = np.lexsort((expand_words(key, shape.candidates, 64), losses, whole - exact))
    order = order[exact[order] > whole[order]]
    needed = np.cumsum(2 * whole[order] + 1)  # (w + 1)² − w²
    whole[order[needed <= shape.norm**2 - int(whole @ whole)]] += 1
    return np.asarray(whole)


def _levels(losses: npt.NDArray[np.float64], shape: LevelShape) -> IntVector:
    """Return min(1, (reference − loss)/(part·(reference − best)))² in levels.

    The reference is that of scores. A client for which all candidates are alike abstains.
    """
    best, reference, scaled = reference_loss(losses)
    if reference <= best:
        return np.zeros(shape.candidates, dtype=np.int64)
    ahead = np.maximum(reference - scaled, 0.0) / (reference - best)  # within [0, 1]
    score = np.minimum(ahead / shape.part, 1.0) ** _FALLING
    return np.asarray(np.rint(shape.levels * score), dtype=np.int64)


def reference_loss(
    losses: npt.NDArray[np.float64],
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Return the best loss, the one that counts nothing, and all of them, scaled alike.

    What is not finite must be infinite. Where all are alike, or none is finite, the reference
    is no larger than the best.
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

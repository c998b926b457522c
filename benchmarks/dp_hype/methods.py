"""Every way to choose a candidate that the evaluation compares, replayed on recorded losses."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from published import DELTA, SIGMA, VOTES
from recorded import Recorded

from urna.local.models import authors_space
from urna.privacy import BallotShape, Budget, Calibration, calibrate_ballots, honest_survivors
from urna.privacy.calibration import LARGEST_EPSILON
from urna.vote import (
    ArgmaxDecoder,
    BallotKind,
    Decoder,
    NoisyVotes,
    PosteriorDecoder,
    fill_ballot,
    plan,
)
from urna.vote.baselines import CentralSelection, Feathers, MeanSetting, RawLosses, Subsets
from urna.vote.baselines.bounded import noise_of_all

__all__ = ["METHODS", "Method", "top_votes"]

SPACE = authors_space()
Winners = npt.NDArray[np.integer]
Choose = Callable[[Recorded, float, np.random.Generator, int], Winners]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to choose, and how tables call it."""

    name: str
    title: str
    choose: Choose
    main: bool = False
    """Whether it is in the main figures; the others are ablations."""


def budget_of(epsilon: float) -> Budget | None:
    """Return the budget of one vote; None for no noise."""
    return None if math.isinf(epsilon) else Budget(epsilon, DELTA)


def top_votes(
    scores: npt.NDArray[np.float64], rng: np.random.Generator, draws: int
) -> npt.NDArray[np.int64]:
    """Return exact votes (draws × candidates): each client names its five lowest scores.

    Ties are broken by lot, anew in each draw. Scores that are not finite rank last.
    """
    known = np.where(np.isfinite(scores), scores, np.inf)
    counts = np.empty((draws, scores.shape[1]), dtype=np.int64)
    for draw in range(draws):
        ranked = np.lexsort((rng.random(known.shape), known), axis=1)[:, :VOTES]
        counts[draw] = np.bincount(ranked.ravel(), minlength=scores.shape[1])
    return counts


def _largest(noisy: npt.NDArray[np.float64], rng: np.random.Generator) -> Winners:
    # Only exact ties are decided by this: votes are whole numbers.
    return np.argmax(noisy + 1e-6 * rng.random(noisy.shape), axis=1)


def paper(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by top-5 votes on losses and argmax, with the authors' own noise."""
    votes = top_votes(recorded.losses, rng, draws)
    return _largest(votes + SIGMA[epsilon] * rng.standard_normal(votes.shape), rng)


def paper_by_accuracy(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose as above, ballots by validation accuracy, as the authors ran it."""
    votes = top_votes(-recorded.accuracies, rng, draws)
    return _largest(votes + SIGMA[epsilon] * rng.standard_normal(votes.shape), rng)


def paper_exact(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose by top-5 votes and argmax, with our exactly calibrated integer noise."""
    votes = top_votes(recorded.losses, rng, draws)
    budget = budget_of(epsilon)
    if budget is None:
        return _largest(votes.astype(np.float64), rng)
    found = _five_votes(budget, recorded.clients, recorded.candidates)
    noise = noise_of_all(found, recorded.clients).draw(rng.bytes(32), votes.size)
    return _largest(votes + noise.reshape(votes.shape) / found.scale, rng)


@functools.cache
def _five_votes(budget: Budget, clients: int, candidates: int) -> Calibration:
    shares = honest_survivors(clients, dropout=Fraction(0), colluding=Fraction(0))
    return calibrate_ballots(budget, BallotShape.top_k(VOTES, candidates), shares=shares)


def ours(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose as a search does that is told nothing but the budget."""
    return vote(recorded.losses, budget_of(epsilon), PosteriorDecoder(), None, rng, draws)


def ours_by_argmax(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose with our ballots, read by argmax: what the ballots alone bring."""
    return vote(recorded.losses, budget_of(epsilon), ArgmaxDecoder(), None, rng, draws)


def paper_decoded(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose with the paper's ballots, read by our decoder: what the decoder alone brings."""
    decoder, kind = PosteriorDecoder(), BallotKind.TOP_K
    return vote(recorded.losses, budget_of(epsilon), decoder, kind, rng, draws)


def vote(
    losses: npt.NDArray[np.float64],
    budget: Budget | None,
    decoder: Decoder,
    kind: BallotKind | None,
    rng: np.random.Generator,
    draws: int,
) -> Winners:
    """Hold many votes of the library's own kind. Without a budget there is no noise."""
    clients, candidates = losses.shape
    planned = budget or Budget(LARGEST_EPSILON, DELTA)
    tally = plan(clients=clients, candidates=candidates, budget=planned, ballot=kind).tally
    std = 0.0 if budget is None else math.sqrt(tally.share * clients) / tally.vote
    table = tally.noise.table(tally.share * clients)
    chosen = []
    for _ in range(draws):
        total = sum(fill_ballot(row, tally.shape, rng.bytes(32)) for row in losses) * tally.scale
        if budget is not None:
            total = total + table.draw(rng.bytes(32), candidates)
        tallied = NoisyVotes(SPACE, total / tally.vote, std, clients)
        chosen.append(decoder.decode(tallied).winner)
    return np.array(chosen)


def raw_losses(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by the largest noisy sum of accuracies."""
    return RawLosses(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


def subsets(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by the accuracies of a few clients for each candidate."""
    return Subsets(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


def feathers(
    recorded: Recorded,
    epsilon: float,
    rng: np.random.Generator,
    draws: int,
    *,
    honest: bool = False,
) -> Winners:
    """Choose by Feathers' rewards.

    A client's loss before training is that of the candidate which moves least: a learning
    rate of 1e-8 that falls to zero after one epoch.
    """
    still = [i for i, c in enumerate(SPACE) if c["lr"] == 1e-8 and c["decay"] == 0.0]
    method = Feathers(budget_of(epsilon), honest=honest)
    before = recorded.losses[:, still[0]]
    return method.winners(recorded.losses, before, rng, draws, rows=recorded.rows)


def mean_setting(
    recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int
) -> Winners:
    """Choose by the mean of the clients' best settings."""
    return MeanSetting(budget_of(epsilon)).winners(recorded.losses, SPACE, rng, draws)


def central(recorded: Recorded, epsilon: float, rng: np.random.Generator, draws: int) -> Winners:
    """Choose by private selection at a trusted server."""
    return CentralSelection(budget_of(epsilon)).winners(recorded.accuracies, rng, draws)


METHODS = {
    method.name: method
    for method in (
        Method("paper", "DP-Hype, its own σ", paper, main=True),
        Method("paper-accuracy", "… ballots by accuracy", paper_by_accuracy),
        Method("paper-exact", "… at our exact σ", paper_exact),
        Method("ours", "ours", ours, main=True),
        Method("ours-argmax", "… our ballots, argmax", ours_by_argmax),
        Method("paper-decoded", "… its ballots, our decoder", paper_decoded),
        Method("raw-losses", "RawLosses", raw_losses),
        Method("subsets", "Subsets", subsets),
        Method("feathers", "Feathers as published (not private)", feathers),
        Method(
            "feathers-honest",
            "Feathers, all reports paid for",
            functools.partial(feathers, honest=True),
        ),
        Method("mean-setting", "PrivTuna's mean, with noise", mean_setting),
        Method("central", "central selection (trusted server)", central),
    )
}

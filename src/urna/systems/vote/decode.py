"""Read a winner out of a noisy tally. The tally is private already, so reading it is free."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from urna.space import Space
from urna.systems.vote.shapes import VOTES

__all__ = [
    "DRAWS",
    "ArgmaxDecoder",
    "Decoded",
    "Decoder",
    "NoisyVotes",
    "credible_set",
    "in_pieces",
    "leader",
    "leading_alone",
    "leading_probability",
    "public_generator",
    "told",
]


DRAWS = 2000
"""Draws from a posterior, from which the chances of leading are read."""

_TRUSTS = 40  # values of B that are averaged over
_CLOSE = 1.4  # times as far behind the most noisy votes as noise takes one, the leader may be
_SELDOM = 0.5  # of draws are of candidates met once or twice: too many to tell apart
_NEGLIGIBLE = 1e-9  # weight of a value of B
_FAR = 16.0  # deviations of noise behind: no rival
_MOST_ENTRIES = 4_000_000


@dataclass(frozen=True, slots=True)
class NoisyVotes:
    """What a decoder may look at: the tally and public facts, nothing else."""

    space: Space
    votes: npt.NDArray[np.float64]
    """Noisy votes for each candidate."""
    std: float
    """Standard deviation of the noise in each entry, in votes; zero if there is none."""
    clients: int
    """How many ballots are in the sum: one for each client, or for each shard of its records."""
    norm: float = math.sqrt(VOTES)
    """L2 norm of one ballot, in votes."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise over what all ballots can weigh."""
        return self.std / (self.clients * self.norm)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A winner, and how sure the tally makes us of it."""

    winner: int
    confidence: float | None
    """Probability that the winner truly leads, given the tally alone; None where the tally
    cannot tell."""
    near_ties: tuple[int, ...] = ()
    """Who else may well lead, most probable first: a choice the user has."""


class Decoder(Protocol):
    """Noisy tally to winner and its confidence."""

    @property
    def name(self) -> str:
        """The decoder's name in outputs."""
        ...

    def winner(self, tally: NoisyVotes) -> int:
        """Return the winner alone: what `decode` returns, sooner."""
        ...

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner, how surely it leads, and who may lead as well."""
        ...


@dataclass(frozen=True, slots=True)
class ArgmaxDecoder:
    """Take the candidate with the most noisy votes (DP-Hype, Algorithm 1).

    Args:
        level: Probability with which the true leader is to be in the credible set.
    """

    level: float = 0.9
    name: str = "argmax"

    def winner(self, tally: NoisyVotes) -> int:
        """Return the candidate with the most noisy votes.

        Equal noisy votes are decided by a public order that depends on the space alone, not
        by index.
        """
        return leader(tally.votes, tally.space)

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the candidate with the most noisy votes, and how surely it leads."""
        winner = self.winner(tally)
        sure = leading_probability(tally.votes, tally.std, winner)
        if tally.std == 0:
            equal = np.flatnonzero(tally.votes == tally.votes.max()).tolist()
            return Decoded(winner, sure, tuple(place for place in equal if place != winner))
        return told(winner, sure, leading_alone(tally), self.level, tally)


def leader(votes: npt.NDArray[np.float64], space: Space) -> int:
    """Return who has the most; equals are decided by a public lot that hangs on the space."""
    best = np.flatnonzero(votes == votes.max())
    lot = hashlib.sha256(b"urna tie\0" + space.fingerprint.encode()).digest()
    return int(best[int.from_bytes(lot) % len(best)])


def leading_probability(votes: npt.NDArray[np.float64], std: float, candidate: int) -> float:
    """Return the probability that a candidate's true votes are the most, given noisy ones.

    True votes are taken as independent normals around a common mean. How far they spread is
    unknown: it is averaged over, weighted by how well it explains the tally, with a uniform
    prior on B = spread²/(spread² + noise²) (the uniform shrinkage prior). So a tally that is all
    noise is not read as its largest entry would have it. For one B, posterior means differ by
    B·(v_i − v_j) with a deviation of √B·noise each, and the probability is
    E_z ∏_{j≠i} Φ(√B·(v_i − v_j)/noise + z), z standard normal. It is only as good as this model.

    Example:
        >>> leading_probability(np.array([90.0, 5.0, 5.0]), 10.0, 0) > 0.999
        True
        >>> round(leading_probability(np.zeros(4), 10.0, 0), 6)
        0.25
    """
    others = np.delete(votes, candidate)
    if std == 0:
        leaders = votes == votes.max()
        return float(leaders[candidate]) / int(leaders.sum())
    gaps = (votes[candidate] - others) / std
    z = np.linspace(-8.0, 8.0, 161)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    gaps = gaps[gaps < _FAR]
    trusts, weights = _trusts(votes, std)
    trusts, weights = trusts[weights > _NEGLIGIBLE], weights[weights > _NEGLIGIBLE]
    ahead = [
        density @ np.exp(log_ndtr(math.sqrt(trust) * gaps[:, None] + z).sum(axis=0))
        for trust in trusts
    ]
    return float(np.clip(weights @ np.array(ahead), 0.0, 1.0))


def _trusts(
    votes: npt.NDArray[np.float64], std: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return values of B and how probable the tally makes them."""
    squares = float(((votes - votes.mean()) ** 2).sum()) / std**2
    trusts = (np.arange(_TRUSTS) + 0.5) / _TRUSTS
    # The sum of squares over (spread² + noise²) is chi-square with m − 1 degrees of freedom.
    log_weights = (len(votes) - 1) / 2 * np.log(1 - trusts) - squares * (1 - trusts) / 2
    weights = np.exp(log_weights - log_weights.max())
    return trusts, weights / weights.sum()


def leading_alone(tally: NoisyVotes) -> npt.NDArray[np.float64]:
    """Return how often each candidate leads in draws from the model of `leading_probability`."""
    rng = public_generator(tally)
    trusts, weights = _trusts(tally.votes, tally.std)
    wins = np.zeros(len(tally.votes))
    for some in in_pieces(rng.choice(trusts, size=(DRAWS, 1), p=weights), len(wins)):
        noise = np.sqrt(some) * tally.std * rng.standard_normal((len(some), len(wins)))
        leaders = np.argmax(some * tally.votes + noise, axis=1)
        wins += np.bincount(leaders, minlength=len(wins))
    return wins / DRAWS


def told(
    winner: int, sure: float, leading: npt.NDArray[np.float64], level: float, tally: NoisyVotes
) -> Decoded:
    """Return a winner with what can be said of it, or that nothing can.

    A set is what the model finds probable, and whoever is (at 90 %) within 2.3 deviations of
    the most noisy votes, whatever the model says: where many are nearly tied, a model that is
    a little wrong leaves the leader out. A set that names more than half of the candidates is
    no choice, and a probability beside it would say no more: then the tally cannot tell. A set
    of whole candidates holds more than it must, and caution makes it larger still; how much
    less mass will do was measured on loss surfaces and recordings
    (docs/decisions/0034-sets-near-ties.md). Nor can it where so many may lead that draws
    met most of them once or twice, or not at all.

    Args:
        winner: Who won.
        sure: How probably it leads.
        leading: How probably each candidate leads.
        level: Probability with which the true leader is to be in the credible set.
        tally: What the votes are, and how noisy.
    """
    mass = level ** float(np.clip(1.5 + 4.0 * (tally.noise - 0.05), 1.5, 2.0))
    near = credible_set(leading, winner, mass)
    behind = _CLOSE * float(ndtri((1 + level) / 2)) * tally.std
    close = np.flatnonzero(tally.votes.max() - tally.votes <= behind)
    others = [place for place in close.tolist() if place not in (winner, *near)]
    near = (*near, *sorted(others, key=lambda place: -leading[place]))
    seldom = float(leading[leading <= 1 / DRAWS].sum())
    if len(leading) > 1 and (2 * (1 + len(near)) > len(leading) or seldom > _SELDOM):
        return Decoded(winner, None)
    return Decoded(winner, sure, near)


def in_pieces(draws: npt.NDArray[Any], candidates: int) -> Iterator[npt.NDArray[Any]]:
    """Yield draws some at a time, so that what is computed for them fits into memory."""
    some = max(1, _MOST_ENTRIES // candidates)
    for start in range(0, len(draws), some):
        yield draws[start : start + some]


def public_generator(tally: NoisyVotes) -> np.random.Generator:
    """Return a generator that everybody who has the tally can repeat; nothing here is secret."""
    text = tally.space.fingerprint.encode() + tally.votes.tobytes()
    return np.random.default_rng(list(hashlib.sha256(b"urna draws\0" + text).digest()))


def credible_set(leading: npt.NDArray[np.float64], winner: int, level: float) -> tuple[int, ...]:
    """Return who else may lead: with the winner, the smallest set of at least this probability.

    Args:
        leading: Probability that each candidate leads.
        winner: The candidate that is in the set already.
        level: Probability the set is to have.

    Example:
        >>> credible_set(np.array([0.5, 0.05, 0.25, 0.2]), 0, 0.9)
        (2, 3)
    """
    order = [place for place in np.argsort(-leading, kind="stable").tolist() if place != winner]
    held = leading[winner] + np.concatenate([[0.0], np.cumsum(leading[order])])
    # Sums of probabilities may miss the level by a rounding error.
    return tuple(order[: int(np.argmax(held >= min(level, held[-1]) - 1e-12))])

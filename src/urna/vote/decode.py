"""Read a winner out of a noisy tally. The tally is private already, so reading it is free."""

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from urna.space import Space

__all__ = ["ArgmaxDecoder", "Decoded", "Decoder", "NoisyVotes", "leading_probability"]


_TRUSTS = 40  # values of B that are averaged over


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


@dataclass(frozen=True, slots=True)
class Decoded:
    """A winner, and how sure the tally makes us of it."""

    winner: int
    confidence: float
    """Probability that the winner truly leads, given the tally alone."""


class Decoder(Protocol):
    """Noisy tally to winner and its confidence."""

    @property
    def name(self) -> str:
        """The decoder's name in outputs."""
        ...

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the winner."""
        ...


@dataclass(frozen=True, slots=True)
class ArgmaxDecoder:
    """Take the candidate with the most noisy votes (DP-Hype, Algorithm 1)."""

    name: str = "argmax"

    def decode(self, tally: NoisyVotes) -> Decoded:
        """Return the candidate with the most noisy votes.

        Equal noisy votes are decided by a public order that depends on the space alone, not
        by index.
        """
        best = np.flatnonzero(tally.votes == tally.votes.max())
        lot = hashlib.sha256(b"urna tie\0" + tally.space.fingerprint.encode()).digest()
        winner = int(best[int.from_bytes(lot) % len(best)])
        return Decoded(winner, leading_probability(tally.votes, tally.std, winner))


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
    squares = float(((votes - votes.mean()) ** 2).sum()) / std**2
    trusts = (np.arange(_TRUSTS) + 0.5) / _TRUSTS
    # The sum of squares over (spread² + noise²) is chi-square with m − 1 degrees of freedom.
    log_weights = (len(votes) - 1) / 2 * np.log(1 - trusts) - squares * (1 - trusts) / 2
    weights = np.exp(log_weights - log_weights.max())
    ahead = [
        density @ np.exp(log_ndtr(math.sqrt(trust) * gaps[:, None] + z).sum(axis=0))
        for trust in trusts
    ]
    return float(np.clip(weights @ np.array(ahead) / weights.sum(), 0.0, 1.0))

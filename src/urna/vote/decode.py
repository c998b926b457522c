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


@dataclass(frozen=True, slots=True)
class NoisyVotes:
    """What a decoder may look at: the tally and public facts, nothing else."""

    space: Space
    votes: npt.NDArray[np.float64]
    """Noisy votes for each candidate."""
    std: float
    """Standard deviation of the noise in each entry, in votes; zero if there is none."""
    clients: int
    """How many clients' ballots are in the sum."""


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

    True votes are taken as independent normals around a common mean whose spread is what the
    tally shows beyond its noise (empirical Bayes), so a tally that is all noise gives 1/m
    and not the overconfident answer of its largest entry. With posterior means p_j of equal
    deviation s the probability is E_z ∏_{j≠i} Φ((p_i − p_j)/s + z), z standard normal.

    Example:
        >>> leading_probability(np.array([90.0, 5.0, 5.0]), 10.0, 0) > 0.999
        True
        >>> round(leading_probability(np.zeros(4), 10.0, 0), 6)
        0.25
    """
    others = np.delete(votes, candidate)
    if std == 0:
        ahead = bool((votes[candidate] > others).all())
        return (
            1.0
            if ahead
            else float(votes[candidate] == votes.max()) / int((votes == votes.max()).sum())
        )
    spread = max(float(votes.var(ddof=1)) - std**2, 0.0) if len(votes) > 1 else 0.0
    trust = spread / (spread + std**2)
    # Posterior means differ by trust·(v_i − v_j); their deviation is √trust·std.
    gaps = math.sqrt(trust) * (votes[candidate] - others) / std
    z = np.linspace(-9.0, 9.0, 2001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    ahead_at_z = np.exp(log_ndtr(gaps[:, None] + z[None, :]).sum(axis=0))
    return float(np.clip(np.trapezoid(density * ahead_at_z, z), 0.0, 1.0))
